"""A server and all that happens to it: crowds of clients, faults from outside, a sample every second, the demands at the end."""
import asyncio
import os
import random
import signal
import subprocess
import sys
import time

import crowd as crowds
from client import PATIENCE_S
from page import Page
from server import LOOPS, MOST_DESCRIPTORS, Failed, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = {"echo": 12, "chat": 6}  # at a time, of each crowd
OUTSIDE = {"kill": 4, "stop": 2, "exhaust": 2, "memory": 2}
SPARE = 100  # descriptors that a server has when nobody exhausts them
IDLE_S, IDLE_SHARE = 5, 0.01
WARM_S = 3


class Siege:
    def __init__(self, server, seed, failures, has_memory_rules):
        self.server, self.seed, self.page = server, seed, Page()
        self.failures = failures  # the path of the file that everybody writes to
        self.has_memory_rules = has_memory_rules
        self.faults = dict.fromkeys(OUTSIDE, 0)
        self.fills = 0  # how often it had indeed no descriptor left
        self.samples, self.processes, self.began = [], [], time.monotonic()
        self.descriptors_before, self.idle_share = 0, None
        self.heap_before, self.heap_after = None, None

    def fails(self, why):
        with open(self.failures, "a", encoding="utf-8") as file:
            file.write(f"{self.server.name}: {why}\n")

    # Clients ------------------------------------------------------------------------------------

    def start_crowd(self, name, slot):
        kind = self.server.kind
        command = [sys.executable, os.path.join(HERE, "crowd.py"), kind, self.server.port, self.seed,
                   f"{self.server.io}{name}", slot, CLIENTS[kind], self.page.descriptor, self.failures]
        process = subprocess.Popen(list(map(str, command)), pass_fds=[self.page.descriptor])
        self.processes.append(process)
        return process

    def warm_up(self):
        """Every loop has something to do, so what it opens for itself is open. Then what there is is what may be left."""
        sockets = self.server.sockets()
        for _ in range(2 * LOOPS):
            if not crowds.KINDS[self.server.kind].fresh_client(self.server.port):
                raise Failed(f"{self.server.name} does not serve its first client")
        self.flood()
        if not wait_until(lambda: self.server.sockets() <= sockets, 60):
            raise Failed(f"{self.server.name} does not close the connections of its first clients")
        if self.server.heap_bytes() is not None:
            self.fill_tables()
        self.descriptors_before = self.server.descriptors()

    def fill_tables(self):
        """Clients of all kinds, each loop with its share, make it take the memory that it takes once and keeps. What it holds
        at rest from then on is what the siege is judged by."""
        self.start_crowd("warm", 0)
        time.sleep(WARM_S)
        self.end_crowds()
        self.heap_before = self.server.heap_at_rest()

    def flood(self):
        """It has had all the memory that clients who do not read can make it take, before anybody looks whether it grows: later
        on the cap lets it have that only step by step."""
        held = self.server.connect_many(SPARE)
        wait_until(lambda: self.server.send_to_each(held, bytes(1 << 22)) == 0, 5)
        self.server.let_go(held, random.Random(self.seed))

    # Faults from outside ------------------------------------------------------------------------

    async def torment(self):
        rng = random.Random(f"{self.seed}/{self.server.io}/{self.server.kind}")
        doomed, rounds = self.start_crowd("doomed0", 2), 0
        while True:
            await asyncio.sleep(rng.uniform(0.2, 2.0))
            fault = rng.choices(list(OUTSIDE), OUTSIDE.values())[0]
            length_s = rng.uniform(0.05, 1.5)
            if fault == "memory" and not self.has_memory_rules:
                continue
            self.faults[fault] += 1
            if fault == "kill":
                doomed.kill()
                doomed.wait()
                self.processes.remove(doomed)
                rounds += 1
                doomed = self.start_crowd(f"doomed{rounds}", 2)
            else:
                await getattr(self, fault)(length_s, rng)

    async def stop(self, length_s, _):
        self.server.stop()
        try:
            await asyncio.sleep(length_s)
        finally:
            self.server.go_on()

    async def exhaust(self, length_s, rng):
        with self.page.short_of("descriptors"):
            held = self.server.connect_many(MOST_DESCRIPTORS + rng.randint(10, 100))
            most, until = 0, time.monotonic() + length_s
            try:
                while time.monotonic() < until:
                    most = max(most, self.server.descriptors())
                    await asyncio.sleep(0.02)
            finally:
                self.server.let_go(held, rng)
            self.fills += most >= MOST_DESCRIPTORS - 1  # one may be in reserve
            until = time.monotonic() + PATIENCE_S
            while self.server.descriptors() > MOST_DESCRIPTORS - SPARE:
                if time.monotonic() > until:
                    self.fails(f"still {self.server.descriptors()} descriptors, though clients have gone")
                    break
                await asyncio.sleep(0.05)

    async def memory(self, length_s, rng):
        """Little more than it has, while others come that want more of it and do not read."""
        with self.page.short_of("memory"):
            self.server.cap_memory(rng.choice([0, 0, 64, 512, 4096]))
            held = self.server.connect_many(SPARE)
            try:
                await asyncio.sleep(length_s / 2)
                self.server.send_to_each(held, bytes(1 << 22))
                await asyncio.sleep(length_s / 2)
            finally:
                self.server.let_go(held, rng)
                self.server.uncap_memory()

    # From the beginning to the end ----------------------------------------------------------------

    def take_sample(self):
        self.samples.append({"at_s": round(time.monotonic() - self.began, 2), **self.server.sample()})

    async def sample(self):
        while True:
            self.take_sample()
            await asyncio.sleep(1)

    async def run(self, seconds):
        await asyncio.to_thread(self.warm_up)
        self.began = time.monotonic()
        self.start_crowd("a", 0)
        self.start_crowd("b", 1)
        tasks = [asyncio.ensure_future(self.torment()), asyncio.ensure_future(self.sample())]
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end_crowds(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                code = process.wait(PATIENCE_S + 10)
                if code not in (0, -signal.SIGTERM):  # which comes before it has begun
                    self.fails(f"a process of clients ended with {code}")
            except subprocess.TimeoutExpired:
                self.fails("a process of clients does not end")
        self.kill_crowds()

    def kill_crowds(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.processes = []

    def check_end(self):
        """All clients are gone: what is left?"""
        server = self.server
        if not wait_until(lambda: server.descriptors() <= self.descriptors_before, 60):
            self.fails(f"{server.descriptors()} descriptors, before it were {self.descriptors_before}")
        before = server.cpu_s()
        time.sleep(IDLE_S)
        self.idle_share = (server.cpu_s() - before) / IDLE_S
        if self.idle_share >= IDLE_SHARE:
            self.fails(f"without clients it uses {self.idle_share:.1%} of a CPU")
        self.heap_after = server.heap_at_rest()
        self.take_sample()
        try:
            if not crowds.KINDS[server.kind].fresh_client(server.port):
                self.fails("a new client is not served")
        except OSError as why:
            self.fails(f"a new client is not served: {why}")
        code = server.end()
        if code != 0:
            self.fails("it does not end on SIGTERM" if code is None else f"it ended with {code}: {server.last_words()}")
