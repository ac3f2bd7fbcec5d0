"""Average precision: pycocotools' own number, from our boxes, labels and scores."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.evaluation.detection.average_precision import Found, average_precision, summary, weighted_precision
from nearfar.modalities.image.data.boxes import Target
from tests.evaluation.average_precision_loops import average_precision as loops
from tests.support.facts import facts

pytest.importorskip("pycocotools")


def truth(*boxes: tuple[int, list[float]], ignored: tuple[int, ...] = ()) -> Target:
    kinds = torch.tensor([kind for kind, _ in boxes], dtype=torch.long)
    places = torch.tensor([box for _, box in boxes]).reshape(-1, 4)
    return Target(places, kinds, torch.tensor([i in ignored for i in range(len(boxes))], dtype=torch.bool))


def found(*boxes: tuple[int, float, list[float]]) -> Found:
    kinds = torch.tensor([kind for kind, _, _ in boxes], dtype=torch.long)
    places = torch.tensor([box for _, _, box in boxes]).reshape(-1, 4)
    return Found(places, kinds, torch.tensor([score for _, score, _ in boxes]))


def scattered(images: int, seed: int) -> tuple[list[Found], list[Target]]:
    """Three classes; detections near true boxes, and others anywhere."""
    generator = torch.Generator().manual_seed(seed)

    def boxes(n: int) -> torch.Tensor:
        corner = 60 * torch.rand(n, 2, generator=generator)
        return torch.cat([corner, corner + 5 + 25 * torch.rand(n, 2, generator=generator)], 1)

    seen, true = [], []
    for _ in range(images):
        n = int(torch.randint(0, 5, (), generator=generator))
        own, kinds = boxes(n), torch.randint(3, (n,), generator=generator)
        true.append(Target(own, kinds, torch.rand(n, generator=generator) < 0.1))
        near = own + 3 * torch.randn(n, 4, generator=generator)
        wrong = boxes(3)
        scores = torch.rand(n + 3, generator=generator)
        seen.append(Found(torch.cat([near, wrong]), torch.cat([kinds, torch.arange(3)]), scores))
    return seen, true


def value(seen: list[Found], true: list[Target], metric: str = "AP", classes: int = 1) -> float:
    precision = average_precision(seen, true, classes=classes)
    return summary(precision, ["a", "b", "c"], count=20, seed=0)[metric].value


BOX = [10.0, 10.0, 30.0, 30.0]


@pytest.mark.parametrize(
    ("seen", "true", "expected"),
    [
        (found((0, 0.9, BOX)), truth((0, BOX)), 1.0),
        (found(), truth((0, BOX)), 0.0),
        (found((1, 0.9, BOX)), truth((0, BOX)), 0.0),  # found, but as another class
        (found((0, 0.9, BOX), (0, 0.8, BOX)), truth((0, BOX)), 1.0),  # the second of a kind comes after full recall
        (found((0, 0.9, [40.0, 40, 60, 60]), (0, 0.8, BOX)), truth((0, BOX)), 0.5),
        (found((0, 0.9, BOX)), truth((0, BOX), (0, [40.0, 40, 60, 60])), 51 / 101),  # half of the recalls
        (found((0, 0.9, [10.0, 10, 30, 50])), truth((0, BOX)), 0.1),  # overlap 0.5: one threshold of ten
        (found((0, 0.9, [10.0, 10, 30, 26])), truth((0, BOX)), 0.7),  # overlap 0.8: 0.5, 0.55, ..., 0.8
        (
            found((0, 0.9, BOX), (0, 0.95, [50.0, 50, 70, 70])),
            truth((0, BOX), (0, [50.0, 50, 70, 70]), ignored=(1,)),
            1.0,
        ),
    ],
)
def test_values_known_by_hand(seen: Found, true: Target, expected: float) -> None:
    assert value([seen], [true], classes=2) == pytest.approx(expected, abs=1e-6)


def test_boxes_of_another_image_do_not_count() -> None:
    assert value([found((0, 0.9, BOX)), found()], [truth(), truth((0, BOX))]) == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_each_threshold_equals_the_loops(seed: int) -> None:
    seen, true = scattered(12, seed)
    true = [t._replace(ignored=torch.zeros_like(t.ignored)) for t in true]
    precision = average_precision(seen, true, classes=3)
    for kind in range(3):
        detections = [
            (i, float(s), tuple(b))
            for i, f in enumerate(seen)
            for b, k, s in zip(f.boxes.tolist(), f.kinds, f.scores, strict=True)
            if k == kind
        ]
        boxes = [(i, tuple(b)) for i, t in enumerate(true) for b in t.boxes[t.kinds == kind].tolist()]
        for place in range(10):
            expected = loops(detections, boxes, 0.5 + 0.05 * place)
            assert precision.values[place, :, kind].mean() == pytest.approx(expected, abs=1e-9)


def test_all_of_it_equals_pycocotools_own_summary(tmp_path: Path) -> None:
    """Through pycocotools' files and its own twelve numbers, with crowds."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    seen, true = scattered(30, 9)
    annotations, results = [], []
    for i, (f, t) in enumerate(zip(seen, true, strict=True)):
        for (x1, y1, x2, y2), kind, crowd in zip(t.boxes.tolist(), t.kinds.tolist(), t.ignored.tolist(), strict=True):
            box = [x1, y1, x2 - x1, y2 - y1]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": i, "category_id": kind, "bbox": box, "area": box[2] * box[3]}
                | {"iscrowd": int(crowd)}
            )
        for (x1, y1, x2, y2), kind, score in zip(f.boxes.tolist(), f.kinds.tolist(), f.scores.tolist(), strict=True):
            results.append({"image_id": i, "category_id": kind, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score})
    content = {"images": [{"id": i} for i in range(30)], "annotations": annotations, "info": {}}
    content["categories"] = [{"id": k, "name": str(k)} for k in range(3)]
    (tmp_path / "truth.json").write_text(json.dumps(content))
    (tmp_path / "found.json").write_text(json.dumps(results))
    coco = COCO(str(tmp_path / "truth.json"))
    evaluation = COCOeval(coco, coco.loadRes(str(tmp_path / "found.json")), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    ours = summary(average_precision(seen, true, classes=3), ["a", "b", "c"], count=20, seed=0)
    for metric, theirs in zip(("AP", "AP50", "AP75"), evaluation.stats[:3], strict=True):
        assert ours[metric].value == pytest.approx(theirs, abs=1e-9)


def test_the_weighted_precision_is_pycocotools_and_a_weight_is_a_copy() -> None:
    seen, true = scattered(15, 2)
    precision = average_precision(seen, true, classes=3)
    for kind, matches in precision.matches.items():
        plain = weighted_precision(matches, np.ones(15), precision.recalls)
        np.testing.assert_allclose(plain, precision.values[:, :, kind], atol=1e-12)
    weights = np.array([2.0, 0.0, 1.0, 3.0, 1.0, 0.0, 0.0, 1.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    copies = [i for i, w in enumerate(weights) for _ in range(int(w))]
    again = average_precision([seen[i] for i in copies], [true[i] for i in copies], classes=3)
    for kind in again.matches:
        weighted = weighted_precision(precision.matches[kind], weights, precision.recalls)
        np.testing.assert_allclose(weighted, again.values[:, :, kind], atol=1e-12)


def test_intervals_hold_the_value_and_a_class_without_boxes_is_left_out() -> None:
    seen, true = scattered(20, 1)
    metrics = summary(average_precision(seen, true, classes=4), ["a", "b", "c", "d"], count=50, seed=0)
    assert set(metrics) == {"AP", "AP50", "AP75", "AP of a", "AP of b", "AP of c"}
    for estimate in metrics.values():
        assert estimate.low is not None and estimate.high is not None
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1 and estimate.n == 20
    assert metrics["AP"].high - metrics["AP"].low > 0.02


def test_nothing_to_find_is_refused() -> None:
    with pytest.raises(ValueError, match=facts("box")):
        summary(average_precision([found()], [truth()], classes=1), ["a"], count=20, seed=0)
    with pytest.raises(ValueError, match=facts("1 2 box")):
        average_precision([found()], [truth(), truth()], classes=1)


def test_without_pycocotools_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(ImportError, match=facts("'nearfar[detection]'")):
        average_precision([found()], [truth((0, BOX))], classes=1)
