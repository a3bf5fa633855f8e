"""What can be counted and is the same in every run: instructions, allocations and locks, by valgrind; instructions over
io_uring, by single steps. A long run minus a short one leaves out what a server does once."""
import concurrent.futures
import os
import re
import shutil
import tempfile

from .servers import Server

TOOLS = {
    "instructions": ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"],
    "allocations": ["--tool=memcheck", "--leak-check=no", "--undef-value-errors=no"],
    "locks": ["--tool=callgrind"],
}
PER_MESSAGE = ["instructions", "allocations"]
SAID = {
    "instructions": r"I\s+refs:\s+([\d,]+)",
    "allocations": r"total heap usage: ([\d,]+) allocs",
}
SHORT, LONG = 2000, 12000  # messages
STEPS_S = 20                     # for a server, roughly
FEW_STEPS, MANY_STEPS = 64, 384  # messages: a second is enough for some ten thousand steps
# A connection that says nothing, from accept to free.
EMPTY_VISITS = ["--mode", "connect", "--size", 0, "--connections", 8]
VISIT_HANDLERS = ["--forwarders", "1", "--full-close"]  # two with the echo
FEW_VISITS, MANY_VISITS = 1000, 4000


def is_possible():
    return shutil.which("valgrind") is not None


def side_by_side(function, jobs):
    """What is counted does not mind company: as many at a time as there are CPUs."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda job: function(*job), jobs))


def locks_in(path):
    """How often pthread_mutex_lock was called, by callgrind's file: each call of it is a line behind its name."""
    calls, names, is_lock = 0, set(), False
    with open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("cfn="):
                number, _, name = line[4:].strip().partition(" ")
                if name.lstrip("_").startswith("pthread_mutex_lock"):
                    names.add(number)
                is_lock = number in names
            elif is_lock and line.startswith("calls="):
                calls += int(line[6:].split()[0])
    return calls


def found_in(what, said, path):
    """None: valgrind has not said it."""
    if what == "locks":
        return locks_in(path) if os.path.exists(path) else None
    match = re.search(SAID[what], said)
    return int(match[1].replace(",", "")) if match else None


def total(what, kind, directory, load, messages, load_args, more):
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as place:
        path = os.path.join(place, "calls")
        file = [f"--callgrind-out-file={path}"] if what == "locks" else []
        server = Server(["valgrind", *TOOLS[what], *file, *kind.command(directory, *more)])
        try:
            load.run(server, "--count", messages, *load_args, is_pinned=False)
        finally:
            said = server.end()
        found = found_in(what, said, path)
    if found is None:
        raise RuntimeError(f"valgrind does not say how many {what} {kind.name} has made: {said[-300:]}")
    return found


def per_message(what, kind, directory, load, load_args=("--connections", 64), more=(), messages=(SHORT, LONG)):
    """How many a message takes, of 64 bytes over 64 connections unless told."""
    few, many = messages
    short = total(what, kind, directory, load, few, load_args, more)
    long = total(what, kind, directory, load, many, load_args, more)
    return (long - short) / (many - few)


def per_channel(what, kind, directory, load):
    """How many a channel with two handlers takes from accept to free."""
    return per_message(what, kind, directory, load, EMPTY_VISITS, VISIT_HANDLERS, (FEW_VISITS, MANY_VISITS))


def steps(kind, directory, load, cpu, messages):
    server = Server(kind.command(directory, *kind.stepped), cpu)
    try:
        raw = load.run(server, "--count", messages, "--connections", 64, "--steps")["raw"]
    finally:
        server.end()
    return raw["steps"]


def steps_per_message(kind, directory, load, cpu):
    """Instructions in user mode, of 64 bytes over 64 connections."""
    few, many = (steps(kind, directory, load, cpu, count) for count in (FEW_STEPS, MANY_STEPS))
    return (many - few) / (MANY_STEPS - FEW_STEPS)
