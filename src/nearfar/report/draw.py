"""Charts as SVG, drawn here and not in the browser: they are there at once, without a script, and on paper.

Colours are classes (`l0` to `l7`, `limit`), so that light and dark need no second drawing. The page's script adds what
moves: values under the pointer and the slider.
"""

import io
import math
import re
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nearfar.report.curves import Chart, Line
from nearfar.report.markup import Charts, data_address

WIDTH, HEIGHT = 340, 200
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 8, 38  # margins around the plot, where no long number needs more
COLOURS = 8
_TALL = 320  # height of a chart with as many rows as columns
_NAMED = 30  # rows of a heat map whose names have room
_LETTERS = 10  # of such a name
_DIGIT = 7.0  # pixels, in the widest of the usual fonts
Range = tuple[float, float]


def line_chart(chart: Chart) -> tuple[str, Range, Range]:
    """The chart, and what its axes go from and to."""
    if chart.unit:
        across, up = (0.0, 1.0), (0.0, 1.0)
    else:
        across = span([x for line in chart.lines for x in line.x], 0.0)
        up = span([y for line in chart.lines for y in line.y], 0.05)
    left = room(up, chart.up)
    lines = "".join(
        _line(line, colour, across, up, left) for line, colour in zip(chart.lines, chart.colours(), strict=True)
    )
    frame = axes(across, up, chart.along, chart.up, left=left)
    return _svg(frame + f'<g fill="none">{lines}</g>') + key(chart), across, up


def line_figure(chart: Chart, caption: str, charts: Charts) -> str:
    """The chart with title and caption; what the pointer asks for is in the page's data."""
    drawing, across, up = line_chart(chart)
    box = [room(up, chart.up), TOP, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT]
    return charts.figure(chart.title, drawing, chart.data() | {"across": across, "up": up, "box": box}, caption)


def key(chart: Chart) -> str:
    """Which line is which, where there is more than one."""
    shown = [(line, c) for line, c in zip(chart.lines, chart.colours(), strict=True) if not line.faint]
    if len(shown) < 2:
        return ""
    items = "".join(
        f'<li><span class="swatch {_class(colour)}{" dashed" if line.dashed else ""}"></span>{escape(line.name)}</li>'
        for line, colour in shown
    )
    return f'<ul class="key">{items}</ul>'


def bars(values: dict[int, NDArray[np.float64]], most: float) -> str:
    """Histograms over each other from -1 to 1, by the number of their colour."""
    up = (0.0, most * 1.05 or 1.0)
    content = ""
    for colour, heights in values.items():
        wide = (WIDTH - LEFT - RIGHT) / len(heights)
        content += "".join(
            f'<rect x="{LEFT + i * wide:.1f}" width="{wide:.1f}" y="{place(h, up, HEIGHT - BOTTOM, TOP):.1f}" '
            f'height="{HEIGHT - BOTTOM - place(h, up, HEIGHT - BOTTOM, TOP):.1f}"/>'
            for i, h in enumerate(heights.tolist())
        ).join((f'<g class="bars {_class(colour)}">', "</g>"))
    return _svg(axes((-1.0, 1.0), up, "cosine similarity", "share", percent=True) + content)


def heat(
    z: NDArray[np.float64], across: Range, up: Range, along: str, upward: str, names: list[str] | None = None
) -> str:
    """Values (rows, columns) from 0 to their greatest as depth of colour; with names rows begin at the top."""
    alpha = np.zeros((*z.shape, 4), np.uint8)
    alpha[...] = (58, 130, 200, 0)
    alpha[..., 3] = np.clip(np.nan_to_num(z) / max(float(np.nan_to_num(z).max()), 1e-12) * 255, 0, 255)
    content = io.BytesIO()
    Image.fromarray(alpha if names else alpha[::-1]).save(content, "PNG")
    tall = _TALL if names else HEIGHT
    left, _, _, below, _ = heat_box(names)
    bottom = tall - below
    box = f'x="{left}" y="{TOP}" width="{WIDTH - left - RIGHT}" height="{tall - TOP - bottom}"'
    image = f'<image {box} preserveAspectRatio="none" class="heat" href="{data_address(content.getvalue())}"/>'
    if not names:
        return _svg(axes(across, up, along, upward) + image)
    return _svg(image + _names(names, left, tall, bottom) + _titles(along, upward, tall), tall)


