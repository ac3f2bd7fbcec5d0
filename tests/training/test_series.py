"""Series go through the same run as images: every method, unequal lengths, stop and resume, evaluate, embed, load."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig, completed, kind_of
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.methods import METHODS
from nearfar.modalities import make_modality
from nearfar.modalities.series.modality import SeriesModality
from nearfar.report.refresh import evaluate_to_folder
from nearfar.report.thumbnail_sheet import sheet_side
from nearfar.search.files import Embeddings
from nearfar.settings import build
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.methods.test_every_method import SMALL
from tests.support.facts import facts, tells
from tests.support.models import fitted
from tests.training.runs import QUIET, shown, stop_after, weights

OF_SERIES = [name for name, kind in METHODS.items() if "series" in kind.modalities]


def config(method: str, data: str = "waves:80", **settings: object) -> TrainConfig:
    given = {
        "data": data,
        "method": method,
        "backbone": "cpc-series" if method == "cpc" else "dilated-small",
        "epochs": 1,
        "batch_size": 16,
        "checkpoint_every": 1,
        "options": {"horizons": 3, "positions": 4} if method == "cpc" else SMALL.get(method, {}),
    }
    made: TrainConfig = build(TrainConfig, completed({**given, **settings}), "test")
    return made


def archive(folder: Path, channels: int = 1) -> Path:
    """NAME_TRAIN and NAME_TEST with series of unequal length, some values missing and one row broken."""
    chance = np.random.default_rng(0)
    for part, rows in (("TRAIN", 60), ("TEST", 20)):
        lines = ["@problemName toy", "@classLabel true up down", "@data"]
        for row in range(rows):
            length = 24 + row % 9
            line = np.linspace(0, 3, length) * (1 if row % 2 else -1)
            values = line + 0.3 * chance.standard_normal((channels, length))
            fields = [[f"{v:.4f}" for v in channel] for channel in values]
            fields[0][5] = "?"
            lines.append(":".join([*(",".join(field) for field in fields), "up" if row % 2 else "down"]))
        lines.append("1,2,three:up")
        (folder / f"Toy_{part}.ts").write_text("\n".join(lines) + "\n")
    return folder / "Toy_TRAIN.ts"


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures and no page."""
    monkeypatch.setattr("nearfar.modalities.series.modality.plot_views", lambda *arguments, **options: "nowhere")
    monkeypatch.setattr("nearfar.report.page.write_report", lambda folder: folder)


@pytest.mark.parametrize("method", OF_SERIES)
def test_every_method_trains_on_series(method: str, tmp_path: Path, train_only: None, plain: None) -> None:
    run = Run(config(method), tmp_path / "run", resume=False, console=QUIET)
    before = weights(run)
    run.execute()
    moved = [
        name for name, x in weights(run).items() if name.startswith("encoder.") and not torch.equal(x, before[name])
    ]
    assert moved and all(x.isfinite().all() for name, x in weights(run).items() if "log_normalizer" not in name)


