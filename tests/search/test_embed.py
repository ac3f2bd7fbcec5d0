"""Embeddings on disk: equal to the encoder's own, whatever the kind of file, chunk or interruption."""

import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.evaluation.evaluate import Evaluation
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.glyphs import glyphs
from nearfar.model.export.export import export
from nearfar.search.chunks import ChunkFolder
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings
from nearfar.training.run import Run
from tests.search.pictures import encoder_in, folder_of, run_folder
from tests.support.facts import facts, tells


def vectors(file: Path) -> torch.Tensor:
    return torch.cat([x for _, x in Embeddings(file).pieces()])


@pytest.mark.parametrize("kind", [".parquet", ".npz", ".npy"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_kind_of_file_holds_what_the_encoder_makes(tmp_path: Path, kind: str, dtype: str) -> None:
    encoder, data = encoder_in(tmp_path / "run"), glyphs(50)
    done = nearfar.embed(encoder, data, tmp_path / f"out{kind}", dtype=dtype, batch_size=8, chunk=20, progress=False)
    found = Embeddings(done.path)
    expected = encoder.encode(data.fetch(torch.arange(50)))
    assert (done.rows, done.dim, len(found), found.dim, found.half) == (50, 256, 50, 256, dtype == "float16")
    tolerance = 1e-5 if dtype == "float32" else 2e-3
    torch.testing.assert_close(vectors(done.path), expected, rtol=tolerance, atol=tolerance)
    assert list(found.names()) == list(data.names)
    assert data.labels is not None and data.classes is not None
    assert found.labels() == [data.classes[n] for n in data.labels.tolist()]
    if kind != ".npy":
        assert found.about["encoder"] == encoder.digest()
    assert not list(tmp_path.glob("*.parts"))


def test_numpy_and_pandas_like_readers_see_plain_arrays(tmp_path: Path) -> None:
    encoder, data = encoder_in(tmp_path / "run"), glyphs(10)
    embed(encoder, data, tmp_path / "a.npz", chunk=4, progress=False)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as content:
        assert content["vector"].shape == (10, 256) and content["path"].tolist() == list(data.names)
    embed(encoder, data, tmp_path / "a.npy", chunk=4, progress=False)
    assert np.load(tmp_path / "a.npy").shape == (10, 256)
    assert (tmp_path / "a.npy.csv").read_text().splitlines()[0] == "path,label"


def test_memory_is_a_chunk_not_the_whole(tmp_path: Path) -> None:
    """Vectors are handed over a chunk at a time, and read a piece at a time."""
    encoder, sizes = encoder_in(tmp_path / "run"), []
    original = ChunkFolder.write

    def watched(
        self: ChunkFolder, number: int, names: list[str], labels: object, found: np.ndarray, *rest: object
    ) -> None:
        sizes.append(found.shape)
        original(self, number, names, labels, found, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkFolder, "write", watched)
        embed(encoder, glyphs(50), tmp_path / "out.parquet", batch_size=8, chunk=16, progress=False)
    assert sizes == [(16, 256)] * 3 + [(2, 256)]


def test_the_command_streams_a_folder_and_leaves_out_what_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = run_folder(tmp_path / "run"), folder_of(tmp_path / "data", 6)
    (data / "class0" / "broken.png").write_bytes(b"no picture")
    out = tmp_path / "deep" / "out.parquet"
    assert main(["embed", str(run), str(data), "-o", str(out), "--labels", "--chunk", "4"]) == 0
    told = capsys.readouterr().out
    assert tells(told, "6 256") and tells(told, "1 file")
    assert "class0/broken.png\t" in Path(f"{out}.skipped.txt").read_text()
    found = Embeddings(out)
    assert list(found.names()) == [f"class{c}/{i:04d}.png" for c in (0, 1) for i in range(c, 6, 2)]
    assert found.labels() == ["class0"] * 3 + ["class1"] * 3


def test_killed_it_goes_on_after_the_last_finished_chunk(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    words = [sys.executable, "-m", "nearfar", "embed", str(run), "glyphs:1500", "--chunk", "8", "--batch-size", "8"]
    process = subprocess.Popen([*words, "-o", str(tmp_path / "out.parquet")], stderr=subprocess.DEVNULL)
    parts = tmp_path / "out.parquet.parts"
    while len(list(parts.glob("0*.parquet"))) < 3 and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out.parquet").exists()
    finished = len(list(parts.glob("0*.parquet")))
    assert finished >= 3

    encoder, data = nearfar.load(run), glyphs(1500)
    embed(encoder, data, tmp_path / "whole.parquet", batch_size=8, chunk=8, progress=False)
    again = embed(run, "glyphs:1500", tmp_path / "out.parquet", batch_size=8, chunk=8, progress=False)
    assert again.resumed in (8 * finished, 8 * finished - 4) and again.rows == 1500
    assert torch.equal(vectors(tmp_path / "out.parquet"), vectors(tmp_path / "whole.parquet"))


def test_parts_of_another_encoder_are_thrown_away(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    ChunkFolder(out, {"encoder": "other"}).write(0, ["x"], [None], np.zeros((1, 256), np.float32))
    done = embed(encoder_in(tmp_path / "run"), glyphs(10), out, progress=False)
    assert done.resumed == 0 and done.rows == 10 and list(Embeddings(out).names()) == list(glyphs(10).names)


def test_the_encoder_is_left_as_it_was(tmp_path: Path) -> None:
    encoder = encoder_in(tmp_path / "run").train()
    before = {name: x.clone() for name, x in encoder.state_dict().items()}
    embed(encoder, glyphs(10), tmp_path / "out.npy", progress=False)
    assert encoder.training
    assert all(torch.equal(x, before[name]) for name, x in encoder.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["glyphs:8", "-o", "out.csv"], "expected a name that ends in .parquet, .npz, .npy"),
        (["nowhere/", "-o", "out.npy"], "there is no file or folder 'nowhere/'"),
        (["glyphs:8", "-o", "out.npy", "--chunk", "0"], "chunk is 0, expected at least 1"),
        (["glyphs:8", "-o", "out.npy", "--size", "0"], "size is 0, expected at least 1"),
        (["broken", "-o", "out.npy"], "none of the samples could be read"),
        (["empty", "-o", "out.npy"], "there is no image in"),
    ],
)
def test_bad_input_is_told_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "x.png").write_bytes(b"")
    assert main(["embed", "run", *arguments]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("nearfar")]
    assert len(lines) == 1 and tells(lines[0], told), lines
    assert not Path(arguments[2]).exists()


def test_a_table_of_the_users_own_is_not_touched(tmp_path: Path) -> None:
    encoder, own = encoder_in(tmp_path / "run"), tmp_path / "photos.csv"
    own.write_text("path,price\n")
    embed(encoder, glyphs(5), tmp_path / "photos.npy", progress=False)
    assert own.read_text() == "path,price\n" and len(Embeddings(tmp_path / "photos.npy").names()) == 5
    for name in ("x.npy", "x.npz", "x.parquet"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(FileExistsError, match=facts("another")):
            embed(encoder, glyphs(5), tmp_path / name, progress=False)
        assert (tmp_path / name).read_text() == "mine" and not (tmp_path / f"{name}.parts").exists()


@pytest.mark.parametrize("kind", [".parquet", ".npz", ".npy"])
def test_what_is_replaced_is_said_before(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    run, out = run_folder(tmp_path / "run"), tmp_path / f"out{kind}"
    for data, told in (("glyphs:9", ""), ("glyphs:9", ""), ("glyphs:8", "data 'glyphs:9' instead of 'glyphs:8'")):
        first = not out.exists()
        assert main(["embed", str(run), data, "-o", str(out)]) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if tells(line, "replaced")]
        assert len(lines) == (0 if first else 1 if told or kind == ".npy" else 0)
        assert kind == ".npy" or told in "".join(lines)


def killed(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """The command, stopped before it puts its chunks together."""

    def stop(parts: ChunkFolder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChunkFolder, "finish", stop)
        assert main(["embed", *words]) == 130


def test_resumed_with_labels_every_row_has_its_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, data = run_folder(tmp_path / "run"), folder_of(tmp_path / "data", 6)
    words = [str(run), str(data), "-o", str(tmp_path / "out.parquet"), "--chunk", "2"]
    killed(monkeypatch, *words)
    next((tmp_path / "out.parquet.parts").glob("*2.parquet")).unlink()
    assert main(["embed", *words, "--labels"]) == 0
    assert Embeddings(tmp_path / "out.parquet").labels() == ["class0"] * 3 + ["class1"] * 3


def test_chunks_that_are_thrown_away_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(run_folder(tmp_path / "run")), "glyphs:8", "-o", str(tmp_path / "out.npz")]
    killed(monkeypatch, *words, "--chunk", "4")
    assert main(["embed", *words, "--chunk", "8"]) == 0
    assert "chunk 4 instead of 8" in capsys.readouterr().err


def test_the_file_holds_the_features_that_training_and_evaluate_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit: what is computed from the file is what `nearfar evaluate` computes."""
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    run, data = run_folder(tmp_path / "run"), folder_of(tmp_path / "data" / "train", 8)
    folder_of(tmp_path / "data" / "test", 4, first=8)
    encoder = nearfar.load(run)
    embed(encoder, data, tmp_path / "out.npy", progress=False)
    parts = Evaluation(str(run), str(tmp_path / "data")).splits
    config = TrainConfig(data=str(data), backbone="micro", batch_size=4)
    training = Run(config, tmp_path / "new", resume=False, console=Console(quiet=True)).setup.train

    def features(images: Dataset) -> torch.Tensor:
        return encoder.encode(images.fetch(torch.arange(len(images))))

    assert torch.equal(vectors(tmp_path / "out.npy"), features(parts.train))
    assert torch.equal(features(training), features(parts.train))
    np.save(tmp_path / "x.npy", np.zeros((4, 50, 50, 3), np.uint8))  # an array has a size of its own
    arrays = TrainConfig(data=str(tmp_path / "x.npy"), backbone="micro", batch_size=4)
    assert Run(arrays, tmp_path / "new", resume=False, console=Console(quiet=True)).setup.train.size == 50


def test_an_npz_is_put_together_a_chunk_at_a_time(tmp_path: Path) -> None:
    parts = ChunkFolder(tmp_path / "out.npz", {})
    for number in range(20):
        names = [f"{number}/{row}".ljust(1000, "x") for row in range(200)]  # 0.8 MB as an array
        parts.write(number, names, [None] * 200, np.zeros((200, 2), np.float32))
    tracemalloc.start()
    parts.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6, peak
    assert list(Embeddings(tmp_path / "out.npz").names())[-1].startswith("19/199x")


def test_a_network_of_timm_embeds_and_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = folder_of(tmp_path / "data", 3)
    save_file(backbone("resnet10t", size=224).state_dict(), tmp_path / "w.safetensors")
    assert main(["embed", "timm:resnet10t=w.safetensors", str(data), "-o", "out.parquet"]) == 0
    assert main(["search", "timm:resnet10t=w.safetensors", "out.parquet", "--image", "data/class0/0000.png"]) == 0
    assert "1.0000" in capsys.readouterr().out
    assert main(["embed", "some.onnx", str(data), "-o", "x.npy"]) == 1
    assert tells(capsys.readouterr().err, "'some.onnx' ONNX")
    assert main(["embed", "gone", str(data), "-o", "x.npy"]) == 1
    assert tells(capsys.readouterr().err, "'gone' timm:NAME")


def test_an_onnx_file_embeds_and_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run, other = run_folder(tmp_path / "run"), run_folder(tmp_path / "other", seed=1)
    folder_of(tmp_path / "data", 3)
    export(run, "onnx", "x.onnx")
    embed("x.onnx", "data", "out.npz", progress=False)
    torch.testing.assert_close(
        vectors(Path("out.npz")), nearfar.load(run).encode(sorted(Path("data").glob("*/*.png"))), atol=1e-4, rtol=1e-3
    )
    assert main(["search", "x.onnx", "out.npz", "--image", "data/class0/0000.png"]) == 0
    assert "1.0000" in capsys.readouterr().out
    export(other, "onnx", "x.onnx")  # another network in a file of the same name
    assert main(["search", "x.onnx", "out.npz", "--image", "data/class0/0000.png"]) == 1
    assert tells(capsys.readouterr().err, "out.npz another encoder")
