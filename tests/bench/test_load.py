#!/usr/bin/env python3
"""weir-load against weir-echo, against echo servers over TLS, and against servers that do not do what they should.

    tests/bench/test_load.py WEIR_LOAD WEIR_ECHO DIRECTORY_OF_THE_TLS_SERVERS [unittest's arguments]
"""
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

LOAD = ECHO = SERVERS = ""
PATIENCE_S = 100


def load(*args):
    """Exit code, what --json printed, standard error."""
    done = subprocess.run([LOAD, "--json", *args], text=True, capture_output=True, timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def with_each_io(test):
    """Runs a test method over each way to the server that there is, and once without a wish."""
    @functools.wraps(test)
    def run(self):
        for io in (), ("--io", "epoll"), ("--io", "uring"):
            with self.subTest(io=io):
                if "uring" not in io or self.has_uring():
                    test(self, *io)
    return run


class OverEcho(unittest.TestCase):
    def has_uring(self):
        code, _, err = load("--io", "uring", "--count", "1", self.address)
        self.assertTrue(code == 0 or "there is no io_uring here" in err, err)
        return code == 0

    def setUp(self):
        self.start("127.0.0.1:0")

    def start(self, address):
        self.server = subprocess.Popen([ECHO, "--listen", address, "--io", "epoll", "--loops", "1"], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.address = re.fullmatch(r"listening on (\S+)\n", self.server.stdout.readline())[1]

    def tearDown(self):
        self.server.terminate()
        _, err = self.server.communicate(timeout=PATIENCE_S)
        self.assertEqual(self.server.returncode, 0)
        self.assertRegex(err, r"\A(weir-echo: open connections have.*\n)?\Z")  # it may not have seen the last ones close

    def run_load(self, *args):
        code, result, err = load(*args, self.address)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(result["failed"], 0)
        self.assertIn(result["io"], ("epoll", "uring"))
        times = result["latency_ns"]
        self.assertLessEqual(times["p50"], times["p90"])
        self.assertLessEqual(times["p99"], times["p999"])
        self.assertLessEqual(times["p999"], times["max"])
        return result

    @with_each_io
    def test_a_count_is_exact(self, *io):
        for args in (), ("--connections", "7"), ("--connections", "3", "--depth", "16"), ("--size", "300000"), \
                ("--size", "16385", "--depth", "40"):
            with self.subTest(args=args):
                self.assertEqual(self.run_load("--count", "200", *io, *args)["messages"], 200)

    @with_each_io
    def test_more_connections_than_a_ring_is_long(self, *io):
        self.assertEqual(self.run_load("--connections", "1500", "--count", "1600", *io)["messages"], 1600)

    @with_each_io
    def test_a_duration(self, *io):
        result = self.run_load("--connections", "8", "--duration", "0.3", "--warmup", "0.1", *io)
        self.assertGreater(result["messages"], 0)
        self.assertGreater(result["latency_ns"]["p50"], 0)
        self.assertGreaterEqual(result["seconds"], 0.3)

    @with_each_io
    def test_a_fixed_rate(self, *io):
        result = self.run_load("--connections", "4", "--rate", "500", "--count", "300", *io)
        self.assertEqual(result["messages"], 300)
        self.assertGreaterEqual(result["seconds"], 0.59)  # the last is due after 299/500 s

    def test_long_messages_go_by_epoll(self):
        self.assertEqual(self.run_load("--count", "10", "--size", "100000")["io"], "epoll")

    def test_connect(self):
        self.assertEqual(self.run_load("--mode", "connect", "--connections", "5", "--count", "100")["messages"], 100)

    def test_connect_without_a_message(self):
        result = self.run_load("--mode", "connect", "--size", "0", "--connections", "5", "--count", "100")
        self.assertEqual(result["messages"], 100)

    def test_steps_count_the_same_in_each_run(self):
        self.tearDown()
        counts = [self.steps_of(count) for count in (40, 140, 140)]
        per_message = [(count - counts[0]) / 100 for count in counts[1:]]
        self.assertGreater(per_message[0], 20)
        self.assertLess(per_message[0], 50_000)  # under a sanitizer
        self.assertAlmostEqual(per_message[0], per_message[1], delta=per_message[0] / 4)
        self.start("127.0.0.1:0")

    def steps_of(self, count):
        """Those of plain epoll, which is dead afterwards."""
        plain = subprocess.Popen([os.path.join(SERVERS, "echo-epoll"), "--listen", "127.0.0.1:0"], text=True,
                                 stdout=subprocess.PIPE)
        address = plain.stdout.readline().split()[-1]
        code, result, err = load("--steps", "--watch", str(plain.pid), "--count", str(count), address)
        plain.kill()
        self.assertEqual((code, plain.wait(PATIENCE_S)), (0, -9), err)
        plain.stdout.close()
        return result["steps"]

    def test_idle(self):
        result = self.run_load("--mode", "idle", "--connections", "50", "--duration", "0.1",
                               "--watch", str(self.server.pid))
        self.assertEqual(result["messages"], 50)
        self.assertGreater(result["server"]["resident_kib"], 0)

    def test_what_the_server_costs(self):
        self.run_load("--count", "1")  # its threads are those that there are when it begins
        server = self.run_load("--count", "5000", "--watch", str(self.server.pid))["server"]
        self.assertGreater(server["cpu_ns"], 0)
        if server["entries"] >= 0:  # else there are no rights to count them
            self.assertGreaterEqual(server["entries"], 2 * 5000)

    def test_over_unix(self):
        self.tearDown()
        with tempfile.TemporaryDirectory() as directory:
            self.start("unix:" + os.path.join(directory, "echo"))
            self.assertEqual(self.run_load("--connections", "3", "--count", "100")["messages"], 100)
            self.tearDown()
        self.start("unix:@weir-load-test-%d" % os.getpid())
        self.assertEqual(self.run_load("--mode", "connect", "--count", "10")["messages"], 10)


def with_each_tls_server(test):
    """Runs a test method once per server over TLS that was built."""
    @functools.wraps(test)
    def run(self):
        for program, *args in ("echo-weir", "--io", "epoll"), ("echo-weir", "--io", "uring"), ("echo-ssl",), \
                ("echo-netty",):
            path = os.path.join(SERVERS, program)
            if os.access(path, os.X_OK):
                with self.subTest(program, args=args):
                    test(self, *self.start(path, "--listen", "127.0.0.1:0", "--cert", self.files[0], "--key",
                                           self.files[1], *args))
    return run


class OverTls(unittest.TestCase):
    """Whatever server it is, what it says of handshakes is true."""

    @classmethod
    def setUpClass(cls):
        if shutil.which("openssl") is None or not os.path.exists(os.path.join(SERVERS, "echo-ssl")):
            raise unittest.SkipTest("there is no OpenSSL here")
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.files = [os.path.join(cls.directory.name, name) for name in ("certificate.pem", "key.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "2", "-subj", "/CN=localhost", "-out", cls.files[0], "-keyout", cls.files[1]], check=True,
                       capture_output=True)

    def start(self, *command):
        server = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (server.terminate(), server.communicate(timeout=PATIENCE_S)))
        line = server.stdout.readline()
        self.assertRegex(line, "^listening on ")
        return server.pid, line.split()[-1]

    def run_load(self, *args):
        code, result, err = load(*args)
        self.assertEqual((code, err), (0, ""))
        return result

    @with_each_tls_server
    def test_echo(self, _, address):
        for args in (), ("--connections", "7"), ("--connections", "3", "--depth", "16"), ("--size", "300000"):
            result = self.run_load("--tls", "--count", "100", *args, address)
            self.assertEqual(result["messages"], 100)
            connections = int(args[1]) if "--connections" in args else 1
            self.assertEqual(result["tls"], {"handshakes": connections, "resumed": 0})

    @with_each_tls_server
    def test_full_handshakes(self, _, address):
        result = self.run_load("--tls", "--mode", "connect", "--connections", "5", "--count", "50", address)
        self.assertEqual((result["messages"], result["tls"]), (50, {"handshakes": 50, "resumed": 0}))

    @with_each_tls_server
    def test_resumed_handshakes(self, _, address):
        result = self.run_load("--tls=resumed", "--mode", "connect", "--connections", "5", "--count", "50", address)
        self.assertEqual((result["messages"], result["tls"]), (50, {"handshakes": 50, "resumed": 45}))

    @with_each_tls_server
    def test_idle(self, pid, address):
        result = self.run_load("--tls", "--mode", "idle", "--connections", "30", "--duration", "0.1", "--watch", str(pid),
                               address)
        self.assertEqual((result["messages"], result["tls"]["handshakes"]), (30, 30))
        self.assertGreater(result["server"]["resident_kib"], 0)

    def test_in_words(self):
        _, address = self.start(os.path.join(SERVERS, "echo-ssl"), "--listen", "127.0.0.1:0", "--cert", self.files[0],
                                "--key", self.files[1])
        done = subprocess.run([LOAD, "--tls=resumed", "--mode", "connect", "--count", "3", address], text=True,
                              capture_output=True, timeout=PATIENCE_S)
        self.assertIn("TLS: 3 handshakes, 2 of them resumed\n", done.stdout)

    def test_a_server_without_tls(self):
        _, address = self.start(ECHO, "--listen", "127.0.0.1:0", "--io", "epoll", "--loops", "1")
        for mode in "echo", "connect":
            code, result, err = load("--tls", "--mode", mode, "--count", "1", address)
            self.assertEqual((code, result), (1, None))
            self.assertRegex(err, "^weir-load: TLS: ")

    @with_each_tls_server
    def test_a_server_with_tls_and_a_load_without(self, _, address):
        code, result, err = load("--count", "1", address)
        self.assertEqual((code, result), (1, None))
        self.assertRegex(err, "closed a connection|reset|not what was sent")

    def test_no_other_way(self):
        done = subprocess.run([LOAD, "--tls=often", "1:1"], text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr), (2, "weir-load: --tls: 'often' is not resumed\n"))


class OverOthers(unittest.TestCase):
    def serve(self, answer):
        """A server that answers the first bytes of each connection with answer(bytes), and closes it if that is empty."""
        listener = socket.create_server(("127.0.0.1", 0))
        kept = []
        self.addCleanup(lambda: [sock.close() for sock in (listener, *kept)])

        def run():
            while True:
                try:
                    peer, _ = listener.accept()
                    kept.append(peer)
                    reply = answer(peer.recv(1000))
                    peer.sendall(reply) if reply else peer.close()
                except OSError:
                    return
        threading.Thread(target=run, daemon=True).start()
        return "127.0.0.1:%d" % listener.getsockname()[1]

    def expect(self, text, *args):
        code, result, err = load(*args)
        self.assertEqual((code, result), (1, None))
        self.assertIn(text, err)

    def test_a_wrong_answer(self):
        address = self.serve(lambda got: b"x" * len(got))
        for args in ("--mode", "connect"), (), ("--io", "epoll"):
            self.expect("not what was sent", *args, "--count", "1", address)

    def test_more_than_was_sent(self):
        for args in (), ("--io", "epoll"):
            self.expect("not what was sent", *args, "--count", "1", self.serve(lambda got: got + got))

    def test_closed(self):
        for args in (), ("--io", "epoll"):
            self.expect("closed a connection", *args, "--count", "1", self.serve(lambda got: b""))

    def test_nobody_there(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = "127.0.0.1:%d" % listener.getsockname()[1]
        self.expect("refused", "--count", "1", address)
        self.expect("no such process", "--count", "1", "--watch", "99999999", self.serve(lambda got: got))

    def test_wrong_arguments(self):
        for args in ([], ["--bogus", "1:1"], ["--connections", "0", "1:1"], ["--mode", "x", "1:1"], ["a:1", "b:2"],
                     ["--io", "x", "1:1"], ["--io", "uring", "--mode", "idle", "1:1"], ["--io", "uring", "--tls", "1:1"],
                     ["--size", "0", "1:1"], ["--steps", "1:1"], ["--steps", "--count", "1", "1:1"]):
            done = subprocess.run([LOAD, *args], text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 2)
            self.assertTrue(done.stderr.startswith("weir-load: "), done.stderr)
        self.expect("no address", "--count", "1", "nowhere")


if __name__ == "__main__":
    LOAD, ECHO, SERVERS = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
