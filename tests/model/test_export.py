"""What is exported computes what the encoder computes, read by the programs it was written for."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.encoder import Encoder
from nearfar.model.export import FORMATS, Format, layouts
from nearfar.model.export.export import export
from nearfar.model.export.hub_page import readme
from nearfar.model.hub import push_folder
from nearfar.model.load import load
from tests.search.pictures import run_folder
from tests.support.facts import facts, tells
from tests.support.models import preparation_of, save_model


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with an evaluation."""
    folder = run_folder(tmp_path / "run")
    rows = [
        {"encoder": name, "protocol": "knn", "metric": "accuracy", "value": value, "low": 0.1, "high": 0.9,
         "split": "test", "data": "glyphs", "n": 80}
        for name, value in (("trained", 0.5), ("raw", 0.1))
    ]  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps({"results": rows}))
    return folder


def images(batch: int, side: int = 32) -> torch.Tensor:
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(batch))


def test_safetensors_and_card_load_again(run: Path, tmp_path: Path) -> None:
    done = export(run, "nearfar", tmp_path / "out", licence="Apache-2.0")
    again, first = nearfar.load(done.path), nearfar.load(run)
    assert torch.equal(again(images(2)), first(images(2)))
    card = json.loads((done.path / "card.json").read_text())
    assert card["licence"] == "Apache-2.0" and card["temperature"] == 0.5 and card["method"] == "simclr"
    assert card["data"] == {"name": "pictures", "fingerprint": "abc", "samples": 4}
    assert [(m["protocol"], m["value"]) for m in card["metrics"]] == [("knn", 0.5)]  # the trained encoder's alone
    assert "antialiasing" in card["preprocessing"]


def test_onnx_runs_with_any_batch_and_says_how_to_feed_it(run: Path, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    done = export(run, "onnx", tmp_path / "x.onnx")
    assert done.difference is not None and done.difference < 1e-4
    session, encoder = onnxruntime.InferenceSession(str(done.path)), load(run)
    for batch in (1, 5):
        (found,) = session.run(["features"], {"images": images(batch).numpy()})
        np.testing.assert_allclose(found, encoder(images(batch)).detach().numpy(), atol=1e-4)
    stated = {entry.key: json.loads(entry.value) for entry in onnx.load(str(done.path)).metadata_props}
    assert stated["image_size"] == 32 and stated["mean"] == encoder.card["mean"]


def test_torch_export_and_torchscript_load_with_torch_alone(run: Path, tmp_path: Path) -> None:
    wanted = load(run)(images(4))
    program = torch.export.load(export(run, "torch-export", tmp_path / "x.pt2").path).module()
    torch.testing.assert_close(program(images(4)), wanted, atol=1e-5, rtol=1e-4)
    script = torch.jit.load(export(run, "torchscript", tmp_path / "x.ts").path)
    torch.testing.assert_close(script(images(4)), wanted, atol=1e-5, rtol=1e-4)


def run_of(name: str, size: int, folder: Path) -> Path:
    folder.mkdir()
    save_model(backbone(name, size=size), TrainConfig(backbone=name, image_size=size), Preparation(size).card(), folder)
    return folder


def test_a_plain_timm_model_takes_the_weights(tmp_path: Path) -> None:
    from nearfar import _torchvision  # noqa: F401, before timm

    import timm  # isort: skip
    from safetensors.torch import load_file

    run = run_of("resnet10t", 96, tmp_path / "run")
    done = export(run, "timm", tmp_path / "x.safetensors")
    plain = timm.create_model("resnet10t", num_classes=0).eval()
    plain.load_state_dict(load_file(done.path))
    torch.testing.assert_close(plain(images(2, 96)), load(run)(images(2, 96)))
    export(run, "huggingface", tmp_path / "hub")
    opened = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True, num_classes=0).eval()
    torch.testing.assert_close(opened(images(2, 96)), plain(images(2, 96)))
    with pytest.raises(ValueError, match=facts("torchvision")):
        export(run, "torchvision", tmp_path / "y.safetensors")


def test_a_plain_torchvision_model_takes_the_weights(tmp_path: Path) -> None:
    from nearfar import _torchvision  # noqa: F401, before torchvision

    from safetensors.torch import load_file  # isort: skip
    from torchvision.models import get_model  # isort: skip

    run = run_of("torchvision:resnet18", 96, tmp_path / "run")
    done = export(run, "torchvision", tmp_path / "x.safetensors")
    plain = get_model("resnet18").eval()
    plain.fc = torch.nn.Identity()
    plain.load_state_dict(load_file(done.path))
    torch.testing.assert_close(plain(images(2, 96)), load(run)(images(2, 96)))


def test_the_stem_for_small_images_is_not_passed_off_as_the_plain_one(tmp_path: Path) -> None:
    run = run_of("resnet10t", 32, tmp_path / "run")
    out = tmp_path / "x.safetensors"
    with pytest.raises(ValueError, match=r"differ|another") as error:
        export(run, "timm", out)
    assert "\n" not in str(error.value) and not out.exists()


