"""What an evaluation found, as pictures: a file for each encoder and protocol that has curves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.evaluation.results import Results

Curves = dict[str, NDArray[Any]]
_MANY = 12  # classes of which no curve of their own is drawn
_NAMED = 40  # classes whose names have room beside the confusion
FIGURES = "evaluation"  # the folder of arrays and pictures, in that of a run or an evaluation


def draw_curves(results: Results, folder: Path | str) -> list[Path]:
    """Write `DATA_SPLIT/PROTOCOL-ENCODER.png` for all that can be drawn, beside the arrays of `Results.save_curves`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
        path = Path(folder) / f"{results.curve_name(encoder, protocol)}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=250 if "pictures" in curves else 100)
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
    if len(names := curves.get("classes", np.array([]))) == len(counts) <= _NAMED:
        short = [(name if len(name) <= 14 else f"{name[:13]}…").replace("$", r"\$") for name in map(str, names)]
        size = 8 if len(short) <= _MANY else 5
        axis.set_xticks(range(len(short)), short, rotation=90, fontsize=size)
        axis.set_yticks(range(len(short)), short, fontsize=size)


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


def _detections(axis: Any, curves: Curves) -> None:
    """Pictures side by side: true boxes dashed, found ones with class and score."""
    from matplotlib.patches import Rectangle

    pictures, names = curves["pictures"], curves["classes"]
    n, height, width = pictures.shape[:3]
    columns = min(3, n)
    sheet = np.full((-(-n // columns) * height, columns * width, 3), 255, np.uint8)
    for i, (picture, (tall, wide)) in enumerate(zip(pictures, curves["picture_shapes"], strict=True)):
        x, y = i % columns * width, i // columns * height
        sheet[y : y + tall, x : x + wide] = picture[:tall, :wide]
    axis.imshow(sheet)
    for boxes, colour, line in ((curves["true_boxes"], "white", "--"), (curves["found_boxes"], "orange", "-")):
        for place, kind, x1, y1, x2, y2, *score in boxes:
            x, y = x1 + place % columns * width, y1 + place // columns * height
            style: dict[str, Any] = {"fill": False, "edgecolor": colour, "linestyle": line, "linewidth": 1}
            axis.add_patch(Rectangle((x - 0.5, y - 0.5), x2 - x1, y2 - y1, **style))
            words = f"{names[int(kind)]} {score[0]:.2f}" if score else ""
            axis.text(x, y - 2, words.replace("$", r"\$"), color=colour, fontsize=5, clip_on=True)
    axis.set(title="Dashed: true boxes; with a score: found", xticks=[], yticks=[])


# The array that a panel needs, and the panel.
PANELS: tuple[tuple[str, Callable[[Any, Curves], None]], ...] = (
    ("roc", _roc),
    ("pr", _precision_recall),
    ("confusion", _confusion),
    ("bin_count", _reliability),
    ("false_rate", _verification),
    ("spectrum", _spectrum),
    ("occurrence", _occurrence),
    ("pictures", _detections),
)
