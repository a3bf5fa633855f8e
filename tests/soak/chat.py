"""Guests of weir-chat. What a guest says follows from its name and the number of the line, so everybody can check it."""
import asyncio
import functools
import hashlib
import re
import socket

from client import Client, Ended, Wrong, all_of, end_all

SLOW_S = 1.0  # a guest that reads so late may be thrown out
NOTICE = re.compile(r"\* (your name\?|welcome, \d+ in the room|(?P<name>[A-Za-z0-9]{1,32}) (?P<what>came in|has left))")
LINE = re.compile(r"([A-Za-z0-9]{1,32}): ((\d+) [0-9a-f]+)")


@functools.lru_cache(1 << 16)
def text_of(name, number):
    digest = hashlib.sha1(f"{name} {number}".encode()).hexdigest()
    return f"{number} {digest * (1 + int(digest[:2], 16) % 6)}"


class Guest(Client):
    def __init__(self, world, name):
        super().__init__(world)
        self.name, self.said, self.rest = name, 0, b""
        self.worst_lag_s = 0.0
        self.heard = {}  # of each guest, the number of its next line
        self.is_in = self.loop.create_future()
        self.news = asyncio.Event()
        self.reading = None

    def is_excused(self):
        return super().is_excused() or self.worst_lag_s > SLOW_S

    def count_end(self):
        if super().is_excused():
            super().count_end()
        else:
            self.world.count("slow")

    def take(self, line):
        if notice := NOTICE.fullmatch(line):
            if notice["what"] == "came in":
                self.heard[notice["name"]] = 0
            elif line.startswith("* welcome") and not self.is_in.done():
                self.is_in.set_result(True)
            return
        match = LINE.fullmatch(line)
        if match is None or match[2] != text_of(match[1], int(match[3])):
            raise Wrong(f"nobody has said '{line[:200]}'")
        name, number = match[1], int(match[3])
        expected = self.heard.get(name, number)  # of one that was there before, any is the first
        if number != expected and not (number > expected and self.is_excused()):
            raise Wrong(f"line {number} of {name} came to {self.name} instead of line {expected}")
        self.heard[name] = number + 1
        self.world.count("lines")

    async def read_to_end(self):
        while data := await self.receive():
            self.worst_lag_s = max(self.worst_lag_s, self.world.lag_s)
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                self.take(line.decode("ascii", "backslashreplace"))
            self.world.count("bytes", len(data))
            self.news.set()

    async def read_all_the_time(self):
        try:
            await self.read_to_end()
            raise Ended("as if it did not read")
        except (Ended, Wrong) as why:
            if not self.is_in.done():
                self.is_in.set_exception(why)
                self.is_in.exception()  # it may be that nobody asks
            self.news.set()
            raise

    async def come_in(self):
        await self.connect()
        self.reading = asyncio.ensure_future(self.read_all_the_time())
        await self.send(f"{self.name}\n".encode())
        await self.is_in

    async def say(self, count):
        lines = [text_of(self.name, self.said + i) + "\n" for i in range(count)]
        self.said += count
        await self.send("".join(lines).encode())

    async def hear(self, name, number):
        """Waits until it has heard so many lines of somebody."""
        while self.heard.get(name, 0) < number:
            self.news.clear()
            if self.reading.done():
                self.reading.result()
            await self.news.wait()

    async def hear_all_of(self, mouth):
        hearing = asyncio.ensure_future(self.hear(mouth.name, mouth.said))
        try:
            await asyncio.wait([hearing, mouth.reading], return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done() and mouth.is_excused():
                mouth.reading.result()  # without memory, what it said last may be lost with it
            await hearing
        finally:
            await end_all([hearing])

    async def leave(self):
        """A half-close; the server's answer to it is the end."""
        if self.reading.done():
            self.reading.result()
        self.end_sending()
        await asyncio.wait([self.reading])
        why = self.reading.exception()
        if isinstance(why, Wrong) or str(why) == "with a reset":
            raise why

    async def stop_listening(self):
        if self.reading is not None:
            await end_all([self.reading])
            self.reading = None

    async def end(self):
        await self.stop_listening()
        self.close()


# The kinds of guests --------------------------------------------------------------------------

async def steady(mouth, ear, rng):
    """What one says the other hears, all of it and in order."""
    await ear.come_in()
    await mouth.come_in()
    for _ in range(rng.randint(1, 20)):
        await mouth.say(rng.randint(1, 8))
        await ear.hear_all_of(mouth)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
    await mouth.leave()
    await ear.leave()


async def burst(mouth, ear, rng):
    await ear.come_in()
    await mouth.come_in()
    await mouth.say(rng.randint(100, 400))
    await ear.hear_all_of(mouth)
    await mouth.leave()


async def reset(mouth, _, rng):
    await mouth.come_in()
    await mouth.say(rng.randint(1, 20))
    await mouth.stop_listening()
    mouth.reset()


async def drop(mouth, _, rng):
    if rng.random() < 0.7:
        await mouth.come_in()
        await mouth.say(rng.randint(1, 20))
    else:
        await mouth.connect()  # and leaves without a name


async def half_close(mouth, ear, rng):
    """The last words count, though they come with the end."""
    await ear.come_in()
    await mouth.come_in()
    await mouth.say(rng.randint(1, 20))
    mouth.end_sending()
    await ear.hear_all_of(mouth)
    await ear.leave()


async def stall(mouth, _, rng):
    """Does not read, and then late; may have been thrown out meanwhile, but what it got is right."""
    await mouth.connect()
    await mouth.send(f"{mouth.name}\n".encode())
    await mouth.say(rng.randint(1, 5))
    await asyncio.sleep(rng.uniform(0.5, 3.0))
    mouth.worst_lag_s = SLOW_S * 2
    mouth.end_sending()
    await mouth.read_to_end()


async def flood(mouth, _, rng):
    """A line that does not end, for which one is thrown out."""
    await mouth.come_in()
    mouth.worst_lag_s = SLOW_S * 2
    await mouth.send(b"x" * rng.randint(8193, 50000))
    await asyncio.wait([mouth.reading])
    if isinstance(mouth.reading.exception(), Wrong):
        raise mouth.reading.exception()


async def storm(world, nth, rng):
    async def one(guest, is_silent):
        try:
            await (guest.connect() if is_silent else guest.come_in())
        except Ended:
            if not guest.is_excused():
                raise
            guest.count_end()
        finally:
            await guest.end()
    async with world.storm:
        await all_of(*(one(Guest(world, name_of(world, nth, f"s{i}")), rng.random() < 0.5)
                       for i in range(rng.randint(10, 30))))


KINDS = {"steady": 10, "half-close": 3, "burst": 1, "stall": 1, "reset": 3, "drop": 3, "flood": 1, "storm": 1}
FUNCTIONS = {"steady": steady, "half-close": half_close, "burst": burst, "stall": stall, "reset": reset, "drop": drop,
             "flood": flood}


def name_of(world, nth, which):
    return f"{world.name}n{nth}{which}"


async def run_one(world, nth):
    rng = world.random_for(nth)
    kind = rng.choices(list(KINDS), KINDS.values())[0]
    if kind != "steady":
        world.count(kind)
    mouth, ear = Guest(world, name_of(world, nth, "mouth")), Guest(world, name_of(world, nth, "ear"))
    try:
        if kind == "storm":
            await storm(world, nth, rng)
        else:
            await FUNCTIONS[kind](mouth, ear, rng)
        for guest in mouth, ear:  # whoever was listening may have found something
            if guest.reading is not None and guest.reading.done() and isinstance(guest.reading.exception(), Wrong):
                raise guest.reading.exception()
    except Ended as why:
        if kind == "storm" or not (mouth.is_excused() or ear.is_excused()):
            raise Wrong(f"{kind}: the server has ended the connection, {why}") from why
        (mouth if mouth.is_excused() else ear).count_end()
    except Wrong as why:
        raise Wrong(f"{kind}: {why}") from why
    finally:
        await mouth.end()
        await ear.end()


def fresh_client(port):
    """Whether a guest that comes now is welcome. Blocks."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(b"fresh\n")
        answer = b""
        while b"\n* welcome" not in answer and (part := sock.recv(100)):
            answer += part
    return b"\n* welcome" in answer
