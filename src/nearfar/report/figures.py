"""What an evaluation found, as pictures: a file for each encoder and protocol that has curves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluate.results import Results, file_name

Curves = dict[str, NDArray[Any]]
_MANY = 12  # classes of which no curve of their own is drawn


def draw_curves(results: Results, folder: Path | str) -> list[Path]:
    """Write `PROTOCOL-ENCODER.png` for all that can be drawn, beside the arrays of `Results.save_curves`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = []
    for (encoder, protocol), curves in results.curves.items():
        panels = [draw for needed, draw in PANELS if needed in curves]
        if not panels:
            continue
        figure, axes = plt.subplots(
            1, len(panels), figsize=(4.2 * len(panels), 4), constrained_layout=True, squeeze=False
        )
        for draw, axis in zip(panels, axes[0], strict=True):
            draw(axis, curves)
        where = next((f", {row.data} {row.split}" for row in results.rows if row.protocol == protocol), "")
        figure.suptitle(f"{encoder}: {protocol}{where}".replace("$", r"\$"))
        path = Path(folder) / f"{file_name(protocol)}-{file_name(encoder)}.png"
        figure.savefig(path, dpi=100)
        plt.close(figure)
        paths.append(path)
    return paths


def _rates(axis: Any, curves: Curves, name: str, x: str, y: str, title: str) -> None:
    each = curves[name]
    if len(each) <= _MANY:
        for one in each:
            axis.plot(curves["grid"], one, color="0.75", linewidth=0.8)
    axis.plot(curves["grid"], each.mean(0), linewidth=2, label=f"mean of {len(each)} classes")
    axis.set(xlabel=x, ylabel=y, title=title, xlim=(0, 1), ylim=(0, 1.01))
    axis.legend(loc="lower left" if name == "pr" else "lower right")


def _roc(axis: Any, curves: Curves) -> None:
    _rates(axis, curves, "roc", "false positive rate", "true positive rate", "ROC, one class against the rest")
    axis.plot([0, 1], [0, 1], ":", color="0.5")


def _precision_recall(axis: Any, curves: Curves) -> None:
    _rates(axis, curves, "pr", "recall", "precision", "Precision and recall")


def _confusion(axis: Any, curves: Curves) -> None:
    counts = curves["confusion"].astype(float)
    axis.imshow(counts / np.maximum(counts.sum(1, keepdims=True), 1), vmin=0, vmax=1, cmap="viridis")
    axis.set(xlabel="predicted class", ylabel="true class", title="Confusion, share of the true class")


def _reliability(axis: Any, curves: Curves) -> None:
    seen = curves["bin_count"] > 0
    axis.plot([0, 1], [0, 1], ":", color="0.5")
    axis.plot(curves["bin_confidence"][seen], curves["bin_accuracy"][seen], "o-")
    axis.set(xlabel="confidence", ylabel="accuracy", title="Calibration", xlim=(0, 1), ylim=(0, 1.01))


def _verification(axis: Any, curves: Curves) -> None:
    axis.plot(curves["false_rate"], curves["true_rate"], linewidth=2)
    axis.plot([0, 1], [0, 1], ":", color="0.5")
    axis.set(xlabel="false accept rate", ylabel="true accept rate", title="Same class or not", xlim=(0, 1))


def _spectrum(axis: Any, curves: Curves) -> None:
    spectrum = curves["spectrum"][curves["spectrum"] > 0]
    axis.plot(np.arange(1, len(spectrum) + 1), spectrum)
    axis.set(xscale="log", yscale="log", xlabel="direction", ylabel="variance", title="Spectrum of the covariance")


def _occurrence(axis: Any, curves: Curves) -> None:
    axis.hist(curves["occurrence"], bins=np.arange(curves["occurrence"].max() + 2) - 0.5)
    axis.set(xlabel="times among the 10 nearest", ylabel="images", yscale="log", title="Hubness")


# The array that a panel needs, and the panel.
PANELS: tuple[tuple[str, Callable[[Any, Curves], None]], ...] = (
    ("roc", _roc),
    ("pr", _precision_recall),
    ("confusion", _confusion),
    ("bin_count", _reliability),
    ("false_rate", _verification),
    ("spectrum", _spectrum),
    ("occurrence", _occurrence),
)
