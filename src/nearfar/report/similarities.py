"""How alike positives and negatives were in training, over time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.report.draw import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, bars, heat, heat_box
from nearfar.report.markup import Charts, sentence

_LOOKS = 40  # that are kept of a run, at most
_SLIDER = "time-of-similarities"  # the element
_COLOURS = {"negatives": 1, "positives": 0}  # in the order of drawing


def similarity_charts(metrics: list[dict[str, Any]], charts: Charts) -> str:
    """A histogram with a slider over the steps, and all of them at once as two bands of colour."""
    looks = [line for line in metrics if _fits(line.get("positives"), line.get("negatives"))]
    bins = len(looks[-1]["positives"]) if looks else 0
    looks = [line for line in looks if len(line["positives"]) == bins]
    if not looks:
        return sentence("No similarities of positives and negatives were logged.")
    kept = [looks[i] for i in np.linspace(0, len(looks) - 1, min(_LOOKS, len(looks))).round().astype(int).tolist()]
    edges = np.linspace(-1, 1, bins + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    shares = {name: np.stack([_share(line[name]) for line in kept]) for name in ("positives", "negatives")}  # (L, bins)
    steps = [float(line["step"]) for line in kept]
    most = max(float(share.max()) for share in shares.values())
    data = {
        "kind": "histograms",
        "slider": _SLIDER,
        "steps": steps,
        "most": most * 1.05,
        "values": {f"l{c}": np.round(shares[name], 5).tolist() for name, c in _COLOURS.items()},
        "box": [LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT],
    }
    drawing = bars({colour: shares[name][-1] for name, colour in _COLOURS.items()}, most)
    items = "".join(f'<li><span class="swatch l{c}"></span>{name}</li>' for name, c in _COLOURS.items())
    slider = (
        f'<div class="slide"><label for="{_SLIDER}">Time</label><input type="range" id="{_SLIDER}" min="0" '
        f'max="{len(kept) - 1}" value="{len(kept) - 1}"><output id="{_SLIDER}-step" for="{_SLIDER}">'
        f"step {steps[-1]:,.0f}</output></div>"
    )
    words = _words(shares, middles, steps)
    figure = charts.figure("Positives and negatives", f'{drawing}<ul class="key">{items}</ul>', data, words)
    content = f"<div>{figure}{slider}</div>"
    if len(kept) > 1:
        for name, share in shares.items():
            band = {"kind": "heat", "z": np.round(share.T[::-1], 4).tolist(), "box": heat_box(None)}
            band |= {"columns": steps, "rows": np.round(middles[::-1], 3).tolist()}
            # A column for each look: their steps may lie unevenly, so that time is counted in looks.
            drawing = heat(share.T, (1.0, float(len(kept))), (-1.0, 1.0), "look at the batch, in time", "similarity")
            caption = _course(name, share, middles)
            content += charts.figure(f"Similarity of {name} over time", drawing, band, caption)
    explained = "Cosine similarities of the embeddings that the loss compared, in the batches that were looked at."
    return f'{sentence(explained)}<div class="charts">{content}</div>'


def _fits(positives: object, negatives: object) -> bool:
    """Whether these are two histograms with anything in them."""
    for counts in (positives, negatives):
        if not isinstance(counts, list) or not all(isinstance(n, int | float) and 0 <= n < 1e15 for n in counts):
            return False
        if not sum(counts) > 0:
            return False
    return isinstance(positives, list) and isinstance(negatives, list) and len(positives) == len(negatives)


def _share(counts: list[float]) -> NDArray[np.float64]:
    values = np.asarray(counts, np.float64)
    share: NDArray[np.float64] = values / values.sum()
    return share


def _mean(share: NDArray[np.float64], middles: NDArray[np.float64]) -> float:
    return round(float((share * middles).sum()), 2) + 0.0  # and not -0


def _words(shares: dict[str, NDArray[np.float64]], middles: NDArray[np.float64], steps: list[float]) -> str:
    near, far = (shares[name][-1] for name in ("positives", "negatives"))
    middle = middles[min(int(np.searchsorted(near.cumsum(), 0.5)), len(middles) - 1)]
    above = float(far[middles >= middle].sum())
    return (
        f"At step {steps[-1]:,.0f} positives have a mean similarity of {_mean(near, middles):.2f}, negatives of "
        f"{_mean(far, middles):.2f}; {100 * above:.2g} % of the negatives are as alike as the middle positive."
    )


def _course(name: str, share: NDArray[np.float64], middles: NDArray[np.float64]) -> str:
    return f"The mean of the {name} went from {_mean(share[0], middles):.2f} to {_mean(share[-1], middles):.2f}."
