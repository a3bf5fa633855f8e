#!/usr/bin/env python3
"""Starts weir-echo and the echo server of each peer that was built, and sees that all of them do the same job. So do the
relays before an echo server.

    tests/bench/test_peers.py DIRECTORY_OF_WEIR_ECHO DIRECTORY_OF_THE_PEERS [unittest's arguments]
"""
import contextlib
import ctypes
import functools
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

EXAMPLES = PEERS = ""
UPSTREAM = None  # the echo server behind the relays, from setUpModule on
NAMES = ["epoll", "uring", "uv", "event", "ev", "asio", "netty"]
PATIENCE_S = 120  # for everything that should happen at once, on a machine under heavy load
MIB = 1 << 20
# What a server may grow by for a client that never reads, beyond any buffers of its own, caches and a Java heap.
GROWTH_BYTES = 40 * MIB
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


def commands():
    """The programs to test, and the names of those that were not built."""
    found = {"weir-echo": [os.path.join(EXAMPLES, "weir-echo"), "--boss", "1", "--loops", "1", "--log", "off"]}
    paths = {f"echo-{name}": os.path.join(PEERS, f"echo-{name}") for name in NAMES}
    found.update({name: [path] for name, path in paths.items() if os.access(path, os.X_OK)})
    if UPSTREAM is not None:
        found["relay-epoll"] = [os.path.join(PEERS, "relay-epoll"), "--connect", f"127.0.0.1:{UPSTREAM.port}"]
    return found, [name for name in paths if name not in found]


def setUpModule():
    global UPSTREAM
    UPSTREAM = Server([os.path.join(PEERS, "echo-epoll")])


def tearDownModule():
    UPSTREAM.end()


class Server:
    def __init__(self, command):
        # What is freed must be seen to be.
        environment = dict(os.environ, ASAN_OPTIONS="quarantine_size_mb=1", TSAN_OPTIONS="report_thread_leaks=0")
        self.process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], text=True, env=environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        match = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line)
        if not match:
            self.process.kill()
            raise AssertionError(f"{command[0]} says '{line}': {self.process.communicate()[1]}")
        self.port = int(match[1])

    def connect(self, buffer_bytes=0):
        sock = socket.socket()
        if buffer_bytes:  # these have to be set before there is a window
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        sock.settimeout(PATIENCE_S)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024

    def socket_of(self, peer):
        """A duplicate of the server's socket that is connected to `peer`; None: that listens."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            for number in os.listdir(f"/proc/{self.process.pid}/fd"):
                if not os.readlink(f"/proc/{self.process.pid}/fd/{number}").startswith("socket:"):
                    continue
                fd = LIBC.syscall(PIDFD_GETFD, pidfd, int(number), 0)
                if fd < 0:
                    raise unittest.SkipTest(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
                sock = socket.socket(fileno=fd)
                if sock.family == socket.AF_UNIX:  # of its own affairs: a JVM has some
                    sock.close()
                    continue
                with contextlib.suppress(OSError):
                    is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if is_listening if peer is None else not is_listening and sock.getpeername()[1] == peer[1]:
                        return sock
                sock.close()
        finally:
            os.close(pidfd)
        raise AssertionError(f"no socket for {peer}")

    def thread_names(self):
        names = set()
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{thread}/comm", encoding="ascii") as file:
                names.add(file.read().strip())
        return names

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, number=signal.SIGTERM):
        """The exit code, and what it has printed since it listened."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextlib.contextmanager
def server(command):
    """A server that is ended by SIGTERM, and has to end well."""
    running = Server(command)
    try:
        yield running
        code, out, err = running.end()
    except BaseException:
        running.process.kill()
        sys.stderr.write(running.process.communicate()[1])
        raise
    assert (code, out) == (0, ""), f"{command[0]} ended with {code}: {out}{err}"
    assert not re.search("Sanitizer|runtime error|live messages", err), err


