"""Clients of weir-echo. All of them check every byte that comes back; those that behave want all of them back."""
import asyncio
import random
import socket

from client import Client, Ended, Wrong, all_of

PERIOD = 1000003  # of the bytes that are sent: no buffer has such a size, so what is lost or moved shows
LONGEST = 1 << 16
_random = random.Random(0).randbytes(PERIOD)
BYTES = memoryview(_random + _random[:LONGEST])


class EchoClient(Client):
    def __init__(self, world, rng):
        super().__init__(world)
        self.rng, self.start = rng, rng.randrange(PERIOD)
        self.sent = self.received = 0

    def piece(self, at, length):
        first = (self.start + at) % PERIOD
        return BYTES[first:first + length]

    async def write(self, length):
        while length > 0:
            part = min(length, self.rng.randint(1, LONGEST))
            await self.send(self.piece(self.sent, part))
            self.sent += part
            length -= part

    def check(self, data):
        for at in range(0, len(data), LONGEST):
            part = memoryview(data)[at:at + LONGEST]
            if part != self.piece(self.received, len(part)):
                raise Wrong(f"what came back differs within {len(part)} bytes after byte {self.received}")
            self.received += len(part)
            self.world.count("bytes", len(part))

    async def read(self, length):
        """So many bytes, of those that were sent."""
        while length > 0:
            data = await self.receive(min(length, 1 << 18))
            if not data:
                raise Ended(f"{length} bytes too early")
            self.check(data)
            length -= len(data)

    async def read_to_end(self):
        while data := await self.receive():
            self.check(data)

    async def end_well(self):
        self.end_sending()
        await self.read_to_end()
        if self.received != self.sent:
            raise Ended(f"{self.sent - self.received} bytes too early") if self.received < self.sent else \
                Wrong(f"{self.received - self.sent} bytes came that were never sent")

    async def talk(self):
        for _ in range(self.rng.randint(1, 20)):
            length = int(2 ** self.rng.uniform(0, 15))
            await self.write(length)
            await self.read(length)

    # The kinds of clients ------------------------------------------------------------------------

    async def steady(self):
        await self.talk()
        await asyncio.sleep(self.rng.uniform(0, 0.2))
        await self.talk()
        await self.end_well()

    async def half_close(self):
        await self.write(int(2 ** self.rng.uniform(0, 17)))
        self.end_sending()
        await asyncio.sleep(self.rng.uniform(0, 0.5))
        await self.read_to_end()
        if self.received < self.sent:
            raise Ended(f"{self.sent - self.received} bytes too early")

    async def burst(self):
        length = int(2 ** self.rng.uniform(18, 23))
        await all_of(self.write(length), self.read(length))
        await self.end_well()

    async def stall(self):
        """Writes until nobody takes it any more, and reads late."""
        length, pause_s = int(2 ** self.rng.uniform(16, 23)), self.rng.uniform(0.1, 2.0)

        async def read_late():
            await asyncio.sleep(pause_s)
            await self.read(length)
        await all_of(self.write(length), read_late())
        await self.end_well()

    async def reset_midway(self):
        await self.talk()
        await self.write(int(2 ** self.rng.uniform(0, 16)))
        self.reset()

    async def drop(self):
        """Closes with answers on their way; the kernel makes a reset of what nobody reads."""
        if self.rng.random() < 0.5:
            await self.talk()
        try:
            self.sock.send(self.piece(self.sent, self.rng.randint(1, LONGEST)))
        except OSError:
            pass  # it is full, or closed: all the better


async def storm(world, rng):
    """Many that connect at once; some say something, some go without a word."""
    async def one(client):
        try:
            await client.connect()
            choice = client.rng.random()
            if choice < 0.4:
                await client.write(100)
                await client.read(100)
            elif choice < 0.6:
                client.reset()
        except Ended:
            if not client.is_excused():
                raise
            client.count_end()
        finally:
            client.close()
    async with world.storm:
        await all_of(*(one(EchoClient(world, random.Random(rng.random()))) for _ in range(rng.randint(20, 80))))


KINDS = {"steady": 10, "half-close": 4, "burst": 2, "stall": 2, "reset": 4, "drop": 4, "storm": 1}
METHODS = {"steady": EchoClient.steady, "half-close": EchoClient.half_close, "burst": EchoClient.burst,
           "stall": EchoClient.stall, "reset": EchoClient.reset_midway, "drop": EchoClient.drop}


async def run_one(world, nth):
    rng = world.random_for(nth)
    kind = rng.choices(list(KINDS), KINDS.values())[0]
    if kind != "steady":
        world.count(kind)
    client = EchoClient(world, rng)
    try:
        if kind == "storm":
            await storm(world, rng)
        else:
            await client.connect()
            await METHODS[kind](client)
    except Ended as why:
        if kind == "storm" or not client.is_excused():
            raise Wrong(f"{kind}: the server has ended the connection, {why}") from why
        client.count_end()
    except Wrong as why:
        raise Wrong(f"{kind}: {why}") from why
    finally:
        client.close()


def fresh_client(port):
    """Whether a client that comes now is served as ever. Blocks."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(b"hello")
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while part := sock.recv(100):
            answer += part
    return answer == b"hello"
