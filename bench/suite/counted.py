"""What can be counted and is the same in every run: instructions and allocations, by valgrind. A long run minus a short
one leaves out what a server does once."""
import concurrent.futures
import os
import re
import shutil

from .servers import Server

TOOLS = {
    "instructions": (["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"],
                     r"I\s+refs:\s+([\d,]+)"),
    "allocations": (["--tool=memcheck", "--leak-check=no", "--undef-value-errors=no"],
                    r"total heap usage: ([\d,]+) allocs"),
}
SHORT, LONG = 2000, 12000  # messages


def is_possible():
    return shutil.which("valgrind") is not None


def side_by_side(function, jobs):
    """What is counted does not mind company: as many at a time as there are CPUs."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda job: function(*job), jobs))


def total(what, kind, directory, load, messages, load_args, more):
    options, pattern = TOOLS[what]
    server = Server(["valgrind", *options, *kind.command(directory, *more)])
    try:
        load.run(server, "--count", messages, *load_args, is_pinned=False)
    finally:
        said = server.end()
    match = re.search(pattern, said)
    if not match:
        raise RuntimeError(f"valgrind does not say how many {what} {kind.name} has made: {said[-300:]}")
    return int(match[1].replace(",", ""))


def per_message(what, kind, directory, load, load_args=("--connections", 64), more=()):
    """How many a message takes, of 64 bytes over 64 connections unless told."""
    short = total(what, kind, directory, load, SHORT, load_args, more)
    long = total(what, kind, directory, load, LONG, load_args, more)
    return (long - short) / (LONG - SHORT)
