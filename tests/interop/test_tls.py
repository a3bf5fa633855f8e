#!/usr/bin/env python3
"""TLS with programs that were not written here: OpenSSL's, GnuTLS's, Netty's SslHandler, and scanners.

    tests/interop/test_tls.py TLS_PEER DIRECTORY_OF_THE_EXAMPLES [unittest's arguments]
"""
import contextlib
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = EXAMPLES = FOLDER = ""
PATIENCE_S = 60  # for everything that should happen at once, on a machine under heavy load
BACKENDS = ["epoll"] + ([] if os.environ.get("WEIR_ACCEPT_NO_URING") else ["uring"])
NETTY = [f"/usr/share/java/netty-{part}.jar" for part in ["common", "buffer", "transport", "handler", "codec", "resolver"]]
SERVER_NAMES = {"tls1_2": "TLSv1.2", "tls1_3": "TLSv1.3"}


# Certificates: two authorities, and whom they vouch for ------------------------------------------

def path(name):
    return os.path.join(FOLDER, name)


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True, stdin=subprocess.DEVNULL)


def make_key(name, kind):
    ways = {"ec": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["-algorithm", "RSA"],
            "ed25519": ["-algorithm", "ED25519"]}
    openssl("genpkey", *ways[kind], "-out", path(name + ".key"))


