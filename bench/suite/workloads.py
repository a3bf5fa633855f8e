"""What is asked of every server, round by round."""
import sys
import time

from . import servers
from .load import Failed


class Workload:
    def __init__(self, name, title, *args):
        self.name, self.title, self.args = name, title, args


WORKLOADS = [
    Workload("echo-1", "64 bytes, 1 connection", "--connections", 1),
    Workload("echo-64", "64 bytes, 64 connections", "--connections", 64),
    Workload("echo-1000", "64 bytes, 1,000 connections", "--connections", 1000),
    Workload("depth-16", "64 bytes, 64 connections, 16 messages on their way on each", "--connections", 64,
             "--depth", 16),
    Workload("echo-16k", "16 KiB, 64 connections", "--connections", 64, "--size", 16384),
    Workload("connect", "connect, 64 bytes there and back, close; 32 at a time", "--mode", "connect",
             "--connections", 32),
    Workload("rate-64", "64 bytes, 64 connections, 10,000 messages a second at fixed times", "--connections", 64,
             "--rate", 10000),
]


class Progress:
    """One line that says what is done and how long the rest will take."""

    def __init__(self, total_s):
        self.total_s, self.done_s, self.begun = total_s, 0.0, time.monotonic()
        self.is_terminal = sys.stderr.isatty()
        self.said_at = -60.0

    def step(self, what, seconds):
        """That much of what was planned is about to be done."""
        passed = time.monotonic() - self.begun
        pace = passed / self.done_s if self.done_s > 5 else 1.0  # how much longer than planned it takes
        left = (self.total_s - self.done_s) * pace
        line = f"weir-bench: {what:<46} {self.done_s / self.total_s:4.0%}, {left / 60:.0f} min {left % 60:02.0f} s left"
        if self.is_terminal:
            sys.stderr.write("\r" + line + "  ")
        elif passed - self.said_at >= 30:
            sys.stderr.write(line + "\n")
            self.said_at = passed
        sys.stderr.flush()
        self.done_s += seconds

    def end(self):
        if self.is_terminal:
            sys.stderr.write("\r" + " " * 100 + "\r")


class Fleet:
    """All servers at once; those that have nothing to do use no CPU. So each round can ask one after the other."""

    def __init__(self, kinds, directory, cpu, load):
        self.kinds, self.load = kinds, load
        self.running = {kind.name: servers.Server(kind.command(directory), cpu) for kind in kinds}
        self.is_warm = set()

    def run(self, kind, *args):
        if kind.warmup_s > 0 and kind.name not in self.is_warm:
            self.is_warm.add(kind.name)
            self.load.run(self.running[kind.name], "--connections", 64, "--warmup", 0, "--duration", kind.warmup_s)
        return self.load.run(self.running[kind.name], *args)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.running.values():
            server.end()


def turned(kinds, by):
    """Each round begins with another, so that nobody is always behind the same one."""
    by %= len(kinds)
    return kinds[by:] + kinds[:by]


def measure(fleet, workload, rounds, duration_s, progress):
    """For each server and measure, one value of each round."""
    found = {kind.name: {} for kind in fleet.kinds}
    failed = {}
    for nth in range(rounds):
        for kind in turned(fleet.kinds, nth):
            progress.step(f"{workload.name}: {kind.name}, round {nth + 1} of {rounds}", duration_s + 0.5)
            if kind.name in failed:
                continue
            try:
                result = fleet.run(kind, "--warmup", 0.3, "--duration", duration_s, *workload.args)
            except Failed as why:
                failed[kind.name] = str(why)
                continue
            for name, value in result.items():
                if name != "raw":
                    found[kind.name].setdefault(name, []).append(value)
    for name in failed:
        del found[name]
    return found, failed
