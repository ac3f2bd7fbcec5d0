"""Charts as SVG, drawn in Python: they need no script, and print. The page's script only adds tooltips and the slider.

Colors are CSS classes (`l0` to `l7`, `limit`), so that one drawing serves the light and the dark theme.
"""

import io
import math
import re
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nearfar.messages import shorten_path
from nearfar.report.curves import Curve, LineChart
from nearfar.report.markup import Charts, data_address

WIDTH, HEIGHT = 340, 200
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 8, 38  # margins around the plot; the left one grows with long numbers
COLORS = 8
_TALL = 320  # height of a confusion matrix
_MAX_NAMED = 30  # rows of a heat map whose names fit beside it
_MAX_LETTERS = 18  # of such a name
_DIGIT = 7.0  # pixels, in the widest of the usual fonts
Range = tuple[float, float]


def line_chart(chart: LineChart) -> tuple[str, Range, Range]:
    """The drawing, and the ranges of x and y."""
    if chart.unit:
        x_range = y_range = (0.0, 1.0)
    else:
        x_range = padded_range([x for curve in chart.curves for x in curve.x], 0.0)
        heights = [y for curve in chart.curves for y in curve.y] + ([0.0] if chart.zero else [])
        y_range = (0.0, 1.0) if chart.share else padded_range(heights, 0.05)
        y_range = (max(0.0, y_range[0]), y_range[1]) if chart.zero else y_range
    left, colored = _left_margin(y_range, chart.y_title), list(zip(chart.curves, chart.colors(), strict=True))
    curves = "".join(_polyline(curve, color, x_range, y_range, left) for curve, color in colored)
    items = [
        f'<li><span class="swatch {_class(color)}{" dashed" if curve.dashed else ""}"></span>{escape(curve.name)}</li>'
        for curve, color in colored
        if not curve.faint
    ]
    legend = f'<ul class="key">{"".join(items)}</ul>' if len(items) > 1 else ""
    frame = _axes(x_range, y_range, chart.x_title, chart.y_title, left=left)
    return _svg(frame + f'<g fill="none">{curves}</g>') + legend, x_range, y_range


def line_figure(chart: LineChart, caption: str, charts: Charts) -> str:
    """The chart with title and caption; the values for the tooltip go into the page's data."""
    drawing, x_range, y_range = line_chart(chart)
    box = [_left_margin(y_range, chart.y_title), TOP, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT]
    return charts.figure(chart.title, drawing, chart.data() | {"across": x_range, "up": y_range, "box": box}, caption)


def histograms(values: dict[int, NDArray[np.float64]], highest: float) -> str:
    """Overlaid histograms from -1 to 1, by palette number."""
    y_range = (0.0, highest * 1.05 or 1.0)
    content = ""
    for color, heights in values.items():
        width, tops = (WIDTH - LEFT - RIGHT) / len(heights), [_y(h, y_range) for h in heights.tolist()]
        rectangles = "".join(
            f'<rect x="{LEFT + i * width:.1f}" width="{width:.1f}" y="{top:.1f}" height="{HEIGHT - BOTTOM - top:.1f}"/>'
            for i, top in enumerate(tops)
        )
        content += f'<g class="bars {_class(color)}">{rectangles}</g>'
    return _svg(_axes((-1.0, 1.0), y_range, "cosine similarity", "share", percent=True) + content)


def heat_map(
    z: NDArray[np.float64], x_range: Range, y_range: Range, x_title: str, y_title: str, names: list[str] | None = None
) -> str:
    """(rows, columns) values as color depth, 0 to the largest; with names, the first row is at the top."""
    values = np.nan_to_num(z)
    pixels = np.full((*z.shape, 4), (58, 130, 200, 0), np.uint8)
    pixels[..., 3] = np.clip(values / max(float(values.max()), 1e-12) * 255, 0, 255)
    content = io.BytesIO()
    Image.fromarray(pixels if names else pixels[::-1]).save(content, "PNG")
    left, _, right, bottom, height = heat_map_box(names)
    box = f'x="{left}" y="{TOP}" width="{right - left}" height="{bottom - TOP}"'
    image = f'<image {box} preserveAspectRatio="none" class="heat" href="{data_address(content.getvalue())}"/>'
    if not names:
        return _svg(_axes(x_range, y_range, x_title, y_title) + image)
    return _svg(image + _class_names(names, left, bottom) + _axis_titles(x_title, y_title, height), height)


def heat_map_box(names: list[str] | None) -> list[int]:
    """Left, top, right and bottom of the values in a heat map, and its height, for the tooltip."""
    height = _TALL if names else HEIGHT
    if not names or len(names) > _MAX_NAMED:
        return [LEFT, TOP, WIDTH - RIGHT, height - BOTTOM, height]
    margin = 26 + 6 * min(_MAX_LETTERS, max(map(len, names)))
    return [margin, TOP, WIDTH - RIGHT, height - margin, height]


