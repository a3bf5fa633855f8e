#!/usr/bin/env python3
"""A process full of clients, until SIGTERM; then those that are there finish.

    crowd.py KIND PORT SEED NAME SLOT CLIENTS PAGE_DESCRIPTOR FILE_FOR_FAILURES
"""
import asyncio
import os
import signal
import sys
import traceback

sys.dont_write_bytecode = True

import chat  # noqa: E402
import echo  # noqa: E402
from client import PATIENCE_S, World, Wrong  # noqa: E402
from page import Page  # noqa: E402

KINDS = {"echo": echo, "chat": chat}


class Crowd:
    def __init__(self, kind, world, failures):
        self.kind, self.world, self.failures = kind, world, failures
        self.nth, self.is_over = 0, False

    def fails(self, nth, why):
        # One write: the processes that write here do not disturb each other.
        line = f"{self.kind} client {nth} of {self.world.name}: {why}\n"
        os.write(self.failures, line.encode("utf-8", "backslashreplace"))

    async def one_after_another(self):
        while not self.is_over:
            nth = self.nth
            self.nth += 1
            try:
                await asyncio.wait_for(KINDS[self.kind].run_one(self.world, nth), PATIENCE_S)
            except Wrong as why:
                self.fails(nth, why)
            except asyncio.TimeoutError:
                self.fails(nth, f"not served within {PATIENCE_S} s")
            except Exception as why:  # pylint: disable=broad-except
                where = traceback.extract_tb(why.__traceback__)[-1]
                self.fails(nth, f"{type(why).__name__}: {why} ({os.path.basename(where.filename)}:{where.lineno})")

    def end(self):
        self.is_over = True

    async def run(self, clients):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.end)
        watching = asyncio.ensure_future(self.world.watch_lag())
        await asyncio.gather(*(self.one_after_another() for _ in range(clients)))
        watching.cancel()


def main():
    kind, port, seed, name, slot, clients, descriptor, path = sys.argv[1:]
    failures = os.open(path, os.O_WRONLY | os.O_APPEND)
    world = World(int(port), name, seed, Page(int(descriptor)), int(slot))
    asyncio.run(Crowd(kind, world, failures).run(int(clients)))


if __name__ == "__main__":
    main()
