"""What all clients have in common: a socket that asyncio waits for, patience, and what may excuse the server."""
import asyncio
import random
import socket
import struct

from page import WANTS

PATIENCE_S = 120  # for what should take a second, on a machine under heavy load
SOURCES = 200     # loopback addresses to come from: a closed connection keeps its port for a minute
IP_BIND_ADDRESS_NO_PORT = 24


class Wrong(Exception):
    """The server did what it must not do."""


class Ended(Exception):
    """The server has ended the connection."""


class World:
    """Where the clients of a process live: which server, who counts, and the seed of all decisions."""

    def __init__(self, port, name, seed, page, slot):
        self.port, self.name, self.seed, self.page, self.slot = port, name, seed, page, slot
        self.lag_s = 0.0  # the longest that this process has kept its clients waiting, of late
        self.next_source = slot * 7
        self.storm = asyncio.Lock()  # one at a time, else the server is short of descriptors by itself

    def count(self, name, more=1):
        self.page.count(self.slot, name, more)

    async def watch_lag(self):
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.1)
            # It is forgotten slowly: what was not read in time is felt for a while.
            self.lag_s = max(loop.time() - before - 0.1, self.lag_s * 0.98)

    def random_for(self, nth):
        return random.Random(f"{self.seed}/{self.name}/{nth}")


class Client:
    def __init__(self, world):
        self.world, self.loop, self.sock = world, asyncio.get_running_loop(), None
        self.shortages = {want: world.page.shortage(want) for want in WANTS}
        self.has_heard = False  # anything at all

    def was_short_of(self, want):
        return self.shortages[want] % 2 == 1 or self.shortages[want] != self.world.page.shortage(want)

    def is_excused(self):
        """Whether the server may have ended the connection. Without memory it may at any time, though what it has sent by
        then has to be right; without descriptors only instead of a first word."""
        return self.was_short_of("memory") or (not self.has_heard and self.was_short_of("descriptors"))

    async def connect(self):
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.world.next_source += 1
        self.sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        self.sock.bind((f"127.0.0.{2 + self.world.next_source % SOURCES}", 0))
        await self.loop.sock_connect(self.sock, ("127.0.0.1", self.world.port))
        self.world.count("connections")

    async def send(self, data):
        try:
            await self.loop.sock_sendall(self.sock, data)
        except (ConnectionResetError, BrokenPipeError) as why:
            raise Ended("while it was written to") from why

    async def receive(self, most=1 << 18):
        """Some bytes; none at the end."""
        try:
            data = await self.loop.sock_recv(self.sock, most)
        except ConnectionResetError as why:
            raise Ended("with a reset") from why
        self.has_heard |= len(data) > 0
        return data

    def end_sending(self):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as why:
            raise Ended("before its client did") from why

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        if self.sock is not None:
            self.sock.close()

    def count_end(self):
        """The server has ended it, with an excuse."""
        self.world.count("starved" if self.was_short_of("memory") else "refused")


async def all_of(*works):
    """Waits for all of them; when one fails, the others end, and are over before the sockets are closed."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end_all(tasks)


async def end_all(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
