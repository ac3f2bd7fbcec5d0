"""The detector: what moves with a picture, what is learned, and that a seed is all the chance there is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nearfar.cli import main
from nearfar.evaluation.detection.detector import (
    detect,
    make_detector,
    moved,
    parameter_groups,
    train_detector,
)
from nearfar.evaluation.evaluate import evaluate as evaluate_encoder
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.detection import DetectionSettings
from nearfar.evaluation.results import Results
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.annotations import Annotated, Annotations
from nearfar.modalities.image.data.boxes import BoxedImages, boxed_images
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.nn.layers import layers
from nearfar.settings import build
from tests.evaluation.bars import Bars, evaluate
from tests.support.boxes import blocks, write_coco, write_voc
from tests.support.facts import all_tell, facts, tells
from tests.support.untrained import untrained_run

pytest.importorskip("pycocotools")

QUICK = DetectionSettings(epochs=6, batch_size=4, lr=2e-3)


def whole(x: torch.Tensor) -> torch.Tensor:
    return Preparation(32).whole(x)


def boxed(n: int, seed: int, **shape: int) -> BoxedImages:
    entries = [
        Annotated(str(i), picture, [box[1:] for box in own], [box[0] for box in own], [False] * len(own))
        for i, (picture, own) in enumerate(zip(*blocks(n, seed, **shape), strict=True))
    ]
    return boxed_images(Annotations(entries, ["blue", "red"]), size=96, classes=["blue", "red"])[0]


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return backbone("micro")


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.5, 1.5])
def test_boxes_move_with_their_picture(flip: bool, factor: float) -> None:
    picture = torch.zeros(3, 40, 60, dtype=torch.uint8)
    picture[:, 8:20, 10:40] = 255
    x, boxes = moved(picture, torch.tensor([[10.0, 8, 40, 20]]), flip=flip, factor=factor)
    assert x.shape == (3, round(40 * factor), round(60 * factor)) and 0 <= float(x.min()) <= float(x.max()) <= 1.001
    rows, columns = (x[0] > 0.5).any(1).nonzero()[:, 0], (x[0] > 0.5).any(0).nonzero()[:, 0]
    bright = torch.tensor([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
    torch.testing.assert_close(boxes[0], bright.float())


@pytest.mark.parametrize("head", ["fcos", "retinanet"])
def test_a_training_step_lowers_the_loss_of_a_fixed_batch(head: str) -> None:
    images = boxed(4, 0, width=48, height=64)
    model, _ = make_detector(encoder(), DetectionSettings(head=head), classes=2, largest=64, seed=0)  # type: ignore[arg-type]
    x = [whole(images.picture(i)[None])[0] for i in range(4)]
    targets = [{"boxes": t.boxes, "labels": t.kinds} for t in images.targets]
    targets[3] = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}  # a negative
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        loss = torch.stack(list(model(x, targets).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_it_learns_to_find_blocks_and_the_encoder_given_is_left_alone() -> None:
    given = encoder()
    before = {name: x.clone() for name, x in given.state_dict().items()}
    settings = ProtocolConfig(bootstrap=20, detection=QUICK)
    results = evaluate(
        {"untrained": given},
        boxed(24, 0),
        boxed(12, 1),
        prepare=whole,
        protocols=["detection"],
        settings=settings,
    )
    assert {row.encoder for row in results.rows} == {"untrained"}  # nothing raw, nothing prepared
    assert {row.metric for row in results.rows} == {"AP", "AP50", "AP75", "AP of blue", "AP of red"}
    assert all(torch.equal(before[name], x) for name, x in given.state_dict().items())
    found = results.value("untrained", "detection", "AP50")
    assert found is not None and found > 0.5
    curves = results.curves["untrained", "detection"]
    assert curves["pictures"].shape == (6, 64, 64, 3) and curves["pr"].shape == (2, 101)
    assert curves["true_boxes"].shape[1] == 6 and curves["found_boxes"].shape[1] == 7


def test_another_seed_is_another_detector() -> None:
    images = boxed(6, 0)
    found = []
    for seed in (0, 0, 1):
        model, _ = make_detector(encoder(), QUICK, classes=2, largest=64, seed=seed)
        torch.manual_seed(len(found))  # what is drawn elsewhere does not matter
        train_detector(model, images, replace(QUICK, epochs=1), prepare=whole, seed=seed)
        found.append(model.state_dict())
    assert all(torch.equal(x, found[1][name]) for name, x in found[0].items())
    assert any(not torch.equal(x, found[2][name]) for name, x in found[0].items())


def test_frozen_trains_pyramid_and_head_alone() -> None:
    images, given = boxed(6, 0), encoder()
    model, pyramid = make_detector(given, replace(QUICK, frozen=True), classes=2, largest=64, seed=0)
    first = pyramid.fpn.state_dict()["inner_blocks.0.0.weight"].clone()
    train_detector(model, images, replace(QUICK, frozen=True, epochs=1), prepare=whole, seed=0)
    trained = pyramid.encoder.state_dict()
    assert all(torch.equal(x, trained[name]) for name, x in given.state_dict().items())
    assert not torch.equal(first, pyramid.fpn.state_dict()["inner_blocks.0.0.weight"])


def test_an_encoder_that_has_learned_keeps_its_statistics_and_its_lower_layers_move_less() -> None:
    images, given = boxed(6, 0), encoder()
    for from_scratch in (True, False):
        model, pyramid = make_detector(given, QUICK, classes=2, largest=64, seed=0, from_scratch=from_scratch)
        train_detector(model, images, replace(QUICK, epochs=1), prepare=whole, seed=0)
        kept = [torch.equal(x, dict(given.named_buffers())[name]) for name, x in pyramid.encoder.named_buffers()]
        assert all(kept) is not from_scratch
        assert all(p.requires_grad for p in model.parameters())
    groups = parameter_groups(model, lr=1.0, layer_decay=0.5)
    rates = {p: group["lr"] for group in groups for p in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    expected = [0.5 ** (height + 1) for height in reversed(range(len(layers(pyramid.encoder))))]
    assert [rates[layer[0]] for layer in layers(pyramid.encoder)] == expected
    assert {rates[p] for p in pyramid.fpn.parameters()} == {1.0}


def test_found_boxes_are_in_the_pixels_of_their_picture() -> None:
    """Pictures of several shapes in one batch, larger ones than those trained on."""
    model, _ = make_detector(encoder(), QUICK, classes=2, largest=96, seed=0)
    train_detector(model, boxed(24, 0), replace(QUICK, epochs=2), prepare=whole, seed=0)
    mixed = [boxed(2, 5, width=w, height=h) for w, h in ((64, 64), (96, 48), (50, 70))]
    for images in mixed:
        for seen, shape in zip(detect(model, images, prepare=whole, batch_size=2), images.shapes.tolist(), strict=True):
            assert len(seen.boxes) == len(seen.kinds) == len(seen.scores) <= 100
            assert bool((seen.boxes >= 0).all()) and bool((seen.boxes[:, 2] <= shape[1]).all())
            assert bool((seen.boxes[:, 3] <= shape[0]).all())
            assert seen.scores.tolist() == sorted(seen.scores.tolist(), reverse=True)


def test_letters_are_never_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    flips: list[bool] = []

    def seen(picture: torch.Tensor, boxes: torch.Tensor, *, flip: bool, factor: float) -> tuple[torch.Tensor, ...]:
        flips.append(flip)
        return moved(picture, boxes, flip=flip, factor=factor)

    monkeypatch.setattr("nearfar.evaluation.detection.detector.moved", seen)
    images = boxed(8, 0)
    model, _ = make_detector(encoder(), QUICK, classes=2, largest=64, seed=0)
    for mirrored, flip, expected in ((True, True, True), (False, True, False), (True, False, False)):
        flips.clear()
        images.mirrored = mirrored
        train_detector(model, images, replace(QUICK, epochs=1, flip=flip), prepare=whole, seed=0)
        assert any(flips) is expected


def test_a_loss_that_is_not_finite_stops_with_a_line() -> None:
    model, _ = make_detector(encoder(), QUICK, classes=2, largest=64, seed=0)
    with pytest.raises(ValueError, match=facts("loss nan 0 detection.lr")):
        train_detector(model, boxed(4, 0), QUICK, prepare=lambda x: x * float("nan"), seed=0)


def test_encoders_without_maps_become_a_note() -> None:
    results = evaluate(
        {"trained": nn.Flatten(), "other": lambda x: x.flatten(1), "untrained": nn.Flatten()},
        boxed(2, 0),
        boxed(2, 1),
        prepare=whole,
        protocols=["detection"],
    )
    assert not results.rows
    assert tells(results.notes[0], "detection trained maps") and tells(results.notes[1], "detection other torch")


def test_boxes_and_labels_are_not_mistaken_for_each_other() -> None:
    results = evaluate({"trained": encoder()}, boxed(2, 0), boxed(2, 1), prepare=whole, protocols=["knn"])
    assert all_tell(results.notes, ["boxes knn"])
    results = evaluate({"trained": encoder()}, Bars(8, 0), Bars(8, 1), prepare=whole, protocols=["detection"])
    assert all_tell(results.notes, ["boxes detection"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "yolo"}, "detection head 'yolo' 'fcos' 'retinanet'"),
        ({"size": 16}, "detection.size 16 32"),
        ({"epochs": 0}, "detection.epochs 0 1"),
        ({"batch_size": 0}, "detection.batch_size 0 1"),
        ({"lr": 0.0}, "detection.lr 0.0"),
        ({"layer_decay": 0.0}, "detection.layer_decay 0.0"),
        ({"epoch": 3}, "'epoch' 'epochs'"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=facts(message)):
        build(ProtocolConfig, {"detection": changes}, "protocols")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with an encoder in it, not trained."""
    return untrained_run(tmp_path / "run", card=Preparation(32, grayscale=True, standardize=True).card())


