# The front of the build: each target sets up what it needs, then leaves the work to CMake.
# `make help` lists them.

# Two targets that install packages must not do so at the same time; Ninja uses all CPUs anyway.
.NOTPARALLEL:
.PHONY: all help run test quick long-test torture chaos mutate release-test asan tsan msan clang sim bench bench-quick fuzz soak \
        scale format format-check tidy analyze valgrind layers semantics install docs clean
.DEFAULT_GOAL := all

PREFIX ?= /usr/local
T ?= 60
N ?= 10000
say = @echo "weir:"
export CMAKE_C_COMPILER_LAUNCHER ?= $(shell command -v ccache)

# $(call build,PRESET,TARGETS): configures, which is quick when nothing is new, and builds what changed.
define build
	$(say) building $(1) in build/$(1)
	@cmake --preset $(1) >build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }
	@cmake --build --preset $(1) --target $(2) -- --quiet
endef

# $(call check,PRESET,TEST_PRESET): builds and runs the tests.
define check
	$(call build,$(1),all tests)
	$(say) testing $(1)
	@ctest --preset $(if $(2),$(2),$(1))
endef

all: setup-build           ## build the library, examples and benchmarks (release)
	$(call build,release,all)

help:                      ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1|/p' Makefile | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

run: all                   ## build, then run the echo server and a client of it
	$(say) starting weir-echo, and weir-echo-client to talk to it
	@tools/run build/release/examples

test: setup-build setup-test  ## build with all checks on, run all tests
	$(call check,debug)

quick: setup-build setup-test  ## the unit programs, in debug, then asan
	$(call check,debug,debug-unit)
	$(call check,asan)

long-test: setup-build setup-test  ## the tests that have more to do when given time: half an hour
	$(call build,debug,tests)
	@tools/long-test build/debug

torture: setup-build setup-test  ## every scenario with every call failing once (some minutes)
	$(call build,debug,weir-torture)
	@build/debug/tests/weir-torture

chaos: N = 2000
chaos: BUILD = debug
chaos: setup-build setup-test  ## random programs over the public headers: N seeds (make chaos N=2000 BUILD=asan)
	$(call build,$(BUILD),weir-chaos)
	@build/$(BUILD)/tests/weir-chaos --seeds $(N) --jobs $$(nproc)

mutate: N = 40
mutate: setup-build setup-test  ## N random changes to src/, and which of them no test notices (an hour)
	@tools/mutate --count $(N)

release-test: setup-build setup-test  ## the unit programs, over the optimised library
	$(call check,release)

asan: setup-build setup-test  ## the unit programs under the address and undefined behaviour sanitizers
	$(call check,asan)

tsan: setup-build setup-test  ## the unit programs under the thread sanitizer
	$(call check,tsan)

msan: setup-build setup-test setup-check  ## the unit programs under clang's memory sanitizer
	$(call check,msan)

clang: setup-build setup-test setup-check  ## the unit programs, compiled by clang
	$(call check,clang)

sim: setup-build setup-test  ## programs over a simulated network: N seeds of each, or T seconds (make sim N=10000)
	$(call build,release,weir-sim)
	@build/release/tests/weir-sim --seeds $(N) $(if $(filter command line,$(origin T)),--seconds $(T))

bench: setup-bench all     ## weir beside its peers: tables, bench/results/index.html (forty minutes)
	@bench/run

bench-quick: setup-bench all  ## the same in a few minutes: what can be counted, and a look at the rest
	@bench/run --quick

fuzz: setup-build setup-fuzz  ## every fuzz target for T seconds (make fuzz T=60)
	$(call build,fuzz,all)
	@fuzz/run build/fuzz $(T)

soak: T = 600
soak: setup-build setup-test  ## echo and chat servers under random clients and faults for T seconds (make soak T=600)
	$(call build,release,weir-echo weir-chat soak-heap)
	@tools/soak $(T)

scale: setup-build setup-test  ## as many connections as there can be, and what they cost
	$(call build,release,weir-scale)
	@build/release/tests/weir-scale

format: setup-check        ## format all sources
	@tools/format

format-check: setup-check  ## tell what `make format` would change
	@tools/format --check

tidy: setup-build setup-check setup-test  ## run clang-tidy
	@cmake --preset clang >build/clang.log 2>&1 || { cat build/clang.log; exit 1; }
	@git ls-files 'src/*.c' 'examples/*.c' | \
	    xargs -P "$$(nproc)" -n 4 clang-tidy -quiet -p build/clang --warnings-as-errors='*' 2>/dev/null
	$(say) clang-tidy found nothing

analyze: setup-build      ## what gcc -fanalyzer finds, but for what tools/analyze.known explains
	@tools/analyze

valgrind: setup-build setup-test setup-bench  ## the tests under valgrind, over epoll (an hour)
	$(call build,debug,all tests)
	@tools/valgrind build/debug

layers: setup-test         ## check that each layer includes only layers below it
	@tools/layers

semantics: test            ## which behaviours of docs/semantics.md have a passing test
	@tools/semantics build/debug/results

install: all               ## install into PREFIX (make install PREFIX=/usr/local)
	@cmake --install build/release --prefix $(PREFIX)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

docs: setup-docs           ## the manual, with a page for each public header, in build/docs/html; warnings are errors
	@tools/docs
	$(say) open build/docs/html/index.html

clean:                     ## remove everything that was built
	@rm -rf build

setup-%: build
	@tools/setup $*

build:
	@mkdir -p build
