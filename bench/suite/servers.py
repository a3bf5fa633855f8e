"""The echo servers that are compared, and running one of them."""
import os
import re
import select
import subprocess
import time

START_S = 60   # a JVM on a loaded machine takes its time
END_S = 30


class Missing(Exception):
    """A server that cannot be measured here; the text says why."""


class Kind:
    """A server: its name in the tables, its program, and what it may need."""

    def __init__(self, name, program, args=(), package="", uncounted="", warmup_s=0.0, stepped=()):
        self.name, self.program, self.args = name, program, list(args)
        self.stepped = list(stepped)  # further arguments while its steps are counted
        self.package = package      # of the distribution, that it is built with
        self.uncounted = uncounted  # why valgrind cannot run it
        self.warmup_s = warmup_s    # before its first measurement, for a compiler at run time

    def command(self, directory, *more):
        path = os.path.join(directory, self.program)
        if not os.path.exists(path):
            raise Missing(f"{self.program} was not built" + (f" (package {self.package})" if self.package else ""))
        return [path, "--listen", "127.0.0.1:0", *self.args, *more]


WEIR, WEIR_URING, PLAIN, PLAIN_URING, UV, EVENT, NETTY, OPENSSL = \
    "weir", "weir-uring", "epoll", "liburing", "libuv", "libevent", "netty", "openssl"
WEIR_BOSS, PROXY, PROXY_COPY_URING, RELAY = "weir-boss", "weir-proxy", "weir-proxy-copy-uring", "relay"
NO_URING = "valgrind does not know all of io_uring"

KINDS = [
    Kind(WEIR, "echo-weir", ["--io", "epoll"]),
    Kind(WEIR_URING, "echo-weir", ["--io", "uring"], package="liburing-dev", uncounted=NO_URING,
         stepped=["--watchdog", "100"]),  # it would take a loop that runs step by step for a blocked one
    Kind(PLAIN, "echo-epoll"),
    Kind(PLAIN_URING, "echo-uring", package="liburing-dev", uncounted=NO_URING),
    Kind("libev", "echo-ev", package="libev-dev"),
    Kind(UV, "echo-uv", package="libuv1-dev"),
    Kind("asio", "echo-asio", package="libasio-dev"),
    Kind(EVENT, "echo-event", package="libevent-dev"),
    Kind(NETTY, "echo-netty", package="libnetty-java", uncounted="valgrind cannot run a JVM", warmup_s=4.0),
    Kind("netty-epoll", "echo-netty", ["--transport", "epoll"], package="libnetty-java",
         uncounted="valgrind cannot run a JVM", warmup_s=4.0),
]


def named(*names):
    """Those of KINDS, for a workload that few are asked for."""
    return [kind for kind in KINDS if kind.name in names]


def with_workers():
    """A boss accepts, two workers serve; plain epoll does both in its one loop."""
    workers = ["--boss", "1", "--loops", "2"]
    return [
        Kind(WEIR_BOSS, "echo-weir", ["--io", "epoll", *workers]),
        Kind("weir-boss-uring", "echo-weir", ["--io", "uring", *workers], package="liburing-dev"),
        *named(PLAIN),
    ]


def relays(upstream):
    """Proxies before the echo server at that address."""
    weir = ["--connect", upstream, "--boss", "1", "--loops", "1", "--io"]
    return [
        Kind(PROXY, "../examples/weir-proxy", [*weir, "epoll"]),
        Kind("weir-proxy-uring", "../examples/weir-proxy", [*weir, "uring"], package="liburing-dev"),
        Kind(PROXY_COPY_URING, "../examples/weir-proxy", [*weir, "uring", "--copy"], package="liburing-dev"),
        Kind(RELAY, "relay-epoll", ["--connect", upstream]),
        Kind("haproxy", "relay-haproxy", ["--connect", upstream], package="haproxy"),
    ]


def over_tls(certificate):
    """Those that are compared over TLS."""
    return [
        Kind(WEIR, "echo-weir", ["--io", "epoll", *certificate.args]),
        Kind(WEIR_URING, "echo-weir", ["--io", "uring", *certificate.args], package="liburing-dev"),
        Kind(OPENSSL, "echo-ssl", certificate.args, package="libssl-dev"),
        Kind(NETTY, "echo-netty", certificate.args, package="libnetty-java", warmup_s=4.0),
    ]


class Server:
    """A running server, pinned to a CPU if there is one. `address` is where it listens, `start_s` how long that took."""

    def __init__(self, command, cpu=None):
        begun = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        preexec_fn=None if cpu is None else
                                        lambda: os.sched_setaffinity(0, {cpu}))
        line = self._first_line(begun + START_S)
        self.start_s = time.monotonic() - begun
        match = re.fullmatch(r"listening on (\S+)\n", line)
        if not match:
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace").strip().splitlines()
            raise Missing(said[-1] if said else f"{os.path.basename(command[0])} does not say where it listens")
        self.address = match[1]

    def _first_line(self, until):
        os.set_blocking(self.process.stdout.fileno(), False)
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            more = self.process.stdout.read(4096) if ready else b""
            if not more:
                break
            line += more
        return line.decode(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    def end(self):
        """Ends it: what it has said on standard error."""
        self.process.terminate()
        try:
            return self.process.communicate(timeout=END_S)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[1].decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def available(kinds, directory, cpu):
    """Those of them that start here, and for each of the others a line that says why it does not."""
    there, missing = [], []
    for kind in kinds:
        try:
            with Server(kind.command(directory), cpu):
                there.append(kind)
        except Missing as why:
            missing.append((kind.name, str(why)))
    return there, missing
