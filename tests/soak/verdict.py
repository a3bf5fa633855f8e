"""What came out of a soak: whether memory stayed flat, a table, a file for programs, a picture."""
import json
import os
import statistics

from page import COUNTERS
from suite import charts, text

# In a short siege the heap is counted: at rest, without clients, it holds after the siege what it held before it, but for free lists
# and tables, which have a limit, and a ring's buffers, which are as many as were in use at once. A leak of 100 bytes a connection
# shows after 1,200 of them.
MOST_HEAP_GROWTH = {"epoll": 128 << 10, "blocking": 128 << 10, "uring": 4 << 20}

# In a long one, with the pool in use as always, resident memory is flat when a line through the samples of the last two thirds (the
# first is for warming up) rises over that time by no more than a tenth of their mean, or by 2 MiB, if that is more. A leak of 100
# bytes a connection would show.
LEAST_SAMPLES = 60
LEAST_S = 1.7 * LEAST_SAMPLES  # a siege in which there are as many, at one a second
MOST_GROWTH, MOST_GROWTH_KIB = 0.10, 2048
POINTS = 60  # of a curve


def slope(points):
    mean_x, mean_y = (statistics.fmean(values) for values in zip(*points))
    below = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / below


def growth(siege):
    """By how many KiB memory grew in the last two thirds, and the mean; None when there are too few samples to say."""
    busy = siege.samples[:-1]  # the last one is of an idle server
    late = [(sample["at_s"], sample["resident_kib"]) for sample in busy if sample["at_s"] >= busy[-1]["at_s"] / 3]
    if len(late) < LEAST_SAMPLES:
        return None
    return slope(late) * (late[-1][0] - late[0][0]), statistics.fmean(y for _, y in late)


def heap_growth(siege):
    """By how many bytes the heap grew from rest to rest; None when it was not counted."""
    return None if siege.heap_before is None or siege.heap_after is None else siege.heap_after - siege.heap_before


def judge_memory(siege):
    grown = heap_growth(siege)
    found = growth(siege) if siege.has_memory_rules and siege.samples else None
    if siege.has_memory_rules and grown is None and found is None:
        siege.fails("its memory cannot be judged: there are neither enough samples nor a count of its heap")
    elif grown is not None and grown > MOST_HEAP_GROWTH[siege.server.io]:
        siege.fails(f"its heap at rest grew by {grown} bytes, from {siege.heap_before} to {siege.heap_after}, with "
                    f"{siege.page.total('connections')} connections")
    if found is not None and found[0] > max(found[1] * MOST_GROWTH, MOST_GROWTH_KIB):
        siege.fails(f"memory grew by {found[0]:.0f} KiB of {found[1]:.0f}")


def table(sieges):
    rows = []
    for siege in sieges:
        found, last = growth(siege) if siege.has_memory_rules and siege.samples else None, siege.samples[-1]
        rows.append([siege.server.name, *(f"{siege.page.total(name):,}" for name in COUNTERS[:6]), siege.fills,
                     f"{max(sample['resident_kib'] for sample in siege.samples):,}", f"{last['resident_kib']:,}",
                     "-" if found is None else f"{found[0]:+,.0f}",
                     "-" if heap_growth(siege) is None else f"{heap_growth(siege):+,}",
                     f"{siege.descriptors_before} / {max(sample['descriptors'] for sample in siege.samples)} / "
                     f"{last['descriptors']}",
                     f"{last['cpu_s']:.1f}", "-" if siege.idle_share is None else f"{siege.idle_share:.2%}"])
    return text.table(rows, ["server", "connections", "bytes", "lines", "refused", "starved", "slow", "full", "most KiB", "last KiB",
                             "growth", "heap", "descriptors", "CPU s", "idle"])


def curve(siege, field, scale):
    """Few enough points to be looked at, each with the spread of what it stands for."""
    size = max(1, len(siege.samples) // POINTS)
    points = []
    for first in range(0, len(siege.samples), size):
        group = siege.samples[first:first + size]
        values = [sample[field] * scale for sample in group]
        points.append((group[len(group) // 2]["at_s"], statistics.median(values), min(values), max(values)))
    return points


def picture(sieges):
    parts = []
    for nth, (title, field, unit, scale) in enumerate([("Resident memory", "resident_kib", "bytes", 1024),
                                                       ("Descriptors", "descriptors", "", 1)]):
        lines = {siege.server.name: curve(siege, field, scale) for siege in sieges}
        chart = charts.curves(title + " of the servers", "seconds", unit, lines, x_from_zero=True)
        parts.append(f'<g transform="translate(0 {nth * 400})">{chart}</g>')
    return charts.picture(800, parts)


def write(soak, result):
    folder = soak.options.results
    with open(os.path.join(folder, "soak.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    sieges = [siege for siege in soak.sieges if siege.samples]
    if sieges:
        with open(os.path.join(folder, "soak.svg"), "w", encoding="utf-8") as file:
            file.write(picture(sieges))
    print(f"written to {os.path.relpath(folder)}: soak.json, soak.svg")


def report(soak):
    for siege in soak.sieges:
        judge_memory(siege)
    sieges = [siege for siege in soak.sieges if siege.samples]
    if sieges:
        print(table(sieges))
        print("refused: for lack of descriptors. starved: ended for lack of memory. slow: thrown out for reading late.\n"
              "full: how often no descriptor was left. growth: of memory, in KiB over the last two thirds.\n"
              "heap: growth of the heap from rest to rest, in bytes.\n"
              "descriptors: before / most / after. idle: CPU at the end.")
    with open(soak.failures, encoding="utf-8") as file:
        failures = sorted(file.read().splitlines(), key=lambda line: " client " in line)  # the servers' own first
    for line in failures[:20]:
        print(f"failure: {line}")
    faults = soak.faults()
    write(soak, {"seed": soak.seed, "seconds": soak.options.seconds, "faults": faults, "failures": failures, "servers": [
        {"name": siege.server.name, **{name: siege.page.total(name) for name in COUNTERS}, "faults": siege.faults,
         "full": siege.fills, "growth_kib": (growth(siege) or [None])[0] if siege.samples else None,
         "heap_growth_bytes": heap_growth(siege),
         "descriptors_before": siege.descriptors_before, "idle_share": siege.idle_share, "samples": siege.samples}
        for siege in soak.sieges]})
    kinds = ", ".join(f"{name} {count}" for name, count in faults.items() if count)
    print(f"soak: {soak.options.seconds:g} s, connections {soak.total('connections')}, bytes {soak.total('bytes')}, "
          f"faults {sum(faults.values())} ({kinds}), failures {len(failures)}")
    return 1 if failures else 0
