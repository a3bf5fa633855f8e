"""What is asked of every server, round by round."""
import sys
import time

from . import servers
from .figures import ENOUGH
from .load import Failed


class Workload:
    """What weir-load is asked for. `plain` is the server that is the limit to measure against, `warmup` what one that
    needs it is warmed up with."""

    plain = servers.PLAIN
    warmup = ("--connections", 64)

    def __init__(self, name, title, *args, lasts=1):
        self.name, self.title, self.args = name, title, args
        self.lasts = lasts  # so much longer than others, when the rounds are enough for a verdict

    def lasts_s(self, duration_s, rounds):
        return duration_s * self.lasts if rounds >= ENOUGH else duration_s

    def check(self, result):
        """Raises Failed when that is not what was asked for."""


class AtRate(Workload):
    """Messages at fixed times. A server or client that does not keep up answers another question."""

    def __init__(self, name, title, rate, *args):
        super().__init__(name, title, *args, "--rate", rate)
        self.rate = rate

    def check(self, result):
        if result["rate"] < 0.97 * self.rate:
            raise Failed(f"only {result['rate']:,.0f} of {self.rate:,} messages a second were answered")


class Relayed(Workload):
    plain = servers.RELAY


class OverTls(Workload):
    plain = servers.OPENSSL

    def __init__(self, name, title, *args, is_resumed=False):
        super().__init__(name, title, "--tls=resumed" if is_resumed else "--tls", *args)
        self.warmup = self.args  # a handshake takes other code than an echo does
        self.is_resumed = is_resumed

    def check(self, result):
        tls = result["raw"]["tls"]
        first = self.args[self.args.index("--connections") + 1]  # those have nothing to resume
        if self.is_resumed and tls["resumed"] < 0.95 * (tls["handshakes"] - first):
            raise Failed(f"only {tls['resumed']} of {tls['handshakes']} handshakes were resumed")


PLAIN_WORKLOADS = [
    Workload("echo-1", "64 bytes, 1 connection", "--connections", 1),
    # Here user time has limits, which may be 1% of all: that takes samples.
    Workload("echo-64", "64 bytes, 64 connections", "--connections", 64, lasts=4),
    Workload("echo-1000", "64 bytes, 1,000 connections", "--connections", 1000),
    Workload("depth-16", "64 bytes, 64 connections, 16 messages on their way on each", "--connections", 64,
             "--depth", 16),
    Workload("echo-16k", "16 KiB, 64 connections", "--connections", 64, "--size", 16384),
    Workload("echo-256k", "256 KiB, 8 connections", "--connections", 8, "--size", 262144),
    Workload("connect", "connect, 64 bytes there and back, close; 32 at a time", "--mode", "connect",
             "--connections", 32),
    AtRate("rate-64", "64 bytes, 64 connections, 10,000 messages a second at fixed times", 10000, "--connections", 64),
]
RATE_WHO = [servers.WEIR, servers.WEIR_URING, servers.PLAIN, servers.PLAIN_URING]
RATE_WORKLOADS = [
    AtRate("rate-60k", "64 bytes, 64 connections, 60,000 messages a second at fixed times", 60000, "--connections", 64),
    AtRate("rate-100k", "64 bytes, 64 connections, 100,000 messages a second at fixed times", 100000, "--connections", 64),
]
WORKER_WORKLOADS = [
    Workload("connect-workers", "connect, 64 bytes there and back, close; 32 at a time; weir with a boss and two workers",
             "--mode", "connect", "--connections", 32),
]
RELAY_WORKLOADS = [
    Relayed("relay-64", "through a proxy: 64 bytes, 64 connections", "--connections", 64),
    Relayed("relay-256k", "through a proxy: 256 KiB, 8 connections", "--connections", 8, "--size", 262144),
    Relayed("relay-connect", "through a proxy: connect, 64 bytes there and back, close; 32 at a time", "--mode", "connect",
            "--connections", 32),
]
TLS_WORKLOADS = [
    OverTls("tls-64", "TLS: 64 bytes, 64 connections", "--connections", 64),
    OverTls("tls-16k", "TLS: 16 KiB, 64 connections", "--connections", 64, "--size", 16384),
    OverTls("tls-full", "TLS: connect, a full handshake, 64 bytes there and back, close; 32 at a time", "--mode", "connect",
            "--connections", 32),
    OverTls("tls-resumed", "TLS: the same, with sessions resumed", "--mode", "connect", "--connections", 32,
            is_resumed=True),
]
WORKLOADS = [*PLAIN_WORKLOADS, *RATE_WORKLOADS, *WORKER_WORKLOADS, *RELAY_WORKLOADS, *TLS_WORKLOADS]


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

    def run(self, kind, workload, duration_s):
        server, warm = self.running[kind.name], (kind.name, workload.warmup)
        if kind.warmup_s > 0 and warm not in self.is_warm:
            self.is_warm.add(warm)
            self.load.run(server, *workload.warmup, "--warmup", 0, "--duration", kind.warmup_s)
        result = self.load.run(server, "--warmup", 0.3, "--duration", duration_s, *workload.args)
        workload.check(result)
        return result

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
    duration_s = workload.lasts_s(duration_s, rounds)
    for nth in range(rounds):
        for kind in turned(fleet.kinds, nth):
            progress.step(f"{workload.name}: {kind.name}, round {nth + 1} of {rounds}", duration_s + 0.5)
            if kind.name in failed:
                continue
            try:
                result = fleet.run(kind, workload, duration_s)
            except Failed as why:
                failed[kind.name] = str(why)
                continue
            for name, value in result.items():
                if name != "raw":
                    found[kind.name].setdefault(name, []).append(value)
    for name in failed:
        del found[name]
    return found, failed