FAST = ["--protocols.detection.epochs", "1", "--protocols.detection.batch-size", "8", "--protocols.bootstrap", "20"]


def test_glyph_scenes_from_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--protocol", "detection", "--data", "glyph-scenes:12", "--seeds", "2", *FAST]
    assert main([*words, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "AP" in shown and "start" in shown and "raw" not in shown
    results = Results.load(run / "evaluation.json")
    assert {(row.encoder, row.metric) for row in results.rows} == {
        (encoder, metric) for encoder in ("trained", "untrained") for metric in ("AP", "AP50", "AP75")
    }
    assert {row.n for row in results.rows} == {2}
    folder = run / "evaluation" / "glyph-scenes_12_test"
    for name in ("trained", "untrained"):
        assert (folder / f"detection-{name}.png").read_bytes().startswith(b"\x89PNG")
    with np.load(folder / "detection-trained.npz", allow_pickle=False) as arrays:
        assert arrays["pictures"].shape == (2, 96, 96, 3) and len(arrays["classes"]) <= 26
    assert "detection" in (run / "report.html").read_text()


@pytest.mark.slow
def test_letters_learned_without_labels_are_found_in_scenes(tmp_path: Path) -> None:
    """Some minutes; 55 % beside 12 % in benchmarks/results/detection.md."""
    import nearfar

    nearfar.train("glyphs:6000", out=tmp_path / "run", epochs=4)
    settings = ProtocolConfig(bootstrap=20, detection=DetectionSettings(epochs=12))
    results = evaluate_encoder(tmp_path / "run", "glyph-scenes:150", protocols=["detection"], settings=settings)
    trained, scratch = (results.value(name, "detection", "AP") for name in ("trained", "untrained"))
    assert trained is not None and scratch is not None and trained > scratch + 0.2


def test_all_protocols_of_data_with_boxes_and_faults_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_voc(tmp_path / "cells" / "train", 8, 0)
    write_voc(tmp_path / "cells" / "val", 4, 1)
    (tmp_path / "cells" / "train" / "0.xml").write_text("<annotation>")
    (tmp_path / "cells" / "val" / "1.xml").unlink()
    words = ["evaluate", str(run), "--protocol", "all", "--data", str(tmp_path / "cells"), *FAST]
    assert main([*words, "--protocols.detection.head", "retinanet", "--protocols.detection.frozen", "true"]) == 0
    about = f"{tmp_path / 'cells'} val: "
    notes = [note.removeprefix(about) for note in Results.load(run / "evaluation.json").notes]
    assert tells(notes[0], "training annotation 1 0.xml") and tells(notes[1], "val annotation 1 1.png")
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "detection"], "detection box --data glyph-scenes"),
        (
            ["--protocol", "detection", "knn", "--data", "glyph-scenes:4"],
            "detection box knn",
        ),
        (["--protocol", "detection", "--data", "glyphs:40"], "box 'glyphs:40'"),
        (["--protocol", "detection", "--data", "BROKEN"], "boxes.json JSON"),
        (["--protocol", "detection", "--data", "glyph-scenes:4", "--protocols.detection.size", "9"], "size 9"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_coco(tmp_path / "broken", 2, 0, "boxes.json")
    (tmp_path / "broken" / "boxes.json").write_text('{"images": [], "annotations"')
    words = [str(tmp_path / "broken") if word == "BROKEN" else word for word in arguments]
    assert main(["evaluate", str(run), *words]) in (1, 2)
    error = capsys.readouterr().err
    assert tells(error, message) and len(error.splitlines()) == 1, error
