#!/usr/bin/env python3
"""haproxy in front of weir-echo --proxy-protocol, speaking both versions of the PROXY protocol.

    tests/interop/test_proxy_protocol.py WEIR_ECHO [unittest's arguments]
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ECHO = ""
PATIENCE_S = 60  # for everything that should happen at once, on a machine under heavy load
BACKENDS = ["epoll", "blocking"] + ([] if os.environ.get("WEIR_ACCEPT_NO_URING") else ["uring"])

# Ways to send it: what haproxy is told, and the version that is then seen.
WAYS = [("send-proxy", 1), ("send-proxy-v2", 2), ("send-proxy-v2 proxy-v2-options unique-id,crc32c", 2)]

CONFIG = """
global
    maxconn 100
defaults
    mode tcp
    timeout connect {patience}s
    timeout client {patience}s
    timeout server {patience}s
"""
PROXY = """
listen way{number}
    bind {bind}
    unique-id-format %[uuid()]
    server echo {echo} {way}
"""


def free_port(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        return sock.getsockname()[1]


class Echo:
    """weir-echo, with what it writes to standard error in a file."""

    def __init__(self, folder, io):
        self.log = open(os.path.join(folder, "echo.log"), "w+")
        self.process = subprocess.Popen(
            [ECHO, "--listen", "127.0.0.1:0", "--io", io, "--proxy-protocol", "--log", "info"], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log)
        line = self.process.stdout.readline()
        self.address = re.fullmatch(r"listening on (\S+)\n", line)[1]

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, pattern):
        """Waits until it has logged that; once, or it hangs and has failed."""
        end = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, self.text())):
            if time.monotonic() > end:
                raise AssertionError(f"no '{pattern}' in: {self.text()}")
            time.sleep(0.01)
        return match

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)
        text = self.text()
        self.log.close()
        return self.process.returncode, text


class Haproxy:
    def __init__(self, folder, text):
        path = os.path.join(folder, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(text)
        self.log = open(os.path.join(folder, "haproxy.log"), "w+")
        self.process = subprocess.Popen(["haproxy", "-db", "-f", path], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)

    def connect(self, host, port):
        """As soon as it listens."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                sock = socket.create_connection((host, port), timeout=PATIENCE_S)
                sock.settimeout(PATIENCE_S)
                return sock
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.log.seek(0)
                    raise AssertionError(f"haproxy does not listen: {self.log.read()}") from None
                time.sleep(0.01)

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)
        self.log.close()


def address_of(pair):
    return f"[{pair[0]}]:{pair[1]}" if ":" in pair[0] else f"{pair[0]}:{pair[1]}"


def echo_once(sock, data):
    sock.sendall(data)
    got = b""
    while len(got) < len(data) and (part := sock.recv(65536)):
        got += part
    return got


class ProxyProtocol(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-interop-")
        self.addCleanup(shutil.rmtree, self.folder)

    def check(self, io, host):
        echo = Echo(self.folder, io)
        ports = [free_port(host) for _ in WAYS]
        text = CONFIG.format(patience=PATIENCE_S) + "".join(
            PROXY.format(number=i, bind=f"{host}:{ports[i]}", echo=echo.address, way=way)
            for i, (way, _) in enumerate(WAYS))
        proxy = Haproxy(self.folder, text)
        try:
            for port, (way, version) in zip(ports, WAYS):
                with self.subTest(way, io=io, host=host), proxy.connect(host, port) as sock:
                    data = os.urandom(300000)
                    self.assertEqual(echo_once(sock, data), data)
                    client, wanted = re.escape(address_of(sock.getsockname())), re.escape(address_of(sock.getpeername()))
                    match = echo.wait_for(rf"{client} wants to {wanted}, through (\S+) \(PROXY v{version}\)")
                    self.assertTrue(match[1].startswith("127.0.0.1:"), match[1])
        finally:
            proxy.end()
            code, log = echo.end()
        self.assertEqual(code, 0, log)
        self.assertNotRegex(log, r"weir (warn|error)|live messages")

    def test_ipv4_clients_are_seen(self):
        for io in BACKENDS:
            self.check(io, "127.0.0.1")

    def test_ipv6_clients_are_seen(self):
        for io in BACKENDS:
            self.check(io, "::1")

    def test_health_checks_are_the_proxys_own(self):
        echo = Echo(self.folder, "epoll")
        port = free_port("127.0.0.1")
        proxy = Haproxy(self.folder, CONFIG.format(patience=PATIENCE_S) + PROXY.format(
            number=0, bind=f"127.0.0.1:{port}", echo=echo.address,
            way="check inter 50ms check-send-proxy send-proxy-v2"))
        try:
            match = echo.wait_for(r"(\S+) wants to -, through (\S+) \(PROXY v2, local\)")
            self.assertEqual(match[1], match[2])
        finally:
            proxy.end()
            code, log = echo.end()
        self.assertEqual(code, 0, log)

    def test_who_comes_without_a_proxy_is_turned_away(self):
        echo = Echo(self.folder, "epoll")
        host, _, port = echo.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
                sock.sendall(b"hello\n")
                try:
                    self.assertEqual(sock.recv(100), b"")
                except ConnectionResetError:
                    pass
            echo.wait_for(r"no PROXY header begins with 0x68 here \(at byte 0 of the stream\)")
        finally:
            code, log = echo.end()
        self.assertEqual(code, 0, log)


if __name__ == "__main__":
    ECHO = sys.argv.pop(1)
    if shutil.which("haproxy") is None:
        sys.exit("haproxy is missing: tools/packages lists what tests need")
    unittest.main()