@pytest.mark.parametrize(
    ("method", "backbone"),
    [("simclr", "dilated-small"), ("cpc", "cpc-series"), ("simclr", "kernels"), ("cpc", "cpc-kernels")],
)
def test_a_stopped_run_resumes_to_the_same_weights(
    method: str, backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None, plain: None
) -> None:
    settings = config(method, backbone=backbone)
    whole = Run(settings, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(TrainingStopped):
            Run(settings, tmp_path / "stopped", resume=False, console=QUIET).execute()
    resumed = Run(settings, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


@pytest.mark.parametrize(
    ("method", "channels", "backbone"),
    [("cpc", 2, "cpc-series"), ("simclr", 1, "dilated-small"), ("cpc", 1, "cpc-kernels"), ("simclr", 2, "kernels")],
)
def test_from_a_file_to_embeddings(
    method: str, channels: int, backbone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = archive(tmp_path, channels), tmp_path / "run"
    results = Run(config(method, str(data), backbone=backbone), folder, resume=False, console=QUIET).execute()
    assert (folder / "views.png").read_bytes().startswith(b"\x89PNG")
    assert results is not None and {row.encoder for row in results.rows} == {"trained", "untrained", "raw"}
    assert {row.n for row in results.rows} == {20}  # the official test part
    assert "three" in (folder / "skipped.txt").read_text() and (folder / "report.html").exists()
    assert results.value("raw", "dtw", "accuracy") == 1.0
    samples = shown(folder, "up")
    assert samples.data.tolist() == [str(data), "test", "20"] and sheet_side(samples.sheet.tobytes(), 20) == 48
    page = (folder / "report.html").read_text()
    assert tells(page, "right future") == (method == "cpc")

    model = nearfar.load(folder)
    assert isinstance(model.modality, SeriesModality) and model.modality.config.series.channels == channels
    x = torch.randn(3, channels, 40)
    x[1, :, 30:] = torch.nan
    h = model.encode(x)
    assert h.shape == (3, model.num_features)
    torch.testing.assert_close(model.encode(x[1:2, :, :30])[0], h[1])

    found, _ = evaluate_to_folder(str(folder), protocols=["knn"], console=QUIET)
    assert found.value("trained", "knn", "accuracy") == results.value("trained", "knn", "accuracy")
    fresh, _ = evaluate_to_folder(
        str(folder), data=str(data.with_name("Toy_TEST.ts")), protocols=["knn", "dtw"], console=QUIET
    )
    assert {row.split for row in fresh.rows} == {"held-out"}
    assert shown(folder, "up").data[1] == "held-out"  # the report shows what was looked at last
    tuned = build(ProtocolConfig, {"finetune": {"epochs": 1}}, "test")
    with_labels, _ = evaluate_to_folder(str(folder), protocols=["finetune"], settings=tuned, console=QUIET)
    assert {row.encoder for row in with_labels.rows} >= {"trained", "untrained"}

    assert main(["embed", str(folder), str(data), "-o", str(tmp_path / "all.parquet")]) == 0
    stored = Embeddings(tmp_path / "all.parquet")
    assert len(stored) == 60 and stored.dim == model.num_features
    for kind in ("parquet", "npz"):
        out = tmp_path / f"frames.{kind}"
        assert main(["embed", str(folder), str(data), "--frames", "-o", str(out)]) == 0
        assert "60 samples" in capsys.readouterr().out
    table = parquet.read_table(tmp_path / "frames.parquet")
    hop = int(model.seconds_per_frame)  # a series has no rate: in steps
    lengths = [(24 + row % 9) // hop for row in range(60)]
    assert len(table) == sum(lengths) and set(table.column("label").to_pylist()) == {"up", "down"}
    first = model.open(data).fetch(torch.tensor([0]))
    frames, present = model.frames(model.prepare(first))
    np.testing.assert_allclose(
        np.array(table.column("vector").to_pylist()[: lengths[0]]), frames[present].detach().numpy(), atol=1e-5
    )
    assert table.column("time").to_pylist()[:2] == [0.5 * hop, 1.5 * hop]
    with np.load(tmp_path / "frames.npz") as arrays:
        assert arrays["vector"].shape == (sum(lengths), frames.shape[2]) and arrays["frame"].tolist()[1] == 1


def test_a_run_folder_is_complete_without_its_data(tmp_path: Path) -> None:
    data = archive(tmp_path, 2)
    made = fitted(config("simclr", str(data), series={"normalize": "data"})).config
    assert made.series.channels == 2 and made.series.mean is not None and len(made.series.mean) == 2
    values = make_modality(made).preparation(make_modality(made).open(str(data)).fetch(torch.arange(60)))
    assert abs(float(values.nanmean())) < 1e-4 and abs(float(values[~values.isnan()].std()) - 1) < 0.02


def test_the_kind_is_that_of_the_data() -> None:
    assert isinstance(make_modality(TrainConfig(data="ECG200_TRAIN.tsv", backbone="dilated")), SeriesModality)
    assert kind_of("photos.tsv", "simclr", None) == "image" and kind_of("a.npz", "simclr", "series") == "series"
    assert completed({"data": "waves", "method": "cpc"})["backbone"] == "cpc-series"


def test_what_does_not_fit_is_told_in_a_line(tmp_path: Path) -> None:
    data = archive(tmp_path, 2)
    with pytest.raises(ValueError, match=facts("2 channels 1")):
        fitted(config("simclr", str(data), series={"channels": 1}))
    with pytest.raises(ValueError, match=facts("'simclr' series")):
        make_modality(config("simclr", views="simclr"))
    with pytest.raises(ValueError, match=facts("encoder 'resnet18'")):
        make_modality(config("simclr", backbone="resnet18")).encoder()
    with pytest.raises(ValueError, match=facts("weights")):
        make_modality(config("simclr", pretrained=True)).encoder()
    with pytest.raises(ValueError, match=facts("cpc encoder latents")):
        Run(config("cpc", backbone="dilated-small"), tmp_path / "run", resume=False, console=QUIET)
