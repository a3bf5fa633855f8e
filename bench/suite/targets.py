"""What weir wants of itself, as ratios within one run, and whether it holds; beside the table of table.py."""
from . import servers
from .figures import MISS, NONE, PASS, Figure, ratios, verdict
from .workloads import PLAIN_WORKLOADS, TLS_WORKLOADS

WEIR, PLAIN, UV, EVENT, NETTY = servers.WEIR, servers.PLAIN, servers.UV, servers.EVENT, servers.NETTY
WEIR_URING, PLAIN_URING, OPENSSL = servers.WEIR_URING, servers.PLAIN_URING, servers.OPENSSL


class Target:
    """A row: what is wanted, what was measured, and the verdict."""

    def __init__(self, text, limit, values, unit="x", aim=None, is_counted=False, is_least=False, why=""):
        self.text, self.limit, self.unit, self.aim = text, limit, unit, aim
        self.is_counted = is_counted  # the same in every run, so that there is no spread
        self.is_least = is_least      # the limit is a minimum
        self.values = values
        self.why = why                # there are no values
        self.value = Figure(values).median if values else None
        self.verdict = self.judge() if values else NONE

    def judge(self):
        sign = -1 if self.is_least else 1
        if not self.is_counted:
            return verdict([sign * value for value in self.values], sign * self.limit)
        return PASS if sign * self.value <= sign * self.limit else MISS

    def as_dict(self):
        return {"text": self.text, "limit": self.limit, "aim": self.aim, "unit": self.unit, "value": self.value,
                "values": self.values, "counted": self.is_counted, "least": self.is_least, "verdict": self.verdict,
                "why": self.why}


def measured(results, workloads):
    """Their names, if they were asked for in this run."""
    return [workload.name for workload in workloads if workload.name in results["workloads"]]


def of(results, workload, server, measure):
    return results["workloads"].get(workload, {}).get(server, {}).get(measure, [])


def against(results, workload, measure, server, ours=WEIR):
    return ratios(of(results, workload, ours, measure), of(results, workload, server, measure))


def counted(results, what, server):
    return results["counted"].get(what, {}).get(server)


def counted_ratio(results, what, server):
    ours, theirs = counted(results, what, WEIR), counted(results, what, server)
    return [ours / theirs] if ours and theirs else []


def per_event(results, line):
    """Instructions that each further handler takes for each of the four events of a message."""
    curve = results["growth"].get("handlers", {}).get(line, {})
    points = {int(count): value[0] for count, value in curve.items()}
    if 0 not in points or len(points) < 2:
        return []
    most = max(points)
    return [(points[most] - points[0]) / most / 4]


def instruction_targets(results):
    yield Target("instructions per echoed message, to libuv's", 1.6, counted_ratio(results, "instructions", UV),
                 aim=1.3, is_counted=True)
    yield Target("instructions of a further handler that forwards, per event", 20, per_event(results, "forwarders"),
                 unit="", is_counted=True)
    yield Target("instructions of a further handler that takes no part, per event", 5,
                 per_event(results, "bystanders"), unit="", is_counted=True)
    ours = counted(results, "allocations", WEIR)
    yield Target("allocations per echoed message", 0.001, [] if ours is None else [ours], unit="", is_counted=True)


def entry_targets(results):
    for workload, title in ("echo-1", "1 connection"), ("echo-64", "64 connections"):
        ours, plain = (of(results, workload, server, "entries") for server in (WEIR, PLAIN))
        more = [a - b for a, b in zip(ours, plain)]
        yield Target(f"kernel entries per message more than plain epoll, {title}", 0.1, more, unit="",
                     is_counted=True)
    yield Target("kernel entries per connect-echo-close", 9, of(results, "connect", WEIR, "entries"), unit="",
                 is_counted=True)


def time_targets(results):
    yield Target("user time per message, 64 connections, to plain epoll's", 1.4,
                 against(results, "echo-64", "user_ns", PLAIN))
    yield Target("user time per message, 64 connections, to libuv's", 1.0, against(results, "echo-64", "user_ns", UV))
    for workload in measured(results, PLAIN_WORKLOADS):
        if workload in ("connect", "rate-64"):  # those of the echoes are in the table
            yield Target(f"CPU per message, {workload}, to plain epoll's", 1.15 if workload == "connect" else 1.10,
                         against(results, workload, "cpu_ns", PLAIN))
        yield Target(f"CPU per message, {workload}, to Netty's", 1.0, against(results, workload, "cpu_ns", NETTY))
        yield Target(f"CPU per message, {workload}, to libevent's", 0.85,
                     against(results, workload, "cpu_ns", EVENT))
    yield Target("median time of an answer, 1 connection, to plain epoll's", 1.10,
                 against(results, "echo-1", "p50_us", PLAIN))
    yield best_p99(results)


