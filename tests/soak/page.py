"""What a server's clients share: counters that survive a kill, and what the server is short of."""
import contextlib
import mmap
import os

COUNTERS = ["connections", "bytes", "lines", "refused", "starved", "slow",
            "half-close", "burst", "stall", "reset", "drop", "storm", "flood"]
FAULTS = COUNTERS[COUNTERS.index("half-close"):]
SLOTS = 3  # processes of clients at a time


WANTS = ["memory", "descriptors"]  # what a server can be short of


class Page:
    def __init__(self, descriptor=None):
        size = 8 * (len(WANTS) + SLOTS * len(COUNTERS))
        if descriptor is None:
            descriptor = os.memfd_create("soak")
            os.truncate(descriptor, size)
        self.descriptor = descriptor
        self.numbers = memoryview(mmap.mmap(descriptor, size)).cast("q")

    @staticmethod
    def place(slot, name):
        return len(WANTS) + slot * len(COUNTERS) + COUNTERS.index(name)

    def count(self, slot, name, more):
        """Each process of clients has a slot of its own, so nobody waits for anybody."""
        self.numbers[self.place(slot, name)] += more

    def total(self, name):
        return sum(self.numbers[self.place(slot, name)] for slot in range(SLOTS))

    # Odd while it is short of something; whoever has seen the same even number all the time has no excuse.

    def shortage(self, want):
        return self.numbers[WANTS.index(want)]

    @contextlib.contextmanager
    def short_of(self, want):
        self.numbers[WANTS.index(want)] += 1
        try:
            yield
        finally:
            self.numbers[WANTS.index(want)] += 1
