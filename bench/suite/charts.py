"""Pictures, as SVG: bars with their spread, and curves. Each is a text that stands alone."""
import math
from html import escape

WIDTH = 760
INK, GREY, GRID = "#1f2933", "#616e7c", "#e4e7eb"
OURS = "#0b6bcb"
COLOURS = {"weir": OURS, "epoll": "#7b8794", "libuv": "#c26d00", "netty": "#a61b3c", "libev": "#2f855a",
           "forwarders": OURS, "bystanders": "#2f855a"}
OTHERS = ["#6b46c1", "#00838f", "#b7791f", "#4a5568"]


def colour(name, nth):
    return COLOURS.get(name, OTHERS[nth % len(OTHERS)])


def label(value):
    """A number as short as it can be read."""
    for limit, suffix in (1e9, "G"), (1e6, "M"), (1e3, "k"):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def text(x, y, words, size=12, fill=INK, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" ' \
           f'font-weight="{weight}">{escape(words)}</text>'


def line(x1, y1, x2, y2, stroke=GRID, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"/>'


def picture(height, parts):
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" ' \
           f'height="{height}" font-family="system-ui, sans-serif">\n' \
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"


def ticks(largest):
    """Round numbers from 0 to it."""
    if largest <= 0:
        return [0]
    step = 10 ** math.floor(math.log10(largest))
    for factor in 0.1, 0.2, 0.5, 1:
        if largest / (step * factor) <= 6:
            step *= factor
            break
    return [step * i for i in range(int(largest / step) + 1)]


def bars(title, unit, rows, legend=None):
    """rows: (name, parts, low, high): the parts add up to the bar, low and high are its spread. The smallest on top.
    legend: the names of the parts."""
    left, right, top, step = 110, 120, 64, 30
    height = top + step * len(rows) + 44
    largest = max(max(sum(parts), high) for _, parts, _, high in rows) or 1
    scale = (WIDTH - left - right) / largest
    out = [text(16, 26, title, 15, weight="600")]
    for value in ticks(largest):
        x = left + value * scale
        out += [line(x, top - 6, x, height - 34), text(x, height - 18, label(value), 11, GREY, "middle")]
    out.append(text(WIDTH - 16, height - 18, unit, 11, GREY, "end"))
    shades = ["1", "0.45", "0.25"]
    for nth, name in enumerate(legend or []):
        x = left + nth * 130
        out += [f'<rect x="{x}" y="38" width="12" height="12" fill="{GREY}" fill-opacity="{shades[nth]}"/>',
                text(x + 18, 48, name, 11, GREY)]
    for nth, (name, parts, low, high) in enumerate(rows):
        y, x = top + nth * step, float(left)
        fill = OURS if name.startswith("weir") else "#7b8794"
        out.append(text(left - 10, y + 15, name, 12, INK, "end", "600" if fill == OURS else "normal"))
        for shade, part in zip(shades, parts):
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{max(part * scale, 0):.1f}" height="20" fill="{fill}" '
                       f'fill-opacity="{shade}"/>')
            x += part * scale
        if high > low:
            a, b = left + low * scale, left + high * scale
            out += [line(a, y + 10, b, y + 10, INK, 1.2), line(a, y + 6, a, y + 14, INK, 1.2),
                    line(b, y + 6, b, y + 14, INK, 1.2)]
        out.append(text(left + max(sum(parts), high) * scale + 8, y + 15, label(sum(parts)), 12))
    return picture(height, out)


def powers(low, high):
    """The powers of ten around a range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0 ** i for i in range(first, max(last, first + 1) + 1)]


def curves(title, x_title, y_title, lines, x_from_zero=False):
    """lines: {name: [(x, y, low, high)]}; both ways by powers of ten, unless x begins at zero: then both do."""
    left, right, top, bottom, height = 76, 120, 50, 56, 400
    points = [point for line_points in lines.values() for point in line_points]
    if x_from_zero:
        x_ticks, y_ticks = ticks(max(p[0] for p in points)), ticks(max(p[3] for p in points))
        x_end, y_end = max(p[0] for p in points) or 1, max(p[3] for p in points) or 1
    else:
        y_ticks = powers(min(p[1] for p in points), max(p[3] for p in points))
        x_ticks = powers(min(p[0] for p in points), max(p[0] for p in points))

    def place_x(x):
        share = x / x_end if x_from_zero else math.log(x / x_ticks[0]) / math.log(x_ticks[-1] / x_ticks[0])
        return left + share * (WIDTH - left - right)

    def place_y(y):
        share = y / y_end if x_from_zero else \
            math.log(max(y, y_ticks[0]) / y_ticks[0]) / math.log(y_ticks[-1] / y_ticks[0])
        return height - bottom - share * (height - bottom - top)

    out = [text(16, 26, title, 15, weight="600")]
    for y in y_ticks:
        out += [line(left, place_y(y), WIDTH - right, place_y(y)), text(left - 8, place_y(y) + 4, label(y), 11, GREY,
                                                                        "end")]
    for x in x_ticks:
        out += [line(place_x(x), top, place_x(x), height - bottom),
                text(place_x(x), height - bottom + 18, label(x), 11, GREY, "middle")]
    out += [text((left + WIDTH - right) / 2, height - 12, x_title, 12, GREY, "middle"), text(16, 44, y_title, 11, GREY)]
    ends = []
    for nth, (name, line_points) in enumerate(lines.items()):
        stroke = colour(name, nth)
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y, _, _ in line_points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{stroke}" '
                   f'stroke-width="{2.5 if stroke == OURS else 1.6}"/>')
        for x, y, low, high in line_points:
            out += [line(place_x(x), place_y(low), place_x(x), place_y(high), stroke),
                    f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3" fill="{stroke}"/>']
        ends.append((place_y(line_points[-1][1]) + 4, place_x(line_points[-1][0]) + 10, name, stroke))
    lowest = 0.0
    for y, x, name, stroke in sorted(ends):  # in the order of their ends, one below the other
        lowest = max(y, lowest + 14)
        out.append(text(x, lowest, name, 12, stroke, weight="600"))
    return picture(height, out)