def best_p99(results):
    """To that peer whose p99 is the best of all."""
    peers = {name: Figure(values["p99_us"]).median
             for name, values in results["workloads"].get("rate-64", {}).items()
             if name not in (WEIR, WEIR_URING) and values.get("p99_us")}
    if not peers:
        return Target("99% of answers, 64 connections at a fixed rate, to the best peer's", 1.0, [])
    best = min(peers, key=peers.get)
    return Target(f"99% of answers, 64 connections at a fixed rate, to the best peer's ({best})", 1.0,
                  against(results, "rate-64", "p99_us", best))


def memory_targets(results):
    start = results["memory"].get("start", {}).get(WEIR, {})
    yield Target("resident MB when it listens", 4, [kib / 1000 for kib in start.get("resident_kib", [])], unit="",
                 is_counted=True)


def tls_targets(results):
    for workload in measured(results, TLS_WORKLOADS):
        if workload != "tls-16k":  # that is in the table
            yield Target(f"CPU per message, {workload}, to plain OpenSSL's", 1.10,
                         against(results, workload, "cpu_ns", OPENSSL))
        yield Target(f"CPU per message, {workload}, to Netty's", 1.0, against(results, workload, "cpu_ns", NETTY))
    idle = results["memory"].get("idle_tls", {})
    ours, plain = idle.get(WEIR), idle.get(OPENSSL)
    yield Target("memory of an idle connection over TLS, to plain OpenSSL's", 1.2,
                 [ours["user"] / plain["user"]] if ours and plain else [], is_counted=True)


def growth_targets(results):
    curves = results["growth"].get("connections", {})
    ours, plain = curves.get(WEIR, {}), curves.get(PLAIN, {})
    most = max(map(int, ours), default=0)
    text = f"growth of CPU per message from 64 to {most:,} connections, to plain epoll's"
    points = [(curve.get(most) or curve.get(str(most)), curve.get(64) or curve.get("64")) for curve in (ours, plain)]
    if most <= 64 or not all(map(all, points)):
        yield Target("growth of CPU per message with connections, to plain epoll's", 1.10, [])
        return
    (our_most, our_few), (their_most, their_few) = points
    yield Target(text, 1.10, [a / b / (c / d) for a, b, c, d in zip(our_most, our_few, their_most, their_few)])


def uring_entry_targets(results):
    for workload, title, limit in ("echo-1", "1 connection", 2.05), ("echo-64", "64 connections", 0.3):
        yield Target(f"io_uring: kernel entries per message, {title}", limit,
                     of(results, workload, WEIR_URING, "entries"), unit="", is_counted=True)
    plain = of(results, "echo-1000", PLAIN_URING, "entries")
    limit = max(0.3, 1.25 * Figure(plain).median) if plain else 0.3
    yield Target("io_uring: kernel entries per message, 1,000 connections", limit,
                 of(results, "echo-1000", WEIR_URING, "entries"), unit="", is_counted=True)


def uring_time_targets(results):
    for server, limit, whose in (WEIR, 0.7, "weir's over epoll"), (PLAIN_URING, 3.0, "plain liburing's"):
        yield Target(f"io_uring: user time per message, 64 connections, to {whose}", limit,
                     against(results, "echo-64", "user_ns", server, ours=WEIR_URING))
    for workload in measured(results, [*PLAIN_WORKLOADS, *TLS_WORKLOADS]):
        yield Target(f"io_uring: CPU per message, {workload}, to weir's over epoll", 1.10,
                     against(results, workload, "cpu_ns", WEIR, ours=WEIR_URING))


def all_targets(results):
    return [*instruction_targets(results), *entry_targets(results), *uring_entry_targets(results),
            *memory_targets(results), *time_targets(results), *tls_targets(results), *uring_time_targets(results),
            *growth_targets(results)]
