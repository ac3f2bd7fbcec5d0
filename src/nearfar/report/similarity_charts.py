"""Similarities of positives and negatives during training: a histogram with a slider, and heat maps over time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.report.curves import Metrics
from nearfar.report.markup import Charts, sentence
from nearfar.report.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, heat_map, heat_map_box, histograms

_MAX_TIMES = 40  # shown of a run
_SLIDER = "time-of-similarities"  # id of the element
_COLORS = {"negatives": 1, "positives": 0}  # palette numbers, in the order of drawing
Floats = NDArray[np.float64]


def similarity_section(metrics: Metrics, charts: Charts) -> tuple[str, str]:
    """The histogram with its slider, and how it came about, for the details; a sentence where nothing was logged."""
    logged = [line for line in metrics if _is_complete(line.get("positives"), line.get("negatives"))]
    bins = len(logged[-1]["positives"]) if logged else 0
    logged = [line for line in logged if len(line["positives"]) == bins]
    if not logged:
        return sentence("No similarities of positives and negatives were logged."), ""
    chosen = np.linspace(0, len(logged) - 1, min(_MAX_TIMES, len(logged))).round().astype(int)
    kept = [logged[i] for i in chosen.tolist()]
    edges = np.linspace(-1, 1, bins + 1)
    centers = (edges[1:] + edges[:-1]) / 2
    shares = {name: np.stack([_shares(line[name]) for line in kept]) for name in _COLORS}  # (T, bins)
    steps = [float(line["step"]) for line in kept]
    histogram, content = _histogram(shares, centers, steps, charts), ""
    if len(kept) > 1:
        for name, share in reversed(shares.items()):
            data = {"kind": "heat", "z": np.round(share.T[::-1], 4).tolist(), "box": heat_map_box(None)}
            data |= {"columns": steps, "rows": np.round(centers[::-1], 3).tolist()}
            # One column for each measurement: their steps may be unevenly spaced.
            drawing = heat_map(share.T, (1.0, float(len(kept))), (-1.0, 1.0), "measurement", "similarity")
            first, last = _mean(share[0], centers), _mean(share[-1], centers)
            should = "Should rise" if name == "positives" else "Should stay around 0"
            caption = f"{should}: the mean of the {name} went from {first:.2f} to {last:.2f}."
            content += charts.figure(f"Similarity of {name} over time", drawing, data, caption)
    return histogram, content


def _histogram(shares: dict[str, Floats], centers: Floats, steps: list[float], charts: Charts) -> str:
    highest = max(float(share.max()) for share in shares.values())
    data = {
        "kind": "histograms",
        "slider": _SLIDER,
        "steps": steps,
        "most": highest * 1.05,
        "values": {f"l{c}": np.round(shares[name], 5).tolist() for name, c in _COLORS.items()},
        "box": [LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT],
    }
    drawing = histograms({color: shares[name][-1] for name, color in _COLORS.items()}, highest)
    legend = "".join(f'<li><span class="swatch l{c}"></span>{name}</li>' for name, c in _COLORS.items())
    last = len(steps) - 1
    slider = (
        f'<div class="slide"><label for="{_SLIDER}">Time</label><input type="range" id="{_SLIDER}" min="0" '
        f'max="{last}" value="{last}"><output id="{_SLIDER}-step" for="{_SLIDER}">step {steps[-1]:,.0f}</output></div>'
    )
    near, far = shares["positives"][-1], shares["negatives"][-1]
    median = centers[min(int(np.searchsorted(near.cumsum(), 0.5)), len(centers) - 1)]
    caption = (
        "The two should come apart: positives, views of one sample, to the right; negatives, of different samples, "
        f"around 0. At step {steps[-1]:,.0f} positives have a mean cosine similarity of {_mean(near, centers):.2f}, "
        f"negatives of {_mean(far, centers):.2f}; {100 * float(far[centers >= median].sum()):.2g} % of the negatives "
        "are as similar as the median positive."
    )
    figure = charts.figure("Positives and negatives", f'{drawing}<ul class="key">{legend}</ul>', data, caption)
    return f"<div>{figure}{slider}</div>"


def _is_complete(positives: Any, negatives: Any) -> bool:
    """Whether these are two non-empty histograms of one length."""
    for counts in (positives, negatives):
        if not isinstance(counts, list) or not all(isinstance(n, int | float) and 0 <= n < 1e15 for n in counts):
            return False
    return sum(positives) > 0 and sum(negatives) > 0 and len(positives) == len(negatives)


def _shares(counts: list[float]) -> Floats:
    values = np.asarray(counts, np.float64)
    shares: Floats = values / values.sum()
    return shares


def _mean(shares: Floats, centers: Floats) -> float:
    return round(float((shares * centers).sum()), 2) + 0.0  # never -0
