#!/usr/bin/env python3
"""Starts each example program and talks to it, as its user would.

    tests/examples/test_examples.py DIRECTORY_OF_THE_PROGRAMS [unittest's arguments]
"""
import contextlib
import hashlib
import os
import re
import resource
import select
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

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAMS = ""
PATIENCE_S = 60  # for everything that should happen at once, on a machine under heavy load
SERVERS = ["echo", "discard", "time", "chat", "proxy"]
BACKENDS = ["epoll", "blocking"] + ([] if os.environ.get("WEIR_ACCEPT_NO_URING") else ["uring"])
QUIET = r"(?s)\A(?!.*Z (warn|error) )"  # as `errors` of a server: no warning and no error in its log
START_ERROR = r"\S+Z error \S+ "  # a server logs why it cannot start


def run(name, *args, **more):
    """A program that ends by itself: its exit code, standard output and standard error."""
    done = subprocess.run([os.path.join(PROGRAMS, "weir-" + name), *args], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE_S, **more)
    return done.returncode, done.stdout, done.stderr


class Server:
    """A running server: `address` is where, as the program has said it."""

    def __init__(self, name, *args, io="epoll", listen="127.0.0.1:0", **more):
        self.process = subprocess.Popen(
            [os.path.join(PROGRAMS, "weir-" + name), "--listen", listen, "--io", io, *args],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        line = self.process.stdout.readline()
        match = re.fullmatch(r"listening on (\S+)\n", line)
        if not match:
            self.process.kill()
            raise AssertionError(f"weir-{name} says '{line}': {self.process.communicate()[1]}")
        self.address = match[1]

    def port(self):
        return int(self.address.rpartition(":")[2])

    def connect(self):
        if self.address.startswith("unix:@"):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect("\0" + self.address[len("unix:@"):])
        elif self.address.startswith("unix:"):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(self.address[len("unix:"):])
        else:
            host, _, port = self.address.rpartition(":")
            sock = socket.create_connection((host.strip("[]"), int(port)))
        sock.settimeout(PATIENCE_S)
        return sock

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self):
        """Waits for the end: what it has printed after the first line, and on standard error."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextlib.contextmanager
def server(*args, errors="", **more):
    """A server that is ended by SIGTERM, and has to end well: it says nothing but what was expected to go wrong."""
    running = Server(*args, **more)
    try:
        yield running
        running.signal()
        code, out, err = running.end()
    except BaseException:
        running.process.kill()
        sys.stderr.write(running.process.communicate()[1])
        raise
    assert code == 0, f"weir-{args[0]} ended with {code}: {err}"
    assert out == "", f"weir-{args[0]} printed: {out}"
    assert "live messages" not in err, err
    assert re.search(errors, err), err


def receive(sock, length):
    """So many bytes, or fewer at the end of the stream."""
    parts = []
    while length > 0 and (part := sock.recv(min(length, 1 << 16))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def receive_all(sock):
    return receive(sock, 1 << 40)


def pattern(length):
    return bytes(range(251)) * (length // 251) + bytes(length % 251)


def in_background(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


def send_and_end(sock, data):
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


class Log(unittest.TestCase):
    LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (error|warn |info |debug|trace) \S+ [^:]+: .+\n"

    def fail_to_start(self, **variables):
        code, out, err = run("echo", "--listen", "127.0.0.1:nowhere", env=dict(os.environ, **variables))
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, rf"\A({self.LINE})*\Z")
        return err

    def test_errors_go_to_standard_error_by_default(self):
        for variables in [{}, {"WEIR_LOG": ""}, {"WEIR_LOG": "error"}]:
            err = self.fail_to_start(**variables)
            self.assertEqual(err.count("\n"), 1)
            self.assertRegex(err, r" error \S+ weir-echo: .*127\.0\.0\.1:nowhere")

    def test_environment_chooses_the_level(self):
        err = run("echo", "--listen", "127.0.0.1:nowhere", env=dict(os.environ, WEIR_LOG="off"))[2]
        self.assertRegex(err, r"\Aweir-echo: '127\.0\.0\.1:nowhere': .*\n\Z")  # a failure is never silent
        self.assertRegex(self.fail_to_start(WEIR_LOG="info", WEIR_IO="epoll"), " error ")
        with server("echo", "--log", "info", errors=" info ") as echo:
            echo.connect().close()

    def test_unknown_level_is_reported_once(self):
        err = self.fail_to_start(WEIR_LOG="loud")
        self.assertEqual(err.count("WEIR_LOG is 'loud', which is none of off, error, warn, info, debug, trace"), 1)

    def test_unknown_value_is_reported_once(self):
        for variable, default in [("WEIR_POOL", "1"), ("WEIR_LEAK", "(off|all)")]:
            with self.subTest(variable):
                code, _, err = run("hexdump", __file__, env=dict(os.environ, **{variable: "loud"}))
                self.assertEqual(code, 0)
                self.assertEqual(len(re.findall(rf" warn  \S+ environment: {variable} is 'loud', which is none of .*; "
                                                rf"weir uses the default, {default}\n", err)), 1, err)


class Options(unittest.TestCase):
    def test_help_explains_every_option(self):
        for name in SERVERS + ["echo-client", "hexdump", "tick"]:
            with self.subTest(name):
                code, out, err = run(name, "--help")
                self.assertEqual((code, err), (0, ""))
                self.assertTrue(out.startswith(f"usage: weir-{name} "), out)
        for name in SERVERS:
            out = run(name, "--help")[1]
            for option in ["--listen", "--io", "--boss", "--loops", "--acceptors", "--log", "--help"]:
                self.assertIn(option, out)

    def test_what_is_not_understood_ends_with_2_and_a_word(self):
        bad = [["--no-such-option"], ["word"], ["--listen"], ["--loops", "0"], ["--loops", "many"], ["--boss", "-1"],
               ["--acceptors", "99999999999999999999"], ["--io", "select"], ["--log", "loud"]]
        for name in SERVERS:
            for args in bad:
                with self.subTest(name, args=args):
                    code, out, err = run(name, *args)
                    self.assertEqual((code, out), (2, ""))
                    self.assertIn(f"weir-{name}: ", err)
                    word = args[-1] if len(args) > 1 else args[0]
                    self.assertIn(word, err)
                    self.assertEqual(err.count("\n"), 1)
        for args in [["--no-such-option"], ["word"], ["--count", "0"], ["--size", "x"], ["--io", "select"]]:
            with self.subTest("echo-client", args=args):
                code, out, err = run("echo-client", *args)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(args[-1], err)

    def test_only_the_proxy_connects(self):
        self.assertEqual(run("echo", "--connect", "127.0.0.1:1")[0], 2)
        self.assertEqual(run("echo", "--copy")[0], 2)

    def test_bad_addresses_are_named(self):
        for address in ["nonsense", "127.0.0.1:99999", "unix:/no/such/folder/socket"]:
            with self.subTest(address):
                code, out, err = run("echo", "--listen", address)
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(err, rf"\A{START_ERROR}weir-echo: .*{address}.*\n\Z")

    def test_an_address_in_use_is_named(self):
        with server("echo") as first:
            for name in SERVERS:
                with self.subTest(name):
                    code, out, err = run(name, "--listen", first.address)
                    self.assertEqual((code, out), (1, ""))
                    self.assertIn(first.address, err)
                    self.assertIn("in use", err)

    def test_a_port_that_only_datagrams_use_stops_the_time(self):
        err = "in use"
        while "in use" in err and "datagram channel" not in err:  # another process may have the port for streams
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.bind(("127.0.0.1", 0))
                code, out, err = run("time", "--listen", "127.0.0.1:%d" % sock.getsockname()[1])
            self.assertEqual((code, out), (1, ""))
        self.assertIn("cannot open a datagram channel on 127.0.0.1:", err)

    def test_uring_is_refused_in_words_where_there_is_none(self):
        for name in SERVERS + ["echo-client"]:
            more = ["--connect", "127.0.0.1:1"] if name in ("proxy", "echo-client") else []
            code, out, err = run(name, "--io", "uring", *more, env={**os.environ, "WEIR_URING_MASK": "all"})
            self.assertEqual((code, out), (1, ""))
            self.assertRegex(err, rf"\A{'' if name == 'echo-client' else START_ERROR}weir-{name}: there is no io_uring here.*\n\Z")

    def test_unknown_options_are_told_in_one_line(self):
        for name in SERVERS + ["echo-client", "hexdump", "tick"]:
            for args, words in [(["--bogus"], "unknown option --bogus; try --help"),
                                (["-xy"], "unknown option -x; try --help"),
                                (["--help=no"], "unknown option --help=no; try --help"),
                                (["one", "two"], "unexpected argument (one|two); try --help")]:
                with self.subTest(name, args=args):
                    code, out, err = run(name, *args)
                    self.assertEqual((code, out), (2, ""))
                    self.assertRegex(err, f"^weir-{name}: {words}\n$")
        self.assertEqual(run("echo", "--listen")[2], "weir-echo: no value after --listen; try --help\n")

    DEFAULTS = {"echo": 8007, "discard": 8009, "time": 8037, "chat": 8023, "proxy": 8080}

    def test_defaults_are_what_the_help_says(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        self.assertEqual(sorted(self.DEFAULTS), sorted(SERVERS))
        for name, port in self.DEFAULTS.items():
            with self.subTest(name):
                said = run(name, "--help")[1]
                self.assertRegex(said, rf"--listen ADDR .*\(default 127\.0\.0\.1:{port}\)")
                self.assertIn(str(port), re.search(rf"\n- \[weir-{name}\].*?(?=\n- )", readme, re.S)[0])
                one = subprocess.Popen([os.path.join(PROGRAMS, "weir-" + name)], text=True, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                line = one.stdout.readline()
                if line:
                    one.terminate()
                    self.assertEqual(line, f"listening on 127.0.0.1:{port}\n")
                _, err = one.communicate(timeout=PATIENCE_S)
                if not line:  # somebody else has the port
                    self.assertIn(f"127.0.0.1:{port}", err)
                    self.assertIn("in use", err)
        for name in ["proxy", "echo-client"]:
            self.assertRegex(run(name, "--help")[1], r"--connect ADDR .*\(default 127\.0\.0\.1:8007\)")

    def test_loops_and_acceptors_are_as_many_as_wanted(self):
        def threads(echo, name):
            folder = f"/proc/{echo.process.pid}/task"
            names = []
            for task in os.listdir(folder):
                with contextlib.suppress(OSError), open(f"{folder}/{task}/comm", encoding="utf-8") as comm:
                    names.append(comm.read())
            return sum(it.startswith(name) for it in names)

        def listeners(echo):
            """How many listening sockets have the port: the second field is the address, the fourth the state."""
            with open("/proc/net/tcp", encoding="ascii") as table:
                rows = [line.split() for line in table]
            return sum(row[1].endswith(":%04X" % echo.port()) and row[3] == "0A" for row in rows)

        for boss, loops, acceptors in [(1, 1, 1), (1, 3, 1), (3, 2, 3), (3, 1, 2), (1, 1, 2)]:
            with self.subTest(boss=boss, loops=loops, acceptors=acceptors), contextlib.ExitStack() as open_ones:
                echo = open_ones.enter_context(server("echo", "--boss", str(boss), "--loops", str(loops),
                                                      "--acceptors", str(acceptors)))
                self.assertEqual(listeners(echo), acceptors)
                # A loop without a listener has no thread.
                self.assertEqual(threads(echo, "boss"), min(boss, acceptors))
                for _ in range(2 * loops):
                    sock = open_ones.enter_context(echo.connect())
                    sock.sendall(b"x")
                    self.assertEqual(receive(sock, 1), b"x")
                self.assertEqual(threads(echo, "worker"), loops)
                open_ones.pop_all().close()

    def test_many_acceptors_and_loops(self):
        with server("echo", "--boss", "2", "--acceptors", "2", "--loops", "3", "--log", "error") as echo:
            code, _, err = run("echo-client", "--connect", echo.address, "--connections", "20", "--count", "20",
                               "--timeout", "60")
            self.assertEqual(code, 0, err)


class Ending(unittest.TestCase):
    def test_each_server_ends_by_either_signal(self):
        for name in SERVERS:
            for io in BACKENDS:
                for number in [signal.SIGINT, signal.SIGTERM]:
                    with self.subTest(name, io=io, number=number):
                        one = Server(name, io=io)
                        one.signal(number)
                        code, out, err = one.end()
                        self.assertEqual((code, out), (0, ""), err)

    def test_a_signal_at_any_moment_ends_it(self):
        for delay_ms in range(40):
            one = subprocess.Popen([os.path.join(PROGRAMS, "weir-echo"), "--listen", "localhost:0"],
                                   stdout=subprocess.DEVNULL)
            self.addCleanup(one.kill)
            time.sleep(delay_ms / 1000)
            one.terminate()
            self.assertIn(one.wait(PATIENCE_S), [0, -signal.SIGTERM])

    def test_open_connections_have_time_to_end(self):
        for io in BACKENDS:
            with self.subTest(io):
                echo = Server("echo", io=io)
                with echo.connect() as sock:
                    sock.sendall(b"before")
                    self.assertEqual(receive(sock, 6), b"before")
                    echo.signal()
                    self.assertIn("have 5 s to end", echo.process.stderr.readline())
                    sock.sendall(b"after")
                    self.assertEqual(receive(sock, 5), b"after")
                code, out, _ = echo.end()
                self.assertEqual((code, out), (0, ""))

    def test_the_second_signal_ends_at_once(self):
        for io in BACKENDS:
            for name in ["echo", "chat", "proxy"]:  # what tells that it has got to know of a connection
                with self.subTest(name, io=io), server("echo") as upstream:
                    one = Server(name, *(["--connect", upstream.address] if name == "proxy" else []), io=io)
                    with one.connect() as sock:
                        sock.sendall(b"hello\n")
                        self.assertNotEqual(sock.recv(100), b"")
                        one.signal()
                        self.assertIn("have 5 s to end", one.process.stderr.readline())
                        started = time.monotonic()
                        one.signal(signal.SIGINT)
                        with contextlib.suppress(ConnectionResetError):
                            receive_all(sock)
                        self.assertEqual(one.end()[:2], (0, ""))
                        self.assertLess(time.monotonic() - started, 5)

    def test_connections_that_stay_are_closed_after_a_while(self):
        chat = Server("chat")
        with chat.connect() as sock:
            sock.recv(100)
            started = time.monotonic()
            chat.signal()
            self.assertEqual(receive_all(sock), b"")
            self.assertGreater(time.monotonic() - started, 4.5)
        self.assertEqual(chat.end()[:2], (0, ""))


class Echo(unittest.TestCase):
    def check(self, echo):
        with echo.connect() as sock:
            sock.sendall(b"hello")
            self.assertEqual(receive(sock, 5), b"hello")
            data = pattern(3 << 20)
            sender = in_background(send_and_end, sock, data)
            self.assertEqual(receive_all(sock), data)  # also what comes back after our end
            sender.join()

    def test_everywhere(self):
        name = f"unix:@weir-examples-{os.getpid()}"
        for io in BACKENDS:
            for listen in ["127.0.0.1:0", name] + (["[::1]:0"] if has_ipv6() else []):
                with self.subTest(io=io, listen=listen), server("echo", io=io, listen=listen) as echo:
                    self.check(echo)

    def test_at_a_name(self):
        with server("echo", listen="localhost:0") as echo:
            self.check(echo)

    def test_a_path_is_free_again(self):
        path = f"/tmp/weir-examples-{os.getpid()}"
        for _ in range(2):
            with server("echo", listen="unix:" + path) as echo:
                self.check(echo)
        self.assertFalse(os.path.exists(path))

    def test_at_a_socket_that_it_inherits(self):
        for io in BACKENDS:
            with self.subTest(io), socket.create_server(("127.0.0.1", 0)) as listener:
                os.set_inheritable(listener.fileno(), True)
                with server("echo", io=io, listen="fd:%d" % listener.fileno(), close_fds=False) as echo:
                    self.assertEqual(echo.port(), listener.getsockname()[1])
                    self.check(echo)

    def test_a_client_that_resets_is_told_and_harms_nobody(self):
        with server("echo", errors="echo: .*reset") as echo:
            with echo.connect() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.sendall(b"x")
                sock.recv(1)
            self.check(echo)


class EchoClient(unittest.TestCase):
    def test_against_echo(self):
        name = f"unix:@weir-examples-client-{os.getpid()}"
        for io in BACKENDS:
            for listen in ["127.0.0.1:0", name]:
                with self.subTest(io=io, listen=listen), server("echo", io=io, listen=listen) as echo:
                    code, out, err = run("echo-client", "--connect", echo.address, "--count", "50", "--size", "100000",
                                         "--connections", "3", "--timeout", "60", "--io", io)
                    self.assertEqual(code, 0, err)
                    self.assertIn("150 answers of 100000 bytes over 3 connections", out)
                    self.assertIn("round trip: min", out)
                    counts = [int(n) for n in re.findall(r"below +\d+ us +(\d+)", out)]
                    self.assertEqual(sum(counts), 150)

    def test_against_discard(self):
        with server("discard", "--log", "info", errors="discard: [0-9a-f]+: 64 bytes") as discard:
            code, out, err = run("echo-client", "--connect", discard.address, "--timeout", "1")
            self.assertEqual((code, out), (1, ""))
            self.assertIn("no answer within 1 s", err)

    def test_against_something_else(self):
        with server("chat") as chat:
            code, out, err = run("echo-client", "--connect", chat.address)
            self.assertEqual((code, out), (1, ""))
            self.assertIn("answer 1 is not what was sent", err)

    def test_against_one_that_closes(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            in_background(lambda: listener.accept()[0].close())
            code, out, err = run("echo-client", "--connect", "127.0.0.1:%d" % listener.getsockname()[1])
        self.assertEqual((code, out), (1, ""))
        self.assertIn("after 0 of 1000 answers", err)

    def test_against_nothing(self):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))  # taken, but nobody listens
            address = "127.0.0.1:%d" % sock.getsockname()[1]
            code, out, err = run("echo-client", "--connect", address, "--connections", "3")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(address, err)
        self.assertIn("refused", err)


    @unittest.skipIf(open("/proc/sys/vm/overcommit_memory", encoding="ascii").read() == "1\n", "memory is for all")
    def test_more_than_there_is_memory_for(self):
        quiet = {name: os.environ.get(name, "") + ":allocator_may_return_null=1" for name in ["ASAN_OPTIONS", "TSAN_OPTIONS"]}
        code, out, err = run("echo-client", "--count", "10000000", "--connections", "10000", env={**os.environ, **quiet})
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no memory for 10000000 round trips on each of 10000 connections", err)


class Discard(unittest.TestCase):
    def test_reads_everything_and_says_nothing(self):
        for io in BACKENDS:
            with self.subTest(io), server("discard", io=io) as discard, discard.connect() as sock:
                send_and_end(sock, pattern(2 << 20))
                self.assertEqual(receive_all(sock), b"")


class Time(unittest.TestCase):
    TEXT = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n"

    def test_over_streams(self):
        name = f"unix:@weir-examples-time-{os.getpid()}"
        for io in BACKENDS:
            for listen in ["127.0.0.1:0", name]:
                with self.subTest(io=io, listen=listen), server("time", io=io, listen=listen) as clock:
                    with clock.connect() as sock:
                        self.assertRegex(receive_all(sock), b"^" + self.TEXT + b"$")

    def test_over_datagrams(self):
        for io in BACKENDS:
            with self.subTest(io), server("time", io=io) as clock:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                    sock.settimeout(PATIENCE_S)
                    sock.connect(("127.0.0.1", clock.port()))
                    sock.send(b"x" * 21)  # as long as an answer: gets none
                    for question in [b"", b"?\n"]:
                        sock.send(question)
                        self.assertRegex(sock.recv(100), b"^" + self.TEXT + b"$")
                    sock.setblocking(False)
                    self.assertRaises(BlockingIOError, sock.recv, 100)


class Chat(unittest.TestCase):
    def enter(self, chat, name):
        sock = chat.connect()
        lines = sock.makefile("rb")
        self.assertEqual(lines.readline(), b"* your name?\n")
        sock.sendall(name.encode() + b"\n")
        self.assertRegex(lines.readline(), rb"^\* welcome, \d+ in the room\n$")
        return sock, lines

    def test_twenty_guests(self):
        for io in BACKENDS:
            with self.subTest(io), server("chat", io=io) as chat:
                guests = [self.enter(chat, f"guest{i}") for i in range(20)]
                for i, (_, lines) in enumerate(guests):
                    for j in range(i + 1, 20):
                        self.assertEqual(lines.readline(), b"* guest%d came in\n" % j)
                for i, (sock, _) in enumerate(guests):
                    sock.sendall(b"I am %d\r\nand\tI say " % i)
                    sock.sendall(b"\x1b[2Jmore\n")
                for i, (_, lines) in enumerate(guests):
                    heard = [lines.readline() for _ in range(2 * 19)]
                    for j in range(20):
                        said = [b"guest%d: I am %d\n" % (j, j), b"guest%d: and\tI say ?[2Jmore\n" % j]
                        mine = [line for line in heard if line.startswith(b"guest%d: " % j)]
                        self.assertEqual(mine, said if j != i else [])
                guests[0][1].close()
                guests[0][0].close()
                for sock, lines in guests[1:]:
                    self.assertEqual(lines.readline(), b"* guest0 has left\n")
                for sock, lines in guests[1:]:
                    lines.close()
                    sock.close()

    def test_names(self):
        with server("chat") as chat, chat.connect() as sock, sock.makefile("rb") as lines:
            lines.readline()
            for bad in [b"", b"two words", b"x" * 33, b"\x1b"]:
                sock.sendall(bad + b"\n")
                self.assertEqual(lines.readline(), b"* a name is 1 to 32 letters and digits; yours?\n")
            sock.sendall(b"x" * 32 + b"\n")
            self.assertEqual(lines.readline(), b"* welcome, 1 in the room\n")

    def test_the_longest_line_passes_and_a_longer_one_closes(self):
        for end in [b"\n", b""]:
            with self.subTest(end=end), server("chat", errors="chat: a line could not be read: limit") as chat:
                one, _ = self.enter(chat, "one")
                two, heard = self.enter(chat, "two")
                one.sendall(b"x" * 8192 + b"\n")
                self.assertEqual(heard.readline(), b"one: " + b"x" * 8192 + b"\n")
                one.sendall(b"x" * 8193 + end)
                self.assertEqual(heard.readline(), b"* one has left\n")
                with contextlib.suppress(ConnectionResetError):
                    receive_all(one)
                for sock in [one, two]:
                    sock.close()

    def test_who_does_not_read_is_thrown_out(self):
        with server("chat") as chat:
            deaf, unread = self.enter(chat, "deaf")
            loud, heard = self.enter(chat, "loud")
            line = b"x" * 8000 + b"\n"
            sender = in_background(lambda: [loud.sendall(line) for _ in range(5000)])
            self.assertEqual(heard.readline(), b"* deaf has left\n")
            sender.join()
            unread.close()
            heard.close()
            deaf.close()
            loud.close()


class Proxy(unittest.TestCase):
    SIZE = 10 << 20
    WAYS = ["splice", "copy", "blocking"]  # within the kernel; by handlers; by handlers on loops of their own

    def start(self, way, upstream, *args, **more):
        return server("proxy", "--connect", upstream, *(["--copy"] if way == "copy" else []), *args,
                      io="blocking" if way == "blocking" else "epoll", **more)

    @contextlib.contextmanager
    def proxy_to_echo(self, way, *args, **more):
        with server("echo") as echo, self.start(way, echo.address, *args, **more) as proxy:
            yield proxy

    @contextlib.contextmanager
    def proxy_to_test(self, way, **more):
        """A proxy whose upstream is the test: proxy, the client's socket, the upstream's."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(PATIENCE_S)
            upstream = "127.0.0.1:%d" % listener.getsockname()[1]
            with self.start(way, upstream, **more) as proxy:
                with proxy.connect() as client, listener.accept()[0] as far:
                    far.settimeout(PATIENCE_S)
                    yield proxy, client, far

    def pipes(self, proxy):
        """How many pipes the process has: weir_relay needs one for each direction."""
        folder = f"/proc/{proxy.process.pid}/fd"
        targets = set()
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # it may be closed by now
                targets.add(os.readlink(os.path.join(folder, fd)))
        return len({target for target in targets if target.startswith("pipe:")})

    def test_large_transfers_stay_in_the_kernel_unless_a_handler_needs_the_bytes(self):
        for way, expected in [("splice", 2), ("copy", 0), ("blocking", 0)]:
            with self.subTest(way), self.proxy_to_echo(way) as proxy:
                before = self.pipes(proxy)  # standard output and error
                with proxy.connect() as client:
                    client.sendall(b"hello")
                    self.assertEqual(receive(client, 5), b"hello")
                    self.assertEqual(self.pipes(proxy), before)  # so little is copied
                    data = pattern(4 << 20)
                    sender = in_background(client.sendall, data)
                    self.assertEqual(receive(client, len(data)), data)
                    sender.join()
                    self.assertEqual(self.pipes(proxy) - before, expected)
                    send_and_end(client, b"")
                    self.assertEqual(receive_all(client), b"")
                while self.pipes(proxy) > before:
                    time.sleep(0.01)

    def test_without_descriptors_for_pipes_it_copies(self):
        with self.proxy_to_echo("splice", "--loops", "1") as proxy, proxy.connect() as first:
            first.sendall(b"x")  # now its loops have what they need
            self.assertEqual(receive(first, 1), b"x")
            before = self.pipes(proxy)
            taken = {int(fd) for fd in os.listdir(f"/proc/{proxy.process.pid}/fd")}
            free = [fd for fd in range(len(taken) + 3) if fd not in taken]
            limit = free[2] + 1  # one for each connection, and one is left: not enough for a pipe
            resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
            with proxy.connect() as client:
                data = pattern(4 << 20)
                sender = in_background(send_and_end, client, data)
                self.assertEqual(receive(client, len(data)), data)
                self.assertEqual(self.pipes(proxy), before)
                self.assertEqual(receive_all(client), b"")
                sender.join()

    def pass_much(self, client, far, at=0, act=lambda: None):
        """100 MiB from client to far, and `act` when so much of it came: whether all came as it was sent."""
        data, times = pattern(1 << 20), 100
        sums = [hashlib.sha256(), hashlib.sha256()]

        def send():
            with contextlib.suppress(OSError):
                for _ in range(times):
                    sums[0].update(data)
                    client.sendall(data)
                client.shutdown(socket.SHUT_WR)
        sender = in_background(send)
        got = 0
        while part := far.recv(1 << 20):
            sums[1].update(part)
            got += len(part)
            if at and got >= at:
                at = 0
                act()
        sender.join()
        return got == times * len(data) and sums[0].digest() == sums[1].digest()

    def test_a_hundred_mebibytes(self):
        for way in self.WAYS:
            for turn in [0, 1]:
                with self.subTest(way=way, turn=turn), self.proxy_to_test(way) as (proxy, *ends):
                    before_kib = self.memory_kib(proxy)
                    self.assertTrue(self.pass_much(ends[turn], ends[1 - turn]))
                    self.assertLess(self.memory_kib(proxy) - before_kib, 32 << 10)

    def test_a_signal_in_the_middle_lets_the_rest_pass(self):
        for way in self.WAYS:
            with self.subTest(way), self.proxy_to_test(way, errors="have 5 s to end") as (proxy, client, far):
                self.assertTrue(self.pass_much(client, far, 80 << 20, proxy.signal))
                far.close()

    def test_two_signals_in_the_middle_end_it(self):
        for way in self.WAYS:
            with self.subTest(way), self.proxy_to_test(way) as (proxy, client, far):
                def insist():
                    proxy.signal()
                    self.assertIn("have 5 s to end", proxy.process.stderr.readline())
                    proxy.signal()
                with contextlib.suppress(OSError):
                    self.assertFalse(self.pass_much(client, far, 10 << 20, insist))

    def test_ten_mebibytes_both_ways_to_a_slow_reader(self):
        data = pattern(self.SIZE)
        for way in self.WAYS:
            with self.subTest(way), self.proxy_to_echo(way) as proxy, proxy.connect() as client:
                sender = in_background(send_and_end, client, data)
                got = bytearray()
                while part := client.recv(1 << 15):
                    got += part
                    time.sleep(0.001)
                sender.join()
                self.assertEqual(len(got), len(data))
                self.assertEqual(bytes(got), data)

    def test_who_does_not_read_stops_the_other_side(self):
        for way in self.WAYS:
            for turn in [0, 1]:
                with self.subTest(way=way, turn=turn), self.proxy_to_test(way) as (proxy, *ends):
                    sender, receiver = ends[turn], ends[1 - turn]
                    before_kib = self.memory_kib(proxy)
                    sender.settimeout(1)
                    data = pattern(1 << 16)
                    sent = 0
                    with self.assertRaises(TimeoutError):
                        while sent < 64 << 20:
                            sent += sender.send(data)
                    sender.settimeout(PATIENCE_S)
                    # The other direction is not held up.
                    receiver.sendall(b"still here")
                    self.assertEqual(receive(sender, 10), b"still here")
                    sender.shutdown(socket.SHUT_WR)
                    self.assertEqual(len(receive_all(receiver)), sent)
                    self.assertLess(self.memory_kib(proxy) - before_kib, 32 << 10)

    def memory_kib(self, proxy):
        with open(f"/proc/{proxy.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1])

    def test_many_at_once(self):
        for way in self.WAYS:
            with self.subTest(way), self.proxy_to_echo(way) as proxy:
                code, _, err = run("echo-client", "--connect", proxy.address, "--connections", "30", "--count", "10",
                                   "--size", "20000", "--timeout", "60")
                self.assertEqual(code, 0, err)

    def test_half_closes_pass_each_way(self):
        for way in self.WAYS:
            for turn in [0, 1]:
                with self.subTest(way=way, turn=turn), self.proxy_to_test(way) as (_, *ends):
                    first, second = ends[turn], ends[1 - turn]
                    send_and_end(first, b"question")
                    self.assertEqual(receive_all(second), b"question")
                    answer = pattern(1 << 20)
                    sender = in_background(send_and_end, second, answer)
                    self.assertEqual(receive_all(first), answer)
                    sender.join()

    def reset(self, sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()

    def test_a_reset_is_passed_on(self):
        for way in self.WAYS:
            for turn in [0, 1]:
                with self.subTest(way=way, turn=turn), self.proxy_to_test(way, errors=QUIET) as (_, *ends):
                    first, second = ends[turn], ends[1 - turn]
                    first.sendall(b"hello")
                    self.assertEqual(receive(second, 5), b"hello")
                    self.reset(first)
                    self.assertRaises(ConnectionResetError, receive_all, second)

    def test_a_reset_after_a_half_close_is_passed_on(self):
        for way in self.WAYS:
            for turn in [0, 1]:
                with self.subTest(way=way, turn=turn), self.proxy_to_test(way, errors=QUIET) as (_, *ends):
                    first, second = ends[turn], ends[1 - turn]
                    send_and_end(first, b"question")
                    self.assertEqual(receive_all(second), b"question")
                    second.sendall(b"begin")
                    self.assertEqual(receive(first, 5), b"begin")
                    self.reset(first)
                    with self.assertRaises((ConnectionResetError, BrokenPipeError)):
                        while True:
                            second.sendall(b"more")

    def fill(self, sock):
        """Sends until nobody takes it any more."""
        sock.settimeout(1)
        with self.assertRaises(TimeoutError):
            while True:
                sock.send(bytes(1 << 16))

    def test_a_reset_is_noticed_while_the_other_side_does_not_read(self):
        for way in self.WAYS:
            with self.subTest(way), contextlib.ExitStack() as open_ones:
                pairs = [open_ones.enter_context(self.proxy_to_test(way, errors=QUIET)) for _ in range(2)]
                before = []
                for turn, (proxy, *ends) in enumerate(pairs):
                    self.fill(ends[turn])
                    before.append(self.sockets(proxy))
                    self.reset(ends[turn])
                for turn, (proxy, *ends) in enumerate(pairs):
                    until = time.monotonic() + PATIENCE_S
                    while self.sockets(proxy) > before[turn] - 2 and time.monotonic() < until:
                        time.sleep(0.1)
                    self.assertEqual(self.sockets(proxy), before[turn] - 2)
                    self.assertRaises(ConnectionResetError, receive_all, ends[1 - turn])

    def sockets(self, proxy):
        folder = f"/proc/{proxy.process.pid}/fd"
        count = 0
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                count += os.readlink(os.path.join(folder, fd)).startswith("socket:")
        return count

    def test_clients_that_go_at_once_harm_nobody(self):
        for way in self.WAYS:
            with self.subTest(way), self.proxy_to_echo(way) as proxy:
                for number in range(40):
                    with proxy.connect() as client:
                        if number % 2 == 0:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                        if number % 3 == 0:
                            client.sendall(b"hello")
                self.assertEqual(run("echo-client", "--connect", proxy.address, "--count", "10", "--timeout", "60")[0], 0)

    def test_no_upstream_closes_the_client(self):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            upstream = "127.0.0.1:%d" % sock.getsockname()[1]
            for way in self.WAYS:
                with self.subTest(way), self.start(way, upstream, errors=upstream) as proxy:
                    with proxy.connect() as client:
                        self.assertEqual(receive_all(client), b"")

    def test_an_upstream_that_is_no_address_closes_the_client(self):
        with server("proxy", "--connect", "nonsense", errors="nonsense") as proxy, proxy.connect() as client:
            self.assertEqual(receive_all(client), b"")


def has_tls():
    return "there is no TLS here" not in run("echo-client", "--tls", "--connect", "127.0.0.1:1")[2]


class WithoutTls(unittest.TestCase):
    def test_it_is_told(self):
        if has_tls():
            self.skipTest("this build has TLS")
        for name, *args in [("echo", "--tls"), ("proxy", "--tls"), ("proxy", "--connect-tls"), ("echo-client", "--tls")]:
            with self.subTest(name, args=args):
                code, out, err = run(name, *args)
                self.assertEqual((code, out), (1, ""))
                self.assertEqual(err, f"weir-{name}: there is no TLS here: weir was built without OpenSSL\n")


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has_tls():
            raise unittest.SkipTest("this build has no TLS, which is tested by itself")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.cert, cls.key = os.path.join(cls.folder, "cert.pem"), os.path.join(cls.folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", cls.key, "-out", cls.cert, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        cls.identity = ["--cert", cls.cert, "--key", cls.key]

    def wrap(self, sock, host="localhost"):
        context = ssl.create_default_context(cafile=self.cert)
        return context.wrap_socket(sock, server_hostname=host, suppress_ragged_eofs=False)

    def exchange(self, sock, data):
        """Sends and receives, as it goes: two threads must not share a socket of Python's TLS."""
        sock.setblocking(False)
        sent, got = 0, bytearray()
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < len(data):
            self.assertLess(time.monotonic(), deadline)
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if sent < len(data):
                    sent += sock.send(data[sent:sent + 16384])
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                part = sock.recv(65536)
                if not part:
                    break
                got += part
                continue
            if sent == len(data):
                select.select([sock], [], [], PATIENCE_S)
        sock.settimeout(PATIENCE_S)
        return bytes(got)

    def check(self, one):
        """Bytes come back, and the end is told both ways."""
        with self.wrap(one.connect()) as sock:
            data = pattern(300000)
            self.assertEqual(self.exchange(sock, data), data)
            sock.unwrap().close()

    def test_echo(self):
        for io in BACKENDS:
            with self.subTest(io), server("echo", "--tls", *self.identity, io=io) as echo:
                self.check(echo)

    def test_echo_with_a_certificate_of_its_own(self):
        said = r"\Aweir-echo: no --cert: using a self-signed certificate for localhost\n"
        with server("echo", "--tls", errors=said) as echo:
            context = ssl._create_unverified_context()
            with context.wrap_socket(echo.connect(), server_hostname="localhost") as sock:
                sock.sendall(b"hello")
                self.assertEqual(receive(sock, 5), b"hello")
                sock.unwrap().close()

    def test_behind_a_proxys_header(self):
        with server("echo", "--tls", *self.identity, "--proxy-protocol", "--log", "info", errors="192.0.2.1:5 wants to") as echo:
            sock = echo.connect()
            sock.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n")
            with self.wrap(sock) as wrapped:
                wrapped.sendall(b"hello")
                self.assertEqual(receive(wrapped, 5), b"hello")
                wrapped.unwrap().close()

    def test_who_speaks_no_tls_is_turned_away(self):
        with server("echo", "--tls", *self.identity, errors="plain HTTP came where TLS is spoken") as echo:
            with echo.connect() as sock:
                sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    self.assertNotIn(b"GET", receive_all(sock))
            self.check(echo)

    def client(self, echo, *args, io="epoll"):
        return run("echo-client", "--connect", echo.address, "--count", "20", "--timeout", "60", "--tls", "--io", io, *args)

    def test_the_client(self):
        name = f"unix:@weir-examples-tls-{os.getpid()}"
        for io in BACKENDS:
            for listen in ["127.0.0.1:0", "localhost:0", name]:
                with self.subTest(io=io, listen=listen), \
                     server("echo", "--tls", *self.identity, io=io, listen=listen) as echo:
                    code, out, err = self.client(echo, "--ca", self.cert, "--size", "100000", "--connections", "3", io=io)
                    self.assertEqual((code, err), (0, ""))
                    self.assertIn("60 answers of 100000 bytes over 3 connections", out)

    def test_the_client_tells_what_was_agreed_on(self):
        with server("echo", "--tls", *self.identity, "--log", "info", errors=r"TLS 1\.3, TLS_") as echo:
            code, _, err = self.client(echo, "--ca", self.cert, "--log", "info")
            self.assertEqual(code, 0, err)
            self.assertRegex(err, r"TLS 1\.3, TLS_")

    def test_the_client_trusts_nobody_else(self):
        with server("echo", "--tls", *self.identity, errors="unknown ca") as echo:
            code, out, err = self.client(echo)
            self.assertEqual((code, out), (1, ""))
            self.assertIn("the certificate of 127.0.0.1 is refused: self-signed certificate", err)

    def test_the_client_expects_the_right_host(self):
        with server("echo", "--tls", *self.identity, errors="handshake failed") as echo:
            code, out, err = self.client(echo, "--ca", self.cert, "--host", "example.org")
            self.assertEqual((code, out), (1, ""))
            self.assertIn("the certificate of example.org is refused", err)
            code, out, err = self.client(echo, "--ca", self.cert, "--host", "localhost")
            self.assertEqual((code, err), (0, ""))

    def test_the_client_trusts_anybody_only_when_told(self):
        with server("echo", "--tls") as echo:
            code, out, err = self.client(echo, "--insecure", "--host", "example.org")
            self.assertEqual((code, err), (0, "weir-echo-client: --insecure: the server's certificate is not verified\n"))
            self.assertIn("20 answers", out)

    def test_the_client_against_a_server_without(self):
        with server("echo") as echo:
            code, out, err = self.client(echo, "--ca", self.cert)
            self.assertEqual((code, out), (1, ""))
            self.assertIn("after 0 of 20 answers", err)

    def test_switches_that_do_not_go_together(self):
        for name, *args in [("echo", "--cert", "x"), ("echo", "--tls", "--cert", "x"), ("echo", "--tls", "--key", "x"),
                            ("echo-client", "--ca", "x"), ("echo-client", "--insecure"), ("echo-client", "--host", "x"),
                            ("echo-client", "--tls", "--ca", "x", "--insecure"), ("proxy", "--key", "x"), ("proxy", "--insecure"),
                            ("proxy", "--tls", "--ca", "x"), ("proxy", "--connect-tls", "--ca", "x", "--insecure"),
                            ("chat", "--tls"), ("echo", "--connect-tls")]:
            with self.subTest(name, args=args):
                code, out, err = run(name, *args)
                self.assertEqual((code, out), (2, ""))
                self.assertRegex(err, rf"^weir-{name}: .*; try --help\n$")

    def test_files_that_are_none_are_named(self):
        for name, *args in [("echo", "--tls", "--cert", "/no/such.pem", "--key", self.key),
                            ("echo", "--tls", "--cert", self.cert, "--key", "/no/such.pem"),
                            ("echo-client", "--tls", "--ca", "/no/such.pem"),
                            ("proxy", "--connect-tls", "--ca", "/no/such.pem")]:
            with self.subTest(name, args=args):
                code, out, err = run(name, *args)
                self.assertEqual((code, out), (1, ""))
                self.assertIn("/no/such.pem", err)
                self.assertIn("No such file", err)

    def test_the_proxy_speaks_tls_on_either_side(self):
        for io in BACKENDS:
            for front, back in [(True, False), (False, True), (True, True)]:
                with self.subTest(io=io, front=front, back=back), \
                     server("echo", *(["--tls", *self.identity] if back else [])) as echo, \
                     server("proxy", "--connect", echo.address, *(["--tls", *self.identity] if front else []),
                            *(["--connect-tls", "--ca", self.cert] if back else []), io=io) as proxy:
                    if front:
                        self.check(proxy)
                    else:
                        Echo.check(self, proxy)
                    tls = ["--tls", "--ca", self.cert] if front else []
                    code, _, err = run("echo-client", "--connect", proxy.address, "--connections", "10", "--count", "5",
                                       "--size", "50000", "--timeout", "60", *tls)
                    self.assertEqual((code, err), (0, ""))

    def test_the_proxy_verifies_too(self):
        for more, words in [([], "self-signed"), (["--ca", self.cert, "--host", "example.org"], "example.org is refused")]:
            with self.subTest(words), server("echo", "--tls", *self.identity) as echo, \
                 server("proxy", "--connect", echo.address, "--connect-tls", *more, "--log", "info", errors=words) as proxy, \
                 proxy.connect() as sock:
                sock.sendall(b"hello")
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(receive_all(sock), b"")
        with server("echo", "--tls", *self.identity) as echo, \
             server("proxy", "--connect", echo.address, "--connect-tls", "--insecure", errors="is not verified") as proxy:
            Echo.check(self, proxy)

    def test_the_proxy_makes_no_good_end_of_a_bad_one(self):
        """An upstream that breaks off: a client that got close_notify would take what it has for everything."""
        for io in BACKENDS:
            with self.subTest(io), socket.create_server(("127.0.0.1", 0)) as listener:
                listener.settimeout(PATIENCE_S)
                upstream = "127.0.0.1:%d" % listener.getsockname()[1]
                with server("proxy", "--connect", upstream, "--tls", *self.identity, io=io) as proxy:
                    with self.wrap(proxy.connect()) as client, listener.accept()[0] as far:
                        far.settimeout(PATIENCE_S)
                        client.sendall(b"hello")
                        self.assertEqual(receive(far, 5), b"hello")
                        far.sendall(b"half of")
                        self.assertEqual(receive(client, 7), b"half of")
                        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        far.close()
                        with self.assertRaises((ConnectionResetError, ssl.SSLError)):
                            client.recv(1)

    def test_the_proxy_passes_truncation_on(self):
        """An upstream with TLS that ends without close_notify."""
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(self.cert, self.key)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(PATIENCE_S)
            upstream = "127.0.0.1:%d" % listener.getsockname()[1]
            with server("proxy", "--connect", upstream, "--connect-tls", "--ca", self.cert, "--log", "info",
                        errors="without close_notify") as proxy, proxy.connect() as client:
                client.sendall(b"hello")
                with serving.wrap_socket(listener.accept()[0], server_side=True) as far:
                    far.settimeout(PATIENCE_S)
                    self.assertEqual(receive(far, 5), b"hello")
                    far.sendall(b"half of")
                    self.assertEqual(receive(client, 7), b"half of")
                    far.shutdown(socket.SHUT_RDWR)
                with self.assertRaises(ConnectionResetError):
                    client.recv(1)

    @contextlib.contextmanager
    def late_upstream(self):
        """A listener whose queue is full, so that a connection to it waits until `accept` is called, and up to a second more."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, \
             socket.create_connection(listener.getsockname()) as filler:
            listener.settimeout(PATIENCE_S)

            def accept():
                listener.listen(16)
                far, address = listener.accept()
                if address == filler.getsockname():
                    far.close()
                    return accept()
                far.settimeout(PATIENCE_S)
                return far
            yield listener, accept

    def wait_until_read(self, server_port, client_port):
        """The server has taken everything from its socket that the client has sent."""
        ends = rf" *\d+: \w+:{server_port:04X} \w+:{client_port:04X} 0[18] \w+:00000000 "
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with open("/proc/net/tcp", encoding="ascii") as table:
                if re.search(ends, table.read(), re.M):
                    return
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def shake_and_end(self, sock, data):
        """Sends the last message of the handshake, data and close_notify in one piece: what to read the answer with."""
        come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ssl.create_default_context(cafile=self.cert).wrap_bio(come, go, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(go.read())
                come.write(sock.recv(65536))
        if data:
            tls.write(data)
        with self.assertRaises(ssl.SSLWantReadError):
            tls.unwrap()
        sock.sendall(go.read())

        def read():
            try:
                return tls.read(65536)
            except ssl.SSLWantReadError:
                come.write(sock.recv(65536))
                return read()
        return read

    def test_the_proxy_passes_on_what_was_said_before_the_upstream_was_there(self):
        """A client that has said everything, and close_notify, before the proxy has its connection."""
        said = [b"", b"all there is"]
        for io in BACKENDS:
            with self.subTest(io), self.late_upstream() as (listener, accept), contextlib.ExitStack() as opened:
                upstream = "127.0.0.1:%d" % listener.getsockname()[1]
                proxy = opened.enter_context(server("proxy", "--connect", upstream, "--tls", *self.identity, io=io))
                clients = [opened.enter_context(proxy.connect()) for _ in said]
                reads = [self.shake_and_end(*each) for each in zip(clients, said)]
                for client in clients:
                    self.wait_until_read(proxy.port(), client.getsockname()[1])
                passed_on = []
                for _ in said:
                    with accept() as far:
                        passed_on.append(receive_all(far))
                        far.sendall(b"an answer")
                self.assertEqual(sorted(passed_on), said)
                for client, read in zip(clients, reads):
                    self.assertEqual(read(), b"an answer")
                    with self.assertRaises(ssl.SSLZeroReturnError):  # close_notify
                        read()
                    self.assertEqual(client.recv(1), b"")

    def test_the_proxy_waits_for_who_does_not_read(self):
        for io in BACKENDS:
            with self.subTest(io), socket.create_server(("127.0.0.1", 0)) as listener:
                listener.settimeout(PATIENCE_S)
                upstream = "127.0.0.1:%d" % listener.getsockname()[1]
                with server("proxy", "--connect", upstream, "--tls", *self.identity, io=io) as proxy:
                    with self.wrap(proxy.connect()) as client, listener.accept()[0] as far:
                        far.settimeout(1)
                        sent, piece = 0, bytes(1 << 16)
                        with self.assertRaises(TimeoutError):
                            while sent < 100 << 20:
                                sent += far.send(piece)
                        far.settimeout(PATIENCE_S)
                        self.assertEqual(len(receive(client, sent)), sent)
                        far.sendall(b"and more")
                        self.assertEqual(receive(client, 8), b"and more")

    def test_the_proxy_passes_much_both_ways(self):
        data = os.urandom(8 << 20)
        with server("echo", "--tls", *self.identity) as echo, \
             server("proxy", "--connect", echo.address, "--tls", *self.identity, "--connect-tls", "--ca", self.cert) as proxy, \
             self.wrap(proxy.connect()) as sock:
            self.assertEqual(hashlib.sha256(self.exchange(sock, data)).digest(), hashlib.sha256(data).digest())
            sock.unwrap().close()


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        blocks = []
        for path in ["README.md", "docs/architecture.md"]:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                blocks += re.findall(r"```c\n(.*?)```", file.read(), re.S)
        cls.programs = [block for block in blocks if "int main" in block]
        cls.definitions = [block for block in blocks if re.match(r"static \w+ \w+\(", block) and "int main" not in block]
        cls.fragments = [block for block in blocks if block not in cls.programs + cls.definitions]

    def test_its_echo_server_is_the_example(self):
        with open(os.path.join(ROOT, "examples", "echo.c"), encoding="utf-8") as file:
            example = file.read()
        self.assertEqual(len(self.programs), 1)
        core = re.search(r"static void echo_on_read\b.*?(?=int main)", self.programs[0], re.S)[0]
        self.assertIn(core, example)

    # What the text has said before a fragment comes.
    NAMES = """
        extern weir_group *workers;
        extern weir_server *server;
        extern weir_channel *channel, *front, *back;
        extern weir_channel_group *room;
        extern weir_guard *guard;
        extern weir_ctx *ctx;
        extern weir_msg *msg;
        extern weir_error error;
    """

    def definitions_for(self, fragment):
        """Those that it uses, by the names of their functions."""
        return "\n".join(block for block in self.definitions
                         if any(re.search(rf"\b{name}\b", fragment) for name in re.findall(r"(?m)^static \w+ (\w+)\(", block)))

    def compile(self, fragment, *args, names=NAMES):
        includes = "".join(re.findall(r"^#include.*\n", fragment, re.M))
        body = re.sub(r"^#include.*\n", "", fragment, flags=re.M)
        handlers = self.programs[0].replace("int main(void)", "int the_server(void);\nint the_server(void)")
        program = (f"#include <assert.h>\n#include <weir/embedded.h>\n{handlers}\n{includes}\n{names}\n"
                   f"{self.definitions_for(fragment)}\nint main(void)\n{{\n{body}\n    return 0;\n}}\n")
        done = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-",
                               "-I" + os.path.join(ROOT, "include"), *args],
                              input=program, text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, f"{fragment}\n{done.stderr}")

    def test_every_fragment_compiles(self):
        self.assertGreater(len(self.fragments), 5)
        for fragment in self.fragments:
            self.compile(fragment, "-fsyntax-only")
        self.assertEqual(len(self.definitions), 3)
        used = "".join(self.definitions_for(fragment) for fragment in self.fragments)
        for block in self.definitions:
            self.assertIn(block, used)

    def run(self, result=None):
        with tempfile.TemporaryDirectory() as self.folder:
            return super().run(result)

    def build(self, fragment, **more):
        """The fragment as a program of its own."""
        build = os.path.join(PROGRAMS, "..")
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
            sanitizers = re.search(r"^WEIR_SANITIZE:\w+=(.*)$", cache.read(), re.M)[1]
        with open(os.path.join(build, "weir.pc"), encoding="utf-8") as facts:
            libraries = re.search(r"^Libs.private: (.*)$", facts.read(), re.M)[1].split()
        program = os.path.join(self.folder, "fragment")
        self.compile(fragment, "-o", program, "-x", "none", os.path.join(build, "src", "libweir.a"), *libraries,
                     *(["-fsanitize=" + sanitizers] if sanitizers else []), **more)
        return program

    def test_fragments_that_need_nothing_run(self):
        alone = [fragment for fragment in self.fragments if "weir_embedded_new" in fragment or "weir_buf_new" in fragment]
        self.assertEqual(len(alone), 2)
        for fragment in alone:
            self.assertEqual(subprocess.run([self.build(fragment)], timeout=PATIENCE_S).returncode, 0, fragment)

    def fragment_with(self, word):
        fragment, = [fragment for fragment in self.fragments if word in fragment]
        return fragment

    # Between these a fragment has loops.
    BEGIN = "weir_group *workers; weir_error error; weir_group_new(&workers, &(weir_group_config){ .loops = 1 }, &error);\n"
    END = "weir_group_free(workers); (void)error;\n"

    def test_its_client_gets_an_answer(self):
        with server("echo") as echo:
            connect = self.fragment_with("weir_client_connect").replace("localhost:8007", echo.address)
            program = self.build(self.BEGIN + connect + self.END, names="")
            done = subprocess.run([program], timeout=PATIENCE_S, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "hello\n", ""))

    def test_its_timer_and_tasks_run(self):
        program = self.build("#include <unistd.h>\nsetvbuf(stdout, NULL, _IOLBF, 0);\n" + self.BEGIN +
                             self.fragment_with("tick") + "pause();" + self.END, names="")
        missing = {"a second has passed\n", "on the loop, soon\n", "where it may take its time\n"}
        with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as running:
            while missing and (line := running.stdout.readline()):
                missing.discard(line)
            running.kill()
        self.assertEqual(missing, set())


if __name__ == "__main__":
    # The thread of weir's global executor ends a while after its last task; programs do not wait for it.
    os.environ["TSAN_OPTIONS"] = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
    PROGRAMS = sys.argv.pop(1)
    unittest.main(verbosity=2, warnings="ignore")
