"""The benchmark suite behind `make bench`: bench/README.md says how each number is taken."""
