"""How the cost of a message grows with what there is more of."""
import json
import resource
import subprocess

from . import counted, servers
from .load import Failed
from .workloads import Workload, measure

CONNECTIONS = [1, 8, 64, 256, 1000, 4000, 10000]
SIZES = [16, 64, 256, 1024, 4096, 16384, 65536, 262144]
HANDLERS = [0, 1, 2, 4, 8, 16, 32, 64]
TIMERS = [1, 10, 100, 1000, 10000, 100000, 1000000]

ROUNDS = 6

CURVES = {  # name: what grows, its unit, what it costs
    "connections": ("connections", "CPU per message, ns"),
    "size": ("bytes of a message", "CPU per message, ns"),
    "handlers": ("further handlers in the pipeline", "instructions per message"),
    "timers": ("timers that are pending", "ns to give one of them another time"),
}
WHO = [servers.WEIR, servers.PLAIN, servers.UV, servers.NETTY]  # more lines could not be told apart


def most_connections():
    """As many as this process, whose limit its children have, may have descriptors for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard - 100


def by_load(fleet, option, values, more, rounds, duration_s, progress):
    """{server: {value: [of each round]}}, by CPU time per message."""
    curves = {}
    for value in values:
        found, _ = measure(fleet, Workload(f"{option[2:]} {value}", "", option, value, *more), rounds, duration_s,
                           progress)
        for name, measures in found.items():
            if "cpu_ns" in measures:
                curves.setdefault(name, {})[value] = measures["cpu_ns"]
    return curves


def by_handlers(kind, counts, directory, load, progress):
    """{line: {handlers: [instructions]}}: those that take part in each event and pass it on, and those that do not."""
    curves = {"forwarders": {}, "bystanders": {}}

    def count_one(what, count):
        progress.step(f"{count} {what}", 2)
        try:
            curves[what][count] = [counted.per_message("instructions", kind, directory, load,
                                                       more=[f"--{what}", str(count)])]
        except (Failed, RuntimeError):
            pass  # the curve has a point less

    counted.side_by_side(count_one, [(what, count) for what in curves for count in counts])
    return curves


def by_timers(program, rounds, progress):
    """{peer: {pending: [ns]}}, by weir-bench."""
    curves = {}
    for pending in TIMERS:
        progress.step(f"{pending} timers", 2)
        done = subprocess.run([program, "--json", "--rounds", str(rounds), "--size",
                               str(pending), "timer.reschedule"], text=True,
                              capture_output=True)
        if done.returncode != 0:
            continue
        for row in json.loads(done.stdout)["results"]:
            curves.setdefault(servers.WEIR, {})[pending] = [row["median"]]
            if row["peer"]:
                curves.setdefault(row["peer"], {})[pending] = [row["peer_median"]]
    return curves