def heat_box(names: list[str] | None) -> list[int]:
    """Left, top, right and bottom of the values in a heat map, and its height: for who points at them."""
    if not names or len(names) > _NAMED:
        return [LEFT, TOP, WIDTH - RIGHT, (_TALL if names else HEIGHT) - BOTTOM, _TALL if names else HEIGHT]
    room = 26 + 6 * min(_LETTERS, max(map(len, names)))
    return [room, TOP, WIDTH - RIGHT, _TALL - room, _TALL]


def room(up: Range, upward: str) -> int:
    """Pixels left of a chart: its longest number has place there, and the title beside it."""
    longest = max((len(text) for _, text in _ticks(up, 5)), default=0)
    return max(LEFT, math.ceil(_DIGIT * longest) + 8 + (14 if upward else 0))


def axes(across: Range, up: Range, along: str, upward: str, *, percent: bool = False, left: int = LEFT) -> str:
    """Grid, numbers and titles."""
    content = ""
    for value, text in _ticks(across, 6):
        x = place(value, across, left, WIDTH - RIGHT)
        middle = min(x, WIDTH - _DIGIT / 2 * len(text))  # a long number at the end stays inside
        content += f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        content += f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{text}</text>'
    for value, text in _ticks(up, 5):
        y = place(value, up, HEIGHT - BOTTOM, TOP)
        words = f"{100 * value:.3g} %" if percent else text
        content += f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        content += f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
    return content + _titles(along, upward, HEIGHT)


def place(value: float, of: Range, first: float, last: float) -> float:
    """Where a value is between two places."""
    return first + (value - of[0]) / (of[1] - of[0]) * (last - first)


def span(values: list[float], margin: float) -> Range:
    """From the least to the greatest, with a margin; never of no length.

    >>> span([0.0, 10.0], 0.1), span([3.0], 0.0)
    ((-1.0, 11.0), (2.5, 3.5))
    """
    low, high = min(values), max(values)
    if not high > low:
        arm = abs(low) / 6 or 0.5
        return low - arm, high + arm
    return low - margin * (high - low), high + margin * (high - low)


def _ticks(of: Range, most: int) -> list[tuple[float, str]]:
    """Round numbers in a range, at most that many, with their texts."""
    rough = (of[1] - of[0]) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(of[0] / step - 1e-9)
    values = [step * i for i in range(first, first + most + 2) if step * i <= of[1] + 1e-9 * step]
    return [(value, _text(value, step)) for value in values]


def _text(value: float, step: float) -> str:
    if value == 0 or abs(value) < step / 1e6:
        return "0"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    decimals += 0 if abs(round(step * 10**decimals) - step * 10**decimals) < 1e-6 else 1
    if decimals <= 6 and abs(value) < 1e6:
        return f"{value:,.{decimals}f}"
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(step)) + 2  # that tell it from its neighbours
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{max(digits, 1)}g}")


def _line(line: Line, colour: int | None, across: Range, up: Range, left: int) -> str:
    points = [
        f"{place(x, across, left, WIDTH - RIGHT):.1f},{place(y, up, HEIGHT - BOTTOM, TOP):.1f}"
        for x, y in zip(line.x, line.y, strict=True)
    ]
    kind = f"{_class(colour)}{' dashed' if line.dashed else ''}{' faint' if line.faint else ''}"
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle class="point {kind}" cx="{x}" cy="{y}" r="4"/>'
    return f'<polyline class="curve {kind}" points="{" ".join(points)}"/>'


def _names(names: list[str], left: int, tall: int, bottom: int) -> str:
    if len(names) > _NAMED:
        return ""
    content, size = "", 11 if len(names) <= 14 else 8
    high, wide = (tall - TOP - bottom) / len(names), (WIDTH - left - RIGHT) / len(names)
    for i, name in enumerate(names):
        text = escape(name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…")
        y, x = TOP + (i + 0.5) * high + size / 3, left + (i + 0.5) * wide + size / 3
        below = tall - bottom + 6
        content += f'<text x="{left - 4}" y="{y:.1f}" font-size="{size}" text-anchor="end">{text}</text>'
        content += (
            f'<text x="{x:.1f}" y="{below}" font-size="{size}" text-anchor="end" '
            f'transform="rotate(-90 {x:.1f} {below})">{text}</text>'
        )
    return content


def _titles(along: str, upward: str, tall: int) -> str:
    middle = tall / 2 - 15
    content = f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{tall - 5}" text-anchor="middle">{escape(along)}</text>'
    if upward:
        content += f'<text x="10" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 10 {middle:.0f})">'
        content += f"{escape(upward)}</text>"
    return content


def _class(colour: int | None) -> str:
    return "limit" if colour is None else f"l{colour % COLOURS}"


def _svg(content: str, tall: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {tall}" aria-hidden="true" focusable="false">{content}</svg>'