def padded_range(values: list[float], margin: float) -> Range:
    """Smallest to largest with a margin; never of zero length.

    >>> padded_range([0.0, 10.0], 0.1), padded_range([3.0], 0.0)
    ((-1.0, 11.0), (2.5, 3.5))
    """
    low, high = min(values), max(values)
    pad = margin * (high - low) if high > low else abs(low) / 6 or 0.5
    return low - pad, high + pad


def _left_margin(y_range: Range, y_title: str) -> int:
    """Room for the longest number and the title beside it."""
    longest = max((len(text) for _, text in _ticks(y_range, 5)), default=0)
    return max(LEFT, math.ceil(_DIGIT * longest) + 8 + (14 if y_title else 0))


def _axes(
    x_range: Range, y_range: Range, x_title: str, y_title: str, *, percent: bool = False, left: int = LEFT
) -> str:
    """Grid, numbers and titles."""
    content = ""
    for value, text in _ticks(x_range, 6):
        x = _x(value, x_range, left)
        middle = min(x, WIDTH - _DIGIT / 2 * len(text))  # a long number at the end stays inside
        content += f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        content += f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{text}</text>'
    for value, text in _ticks(y_range, 5):
        y = _y(value, y_range)
        number = f"{100 * value:.3g} %" if percent else text
        content += f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        content += f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{number}</text>'
    return content + _axis_titles(x_title, y_title, HEIGHT)


def _x(value: float, x_range: Range, left: int) -> float:
    return left + (value - x_range[0]) / (x_range[1] - x_range[0]) * (WIDTH - RIGHT - left)


def _y(value: float, y_range: Range) -> float:
    return HEIGHT - BOTTOM + (value - y_range[0]) / (y_range[1] - y_range[0]) * (TOP - HEIGHT + BOTTOM)


def _ticks(limits: Range, most: int) -> list[tuple[float, str]]:
    """Round numbers in a range, at most that many, with their texts."""
    rough = (limits[1] - limits[0]) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(limits[0] / step - 1e-9)
    values = [step * i for i in range(first, first + most + 2) if step * i <= limits[1] + 1e-9 * step]
    return [(value, _tick_text(value, step)) for value in values]


def _tick_text(value: float, step: float) -> str:
    if value == 0 or abs(value) < step / 1e6:
        return "0"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    decimals += 0 if abs(round(step * 10**decimals) - step * 10**decimals) < 1e-6 else 1
    if decimals <= 6 and abs(value) < 1e6:
        return f"{value:,.{decimals}f}"
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(step)) + 2  # enough to differ from the next
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{max(digits, 1)}g}")


def _polyline(curve: Curve, color: int | None, x_range: Range, y_range: Range, left: int) -> str:
    places = [(_x(x, x_range, left), _y(y, y_range)) for x, y in zip(curve.x, curve.y, strict=True)]
    kind = f"{_class(color)}{' dashed' if curve.dashed else ''}{' faint' if curve.faint else ''}"
    if len(places) == 1:
        return f'<circle class="point {kind}" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="4"/>'
    return f'<polyline class="curve {kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'


def _class_names(names: list[str], left: int, bottom: int) -> str:
    """Names of rows at the left of a confusion matrix, and of columns below it."""
    if len(names) > _MAX_NAMED:
        return ""
    content, size, below = "", 11 if len(names) <= 14 else 8, bottom + 6
    row_height, column_width = (bottom - TOP) / len(names), (WIDTH - left - RIGHT) / len(names)
    for i, name in enumerate(names):
        text = f"{escape(shorten_path(name, _MAX_LETTERS))}<title>{escape(name)}</title>"
        y, x = TOP + (i + 0.5) * row_height + size / 3, left + (i + 0.5) * column_width + size / 3
        content += f'<text x="{left - 4}" y="{y:.1f}" font-size="{size}" text-anchor="end">{text}</text>'
        turned = f'transform="rotate(-90 {x:.1f} {below})"'
        content += f'<text x="{x:.1f}" y="{below}" font-size="{size}" text-anchor="end" {turned}>{text}</text>'
    return content


def _axis_titles(x_title: str, y_title: str, height: int) -> str:
    middle = height / 2 - 15
    content = f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{height - 5}" text-anchor="middle">{escape(x_title)}</text>'
    if y_title:
        content += f'<text x="10" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 10 {middle:.0f})">'
        content += f"{escape(y_title)}</text>"
    return content


def _class(color: int | None) -> str:
    return "limit" if color is None else f"l{color % COLORS}"


def _svg(content: str, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" aria-hidden="true" focusable="false">{content}</svg>'
