#!/usr/bin/env python3
"""Draws what `run sweep --json` has written: throughput reached and p99 latency, against the load that is offered.

Usage: plot.py sweep.json throughput-latency.svg
"""
import json
import math
import sys
from xml.sax.saxutils import escape

# Colours that people with colour-blindness tell apart (Okabe and Ito), and markers for print without colours.
STYLES = {
    "laneway": ("Laneway (fsync before the answer)", "#000000", "circle"),
    "redis-always": ("Redis Streams, fsync always", "#d55e00", "square"),
    "redis-everysec": ("Redis Streams, fsync every second", "#e69f00", "diamond"),
    "nats-always": ("NATS JetStream, fsync always", "#0072b2", "square"),
    "nats-default": ("NATS JetStream, fsync every 2 min", "#56b4e9", "diamond"),
}
FONT = "font-family='sans-serif'"
WIDTH, HEIGHT = 1060, 500
PANEL_WIDTH, PANEL_HEIGHT = 410, 300
TOP = 76
LEFTS = (90, 610)
BLACK, GREY, FAINT = "#000000", "#444444", "#e4e4e4"


def curves(document):
    """Points of each system, by offered load; systems in the order of the styles."""
    found = {}
    for point in document["points"]:
        found.setdefault(point["system"], []).append(point)
    known = [system for system in STYLES if system in found]
    return {system: sorted(found[system], key=lambda point: point["offered"]) for system in known}


class Axis:
    """A logarithmic axis between two numbers, on some pixels."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def decades(self):
        """The powers of ten on it."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def number(value):
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def time(us):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:g} {unit}"
    return f"{us:g} µs"


def text(x, y, words, anchor="middle", size=13, fill=GREY, more=""):
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place} {FONT} font-size='{size}' fill='{fill}'{more}>{escape(words)}</text>"


def line(x1, y1, x2, y2, stroke, more=""):
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{stroke}'{more}/>"


def marker(kind, x, y, colour):
    if kind == "circle":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4.5' fill='{colour}'/>"
    turn = f" transform='rotate(45 {x:.1f} {y:.1f})'" if kind == "diamond" else ""
    return f"<rect x='{x - 4:.1f}' y='{y - 4:.1f}' width='8' height='8' fill='{colour}'{turn}/>"


def frame(left, title, x, y, rates, levels, label, unit):
    """Title, grid, ticks and labels of a panel."""
    bottom, right, middle = TOP + PANEL_HEIGHT, left + PANEL_WIDTH, TOP + PANEL_HEIGHT / 2
    parts = [text((left + right) / 2, TOP - 14, title, size=15, fill=BLACK)]
    for level in levels:
        parts.append(line(left, y.at(level), right, y.at(level), FAINT))
        parts.append(text(left - 8, y.at(level) + 4.5, unit(level), "end"))
    for rate in rates:
        parts.append(line(x.at(rate), TOP, x.at(rate), bottom, FAINT))
        parts.append(text(x.at(rate), bottom + 19, number(rate)))
    place = f"x='{left}' y='{TOP}' width='{PANEL_WIDTH}' height='{PANEL_HEIGHT}'"
    parts.append(f"<rect {place} fill='none' stroke='{GREY}'/>")
    parts.append(text((left + right) / 2, bottom + 41, "offered load (messages per second)"))
    turned = f" transform='rotate(-90 {left - 64} {middle})'"
    parts.append(text(left - 64, middle, label, more=turned))
    return parts


def curve(system, points, x, y, value):
    """A line with its markers; a point without a value is left out."""
    _, colour, kind = STYLES[system]
    places = [(x.at(point["offered"]), y.at(point[value])) for point in points if point.get(value)]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    parts = [f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>"]
    return parts + [marker(kind, a, b, colour) for a, b in places]


def legend(systems):
    parts, columns, wide = [], 3, 320
    for place, system in enumerate(systems):
        label, colour, kind = STYLES[system]
        a, b = LEFTS[0] + place % columns * wide, HEIGHT - 42 + place // columns * 24
        parts += [line(a, b, a + 30, b, colour, " stroke-width='2'"), marker(kind, a + 15, b, colour)]
        parts.append(text(a + 38, b + 4.5, label, "start", fill=BLACK))
    return parts


def throughput(found, rates, across):
    """The left panel. The dashed line is where everything that is offered is delivered."""
    left, x = LEFTS[0], across(LEFTS[0])
    reached = [point["rate"] for points in found.values() for point in points if point["rate"]] + rates
    y = Axis(min(reached) / 1.2, max(reached) * 1.2, TOP + PANEL_HEIGHT, TOP)
    levels = [level for level in rates if level not in y.decades()] + y.decades()
    parts = frame(left, "Throughput reached", x, y, rates, levels, "messages delivered per second", number)
    ends = (x.at(rates[0]), y.at(rates[0]), x.at(rates[-1]), y.at(rates[-1]))
    parts.append(line(*ends, "#999999", " stroke-dasharray='4 4'"))
    for system, points in reversed(found.items()):  # the first on top
        parts += curve(system, points, x, y, "rate")
    return parts


def latency(found, rates, across):
    """The right panel."""
    left, x = LEFTS[1], across(LEFTS[1])
    times = [point["p99_us"] for points in found.values() for point in points if point["p99_us"]]
    if not times:
        sys.exit("error: the file has no latencies: was it written by 'run sweep'?")
    y = Axis(min(times) / 1.5, max(times) * 1.5, TOP + PANEL_HEIGHT, TOP)
    parts = frame(left, "p99 latency", x, y, rates, y.decades(), "p99, from due to delivered", time)
    for system, points in reversed(found.items()):  # the first on top
        parts += curve(system, points, x, y, "p99_us")
    return parts


def picture(document):
    found = curves(document)
    if not found:
        sys.exit("error: the file has no points of a system that is known here.")
    rates = sorted({point["offered"] for points in found.values() for point in points})

    def across(left):
        return Axis(rates[0] / 1.15, rates[-1] * 1.15, left, left + PANEL_WIDTH)

    cores, seconds = document["environment"]["cores"], document["seconds"]
    title = f"Throughput and latency under load ({cores} cores, {seconds} s each, 200-byte messages, one consumer)"
    return [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
        text(WIDTH / 2, 28, title, size=17, fill=BLACK),
        *throughput(found, rates, across),
        *latency(found, rates, across),
        *legend(found),
        "</svg>",
    ]


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    with open(arguments[0], encoding="utf-8") as file:
        document = json.load(file)
    with open(arguments[1], "w", encoding="utf-8") as file:
        file.write("\n".join(picture(document)) + "\n")


main(sys.argv[1:])
