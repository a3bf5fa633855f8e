"""The results as tables on a terminal."""
from .figures import Figure
from .workloads import WORKLOADS

COLUMNS = ["rate", "cpu_ns", "user_ns", "system_ns", "entries", "p50_us", "p99_us", "p999_us", "client_busy"]
HEADS = {"rate": "messages/s", "cpu_ns": "CPU ns", "user_ns": "user ns", "system_ns": "kernel ns", "entries": "entries",
         "p50_us": "p50 us", "p99_us": "p99 us", "p999_us": "p99.9 us", "client_busy": "client"}


def number(value, measure=""):
    if measure in ("client_busy", "server_busy"):
        return f"{value:.0%}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def cell(values, measure):
    """Its median; a ~ when the rounds differ so much that it says little."""
    if not values:
        return "-"
    figure = Figure(values)
    return ("~" if figure.is_wide else "") + number(figure.median, measure)


def table(rows, heads):
    """Columns as wide as they have to be, the first to the left, the others to the right."""
    widths = [max(len(str(row[i])) for row in [heads, *rows]) for i in range(len(heads))]
    lines = []
    for row in [heads, *rows]:
        cells = [str(row[0]).ljust(widths[0])] + [str(value).rjust(width) for value, width in zip(row[1:], widths[1:])]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def workload_tables(results):
    for workload in WORKLOADS:
        found = results["workloads"].get(workload.name)
        if not found:
            continue
        by_cpu = sorted(found, key=lambda name: Figure(found[name]["cpu_ns"]).median)
        plain = found.get(workload.plain, {}).get("cpu_ns")
        rows = []
        for name in by_cpu:
            cells = [cell(found[name].get(measure), measure) for measure in COLUMNS]
            ratio = Figure([a / b for a, b in zip(found[name]["cpu_ns"], plain)]).median if plain else None
            rows.append([name, *cells, f"{ratio:.2f}" if ratio else "-"])
        yield f"{workload.name}: {workload.title}"
        yield table(rows, ["server", *[HEADS[measure] for measure in COLUMNS], "CPU/plain"]) + "\n"
    yield "CPU of the server, kernel entries: per message. client: how busy the load generator's CPU was.\n" \
          "~ : the middle half of the rounds lies further apart than a quarter of the median. " \
          f"Rounds: {results['rounds']}.\n"


def counted_table(results):
    names = sorted({name for found in results["counted"].values() for name in found},
                   key=lambda name: results["counted"].get("instructions", {}).get(name, 1e9))
    if not names:
        return
    rows = []
    for name in names:
        cells = [results["counted"].get(what, {}).get(name) for what in ("instructions", "allocations")]
        rows.append([name, *["-" if value is None else number(value) for value in cells]])
    yield "counted: 64 bytes, 64 connections, by valgrind"
    yield table(rows, ["server", "instructions", "allocations"]) + "\n"


def memory_tables(results):
    idle, start = results["memory"].get("idle", {}), results["memory"].get("start", {})
    if idle:
        rows = [[name, number(value["user"]), number(value["kernel"])] for name, value in
                sorted(idle.items(), key=lambda item: item[1]["user"])]
        yield f"memory: bytes of one of {results['memory']['connections']:,} idle connections"
        yield table(rows, ["server", "user", "kernel"]) + "\n"
    yield from tls_memory_table(results)
    if start:
        rows = [[name, cell(value["ms"], ""), number(Figure(value["resident_kib"]).median / 1000)] for name, value in
                sorted(start.items(), key=lambda item: Figure(item[1]["ms"]).median)]
        yield "start: until it listens"
        yield table(rows, ["server", "ms", "MB"]) + "\n"


def tls_memory_table(results):
    idle = results["memory"].get("idle_tls", {})
    if idle:
        rows = [[name, number(value["user"])] for name, value in sorted(idle.items(), key=lambda item: item[1]["user"])]
        yield f"memory: bytes of one of {results['memory']['tls_connections']:,} idle connections over TLS"
        yield table(rows, ["server", "user"]) + "\n"


def target_cells(target):
    """The measure, its value, the limit and the verdict."""
    value = "-"
    if target.value is not None:
        size = abs(target.value)
        value = (number(target.value) if size >= 100 else f"{target.value:.4f}" if size < 0.001 else
                 f"{target.value:.3g}") + target.unit
    wanted = f"{target.limit:.3g}" if target.limit < 100 else f"{target.limit:,.0f}"
    limit = ("at least " if target.is_least else "at most ") + wanted + target.unit
    if target.aim:
        limit += f" (aim {target.aim:g})"
    return [target.text, value, limit, target.verdict + (f": {target.why}" if target.why else "")]


TARGET_HEADS = ["measure", "today's value", "limit", "verdict"]


def target_table(title, targets):
    if targets:
        yield title
        yield table([target_cells(target) for target in targets], TARGET_HEADS) + "\n"


def missing_lines(results):
    for name, why in results["missing"]:
        yield f"not there: {name}: {why}"


def report(results, targets, rows):
    parts = [*workload_tables(results), *counted_table(results), *memory_tables(results),
             *target_table("further targets", targets), *missing_lines(results), "",
             *target_table("the table of limits", rows)]
    return "\n".join(parts)

