"""`nearfar evaluate` in a process of its own, and the encoders and data it opens."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.evaluation.evaluate import _names
from nearfar.evaluation.protocols import PROTOCOLS, Protocol
from nearfar.evaluation.results import Results, Row
from nearfar.evaluation.task import Outcome, Task
from nearfar.modalities import make_modality
from nearfar.modalities.image.backbones import backbone
from nearfar.model.load import load
from tests.support.facts import facts, tells
from tests.support.untrained import untrained_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with an encoder in it, not trained: what it reaches does not matter here."""
    folder = untrained_run(tmp_path / "run")
    old = Row("trained", "linear", "accuracy", 0.5, 0.4, 0.6, "test", "elsewhere", 10)
    Results([old]).save(folder / "evaluation.json")
    return folder


def pictures(folder: Path, n: int, seed: int) -> None:
    """Two classes: dark and bright."""
    generator = np.random.default_rng(seed)
    for label, base in (("dark", 20), ("bright", 180)):
        (folder / label).mkdir(parents=True)
        for i in range(n):
            pixels = generator.integers(base, base + 50, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")


def test_a_run_on_a_folder_in_a_real_process(run: Path, tmp_path: Path) -> None:
    pictures(tmp_path / "photos" / "train", 12, 0)
    pictures(tmp_path / "photos" / "test", 6, 1)
    weights = tmp_path / "resnet18.safetensors"
    save_file({k: v.contiguous() for k, v in backbone("resnet18", size=32).state_dict().items()}, weights)
    command = f"nearfar evaluate {run} --data photos --protocol knn verification --image-size 32"
    words = [sys.executable, "-m", *command.split(), "--against", f"timm:resnet18={weights}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tells(done.stdout, "test samples photos")
    assert tells(done.stdout, "start same") or tells(done.stdout, "start better") or tells(done.stdout, "start WORSE")
    assert tells(done.stdout, f"{run / 'report.html'}")
    content = json.loads((run / "evaluation.json").read_text())["results"]
    assert content[0]["data"] == "elsewhere"  # what was measured before stays
    anew = [row for row in content if row["data"] == "photos"]
    assert {row["encoder"] for row in anew} == {
        *("trained", "timm:resnet18=resnet18.safetensors", "untrained", "raw", "colour histogram")
    }
    assert {row["split"] for row in anew} == {"test"}
    raw = next(row for row in anew if (row["encoder"], row["protocol"], row["metric"]) == ("raw", "knn", "accuracy"))
    assert raw["value"] == 1.0 and raw["n"] == 12
    for name in ("knn-trained", "knn-timm_resnet18=resnet18.safetensors", "verification-raw"):
        assert (run / "evaluation" / "photos_test" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with np.load(run / "evaluation" / "photos_test" / "knn-raw.npz") as arrays:
        assert arrays["confusion"].tolist() == [[6, 0], [0, 6]] and "roc" in arrays
        assert arrays["classes"].tolist() == ["bright", "dark"]
    assert "photos" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "encoder"),
        (["nowhere", "--data", "glyphs:40"], "'nowhere'"),
        (["timm:resnet81", "--data", "glyphs:40"], "'resnet81'"),
        (["gone.onnx", "--data", "glyphs:40"], "'gone.onnx'"),
        (["RUN", "--protocol", "knm"], "'knm' knn linear"),
        (["RUN", "--data", "nodata"], "'nodata'"),
        (["RUN", "--seeds", "0"], "seeds 0 1"),
        (["RUN", "--protocols.knn.neighbours", "[3]"], "key"),
        (["RUN", "--protocols.geometry.views", "1"], "protocols.geometry.views 1 2"),
        (["RUN", "--protocols.knn.temperature", "0"], "protocols.knn.temperature 0.0 0"),
        (["RUN", "--image-size", "0"], "image_size 0 1"),
        (["RUN", "--batch-size", "0"], "batch_size 0 1"),
        (["RUN", "--data.stored_size", "0"], "size 0 1"),
        (["RUN", "--against", "RUN"], "encoder"),
        (
            ["RUN", "--data", "plain", "--protocol", "knn"],
            "plain label --data --protocol geometry",
        ),
        (["RUN", "--data", "table.csv"], "table.csv label --data column"),
        (["RUN", "--data", "glyphs:60", "--protocol", "zero_shot"], "zero_shot text"),
        (["RUN", "--data", "photos", "--protocol", "captions"], "photos caption --data"),
        (["RUN", "--data", "glyphs:60", "--protocol", "similarity"], "similarity text"),
        (["RUN", "--data", "glyphs:60", "--protocol", "frames"], "frames"),
        (["RUN", "--data", "photos/dark", "--protocol", "knn", "linear"], "photos/dark label"),
        (["timm:resnet18", "--data", "plain", "--out", "fresh"], "plain label"),
        (["RUN", "--data", "one", "--protocol", "knn"], "one labels"),  # a single folder is no class
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    run.rename(run.parent / "trained")
    pictures(run.parent / "photos", 5, 0)
    shutil.copytree("photos/dark", "plain")
    shutil.copytree("photos/dark", "one/class")
    Path("table.csv").write_text("path\n" + "".join(f"plain/{i}.png\n" for i in range(5)))
    before = (Path("trained") / "evaluation.json").read_text()
    words = ["trained" if a == "RUN" else a for a in arguments]
    monkeypatch.setattr(
        "nearfar.model.foreign.encoders.backbone", lambda name, **how: backbone(name, **how | {"weights": None})
    )
    assert main(["evaluate", *words]) in (1, 2)
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if not line.startswith("packing at")]
    assert tells(line, message)
    assert said.out == "" and (Path("trained") / "evaluation.json").read_text() == before  # nothing is written
    assert not Path("fresh").exists() and not (Path("trained") / "report.html").exists()


def test_a_broken_file_is_moved_aside_before_the_work(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("evaluation.json.broken", "evaluation.json.broken-2")):
        (run / "evaluation.json").write_text("{" * (number + 1))
        assert main(["evaluate", str(run), "--data", "glyphs:60", "--protocol", "knn"]) == 0
        assert f"{run / name}" in capsys.readouterr().out.replace("\n", "")
        assert (run / name).read_text() == "{" * (number + 1)
        assert Results.load(run / "evaluation.json").value("trained", "knn") is not None


def test_a_file_for_the_folder_is_refused_before_the_work(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nearfar.report.refresh.Evaluation", None)
    out = run / "config.yaml"
    assert main(["evaluate", str(run), "--data", "glyphs:60", "--out", str(out)]) == 1
    assert tells(capsys.readouterr().err, f"{out}")


@pytest.mark.parametrize("error", [RuntimeError("the device is gone"), KeyboardInterrupt()])
def test_what_is_finished_is_kept_whatever_happens_next(
    error: BaseException, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(task: Task, settings: object, seed: int) -> Outcome:
        raise error

    monkeypatch.setitem(PROTOCOLS, "clustering", Protocol("clustering", stop, "", ""))
    status = main(["evaluate", str(run), "--data", "glyphs:60", "--protocol", "knn", "clustering"])
    assert status == (130 if isinstance(error, KeyboardInterrupt) else 1)
    said = capsys.readouterr().out
    assert tells(said, "trained knn done")  # a sign of life without a terminal
    assert tells(said, f"{run}")
    kept = Results.load(run / "evaluation.json")
    assert kept.rows[0].data == "elsewhere" and kept.value("trained", "knn") is not None
    assert list((run / "evaluation").rglob("knn-trained.png"))


def test_what_finds_no_memory_is_told_and_costs_nothing_else(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(task: Task, settings: object, seed: int) -> Outcome:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 58659975200 bytes")

    monkeypatch.setitem(PROTOCOLS, "clustering", Protocol("clustering", stop, "", ""))
    assert main(["evaluate", str(run), "--data", "glyphs:60", "--protocol", "clustering", "knn"]) == 0
    assert tells(" ".join(capsys.readouterr().out.split()), "clustering trained memory")
    assert Results.load(run / "evaluation.json").value("trained", "knn") is not None


def test_other_test_data_are_named_and_replace_nothing(run: Path, tmp_path: Path) -> None:
    pictures(tmp_path / "photos", 10, 0)
    pictures(tmp_path / "others", 5, 1)
    words = ["evaluate", str(run), "--data", str(tmp_path / "photos"), "--protocol", "knn"]
    assert main(words) == 0 and main([*words, "--test", str(tmp_path / "others")]) == 0
    found = {(row.data, row.split) for row in Results.load(run / "evaluation.json").rows if row.protocol == "knn"}
    photos = str(tmp_path / "photos")
    assert len(list((run / "evaluation").rglob("knn-trained.npz"))) == 2  # each has its curves
    assert found == {(photos, "held-out"), (f"{photos}, tested on {tmp_path / 'others'}", "test")}


def test_local_weights_are_told_apart() -> None:
    names = _names("timm:resnet18=a/one.safetensors", ["timm:resnet18=b/two.safetensors", "timm:resnet18"])
    assert list(names) == ["timm:resnet18=one.safetensors", "timm:resnet18=two.safetensors", "timm:resnet18"]


def test_the_untrained_encoder_is_the_one_the_run_began_with(run: Path) -> None:
    first, second = load(run, untrained=True), load(run, untrained=True)
    weights, learned = first.backbone.state_dict(), load(run).backbone.state_dict()
    assert all(torch.equal(x, second.backbone.state_dict()[name]) for name, x in weights.items())
    assert not torch.equal(weights["stem.weight"], learned["stem.weight"])


class Means(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


@pytest.mark.parametrize("batch", [None, 4])  # any number of images, or always four
def test_an_onnx_file_gives_the_features_of_its_network(batch: int | None, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "means.onnx"
    dynamic = {"x": {0: "batch"}} if batch is None else None
    torch.onnx.export(
        Means(), (torch.zeros(batch or 2, 3, 8, 8),), path, input_names=["x"], dynamic_axes=dynamic, dynamo=False
    )
    encoder = load(str(path))
    images = torch.randint(0, 256, (6, 3, 10, 10), dtype=torch.uint8)
    x = encoder.prepare(images)
    assert x.shape == (6, 3, 8, 8)
    torch.testing.assert_close(encoder(x), Means()(x))
    with pytest.raises(ValueError, match=facts("means.onnx")):
        load(path, untrained=True)
    with pytest.raises(ValueError, match=facts("8 9")):
        load(path, image_size=9)
    path.write_bytes(b"no model")
    with pytest.raises(ValueError, match=facts("ONNX")):
        load(str(path))


def test_without_onnxruntime_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some.onnx").touch()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=facts("'nearfar[export]'")):
        load(str(tmp_path / "some.onnx"))


def test_data_without_a_split_get_one(tmp_path: Path) -> None:
    pictures(tmp_path / "all", 10, 0)
    splits = make_modality(TrainConfig(backbone="micro")).split(str(tmp_path / "all"))
    assert splits.test is not None and (len(splits.train), len(splits.test), splits.test_name) == (16, 4, "held-out")
    assert splits.test.labels is not None and splits.test.labels.bincount().tolist() == [2, 2]
    assert not set(splits.train.names) & set(splits.test.names)
    assert tells(splits.notes[0], "split 4 seed 0")


def test_data_with_a_split_keep_it(tmp_path: Path) -> None:
    pictures(tmp_path / "both" / "train", 4, 0)
    pictures(tmp_path / "both" / "val", 2, 1)
    pictures(tmp_path / "other", 3, 2)
    for other, expected in ((None, (8, 4, "val")), (str(tmp_path / "other"), (8, 6, "test"))):
        splits = make_modality(TrainConfig(backbone="micro")).split(str(tmp_path / "both"), other)
        assert splits.test is not None and (len(splits.train), len(splits.test), splits.test_name) == expected


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"mean": "0.5 0.5"}, "mean '0.5 0.5' JSON"),
        ({"mean": '["a", 1, 2]'}, "mean ['a', 1, 2]"),
        ({"std": "[0, 1, 1]"}, "three 0"),
        ({"grayscale": '"no"'}, "true false"),
        ({"image_size": "1000000"}, "1 4096"),
    ],
)
def test_the_metadata_of_a_strangers_onnx_file_are_checked(metadata: dict[str, str], told: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    shapes = [onnx.helper.make_tensor_value_info(n, 1, ["B", 3, "S", "S"]) for n in ("x", "y")]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "same", shapes[:1], shapes[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, tmp_path / "x.onnx")
    with pytest.raises(ValueError) as error:
        load(str(tmp_path / "x.onnx"))
    assert tells(str(error.value), told) and "\n" not in str(error.value), error.value