def pattern(length, seed=0):
    whole = bytes((i * 7 + seed) % 251 for i in range(251))
    return whole * (length // 251) + whole[:length % 251]


def receive(sock, length):
    """So many bytes, or fewer at the end of the stream."""
    parts = []
    while length > 0 and (part := sock.recv(min(length, 1 << 16))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def echo(sock, data):
    sock.sendall(data)
    return receive(sock, len(data))


def send_and_end(sock, data):
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def in_background(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def with_each_server(test):
    """Runs a test method once per program, each with a server of its own."""
    @functools.wraps(test)
    def run(self):
        for name, command in commands()[0].items():
            with self.subTest(name), server(command) as running:
                test(self, running)
    return run


class Peers(unittest.TestCase):
    @with_each_server
    def test_messages_come_back_whatever_their_size(self, running):
        with running.connect() as sock:
            for size in [1, 64, 4095, 4096, 4097, 16384, 16385, 65535, 65536, 65537, 64]:
                data = pattern(size, size)
                self.assertEqual(echo(sock, data), data)

    @with_each_server
    def test_a_mebibyte_both_ways_at_once_and_the_end(self, running):
        data = pattern(MIB)
        with running.connect() as sock:
            sender = in_background(send_and_end, sock, data)
            self.assertEqual(receive(sock, 1 << 40), data)
            sender.join()

    @with_each_server
    def test_a_slow_reader_gets_all_of_it_and_the_end(self, running):
        data = pattern(8 * MIB)  # more than the sockets hold
        with running.connect(buffer_bytes=1 << 15) as sock:
            sender = in_background(send_and_end, sock, data)
            time.sleep(0.1)  # for the server to be full, mostly
            self.assertEqual(receive(sock, 1 << 40), data)
            sender.join()

    @with_each_server
    def test_a_hundred_connections_at_once(self, running):
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(running.connect()) for _ in range(100)]
            for turn in range(3):
                for number, sock in enumerate(socks):
                    sock.sendall(pattern(5000, number + turn))
                for number, sock in enumerate(socks):
                    self.assertEqual(receive(sock, 5000), pattern(5000, number + turn))

    @with_each_server
    def test_small_messages_in_a_row_keep_their_order(self, running):
        with running.connect() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            messages = [pattern(64, number) for number in range(500)]
            for message in messages:
                sock.sendall(message)
            self.assertEqual(receive(sock, 64 * len(messages)), b"".join(messages))

    @with_each_server
    def test_what_was_sent_before_the_end_is_answered_then_closed(self, running):
        before = running.descriptors()
        for data in [b"", b"last words", pattern(100_000)]:
            with running.connect() as sock:
                sender = in_background(send_and_end, sock, data)
                self.assertEqual(receive(sock, 1 << 40), data)
                sender.join()
        wait_for(lambda: running.descriptors() <= before + 2, "closed descriptors")  # Java opens some late

    @with_each_server
    def test_clients_that_reset_harm_nobody(self, running):
        with running.connect() as witness:
            self.assertEqual(echo(witness, b"hello"), b"hello")
            before = running.descriptors()
            for number in range(30):
                with running.connect() as sock:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    if number % 3 == 1:
                        sock.sendall(b"hello")
                    if number % 3 == 2:  # with answers on their way
                        sock.setblocking(False)
                        with contextlib.suppress(BlockingIOError):
                            while True:
                                sock.send(pattern(1 << 16))
                self.assertEqual(echo(witness, b"still here"), b"still here")
            wait_for(lambda: running.descriptors() <= before + 2, "closed descriptors")

    @with_each_server
    def test_clients_that_never_read_are_not_read_from(self, running):
        with contextlib.ExitStack() as stack:
            witness = stack.enter_context(running.connect())
            self.assertEqual(echo(witness, pattern(MIB // 8)), pattern(MIB // 8))
            before = running.resident_bytes()
            stuck = [stack.enter_context(running.connect(buffer_bytes=1 << 15)) for _ in range(4)]
            sent = self.push(witness, stuck, 64 * MIB)
            self.assertLess(max(sent), 48 * MIB)
            self.assertLess(running.resident_bytes() - before, GROWTH_BYTES)
            for sock in stuck[:2]:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sock.close()
            # The others change their mind, and have lost nothing.
            for sock, count in list(zip(stuck, sent))[2:]:
                sock.settimeout(PATIENCE_S)
                sock.shutdown(socket.SHUT_WR)
                self.assertEqual(receive(sock, 1 << 40), pattern(count))
            self.assertEqual(echo(witness, b"still here"), b"still here")

    @with_each_server
    def test_all_that_waited_while_it_was_stopped_comes_back(self, running):
        data = memoryview(pattern(4 * MIB))
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(running.connect()) for _ in range(8)]
            # First a lot at the clients' own pace, from which the kernel learns to hold more than a server reads at once.
            for sock in socks:
                sender = in_background(sock.sendall, data)
                self.assertEqual(receive(sock, len(data)), data)
                sender.join()
            running.process.send_signal(signal.SIGSTOP)
            sent = [0] * len(socks)
            for number, sock in enumerate(socks):
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while sent[number] < len(data):
                        sent[number] += sock.send(data[sent[number]:])
                sock.settimeout(PATIENCE_S)
                sock.shutdown(socket.SHUT_WR)
            running.process.send_signal(signal.SIGCONT)
            for sock, count in zip(socks, sent):
                self.assertEqual(receive(sock, 1 << 40), data[:count])

    def push(self, witness, socks, limit):
        """Sends on each until none takes more though the server had time for others; how many bytes each took."""
        data = memoryview(pattern(251 << 10))
        sent = [0] * len(socks)
        for sock in socks:
            sock.setblocking(False)
        quiet = 0
        while quiet < 10 and max(sent) < limit:
            quiet += 1
            for number, sock in enumerate(socks):
                with contextlib.suppress(BlockingIOError):
                    while sent[number] < limit:
                        sent[number] += sock.send(data[sent[number] % 251:])
                        quiet = 0
            self.assertEqual(echo(witness, b"still here"), b"still here")
            time.sleep(0.01)
        return sent

    @with_each_server
    def test_sockets_have_the_same_options(self, running):
        with running.connect() as sock:
            self.assertEqual(echo(sock, b"hello"), b"hello")
            listener = running.socket_of(None)
            accepted = running.socket_of(sock.getsockname())
            self.assertEqual(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1)
            # Of a listener's struct tcp_info this is the backlog.
            info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            with open("/proc/sys/net/core/somaxconn", encoding="ascii") as file:
                self.assertEqual(struct.unpack_from("I", info, 28)[0], min(4096, int(file.read())))
            listener.close()
            accepted.close()


class Ends(unittest.TestCase):
    def test_signals_end_it_with_0(self):
        for name, command in commands()[0].items():
            for number in [signal.SIGTERM, signal.SIGINT]:
                with self.subTest(name, signal=number):
                    self.assertEqual(Server(command).end(number), (0, "", ""))

    def test_what_is_not_understood_ends_with_2_and_a_word(self):
        for name, command in commands()[0].items():
            for args in [["--no-such-switch"], ["word"], ["--listen"]]:
                with self.subTest(name, args=args):
                    done = subprocess.run([*command, *args], capture_output=True, text=True, timeout=PATIENCE_S)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    self.assertNotEqual(done.stderr, "")

    def test_an_address_in_use_is_told(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            for name, command in commands()[0].items():
                with self.subTest(name):
                    done = subprocess.run([*command, "--listen", address], capture_output=True, text=True,
                                          timeout=PATIENCE_S)
                    self.assertEqual((done.returncode, done.stdout), (1, ""))
                    self.assertNotEqual(done.stderr, "")


def with_each_tls_server(test):
    """The same with those that are compared over TLS."""
    @functools.wraps(test)
    def run(self):
        for name, path in tls_programs():
            with self.subTest(name), server([path, "--cert", self.files[0], "--key", self.files[1]]) as running:
                test(self, running)
    return run


def tls_programs():
    paths = {name: os.path.join(PEERS, name) for name in ("echo-weir", "echo-ssl", "echo-netty")}
    return [(name, path) for name, path in paths.items() if os.access(path, os.X_OK)]


class OverTls(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if shutil.which("openssl") is None or not os.path.exists(os.path.join(PEERS, "echo-ssl")):
            raise unittest.SkipTest("there is no OpenSSL here")
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.files = cls.make_certificate(directory.name, "one")
        cls.others = cls.make_certificate(directory.name, "other")
        cls.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        cls.context.check_hostname = False
        cls.context.verify_mode = ssl.CERT_NONE

    @staticmethod
    def make_certificate(directory, stem):
        """The names of its file and of its key's."""
        files = [os.path.join(directory, f"{stem}.{what}") for what in ("certificate", "key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "2", "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]], check=True,
                       capture_output=True)
        return files

    def connect(self, running, session=None):
        return self.context.wrap_socket(running.connect(), session=session)

    @with_each_tls_server
    def test_messages_come_back_whatever_their_size(self, running):
        with self.connect(running) as sock:
            for size in [1, 64, 4096, 16383, 16384, 16385, 65537, 64]:
                data = pattern(size, size)
                self.assertEqual(echo(sock, data), data)
            self.assertEqual(sock.version(), "TLSv1.3")

    @with_each_tls_server
    def test_a_hundred_connections_at_once(self, running):
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(self.connect(running)) for _ in range(100)]
            for number, sock in enumerate(socks):
                sock.sendall(pattern(5000, number))
            for number, sock in enumerate(socks):
                self.assertEqual(receive(sock, 5000), pattern(5000, number))

    @with_each_tls_server
    def test_closed_connections_leave_nothing(self, running):
        with self.connect(running) as sock:
            self.assertEqual(echo(sock, b"hello"), b"hello")
        before = running.descriptors()
        for _ in range(20):
            with self.connect(running) as sock:
                self.assertEqual(echo(sock, b"hello"), b"hello")
        wait_for(lambda: running.descriptors() <= before + 2, "closed descriptors")

    @with_each_tls_server
    def test_a_session_is_resumed_and_gives_another(self, running):
        session = None
        for number in range(3):
            with self.connect(running, session) as sock:
                self.assertEqual(echo(sock, b"hello"), b"hello")
                self.assertEqual(sock.session_reused, number > 0)
                session = sock.session

    def test_wrong_uses_are_told(self):
        certificate, key = self.files
        cases = [(2, ["--cert", certificate]), (2, ["--key", key]), (1, ["--cert", certificate, "--key", "/nowhere"]),
                 (1, ["--cert", "/nowhere", "--key", key]), (1, ["--cert", key, "--key", key])]
        of_another = (1, ["--cert", certificate, "--key", self.others[1]])
        for name, path in tls_programs():
            # The JDK finds that out in the first handshake.
            for code, args in cases if name == "echo-netty" else [*cases, of_another]:
                with self.subTest(name, args=args):
                    done = subprocess.run([path, "--listen", "127.0.0.1:0", *args], capture_output=True, text=True,
                                          timeout=PATIENCE_S)
                    self.assertEqual((done.returncode, done.stdout), (code, ""))
                    self.assertRegex(done.stderr, rf"^(usage: )?{name}\b.*\w")


class Relays(unittest.TestCase):
    def test_a_client_is_reset_when_the_upstream_refuses(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            refusing = "127.0.0.1:%d" % unused.getsockname()[1]
        with server([os.path.join(PEERS, "relay-epoll"), "--connect", refusing]) as running:
            before = running.descriptors()
            with self.assertRaises(ConnectionResetError), running.connect() as sock:  # connecting may find it, too
                sock.recv(1)
            wait_for(lambda: running.descriptors() <= before, "closed descriptors")

    def test_haproxy_passes_on_all_bytes_and_the_end(self):
        if shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin") is None:
            self.skipTest("there is no haproxy here")
        running = Server([os.path.join(PEERS, "relay-haproxy"), "--connect", f"127.0.0.1:{UPSTREAM.port}"])
        try:
            with running.connect() as sock:
                sender = in_background(send_and_end, sock, pattern(MIB))
                self.assertEqual(receive(sock, 1 << 40), pattern(MIB))
                sender.join()
        finally:
            running.end()


class EchoWeir(unittest.TestCase):
    def test_a_boss_accepts_for_workers(self):
        with server([os.path.join(PEERS, "echo-weir"), "--boss", "1", "--loops", "2"]) as running:
            with contextlib.ExitStack() as stack:
                socks = [stack.enter_context(running.connect()) for _ in range(4)]
                for sock in socks:
                    self.assertEqual(echo(sock, pattern(5000)), pattern(5000))
                self.assertLessEqual({"boss-0", "worker-0", "worker-1"}, running.thread_names())

    def test_full_close_closes_when_the_client_ends_its_output(self):
        with server([os.path.join(PEERS, "echo-weir"), "--full-close"]) as running, running.connect() as sock:
            sock.shutdown(socket.SHUT_WR)
            self.assertEqual(sock.recv(1), b"")


class Netty(unittest.TestCase):
    def test_its_native_transport_is_there_or_says_that_it_is_not(self):
        command = commands()[0].get("echo-netty")
        if command is None:
            self.skipTest("echo-netty was not built")
        process = subprocess.Popen([*command, "--transport", "epoll", "--listen", "127.0.0.1:0"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if process.stdout.readline().startswith("listening on "):
            process.terminate()
            self.assertEqual(process.wait(PATIENCE_S), 0)
            process.communicate()
        else:
            err = process.communicate(timeout=PATIENCE_S)[1]
            self.assertEqual(process.returncode, 2)
            self.assertRegex(err, r"^echo-netty: no native epoll transport here: [^\n]+\n$")


if __name__ == "__main__":
    EXAMPLES, PEERS = sys.argv[1:3]
    del sys.argv[1:3]
    for missing in commands()[1]:
        print(f"{missing}: skipped, it was not built", file=sys.stderr)
    unittest.main(verbosity=2, warnings="ignore")