class Hub:
    """Stands for the network: keeps what would be uploaded."""

    uploaded: dict[str, list[str]] = {}  # noqa: RUF012

    def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> str:
        assert private and exist_ok
        return f"https://hub/{repository}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        self.uploaded[repo_id] = sorted(path.name for path in folder_path.iterdir())


def test_the_hub_gets_a_whole_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert main(["export", str(run), "--format", "huggingface", "--licence", "MIT", "--push", "me/encoder"]) == 0
    assert "uploaded: https://hub/me/encoder" in capsys.readouterr().out
    assert Hub.uploaded["me/encoder"] == ["README.md", "card.json", "config.json", "model.safetensors"]
    page = (run / "export/huggingface/README.md").read_text()
    assert 'license: "mit"' in page and "| knn | accuracy | 50.0 % | " in page and " | glyphs test | 80 |" in page


def test_no_network_leaves_the_folder_and_says_what_to_do(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Offline(Hub):
        def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> str:
            raise ConnectionError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.HfApi", Offline)
    folder = export(run, "huggingface").path
    with pytest.raises(RuntimeError, match=facts("hf upload me/encoder")) as error:
        push_folder(folder, "me/encoder")
    assert "\n" not in str(error.value) and (folder / "model.safetensors").is_file()
    for name in ("../../etc", "me", "me/..", "a/b/c", "me/x y"):
        with pytest.raises(ValueError, match=facts("user/name")):
            push_folder(folder, name)


def test_the_hubs_page_shows_each_metric_as_it_is_read(run: Path) -> None:
    measured = {"protocol": "geometry", "value": 67.404, "data": "glyphs", "split": "test", "n": 80}
    page = readme({**load(run).card, "metrics": [{**measured, "metric": "RankMe"}]})
    assert "| RankMe | 67.40 |" in page


@pytest.mark.parametrize("kind", ["onnx", "torch-export", "torchscript"])
def test_nothing_lies_in_the_folder_while_a_graph_is_made(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """So that a kill leaves nothing behind."""
    out, seen = tmp_path / "out", []

    def compared(*_: object) -> float:
        seen.append(list(out.iterdir()))
        return 0.0

    monkeypatch.setattr("nearfar.model.export.graphs.check_parity", compared)
    export(run, kind, out / "x.bin")
    assert seen == [[]] and [path.name for path in out.iterdir()] == ["x.bin"]


def test_a_card_without_an_evaluation_says_so(run: Path) -> None:
    assert tells(readme(load(run).card), "not evaluated")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "folder run"),
        (["run", "--format", "timm"], "backbone 'micro' timm"),
        (["run", "--format", "torchvision"], "backbone 'micro' torchvision"),
        (["run", "--format", "nearfar", "-o", "run"], "run itself"),
    ],
)
def test_bad_input_is_told_in_a_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    monkeypatch.chdir(run.parent)
    assert main(["export", *words]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and tells(lines[0], told), lines


def test_without_onnx_the_extra_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=facts("'nearfar[export]'")):
        export(run, "onnx")
    with pytest.raises(ValueError, match=facts("one of")) as error:
        export(run, "keras")
    assert all(name in str(error.value) for name in FORMATS)


def test_the_preparation_of_the_views_is_the_encoders_wherever_it_is_read(tmp_path: Path) -> None:
    prepare = Preparation(32, grayscale=True, standardize=True)
    plain, own = run_folder(tmp_path / "plain"), run_folder(tmp_path / "own", prepare=prepare)
    assert preparation_of(load(own)) == prepare and preparation_of(load(plain)) == Preparation(32)
    assert load(own).digest() != load(plain).digest()
    assert "0.2989 R" in load(own).card["preprocessing"] and tells(readme(load(own).card), "mean")
    assert preparation_of(load(export(own, "nearfar").path)) == prepare


def test_a_line_in_the_table_adds_a_format_to_the_command(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def to_names(encoder: Encoder, path: Path) -> float:
        path.write_text("\n".join(encoder.backbone.state_dict()))
        return 0.0

    monkeypatch.setattr(layouts, "to_names", to_names, raising=False)
    monkeypatch.setitem(
        FORMATS, "names", Format("weights", "layouts:to_names", "names.txt", "the names of the weights")
    )
    assert main(["export", str(run), "--format", "names"]) == 0
    assert (run / "export" / "names.txt").read_text().splitlines() == list(load(run).backbone.state_dict())
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "names: the names of the weights" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("form", "suffix", "way"),
    [
        ("onnx", ".onnx", None),
        ("torch-export", ".pt2", "torch.export.load"),
        ("torchscript", ".torchscript", "torch.jit.load"),
    ],
)
def test_a_file_without_a_suffix_gets_one_and_what_cannot_be_loaded_says_how_to_open_it(
    run: Path, tmp_path: Path, form: str, suffix: str, way: str | None
) -> None:
    file = export(run, form, tmp_path / "graph").path
    assert file == tmp_path / f"graph{suffix}" and file.is_file()
    if way is None:
        assert nearfar.load(file).num_features == load(run).num_features
    else:
        with pytest.raises(ValueError, match=facts(f"{file} {way}")):
            nearfar.load(file)
