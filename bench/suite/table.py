"""The table of limits: each row has a name for --only, what has to be measured for it, and its targets."""
from . import servers
from .targets import Target, against, counted, of
from .workloads import RATE_WORKLOADS

WEIR, WEIR_URING, PLAIN, PLAIN_URING, UV = \
    servers.WEIR, servers.WEIR_URING, servers.PLAIN, servers.PLAIN_URING, servers.UV
ECHOES = ["echo-1", "echo-64", "echo-1000", "depth-16", "echo-16k", "echo-256k"]
COUNTED, STEPS, CHANNEL, IDLE, START, MICRO = "counted", "steps", "channel", "idle", "start", "micro"
JOBS = [COUNTED, STEPS, CHANNEL, IDLE, START, MICRO]


class Row:
    """`targets` is a function of the results; `workloads`, `jobs` and `cases` of weir-bench are what it looks at."""

    def __init__(self, name, targets, workloads=(), jobs=(), cases=()):
        self.name, self.targets = name, targets
        self.workloads, self.jobs, self.cases = list(workloads), list(jobs), list(cases)


def reason(results, *names):
    """Why one of those was not measured."""
    return next((why for what, why in results["missing"] if what in names), "not in this run")


def row_target(results, text, limit, values, names, **more):
    return Target(text, limit, values, why="" if values else reason(results, *names), **more)


def one(value):
    return [] if value is None else [value]


def with_others(text, found):
    """The text of a row, with what others take."""
    known = [f"{name} {value:,.0f}" for name, value in found.items() if value is not None]
    return f"{text} ({', '.join(known)})" if known else text


def to(results, text, limit, workload, server, ours):
    """CPU per message of ours, to another server's in the same workload."""
    names = [name for who in (ours, server) for name in (who, f"{who} over TLS", f"{who}, {workload}")]
    return row_target(results, text, limit, against(results, workload, "cpu_ns", server, ours=ours), names)


def instructions_epoll(results):
    what = "instructions"
    text = with_others("user instructions per 64 B echo, 64 connections, epoll",
                       {UV: counted(results, what, UV), "plain epoll": counted(results, what, PLAIN)})
    yield row_target(results, text, 450, one(counted(results, what, WEIR)), ["instructions, allocations", f"{what} of weir"],
                     unit="", aim=300, is_counted=True)


def user_time(results):
    for server, title, limit in (WEIR, "epoll", 280), (WEIR_URING, "io_uring", 200):
        yield row_target(results, f"user ns per 64 B echo, 64 connections, {title}", limit,
                         of(results, "echo-64", server, "user_ns"), [server, f"{server}, echo-64"], unit="")


def instructions_uring(results):
    found = results["steps"]
    text = with_others("user instructions per 64 B echo, 64 connections, io_uring, by single steps",
                       {PLAIN_URING: found.get(PLAIN_URING)})
    yield row_target(results, text, 500, one(found.get(WEIR_URING)), [WEIR_URING, f"steps of {WEIR_URING}"], unit="",
                     is_counted=True)


def cpu_echo(results):
    for workload in ECHOES:
        for ours in WEIR, WEIR_URING:
            yield to(results, f"CPU per message, {workload}, {ours} to plain epoll", 1.05, workload, PLAIN, ours)


def cpu_rate(results):
    for workload in RATE_WORKLOADS:
        yield to(results, f"CPU per message at {workload.rate:,} a second, weir-uring to weir", 1.0, workload.name, WEIR,
                 WEIR_URING)


def cpu_workers(results):
    yield to(results, "CPU per connect-echo-close, a boss and two workers to plain epoll", 1.15, "connect-workers", PLAIN,
             servers.WEIR_BOSS)


def channel(results):
    found = results["channel"]
    others = [f"{found[what]:.3g} {noun}" for what, noun in (("locks", "lock pairs"), ("allocations", "allocations"))
              if what in found]
    text = "user instructions of a channel with two handlers, accept to free"
    yield row_target(results, f"{text} ({', '.join(others)})" if others else text, 4000, one(found.get("instructions")),
                     ["a channel from accept to free"], unit="", is_counted=True)


def idle_memory(results):
    idle = results["memory"].get("idle", {}).get("weir with 3 handlers")
    yield row_target(results, "user memory of an idle connection with 3 handlers, bytes", 700,
                     one(idle and idle["user"]), ["idle connections of weir with 3 handlers"], unit="", is_counted=True)


def rates(results, case, peer):
    """The peer's time to weir's, of each run: how much faster weir is."""
    return [1 / ratio for ratio in results["ratios"].get(case, {}).get(peer, [])]


def tasks(results):
    yield row_target(results, "tasks into a loop from one producer, rate to libuv's", 5, rates(results, "exec.tasks_1", UV),
                     ["exec.tasks_1, libuv", "weir-bench"], is_least=True)


def codecs(results):
    yield row_target(results, "length-field frames of 64 B, rate to Netty's", 3,
                     rates(results, "codec.length_field", "netty"), ["codec.length_field, netty", "weir-bench"],
                     is_least=True)
    yield row_target(results, "lines of 1 KiB, time to memchr alone", 1.7,
                     results["ratios"].get("codec.line_1k", {}).get("memchr", []), ["weir-bench"])


def cpu_tls(results):
    yield to(results, "CPU per message, TLS 16 KiB, to plain OpenSSL over epoll", 1.03, "tls-16k", servers.OPENSSL, WEIR)


def proxy(results):
    for text, limit, workload, ours in (
            ("64 B echo over 64 connections", 1.1, "relay-64", servers.PROXY),
            ("connect-echo-close", 1.25, "relay-connect", servers.PROXY),
            ("256 KiB, copied over io_uring", 1.05, "relay-256k", servers.PROXY_COPY_URING)):
        yield to(results, f"CPU of weir-proxy, {text}, to a plain epoll relay", limit, workload, servers.RELAY, ours)


def start(results):
    yield row_target(results, "milliseconds from start to listening", 3.5,
                     results["memory"].get("start", {}).get(WEIR, {}).get("ms", []), [WEIR], unit="")


ROWS = [
    Row("instructions-epoll", instructions_epoll, jobs=[COUNTED]),
    Row("user-ns", user_time, workloads=["echo-64"]),
    Row("instructions-uring", instructions_uring, jobs=[STEPS]),
    Row("cpu-echo", cpu_echo, workloads=ECHOES),
    Row("cpu-rate", cpu_rate, workloads=[workload.name for workload in RATE_WORKLOADS]),
    Row("cpu-workers", cpu_workers, workloads=["connect-workers"]),
    Row("channel", channel, jobs=[CHANNEL]),
    Row("idle", idle_memory, jobs=[IDLE]),
    Row("tasks", tasks, jobs=[MICRO], cases=["exec.tasks_1"]),
    Row("codecs", codecs, jobs=[MICRO], cases=["codec.length_field", "codec.line_1k"]),
    Row("cpu-tls", cpu_tls, workloads=["tls-16k"]),
    Row("proxy", proxy, workloads=["relay-64", "relay-connect", "relay-256k"]),
    Row("start", start, jobs=[START]),
]


def table(results, rows):
    return [target for row in rows for target in row.targets(results)]
