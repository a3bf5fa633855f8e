#!/usr/bin/env python3
"""weir-load against weir-echo, and against servers that do not do what they should.

    tests/bench/test_load.py WEIR_LOAD WEIR_ECHO [unittest's arguments]
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

LOAD = ECHO = ""
PATIENCE_S = 100


def load(*args):
    """Exit code, what --json printed, standard error."""
    done = subprocess.run([LOAD, "--json", *args], text=True, capture_output=True, timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


class OverEcho(unittest.TestCase):
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
        self.assertRegex(err, r"\A(weir-echo: Terminated.*\n)?\Z")  # it may not have seen the last ones close

    def run_load(self, *args):
        code, result, err = load(*args, self.address)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(result["failed"], 0)
        times = result["latency_ns"]
        self.assertLessEqual(times["p50"], times["p90"])
        self.assertLessEqual(times["p99"], times["p999"])
        self.assertLessEqual(times["p999"], times["max"])
        return result

    def test_a_count_is_exact(self):
        for args in (), ("--connections", "7"), ("--connections", "3", "--depth", "16"), ("--size", "300000"):
            with self.subTest(args=args):
                self.assertEqual(self.run_load("--count", "200", *args)["messages"], 200)

    def test_a_duration(self):
        result = self.run_load("--connections", "8", "--duration", "0.3", "--warmup", "0.1")
        self.assertGreater(result["messages"], 0)
        self.assertGreater(result["latency_ns"]["p50"], 0)
        self.assertGreaterEqual(result["seconds"], 0.3)

    def test_a_fixed_rate(self):
        result = self.run_load("--connections", "4", "--rate", "500", "--count", "300")
        self.assertEqual(result["messages"], 300)
        self.assertGreaterEqual(result["seconds"], 0.59)  # the last is due after 299/500 s

    def test_connect(self):
        self.assertEqual(self.run_load("--mode", "connect", "--connections", "5", "--count", "100")["messages"], 100)

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
        for mode in "echo", "connect":
            self.expect("not what was sent", "--mode", mode, "--count", "1", address)

    def test_more_than_was_sent(self):
        self.expect("not what was sent", "--count", "1", self.serve(lambda got: got + got))

    def test_closed(self):
        self.expect("closed a connection", "--count", "1", self.serve(lambda got: b""))

    def test_nobody_there(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = "127.0.0.1:%d" % listener.getsockname()[1]
        self.expect("refused", "--count", "1", address)
        self.expect("no such process", "--count", "1", "--watch", "99999999", self.serve(lambda got: got))

    def test_wrong_arguments(self):
        for args in ([], ["--bogus", "1:1"], ["--connections", "0", "1:1"], ["--mode", "x", "1:1"], ["a:1", "b:2"]):
            done = subprocess.run([LOAD, *args], text=True, capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 2)
            self.assertTrue(done.stderr.startswith("weir-load: "), done.stderr)
        self.expect("no address", "--count", "1", "nowhere")


if __name__ == "__main__":
    LOAD, ECHO = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