def make_authority(name):
    make_key(name, "ec")
    openssl("req", "-x509", "-new", "-key", path(name + ".key"), "-out", path(name + ".pem"), "-days", "3", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:true")


def make_certificate(name, issuer, names, kind="ec", days=2):
    make_key(name, kind)
    with open(path(name + ".ext"), "w", encoding="ascii") as file:
        file.write(f"subjectAltName={names}\nbasicConstraints=CA:false\n")
    openssl("req", "-new", "-key", path(name + ".key"), "-out", path(name + ".csr"), "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", path(name + ".csr"), "-CA", path(issuer + ".pem"), "-CAkey", path(issuer + ".key"),
            "-days", str(days), "-extfile", path(name + ".ext"), "-out", path(name + ".pem"))


def setUpModule():
    global FOLDER
    FOLDER = tempfile.mkdtemp(prefix="weir-tls-")
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    make_authority("ca")
    make_authority("stranger")
    make_certificate("localhost", "ca", "DNS:localhost,IP:127.0.0.1")
    make_certificate("a.example", "ca", "DNS:a.example")
    make_certificate("wild.example", "ca", "DNS:*.wild.example")
    make_certificate("client", "ca", "DNS:client")
    make_certificate("foreigner", "stranger", "DNS:localhost")


def identity(name="localhost"):
    return [f"cert={path(name)}.pem", f"key={path(name)}.key"]


# Programs ----------------------------------------------------------------------------------------

class Program:
    """One that runs, with all it prints in a file."""

    def __init__(self, *command, stdin=subprocess.DEVNULL):
        self.log = tempfile.TemporaryFile("w+", dir=FOLDER, errors="replace")
        self.process = subprocess.Popen(command, stdin=stdin, stdout=self.log, stderr=subprocess.STDOUT)

    def text(self):
        with open(f"/proc/self/fd/{self.log.fileno()}", encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for(self, pattern, count=1):
        """Waits until it has printed that so many times; returns the last match."""
        end = time.monotonic() + PATIENCE_S
        while len(found := list(re.finditer(pattern, self.text(), re.M))) < count:
            if self.process.poll() is not None and len(list(re.finditer(pattern, self.text(), re.M))) < count:
                raise AssertionError(f"it has ended without '{pattern}': {self.text()}")
            if time.monotonic() > end:
                raise AssertionError(f"no '{pattern}' in: {self.text()}")
            time.sleep(0.01)
        return found[-1]

    def say(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end_input(self):
        self.process.stdin.close()

    def wait(self):
        """For its own end: what it has printed."""
        self.process.wait(PATIENCE_S)
        return self.text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.log.close()


class Server(Program):
    """tls-peer, or an example, that says where it listens."""

    def __init__(self, *command):
        super().__init__(*command)
        self.address = self.wait_for(r"^listening on (\S+)$")[1]
        self.port = self.address.rpartition(":")[2]

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", int(self.port)), timeout=PATIENCE_S)
        sock.settimeout(PATIENCE_S)
        return sock

    def check_alive(self):
        """It still does what it is there for."""
        assert self.process.poll() is None, self.text()
        context = ssl.create_default_context(cafile=path("ca.pem"))
        with context.wrap_socket(self.connect(), server_hostname="localhost") as sock:
            sock.sendall(b"still there")
            assert sock.recv(100) == b"still there"
            sock.unwrap().close()


def serve(io, *settings):
    return Server(PEER, "serve", "127.0.0.1:0", io, *settings)


def echo(io, *args):
    return Server(os.path.join(EXAMPLES, "weir-echo"), "--listen", "127.0.0.1:0", "--io", io, "--tls",
                  "--cert", path("localhost.pem"), "--key", path("localhost.key"), *args)


def connect(port, io, *settings):
    """tls-peer as a client: all that it prints."""
    done = subprocess.run([PEER, "connect", f"127.0.0.1:{port}", io, *settings], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def s_client(server, *args, host="localhost"):
    """OpenSSL's client, which believes nothing that is not proven."""
    return Program("openssl", "s_client", "-connect", server.address, "-CAfile", path("ca.pem"), "-verify_return_error",
                   "-verify_hostname", host, "-servername", host, *args, stdin=subprocess.PIPE)


def talk(client, word="hello"):
    """Says a word, waits for the answer, ends: what was printed."""
    with client:
        client.say(word + "\n")
        client.wait_for(f"{word}$")  # it may come in the middle of a line of the program's own
        client.end_input()
        return client.wait()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def s_server(*args, name="localhost"):
    """OpenSSL's server, which answers each line with its reverse."""
    port = free_port()
    with Program("openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", path(name + ".pem"), "-key", path(name + ".key"),
                 "-rev", *args) as running:
        running.wait_for("^ACCEPT")
        running.port = port
        yield running


# OpenSSL as the client ---------------------------------------------------------------------------

class OpensslClient(unittest.TestCase):
    def test_versions_and_kinds_of_keys(self):
        for kind in ["rsa", "ed25519"]:
            make_certificate("as-" + kind, "ca", "DNS:localhost", kind)
        for io in BACKENDS:
            for name in ["localhost", "as-rsa", "as-ed25519"]:
                with serve(io, *identity(name)) as server:
                    for count, version in enumerate(["tls1_2", "tls1_3"], 1):
                        with self.subTest(io=io, name=name, version=version):
                            said = talk(s_client(server, "-" + version))
                            self.assertRegex(said, rf"New, {SERVER_NAMES[version]}, Cipher is \S*(GCM|CHACHA)")
                            self.assertIn("Verification: OK", said)
                            server.wait_for(r"^session version=1\.[23] .* host=localhost resumed=0", count)
                            server.wait_for("^end$", count)
                            server.wait_for("^closed$", count)
                    self.assertNotIn("error", server.text())

    def test_the_example(self):
        for io in BACKENDS:
            with echo(io) as server:
                self.assertIn("Verification: OK", talk(s_client(server)))

    def test_handshakes_on_executors(self):
        for io in BACKENDS:
            with serve(io, *identity(), "with=executors") as server:
                for version in ["tls1_2", "tls1_3"]:
                    self.assertIn("Verification: OK", talk(s_client(server, "-" + version)))

    def test_what_is_too_old_is_refused(self):
        for args in [["-tls1"], ["-tls1_1"], ["-tls1_2", "-cipher", "AES128-SHA:AES256-GCM-SHA384:ECDHE-ECDSA-AES128-SHA256"],
                     ["-tls1_2", "-curves", "P-521"]]:
            with self.subTest(args), serve("epoll", *identity()) as server, \
                 s_client(server, *(args + ["-cipher", "ALL:@SECLEVEL=0"] if len(args) == 1 else args)) as client:
                self.assertRegex(client.wait(), "alert (protocol version|handshake failure)")
                server.wait_for("^error .*the handshake failed")
                server.check_alive()

    def test_another_group_is_asked_for(self):
        for io in BACKENDS:  # the first guess of the client is none of ours: it has to begin again
            with self.subTest(io), serve(io, *identity()) as server:
                self.assertIn("ECDH, secp384r1", talk(s_client(server, "-tls1_3", "-groups", "P-521:P-384")))

    def test_sessions_are_resumed(self):
        for io in BACKENDS:
            for version in ["tls1_2", "tls1_3"]:
                with self.subTest(io=io, version=version), serve(io, *identity()) as server:
                    kept = path("session")
                    self.assertIn("New, TLS", talk(s_client(server, "-" + version, "-sess_out", kept)))
                    for _ in range(3):
                        said = talk(s_client(server, "-" + version, "-sess_in", kept, "-sess_out", kept))
                        self.assertIn("Reused, TLS", said)
                    server.wait_for("^session .* resumed=1 ", 3)
                    with serve(io, *identity()) as other:  # whose keys are its own
                        self.assertIn("New, TLS", talk(s_client(other, "-" + version, "-sess_in", kept)))

    def test_a_client_reconnects(self):
        with serve("epoll", *identity()) as server, s_client(server, "-tls1_2", "-reconnect") as client:
            client.wait_for("^Reused, TLSv1.2", 5)
            server.wait_for("^session .* resumed=1 ", 5)

    def test_sessions_can_be_off(self):
        for version in ["tls1_2", "tls1_3"]:
            with self.subTest(version), serve("epoll", *identity(), "session_s=-1") as server:
                kept = path("no-session")
                said = talk(s_client(server, "-" + version, "-sess_out", kept))
                self.assertNotIn("New Session Ticket arrived", said)
                if os.path.exists(kept):
                    self.assertIn("New, TLS", talk(s_client(server, "-" + version, "-sess_in", kept)))

    def test_early_data_is_not_taken(self):
        with serve("epoll", *identity()) as server:
            kept, early = path("early-session"), path("early")
            with open(early, "w", encoding="ascii") as file:
                file.write("early\n")
            self.assertIn("Max Early Data: 0", talk(s_client(server, "-tls1_3", "-sess_out", kept)))
            self.assertIn("Early data was not sent", talk(s_client(server, "-tls1_3", "-sess_in", kept, "-early_data", early)))

    def test_protocols(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *identity(), "alpn=h2,http/1.1") as server:
                for wanted, got in [("http/1.1,h2", "h2"), ("http/1.1", "http/1.1"), ("spdy/1,http/1.1", "http/1.1")]:
                    self.assertIn(f"ALPN protocol: {got}", talk(s_client(server, "-alpn", wanted)))
                    server.wait_for(f"^session .* alpn={got} ")
                self.assertIn("No ALPN negotiated", talk(s_client(server)))
                with s_client(server, "-alpn", "spdy/1") as client:
                    self.assertIn("no application protocol", client.wait())

    def hosts(self, *more):
        return [f"host={name},{path(file)}.pem,{path(file)}.key" for name, file in
                [("a.example", "a.example"), ("*.wild.example", "wild.example")]] + [*identity(), *more]

    def test_hosts(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *self.hosts("with=default")) as server:
                for version in ["tls1_2", "tls1_3"]:
                    for host, subject in [("a.example", "a.example"), ("A.Example", "a.example"), ("x.wild.example", "wild.example"),
                                          ("localhost", "localhost")]:
                        said = talk(s_client(server, "-" + version, host=host))
                        self.assertIn(f"subject=CN = {subject}", said)
                        self.assertIn("Verification: OK", said)
                    for host in ["wild.example", "x.y.wild.example", "b.example"]:  # not of ours: the default does not fit
                        with s_client(server, "-" + version, host=host) as client:
                            self.assertIn("hostname mismatch", client.wait())

    def test_addresses_and_trailing_dots_as_server_names(self):
        """s_client sends any text as a server name. An address gets the default certificate; a trailing dot is ignored."""
        for io in BACKENDS:
            with self.subTest(io), serve(io, *self.hosts("with=default")) as server:
                for name, subject, host in [("127.0.0.1", "localhost", "-"), ("::1", "localhost", "-"), ("a.example.", "a.example", "a.example"),
                                            ("x.wild.example.", "wild.example", "x.wild.example")]:
                    count = len(re.findall(f" host={host} ", server.text()))
                    said = talk(Program("openssl", "s_client", "-connect", server.address, "-CAfile", path("ca.pem"), "-verify_return_error",
                                        "-servername", name, stdin=subprocess.PIPE))
                    self.assertIn(f"subject=CN = {subject}", said)
                    server.wait_for(f"^session .* host={host} ", count + 1)
            with serve(io, *self.hosts()) as server:
                with Program("openssl", "s_client", "-connect", server.address, "-servername", "127.0.0.1") as client:
                    self.assertIn("unrecognized name", client.wait())

    def test_unknown_hosts_are_refused(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *self.hosts()) as server:
                for args in [["-servername", "b.example"], ["-noservername"]]:
                    with Program("openssl", "s_client", "-connect", server.address, *args) as client:
                        self.assertRegex(client.wait(), "unrecognized name|no peer certificate available")
                self.assertIn("subject=CN = a.example", talk(s_client(server, host="a.example")))

    def client_identity(self, name):
        return ["-cert", path(name + ".pem"), "-key", path(name + ".key")]

    def test_who_the_client_is(self):
        for io in BACKENDS:
            for version in ["tls1_2", "tls1_3"]:
                for auth in ["optional", "required"]:
                    with self.subTest(io=io, version=version, auth=auth), \
                         serve(io, *identity(), f"auth={auth}", f"ca={path('ca.pem')}") as server:
                        talk(s_client(server, "-" + version, *self.client_identity("client")))
                        server.wait_for("^session .* verified=1 peer=CN=client$")
                        with s_client(server, "-" + version, *self.client_identity("foreigner")) as client:
                            self.assertIn("alert unknown ca", client.wait())
                        if auth == "optional":
                            talk(s_client(server, "-" + version))
                            server.wait_for("^session .* verified=0 peer=-$")
                        else:
                            with s_client(server, "-" + version) as client:
                                self.assertRegex(client.wait(), "alert (certificate required|handshake failure)")

    def test_who_the_client_was_is_known_when_it_comes_back(self):
        for version in ["tls1_2", "tls1_3"]:
            with self.subTest(version), serve("epoll", *identity(), "auth=required", f"ca={path('ca.pem')}") as server:
                kept = path("known")
                talk(s_client(server, "-" + version, *self.client_identity("client"), "-sess_out", kept))
                talk(s_client(server, "-" + version, "-sess_in", kept))
                server.wait_for("^session .* resumed=1 verified=1 peer=CN=client$")

    def test_renegotiation_is_refused(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *identity()) as server, s_client(server, "-tls1_2") as client:
                client.say("hello\n")
                client.wait_for("hello$")
                client.say("R\n")
                client.wait_for("RENEGOTIATING")
                client.wait()
                server.wait_for("^error .*the other side wants to negotiate anew")
                server.check_alive()

    def test_keys_are_updated(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *identity()) as server, s_client(server, "-tls1_3") as client:
                for count, command in enumerate(["k", "K", "K", "k"], 1):
                    client.say(command + "\n")
                    client.wait_for("KEYUPDATE", count)
                    client.say(f"behind {count}\n")
                    client.wait_for(f"behind {count}$")
                client.end_input()
                client.wait()
                self.assertNotIn("error", server.text())

    def test_a_lot(self):
        lines = "".join(f"line {i} of a long text\n" for i in range(40000))
        for io in BACKENDS:
            for version in ["tls1_2", "tls1_3"]:
                with self.subTest(io=io, version=version), serve(io, *identity()) as server, \
                     s_client(server, "-" + version, "-quiet") as client:
                    client.say(lines)
                    client.wait_for("line 39999 of a long text$")
                    self.assertIn(lines, client.text())

    def test_fragments(self):
        with serve("epoll", *identity()) as server:
            talk(s_client(server, "-max_send_frag", "512", "-split_send_frag", "512"))
            talk(s_client(server, "-maxfraglen", "512"))

    def test_who_breaks_off_has_not_ended_well(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *identity()) as server:
                with s_client(server) as client:
                    client.say("hello\n")
                    client.wait_for("hello$")
                    client.process.kill()
                    server.wait_for("^error .*(without close_notify|reset)")
                server.wait_for("^closed$")
                server.check_alive()


# OpenSSL as the server ---------------------------------------------------------------------------

class OpensslServer(unittest.TestCase):
    def ca(self, name="localhost"):
        return [f"ca={path('ca.pem')}", f"name={name}"]

    def test_versions_and_resumption(self):
        for io in BACKENDS:
            for version in ["tls1_2", "tls1_3"]:
                with self.subTest(io=io, version=version), s_server("-" + version) as server:
                    said = connect(server.port, io, *self.ca(), "count=4")
                    self.assertEqual(re.findall(r"resumed=(.)", said), ["0", "1", "1", "1"])
                    self.assertEqual((said.count("answer olleh\n"), said.count("closed\n"), said.count("error")), (4, 4, 0), said)
                    self.assertEqual(said.count(f"version=1.{version[-1]} "), 4)
                    self.assertEqual(said.count("verified=1 peer=CN=localhost"), 4)

    def test_resumption_without_tickets(self):
        with s_server("-tls1_2", "-no_ticket") as server:  # but with the server's memory
            self.assertEqual(re.findall(r"resumed=(.)", connect(server.port, "epoll", *self.ca(), "count=3")), ["0", "1", "1"])

    def test_sessions_can_be_off(self):
        with s_server() as server:
            self.assertEqual(re.findall(r"resumed=(.)", connect(server.port, "epoll", *self.ca(), "count=3", "session_s=-1")),
                             ["0", "0", "0"])

    def test_protocols(self):
        for io in BACKENDS:
            with self.subTest(io), s_server("-alpn", "h2,http/1.1") as server:
                self.assertIn("alpn=h2 ", connect(server.port, io, *self.ca(), "alpn=http/1.1,h2"))
                self.assertIn("alpn=http/1.1 ", connect(server.port, io, *self.ca(), "alpn=http/1.1"))
                self.assertIn("alpn=- ", connect(server.port, io, *self.ca()))

    def test_another_group_is_asked_for(self):
        for io in BACKENDS:
            with self.subTest(io), s_server("-groups", "P-384") as server:
                self.assertIn("answer olleh", connect(server.port, io, *self.ca()))

    def test_hosts(self):
        with s_server("-servername", "a.example", "-servername_fatal", "-cert2", path("a.example.pem"),
                      "-key2", path("a.example.key")) as server:
            self.assertIn("peer=CN=a.example", connect(server.port, "epoll", *self.ca("a.example")))
            self.assertIn("unrecognized name", connect(server.port, "epoll", *self.ca("b.example")))

    def test_who_the_client_is(self):
        for io in BACKENDS:
            for version in ["tls1_2", "tls1_3"]:
                with self.subTest(io=io, version=version), \
                     s_server("-" + version, "-Verify", "2", "-verify_return_error", "-CAfile", path("ca.pem")) as server:
                    self.assertIn("answer olleh", connect(server.port, io, *self.ca(), *identity("client")))
                    self.assertRegex(connect(server.port, io, *self.ca()), "error .*alert (certificate required|handshake failure)")
                    self.assertRegex(connect(server.port, io, *self.ca(), *identity("foreigner")), "error .*alert (unknown ca|.*cert)")

    def test_whom_the_client_does_not_believe(self):
        make_certificate("expired", "ca", "DNS:localhost", days=-1)
        for name, wanted, words in [("foreigner", "localhost", "unable to get local issuer certificate"),
                                    ("localhost", "example.org", "hostname mismatch|Hostname mismatch"),
                                    ("wild.example", "x.y.wild.example", "ostname mismatch"),
                                    ("localhost", "127.0.0.2", "IP address mismatch"),
                                    ("expired", "localhost", "certificate has expired")]:
            with self.subTest(name, wanted=wanted), s_server(name=name) as server:
                said = connect(server.port, "epoll", *self.ca(wanted))
                self.assertRegex(said, f"error .*the certificate of {re.escape(wanted)} is refused: .*({words})")
                self.assertNotIn("answer", said)
                said = connect(server.port, "epoll", "with=insecure", f"name={wanted}")
                self.assertRegex(said, "verified=0")
                self.assertIn("answer olleh", said)

    def test_addresses_and_wildcards_are_believed(self):
        with s_server() as server:
            self.assertIn("verified=1", connect(server.port, "epoll", *self.ca("127.0.0.1")))
        with s_server(name="wild.example") as server:
            self.assertIn("verified=1", connect(server.port, "epoll", *self.ca("x.wild.example")))

    def test_a_server_that_is_too_old(self):
        with s_server("-tls1_1", "-cipher", "ALL:@SECLEVEL=0") as server:
            self.assertRegex(connect(server.port, "epoll", *self.ca()), "error .*(protocol version|unsupported protocol)")

    def test_a_server_that_breaks_off(self):
        for io in BACKENDS:
            with self.subTest(io), s_server() as server:
                with Program(PEER, "connect", f"127.0.0.1:{server.port}", io, *self.ca(), "say=") as client:
                    client.wait_for("^session ")
                    client.wait_for("^answer ")
            with self.subTest(io), Program(
                    "openssl", "s_server", "-accept", f"127.0.0.1:{(port := free_port())}", "-cert", path("localhost.pem"),
                    "-key", path("localhost.key"), stdin=subprocess.PIPE) as server:  # which answers nothing
                server.wait_for("^ACCEPT")
                with Program(PEER, "connect", f"127.0.0.1:{port}", io, *self.ca()) as client:
                    server.wait_for("^hello$")
                    server.process.kill()
                    self.assertRegex(client.wait(), "error .*(without close_notify|reset)")


# GnuTLS ------------------------------------------------------------------------------------------

class Gnutls(unittest.TestCase):
    PRIORITIES = {"1.2": "NORMAL:-VERS-ALL:+VERS-TLS1.2", "1.3": "NORMAL:-VERS-ALL:+VERS-TLS1.3"}

    def client(self, server, version, *args):
        return Program("gnutls-cli", "--x509cafile", path("ca.pem"), "--sni-hostname", "localhost", "--verify-hostname", "localhost",
                       "--priority", self.PRIORITIES[version], "-p", server.port, *args, "127.0.0.1", stdin=subprocess.PIPE)

    def test_as_the_client(self):
        for io in BACKENDS:
            for version in self.PRIORITIES:
                with self.subTest(io=io, version=version), serve(io, *identity(), "alpn=weir/1") as server:
                    said = talk(self.client(server, version, "--alpn", "weir/1"))
                    self.assertIn("Status: The certificate is trusted", said)
                    self.assertIn(f"(TLS{version}", said)
                    server.wait_for(rf"^session version={version} .* alpn=weir/1 host=localhost")
                    server.wait_for("^end$")
                    server.wait_for("^closed$")
                    self.assertNotIn("error", server.text())

    def test_as_the_client_that_comes_back(self):
        for io in BACKENDS:
            for version in self.PRIORITIES:
                with self.subTest(io=io, version=version), serve(io, *identity()) as server, \
                     self.client(server, version, "--resume", "--waitresumption") as client:
                    client.wait_for("This is a resumed session")
                    client.say("hello\n")
                    client.wait_for("hello$")
                    server.wait_for("^session .* resumed=1")

    def test_as_a_client_with_a_certificate(self):
        for version in self.PRIORITIES:
            with self.subTest(version), serve("epoll", *identity(), "auth=required", f"ca={path('ca.pem')}") as server:
                talk(self.client(server, version, "--x509certfile", path("client.pem"), "--x509keyfile", path("client.key")))
                server.wait_for("^session .* verified=1 peer=CN=client$")

    def test_as_a_client_that_wants_new_keys(self):
        with serve("epoll", *identity()) as server, self.client(server, "1.3", "--inline-commands") as client:
            client.say("hello\n")
            client.wait_for("hello$")
            client.say("^rekey^\n")
            client.say("behind\n")
            client.wait_for("behind$")
        with serve("epoll", *identity()) as server, self.client(server, "1.2", "--rehandshake") as client:
            client.wait()
            server.wait_for("^error .*negotiate anew")

    def test_as_the_server(self):
        for io in BACKENDS:
            for version, priority in self.PRIORITIES.items():
                port = free_port()
                with self.subTest(io=io, version=version), \
                     Program("gnutls-serv", "--echo", "-p", str(port), "--x509certfile", path("localhost.pem"), "--x509keyfile",
                             path("localhost.key"), "--priority", priority, "--disable-client-cert") as server:
                    server.wait_for("listening on IPv4")
                    said = connect(port, io, f"ca={path('ca.pem')}", "name=localhost", "count=3")
                    self.assertEqual(said.count("answer hello\n"), 3)
                    self.assertEqual(re.findall(r"resumed=(.)", said), ["0", "1", "1"])


# Netty -------------------------------------------------------------------------------------------

class Netty(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("javac") is None or not all(map(os.path.exists, NETTY)):
            print("NOT TESTED: Netty's SslHandler is not there; tools/setup bench installs it", file=sys.stderr)
            raise unittest.SkipTest("Netty is not there")
        cls.classes = path("classes")
        subprocess.run(["javac", "-d", cls.classes, "-cp", ":".join(NETTY), os.path.join(HERE, "TlsPeer.java")], check=True)

    def command(self, *args):
        return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", ":".join([self.classes, *NETTY]), "TlsPeer", *map(str, args)]

    def test_as_the_client(self):
        for version in ["1.2", "1.3"]:
            with contextlib.ExitStack() as stack:
                for io in BACKENDS:
                    server = stack.enter_context(serve(io, *identity(), "alpn=weir/2"))
                    client = Program(*self.command("connect", server.port, path("ca.pem"), "TLSv" + version, 4, 300000))
                    with self.subTest(io=io, version=version), client:
                        said = client.wait()
                        self.assertGreaterEqual(len(re.findall(rf"^session TLSv{version} \S+ alpn=weir/2", said, re.M)), 4, said)
                        self.assertEqual(said.count("echoed\n"), 4, said)
                        self.assertEqual(said.count("close_notify\n"), 4, said)
                        server.wait_for("^closed$", 4)
                        self.assertEqual(re.findall(r"resumed=(.)", server.text()), ["0", "1", "1", "1"])
                        self.assertEqual(server.text().count("\nend\n"), 4)
                        self.assertNotIn("error", server.text())

    def test_as_the_server(self):
        for version in ["1.2", "1.3"]:
            with Server(*self.command("serve", path("localhost.pem"), path("localhost.key"), "TLSv" + version)) as server:
                for io in BACKENDS:
                    with self.subTest(io=io, version=version):
                        said = connect(server.port, io, f"ca={path('ca.pem')}", "name=localhost", "alpn=weir/2", "count=4")
                        self.assertEqual(said.count("answer hello\n"), 4)
                        self.assertEqual(said.count("alpn=weir/2 "), 4)
                        self.assertEqual(re.findall(r"resumed=(.)", said), ["0", "1", "1", "1"])
                server.wait_for("^close_notify$", 4 * len(BACKENDS))
                self.assertNotRegex(server.text(), "error|failed|truncated")
                done = subprocess.run([os.path.join(EXAMPLES, "weir-echo-client"), "--connect", f"localhost:{server.port}", "--tls",
                                       "--ca", path("ca.pem"), "--count", "50", "--size", "100000", "--connections", "3",
                                       "--timeout", str(PATIENCE_S)], capture_output=True, text=True, timeout=PATIENCE_S)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


# Scanners ----------------------------------------------------------------------------------------

class Sslscan(unittest.TestCase):
    def test_defaults(self):
        for io in BACKENDS:
            with self.subTest(io), echo(io) as server:
                said = subprocess.run(["sslscan", "--no-colour", server.address], capture_output=True, text=True,
                                      timeout=PATIENCE_S).stdout
                for line in ["SSLv2 +disabled", "SSLv3 +disabled", "TLSv1.0 +disabled", "TLSv1.1 +disabled", "TLSv1.2 +enabled",
                             "TLSv1.3 +enabled", "Session renegotiation not supported", "Server supports TLS Fallback SCSV"]:
                    self.assertRegex(said, f"(?m)^{line}$")
                self.assertNotRegex(said, r"(?m)(?<!not )vulnerable to heartbleed|Compression enabled")
                ciphers = re.findall(r"(?m)^(?:Preferred|Accepted) +TLSv1\.[23] +(\d+) bits +(\S+)", said)
                self.assertGreaterEqual(len(ciphers), 6)
                for bits, cipher in ciphers:
                    self.assertGreaterEqual(int(bits), 128)
                    self.assertRegex(cipher, r"^(TLS_|ECDHE-).*(GCM|CHACHA20)")
                groups = re.findall(r"(?m)^TLSv1\.[23] +(\d+) bits +(.+)$", said.partition("Key Exchange Group")[2])
                self.assertTrue(groups)
                self.assertTrue(all(int(bits) >= 128 for bits, _ in groups), groups)
                server.check_alive()


class Testssl(unittest.TestCase):
    """Takes a minute, so that ctest runs it by itself: interop.testssl."""

    # What it says about the certificate of a test; and whether sessions can be resumed, which it cannot tell when its client has
    # gone before a ticket came: others see to that.
    OF_THE_TEST = re.compile(r"cert_chain_of_trust|cert_expirationStatus|cert_revocation|cert_crlDistributionPoints|cert_ocspURL|"
                             r"DNS_CAArecord|OCSP_stapling|cert_notAfter|cert_extlifeSpan|cert_validityPeriod|service|scanTime|"
                             r"engine_problem|scanProblem|sessionresumption_ticket")

    def test_defaults(self):
        with echo("epoll") as server:
            results = path("testssl.json")
            done = subprocess.run(["testssl", "--color", "0", "--warnings", "off", "--quiet", "--jsonfile", results, "-p", "-s", "-f",
                                   "-S", "-U", f"localhost:{server.port}"], capture_output=True, text=True, timeout=500,
                                  stdin=subprocess.DEVNULL, cwd=FOLDER)
            with open(results, encoding="utf-8") as file:
                findings = json.load(file)
            self.assertGreater(len(findings), 50, done.stdout)
            bad = [f"{it['id']}: {it['severity']}: {it['finding']}" for it in findings
                   if it["severity"] not in ("OK", "INFO", "DEBUG") and not self.OF_THE_TEST.match(it["id"])]
            self.assertEqual(bad, [])
            server.check_alive()


# What is no TLS, or bad --------------------------------------------------------------------------

def client_hello(host="localhost", alpn=None):
    context = ssl.create_default_context()
    if alpn:
        context.set_alpn_protocols(alpn)
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host).do_handshake()
    return out.read()


def in_records(hello, size):
    """The same message in records of so many bytes."""
    body = hello[5:]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
                    for part in (body[i:i + size] for i in range(0, len(body), size)))


def receive_all(sock):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(65536):
            data += part
    return data


class BadInput(unittest.TestCase):
    def each(self, *settings):
        """A server with one certificate, and one with several, over each backend."""
        hosts = [f"host=localhost,{path('localhost.pem')},{path('localhost.key')}"]
        for io in BACKENDS:
            for more in [[], hosts]:
                with serve(io, *identity(), *more, *settings) as server:
                    yield server
                    server.check_alive()

    def test_what_is_no_tls_is_refused_at_once(self):
        for server in self.each():
            for data, words in [(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "plain HTTP came where TLS is spoken"),
                                (b"hello, world\n", "this is not TLS"),
                                (bytes(64), "this is not TLS"),
                                (b"\x16\x03\x01\xff\xff" + bytes(100), "a record of 65535 bytes"),
                                (b"\x80\x2e\x01\x00\x02" + bytes(41), "this is not TLS"),  # SSL 2
                                (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + bytes(16), "error")]:
                with server.connect() as sock:
                    sock.sendall(data)
                    self.assertLess(len(receive_all(sock)), 100)
                    server.wait_for(f"^error .*{words}" if words != "error" else "^error ")

    def test_random_bytes(self):
        rng = random.Random(10)
        hello = client_hello()
        for server in self.each():
            for i in range(60):
                data = bytearray(hello)
                if i % 3 == 0:
                    data = bytearray(rng.randbytes(rng.randrange(1, 600)))
                elif i % 3 == 1:
                    for _ in range(rng.randrange(1, 8)):
                        data[rng.randrange(len(data))] = rng.randrange(256)
                else:
                    del data[rng.randrange(len(data)):]
                with server.connect() as sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                    receive_all(sock)
            server.wait_for("^error ", 60)

    def test_a_hello_in_pieces(self):
        """In any number of reads and records it is the same one."""
        hello = client_hello()
        for server in self.each():
            for size in [1, 5, 100]:
                records = in_records(hello, size)
                with server.connect() as sock:
                    for i in range(0, len(records), 97):
                        sock.sendall(records[i:i + 97])
                    answer = sock.recv(65536)
                    self.assertEqual(answer[:1], b"\x16")  # ServerHello

    def test_cut_off_at_any_byte(self):
        hello = client_hello()
        for server in self.each():
            cuts = range(1, len(hello), 23)
            for cut in cuts:
                with server.connect() as sock:
                    sock.sendall(hello[:cut])
                    sock.shutdown(socket.SHUT_WR)
                    self.assertNotIn(b"\x16", receive_all(sock)[:1])
            server.wait_for("^error .*(during the handshake|ended)", len(cuts))

    def test_a_handshake_that_stalls(self):
        hello = client_hello()
        for server in self.each("handshake_ms=300"):
            with contextlib.ExitStack() as opened:
                socks = [opened.enter_context(server.connect()) for _ in range(4)]
                for sock, data in zip(socks, [b"", hello[:3], hello[:100], hello]):
                    sock.sendall(data)
                for sock in socks:  # all of them wait at the same time
                    receive_all(sock)
            server.wait_for("^error .*(the handshake was not done in [0-9.]+ ms|no ClientHello came in time)", 4)

    def test_a_record_that_was_changed(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *identity()) as server:
                self.check_changed(server)

    def check_changed(self, server):
        context = ssl.create_default_context(cafile=path("ca.pem"))
        come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(come, go, server_hostname="localhost")
        with server.connect() as sock:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(go.read())
                    come.write(sock.recv(65536))
            tls.write(b"hello")
            data = bytearray(go.read())
            data[-1] ^= 1
            sock.sendall(data)
            receive_all(sock)
        server.wait_for("^error .*bad record mac")
        server.check_alive()

    def test_a_record_that_is_cut_off(self):
        for server in self.each():
            context = ssl.create_default_context(cafile=path("ca.pem"))
            sock = context.wrap_socket(server.connect(), server_hostname="localhost")
            sock.sendall(b"hello")
            self.assertEqual(sock.recv(10), b"hello")
            with socket.socket(fileno=sock.detach()) as plain:
                plain.sendall(b"\x17\x03\x03\x00\x40" + bytes(10))
                plain.shutdown(socket.SHUT_WR)
                plain.settimeout(PATIENCE_S)
                receive_all(plain)
            server.wait_for("^error .*(without close_notify|ends inside)")

    def test_plain_and_tls_on_one_port(self):
        for io in BACKENDS:
            with self.subTest(io), serve(io, *identity(), "with=plain") as server:
                with server.connect() as sock:
                    sock.sendall(b"plain")
                    self.assertEqual(sock.recv(10), b"plain")
                server.check_alive()


if __name__ == "__main__":
    # The global executor's last thread is joined when another is needed, or never.
    os.environ["TSAN_OPTIONS"] = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
    PEER, EXAMPLES = sys.argv.pop(1), sys.argv.pop(1)
    missing = [name for name in ["openssl", "gnutls-cli", "gnutls-serv", "sslscan", "testssl"] if shutil.which(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} is missing: tools/packages lists what tests need")
    unittest.main(verbosity=2)
