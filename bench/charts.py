# SPDX-License-Identifier: Apache-2.0
"""Small charts as inline SVG, for report.py. Colours are classes of its style sheet; a text that shows on pointing is a <title>."""
import html
import math
from typing import NamedTuple

SMALL, WIDE = (400, 270), (600, 400)  # sizes of a panel, in units of its view box
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 30, 44  # margins around its axes
PREFIXES = {"K": 1 << 10, "M": 1 << 20}


def escape(text):
    return html.escape(str(text))


def power_of_two(value):
    """1024 -> 1K, as sequence lengths are written."""
    for prefix, unit in reversed(PREFIXES.items()):
        if value >= unit:
            return f"{value / unit:g}{prefix}"
    return f"{value:g}"


class Linear:
    """An axis over the values, to round numbers at both ends."""

    def __init__(self, label, values, most_ticks=6):
        self.label = label
        low, high = min(values), max(values)
        rough = ((high - low) or abs(high) or 1) / (most_ticks - 1)
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = next(step * magnitude for step in (1, 2, 5, 10) if step * magnitude >= rough * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        last = max(last, first + 1)
        self.ticks = [(i * step, f"{i * step:.10g}") for i in range(first, last + 1)]
        self.low, self.high = first * step, last * step

    def share(self, value):
        return (value - self.low) / (self.high - self.low)


class Logarithmic:
    """An axis over the values (above 0). base 2: ticks at powers of 2; 10: at 1, 2, 5, 10, or at powers of 10."""

    def __init__(self, label, values, base, most_ticks=8):
        self.label = label
        low, high = min(values), max(values)
        if base == 2:
            first, last = math.floor(math.log2(low) + 1e-9), math.ceil(math.log2(high) - 1e-9)
            last = max(last, first + 1)
            every = math.ceil((last - first + 1) / most_ticks)
            marks = [2.0**exponent for exponent in range(first, last + 1, every)]
            self.low, self.high = 2.0**first, 2.0**last
            self.ticks = [(mark, power_of_two(mark)) for mark in marks]
        else:
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            marks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
            self.low = max((mark for mark in marks if mark <= low * 1.001), default=low)
            self.high = min((mark for mark in marks if mark >= high * 0.999 and mark > self.low), default=high * 2)
            ticks = [mark for mark in marks if self.low <= mark <= self.high]
            if len(ticks) > most_ticks:
                ticks = [10.0**decade for decade in decades if self.low <= 10.0**decade <= self.high]
            self.ticks = [(mark, f"{mark:g}") for mark in ticks]

    def share(self, value):
        return math.log(value / self.low) / math.log(self.high / self.low)


class Point(NamedTuple):
    x: float
    y: float
    tip: str


class Line(NamedTuple):
    points: list
    style: str  # classes: a colour and a dash


class Dots(NamedTuple):
    points: list
    style: str
    shape: str = "circle"  # or square, ring


class Segment(NamedTuple):
    """A straight line of reference with a text along it, from its `begin` or up to its `end`."""
    begin: tuple
    end: tuple
    text: str = ""
    text_at: str = "begin"


def marker(x, y, shape, style, tip):
    title = f"<title>{escape(tip)}</title>" if tip else ""
    if shape == "square":
        return f'<rect class="dot {style}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6">{title}</rect>'
    kind, radius = ("ring", 5.5) if shape == "ring" else ("dot", 3.2)
    return f'<circle class="{kind} {style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{title}</circle>'


def segment(begin, end, mark):
    (x0, y0), (x1, y1) = begin, end
    line = f'<path class="roof" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>'
    x, y, shift, anchor = (x0, y0, 6, "start") if mark.text_at == "begin" else (x1, y1, -6, "end")
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    return line + (f'<text class="note" transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f}) translate({shift} -6)" '
                   f'text-anchor="{anchor}">{escape(mark.text)}</text>' if mark.text else "")


def panel(title, x_axis, y_axis, marks, size=SMALL):
    """One chart with axes, as an <svg>."""
    width, height = size
    right, bottom = width - RIGHT, height - BOTTOM

    def x_of(value):
        return LEFT + x_axis.share(value) * (right - LEFT)

    def y_of(value):
        return bottom - y_axis.share(value) * (bottom - TOP)

    parts = [f'<svg class="panel" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
             f'<text class="title" x="8" y="16">{escape(title)}</text>']
    for value, text in y_axis.ticks:
        y = y_of(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/><text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{escape(text)}</text>')
    for value, text in x_axis.ticks:
        x = x_of(value)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v4"/><text class="tick" x="{x:.1f}" y="{bottom + 17}" '
                     f'text-anchor="middle">{escape(text)}</text>')
    parts += [f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>',
              f'<text class="label" x="{(LEFT + right) / 2}" y="{height - 8}" text-anchor="middle">{escape(x_axis.label)}</text>',
              f'<text class="label" transform="translate(13 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
              f'{escape(y_axis.label)}</text>']
    for mark in marks:
        if isinstance(mark, Segment):
            parts.append(segment(*((x_of(x), y_of(y)) for x, y in (mark.begin, mark.end)), mark))
            continue
        places = [(x_of(point.x), y_of(point.y), point.tip) for point in mark.points]
        if isinstance(mark, Line):
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
            parts.append(f'<path class="line {mark.style}" d="M{path}"/>')
        shape = mark.shape if isinstance(mark, Dots) else "circle"
        parts += [marker(x, y, shape, mark.style, tip) for x, y, tip in places]
    return "\n".join(parts) + "</svg>"


def bars(title, label, rows, style, longest=0):
    """Bars from the left with their names. rows: [(name, value, text)]; the axis starts at 0 and goes to `longest` at least."""
    names, row_height, top, width = 270, 20, 30, 560
    axis = Linear(label, [0, longest, *(value for _, value, _ in rows)], 5)
    bottom = top + row_height * len(rows) + 4

    def x_of(value):
        return names + axis.share(value) * (width - names - 60)

    parts = [f'<svg class="bars" viewBox="0 0 {width} {bottom + 42}" role="img" aria-label="{escape(title)}">',
             f'<text class="title" x="8" y="16">{escape(title)}</text>']
    for value, text in axis.ticks:
        parts.append(f'<path class="grid" d="M{x_of(value):.1f} {top}V{bottom}"/><text class="tick" x="{x_of(value):.1f}" '
                     f'y="{bottom + 15}" text-anchor="middle">{escape(text)}</text>')
    parts.append(f'<text class="label" x="{(names + width - 60) / 2}" y="{bottom + 34}" text-anchor="middle">'
                 f'{escape(label)}</text>')
    for index, (name, value, text) in enumerate(rows):
        y = top + 4 + index * row_height
        parts.append(f'<text class="tick" x="{names - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
                     f'<rect class="bar {style}" x="{names}" y="{y}" width="{max(x_of(value) - names, 1):.1f}" height="14" rx="2"/>'
                     f'<text class="tick" x="{x_of(value) + 5:.1f}" y="{y + 12}">{escape(text)}</text>')
    return "\n".join(parts) + "</svg>"


def legend(entries):
    """entries: [(text, style, shape: line, circle, square or ring)]"""
    parts = []
    for text, style, shape in entries:
        picture = f'<path class="line {style}" d="M1 8H27"/>' if shape == "line" else ""
        picture += marker(14, 8, "circle" if shape == "line" else shape, style, "")
        parts.append(f'<span><svg viewBox="0 0 28 16" aria-hidden="true">{picture}</svg>{escape(text)}</span>')
    return '<p class="legend">' + "\n".join(parts) + "</p>"
