"""A server under test: how it is started, what can be done to it, and what it takes of the machine."""
import contextlib
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import time

LOOPS = 2
MOST_DESCRIPTORS = 512
END_S = 60
REST_S = 1.5  # without a change of the heap


class Failed(Exception):
    pass


class Server:
    def __init__(self, kind, io, programs, log_path, heap_counter):
        self.kind, self.io, self.name = kind, io, f"{kind} ({io})"
        self.log_path, self.heap_path = log_path, f"{log_path}.heap" if heap_counter else None
        environment = dict(os.environ)
        if heap_counter:
            with open(self.heap_path, "wb") as file:
                file.write(bytes(16))
            # Without what weir keeps for later, and the leak detector's own table, the heap holds what is in use.
            environment |= {"LD_PRELOAD": heap_counter, "WEIR_SOAK_HEAP": self.heap_path, "WEIR_POOL": "0", "WEIR_LEAK": "off"}
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.join(programs, f"weir-{kind}"), "--listen", "127.0.0.1:0", "--io", io, "--loops", str(LOOPS)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_DESCRIPTORS, MOST_DESCRIPTORS)))
        ready, _, _ = select.select([self.process.stdout], [], [], END_S)
        match = re.fullmatch(r"listening on \S+:(\d+)\n", self.process.stdout.readline() if ready else "")
        if not match:
            self.process.kill()
            self.process.wait()
            raise Failed(f"weir-{kind} --io {io} does not start: {self.last_words()}")
        self.port, self.pid = int(match[1]), self.process.pid

    def last_words(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
        return lines[-1] if lines else "it says nothing"

    # What it takes ------------------------------------------------------------------------------

    def status(self, field):
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise Failed(f"{self.name} is not there any more: {self.last_words()}")

    def cpu_s(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(FileNotFoundError), \
                    open(f"/proc/{self.pid}/task/{task}/schedstat", encoding="ascii") as stat:
                total += int(stat.read().split()[0])
        return total / 1e9

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def sockets(self):
        folder, count = f"/proc/{self.pid}/fd", 0
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                count += os.readlink(os.path.join(folder, fd)).startswith("socket:")
        return count

    def sample(self):
        """Resident memory in KiB, descriptors, threads, CPU seconds."""
        try:
            return {"resident_kib": self.status("VmRSS"), "descriptors": self.descriptors(),
                    "threads": self.status("Threads"), "cpu_s": round(self.cpu_s(), 3)}
        except OSError as why:
            raise Failed(f"{self.name} has ended by itself: {self.last_words()}") from why

    def heap_bytes(self):
        """The bytes in its heap now; None when they are not counted."""
        if self.heap_path is None:
            return None
        with open(self.heap_path, "rb") as file:
            return struct.unpack("qq", file.read(16))[0]

    def heap_at_rest(self):
        """The bytes in its heap once it has not changed for a while."""
        known, since, until = self.heap_bytes(), time.monotonic(), time.monotonic() + END_S
        while known is not None and time.monotonic() - since < REST_S:
            if time.monotonic() > until:
                raise Failed(f"{self.name} does not come to rest without clients")
            time.sleep(0.05)
            if self.heap_bytes() != known:
                known, since = self.heap_bytes(), time.monotonic()
        return known

    # What is done to it -------------------------------------------------------------------------

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def cap_memory(self, more_kib):
        """It may have so much more than it has now. RLIMIT_DATA, since that also counts what a heap has reserved before."""
        cap = (self.status("VmData") + more_kib) * 1024
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (cap, resource.RLIM_INFINITY))

    def uncap_memory(self):
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def connect_many(self, count):
        """Connections that nobody reads from, and that the kernel keeps little for: the rest is the server's to keep."""
        held = []
        for i in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
            sock.bind((f"127.0.1.{1 + i % 200}", 0))
            with contextlib.suppress(BlockingIOError):
                sock.connect(("127.0.0.1", self.port))
            held.append(sock)
        return held

    @staticmethod
    def send_to_each(held, data):
        """How many bytes were taken."""
        taken = 0
        for sock in held:
            with contextlib.suppress(OSError):  # not connected yet, or not any more, or full
                taken += sock.send(data)
        return taken

    @staticmethod
    def let_go(held, rng):
        for sock in held:
            if rng.random() < 0.5:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()

    def end(self):
        """Ends it: its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def wait_until(condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
