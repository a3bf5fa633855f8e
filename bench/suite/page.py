"""The pictures of a run, and the page that shows all of them."""
import os
from html import escape

from . import charts, growth, text
from .figures import MISS, OPEN, PASS, Figure
from .workloads import WORKLOADS

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #e4e7eb; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
td, th { padding: 0.25em 0.8em; text-align: right; border-bottom: 1px solid #e4e7eb; }
td:first-child, th:first-child { text-align: left; }
img { max-width: 100%; margin: 0.5em 0; }
.pass { color: #22763b; } .miss { color: #a61b3c; font-weight: 600; } .open { color: #996515; }
.note { color: #616e7c; }
"""
CLASSES = {PASS: "pass", MISS: "miss", OPEN: "open"}


class Page:
    def __init__(self, directory):
        self.directory, self.parts = directory, []

    def add(self, *html):
        self.parts += html

    def head(self, words):
        self.add(f"<h2>{escape(words)}</h2>")

    def note(self, words):
        self.add(f'<p class="note">{escape(words)}</p>')

    def picture(self, name, svg, alt):
        with open(os.path.join(self.directory, name + ".svg"), "w", encoding="utf-8") as file:
            file.write(svg)
        self.add(f'<img src="{name}.svg" alt="{escape(alt)}">')

    def table(self, heads, rows, classes=None):
        self.add("<table><tr>" + "".join(f"<th>{escape(str(head))}</th>" for head in heads) + "</tr>")
        for nth, row in enumerate(rows):
            cells = "".join(f"<td>{escape(str(value))}</td>" for value in row[:-1])
            kind = f' class="{classes[nth]}"' if classes and classes[nth] else ""
            self.add(f"<tr>{cells}<td{kind}>{escape(str(row[-1]))}</td></tr>")
        self.add("</table>")

    def write(self):
        with open(os.path.join(self.directory, "index.html"), "w", encoding="utf-8") as file:
            file.write('<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>weir: benchmarks</title>\n'
                       f"<style>{STYLE}</style>\n" + "\n".join(self.parts) + "\n</html>\n")


def by_median(found, measure):
    rows = [(name, Figure(values[measure])) for name, values in found.items() if values.get(measure)]
    return sorted(rows, key=lambda row: row[1].median)


def add_machine(page, results):
    machine = results["machine"]
    page.add("<h1>weir and its peers, in one run</h1>")
    kind = "A quick look" if results["quick"] else "A whole run"
    page.note(f"{kind}: {results['rounds']} rounds. {machine['cpu']}, {machine['cpus']} CPUs, Linux "
              f"{machine['kernel']}, {machine['compiler']}. The server on one CPU, the load on another, over loopback. "
              "How each number is taken, and what could be unfair: bench/README.md.")
    page.note("Versions: " + ", ".join(f"{name} {version}" for name, version in machine["packages"].items()) + ".")


def add_targets(page, title, targets):
    page.head(title)
    page.table(text.TARGET_HEADS, [text.target_cells(target) for target in targets],
               [CLASSES.get(target.verdict) for target in targets])
    page.note("Ratios are taken within each round and are their median. pass and miss: the median is on that side of the "
              "limit with a confidence of 95%. Within the spread: the rounds cannot tell.")


def add_workload(page, workload, found):
    page.head(f"{workload.name}: {workload.title}")
    rows = []
    for name, total in by_median(found, "cpu_ns"):
        user = found[name].get("user_ns")
        user_ns = Figure(user).median if user else 0
        rows.append((name, [user_ns, total.median - user_ns], total.low, total.high))
    page.picture(f"{workload.name}-cpu", charts.bars("CPU of the server per message", "ns", rows,
                                                     ["user mode", "kernel"]), f"{workload.name}: CPU per message")
    for measure, title, unit in ("user_ns", "of that in user mode: the library's own", "ns"), \
                                ("p99_us", "99% of the answers within", "us"):
        rows = [(name, [figure.median], figure.low, figure.high) for name, figure in by_median(found, measure)]
        if rows:
            page.picture(f"{workload.name}-{measure[:-3]}", charts.bars(title, unit, rows), f"{workload.name}: {title}")
    heads = ["server", *[text.HEADS[measure] for measure in text.COLUMNS]]
    page.table(heads, [[name, *[text.cell(found[name].get(measure), measure) for measure in text.COLUMNS]]
                       for name, _ in by_median(found, "cpu_ns")])


def add_counted(page, results):
    instructions = results["counted"].get("instructions")
    if not instructions:
        return
    page.head("Counted: the same in every run")
    rows = [(name, [value], value, value) for name, value in sorted(instructions.items(), key=lambda item: item[1])]
    page.picture("instructions", charts.bars("instructions in user mode per echoed message (64 bytes, 64 connections)",
                                             "", rows), "instructions per message")
    page.table(["server", "instructions", "allocations"],
               [[name, text.number(value[0]), text.number(results["counted"]["allocations"].get(name, 0))]
                for name, value, _, _ in rows])


def add_memory(page, results):
    idle, start = results["memory"].get("idle"), results["memory"].get("start")
    if idle:
        page.head("Memory of an idle connection")
        rows = [(name, [value["user"], value["kernel"]], 0, 0) for name, value in
                sorted(idle.items(), key=lambda item: item[1]["user"])]
        page.picture("idle", charts.bars(f"bytes of one of {results['memory']['connections']:,} idle connections", "",
                                         rows, ["the server's", "the kernel's"]), "memory of an idle connection")
    add_tls_memory(page, results)
    if start:
        page.head("Start")
        rows = [(name, [figure.median], figure.low, figure.high) for name, figure in by_median(start, "ms")]
        page.picture("start", charts.bars("from its start until it listens", "ms", rows), "start-up time")


def add_tls_memory(page, results):
    idle = results["memory"].get("idle_tls")
    if idle:
        rows = [(name, [value["user"]], 0, 0) for name, value in sorted(idle.items(), key=lambda item: item[1]["user"])]
        page.picture("idle-tls", charts.bars(f"bytes of one of {results['memory']['tls_connections']:,} idle connections "
                                             "over TLS", "", rows), "memory of an idle connection over TLS")


def add_growth(page, results):
    if not any(results["growth"].values()):
        return
    page.head("Growth")
    for name, (x_title, y_title) in growth.CURVES.items():
        found = results["growth"].get(name)
        if not found:
            continue
        lines = {}
        for who, values in found.items():
            figures = [(int(x), Figure(value)) for x, value in values.items()]
            lines[who] = [(x, figure.median, figure.low, figure.high) for x, figure in sorted(figures)]
        page.picture(f"growth-{name}", charts.curves(f"{y_title}, against {x_title}", x_title, y_title, lines,
                                                     x_from_zero=name == "handlers"), f"growth with {x_title}")


def add_micro(page, results):
    if not results["micro"]:
        return
    page.head("The parts: weir-bench")
    rows = []
    for row in results["micro"]:
        peer = f"{row['peer']} {text.number(row['peer_median'])}" if row["peer"] and row["peer_median"] else \
            (row["peer"] or "")
        rows.append([row["case"], f"{text.number(row['median'])} {row['unit']}", peer,
                     f"{row['ratio']:.2f}" if row["ratio"] else "", f"{row['target']:g}" if row["target"] else "",
                     {True: "holds", False: "does not hold", None: ""}[row["holds"]]])
    page.table(["case", "weir", "peer", "ratio", "target", ""], rows,
               ["miss" if row["holds"] is False else "pass" for row in results["micro"]])


def add_missing(page, results):
    if results["missing"]:
        page.head("Not measured")
        page.add("<ul>" + "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in results["missing"])
                 + "</ul>")


def write(directory, results, targets, rows):
    page = Page(directory)
    add_machine(page, results)
    add_targets(page, "The table of limits", rows)
    add_targets(page, "Further targets", targets)
    for workload in WORKLOADS:
        if results["workloads"].get(workload.name):
            add_workload(page, workload, results["workloads"][workload.name])
    add_counted(page, results)
    add_memory(page, results)
    add_growth(page, results)
    add_micro(page, results)
    add_missing(page, results)
    page.write()
