"""weir-bench: the parts beside their peers."""
import json
import subprocess

RUNS = 7  # of the cases that have a limit in the table, each with processes of its own
RUN_ROUNDS = 3
RUN_S = 10


class NoResults(Exception):
    pass


def rows(program, *args):
    done = subprocess.run([program, "--json", *map(str, args)], text=True, capture_output=True)
    try:
        return json.loads(done.stdout)["results"]
    except ValueError:
        raise NoResults(done.stderr.strip() or "it printed nothing") from None


def ratios(program, cases, runs, progress):
    """{case: {peer: [weir's time to the peer's, of each run]}}, and the peers that were not built."""
    found, missing = {}, set()
    for nth in range(runs):
        progress.step(f"weir-bench, run {nth + 1} of {runs}", RUN_S)
        for row in rows(program, "--rounds", RUN_ROUNDS, *cases):
            if row["ratio"]:
                found.setdefault(row["case"], {}).setdefault(row["peer"], []).append(row["ratio"])
            elif row["peer"]:
                missing.add(f"{row['case']}, {row['peer']}")
    return found, sorted(missing)
