"""What is fuzzed: each target opens bytes as a user's file would be opened, and may refuse them in a line, no more.

Hypothesis (`test_fuzz.py`, in `make test`) and atheris (`explore.py`, by `make fuzz`) share them.
"""

import io
import json
import resource
import signal
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import soundfile
import torch
from PIL import Image
from pyarrow import parquet

from nearfar.config import TrainConfig
from nearfar.data.rows import Wanted
from nearfar.data.tables import read
from nearfar.data.tar_reader import Members
from nearfar.modalities.image.data import annotations, decode
from nearfar.modalities.image.data.arrays import array_source, channels_last
from nearfar.modalities.image.data.caption_json import read_captions
from nearfar.modalities.image.data.shards import shard_source
from nearfar.modalities.series.files import read_series
from nearfar.modalities.sound import files as sound_files
from nearfar.modalities.text.data import open_texts
from nearfar.model import checkpoint
from nearfar.model.card import read_card
from nearfar.report.page import write_report
from nearfar.report.samples import SAMPLES
from nearfar.search.files import Embeddings, read_about

REFUSED = (ValueError, OSError)  # what a user can mend, in a line
SECONDS = 30  # after which something hangs; much, since the machine may be busy
MEMORY = 3 << 30  # bytes that may be asked for on top
LONGEST_LINE = 2000


class Hangs(BaseException):
    """No target may catch it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Little memory and little time."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"more than {SECONDS} s")

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def refusing() -> Iterator[None]:
    """An error must be one of those that are meant, and a line."""
    try:
        yield
    except REFUSED as error:
        assert not isinstance(error, UnicodeError), repr(error)
        line = str(error)
        assert line.strip() and len(line) < LONGEST_LINE, repr(line[:200])


def told(why: Callable[[Exception], str], error: Exception) -> None:
    assert not isinstance(error, MemoryError), "a memory bomb"
    line = why(error)
    assert line.strip() and "\n" not in line and len(line) < LONGEST_LINE, repr(line[:200])


def opened(suffix: str, open_: Callable[[Path], object]) -> Callable[[bytes], None]:
    """A target of files with that suffix."""

    def target(content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            path.write_bytes(content)
            with refusing():
                open_(path)

    return target


def configuration(path: Path) -> None:
    TrainConfig.from_yaml(path).to_yaml()


def table(path: Path) -> None:
    with refusing():
        read(path, Wanted())
    with refusing():
        open_texts(path)


def image(content: bytes) -> None:
    try:
        assert decode.decode(io.BytesIO(content), 8).shape == (8, 8, 3)
    except Exception as error:
        told(decode.why, error)


def sound(path: Path) -> None:
    try:
        assert sound_files.decode_sound(path, 8000).values.ndim == 1
    except Exception as error:
        told(sound_files.why, error)


def arrays(path: Path) -> None:
    with refusing():
        images = channels_last(np.asarray(array_source(path).items))
        assert images.dtype == np.uint8
    if path.suffix == ".npz":
        with refusing():
            read_series(path)


def shard(path: Path) -> None:
    source = shard_source(path, Wanted())
    pictures = source.items
    assert isinstance(pictures, Members)
    for place in range(len(pictures)):
        pictures[place]


def captions(path: Path) -> None:
    read_captions(path, Wanted(), path.parent)


def boxes(path: Path) -> None:
    Image.new("L", (4, 4)).save(path.parent / "a.png")
    annotations.read_coco(path)


def voc(path: Path) -> None:
    Image.new("L", (4, 4)).save(path.parent / "file.png")
    annotations.read_voc(path.parent)


def step(path: Path) -> None:
    checkpoint.save_step({"step": 1}, path.parent, 1)
    path.rename(path.parent / "step-000000002.pt")
    assert checkpoint.load_newest(path.parent)[0]["step"] in (1, 2)


def embeddings(path: Path) -> None:
    file = Embeddings(path)
    assert len(list(file.names())) == len(file) and all(isinstance(name, str) for name in file.names())
    file.labels(), file.location(), read_about(path)
    assert sum(len(x) for _, x in file.pieces()) == len(file)


def npy_names(path: Path) -> None:
    np.save(path.with_suffix(""), np.eye(3, 4, dtype=np.float32))
    embeddings(path.with_suffix(""))


def run_file(path: Path) -> None:
    """Whatever one file of a run is, the report is written."""
    (path.parent / "report").mkdir(exist_ok=True)
    for name in ("evaluation.json", "verdicts.json", "environment.json", "card.json", "metrics.jsonl", "config.yaml"):
        (path.parent / name).write_bytes(path.read_bytes())
    (path.parent / SAMPLES).write_bytes(path.read_bytes())
    assert write_report(path.parent).is_file()


def card(path: Path) -> None:
    read_card(path)


# Files to begin with


def vectors() -> bytes:
    file = io.BytesIO()
    np.save(file, np.eye(3, 4, dtype=np.float32))
    return file.getvalue()


def embedded(suffix: str) -> bytes:
    columns = {"path": ["a", "b", "c"], "label": ["x", None, "y"]}
    rows = np.eye(3, 4, dtype=np.float32)
    file = io.BytesIO()
    if suffix == ".npz":
        about = json.dumps({"data": "x", "split": None})
        np.savez(file, vector=rows, about=about, path=columns["path"], label=["x", "", "y"])
    else:
        table = pa.table({**columns, "vector": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)})
        parquet.write_table(table.replace_schema_metadata({"nearfar": json.dumps({"data": "x"})}), file)
    return file.getvalue()


def sampled() -> bytes:
    """What a report keeps of six samples."""
    number, real = np.zeros(6, np.int64), np.zeros(6, np.float32)
    shaped = {"names": list("abcdef"), "data": ["x", "test", "6"], "texts": [""] * 6, "classes": ["p"]}
    rows = np.zeros((6, 2), np.int64)
    shaped |= {"nearest": rows, "hard": rows, "suspected": rows, "components": rows.astype(np.float32)}
    shaped |= {
        "similarity": rows.astype(np.float32),
        "variance": real[:2],
        "counts": number[:3],
        "umap": real.reshape(3, 2)[:0],
    }
    shaped |= {"labels": number, "clusters": number, "random": number, "worst": number, "sheet": np.zeros(0, np.uint8)}
    shaped |= {"hard_similarity": real, "suspected_similarity": real, "positive": real[0], "crossed": np.array(False)}
    file = io.BytesIO()
    np.savez(file, **shaped)
    return file.getvalue()


def picture(kind: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.effect_noise((13, 9), 50).convert(mode).save(file, kind)
    return file.getvalue()


def wave(kind: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(600) / 9) / 2, 8000, format=kind)
    return file.getvalue()


def array(*names: str) -> bytes:
    file = io.BytesIO()
    if not names:
        np.save(file, np.zeros((3, 4, 4), np.uint8))
    else:
        np.savez_compressed(file, **{name: np.zeros((3, 4, 4), np.uint8) for name in names}, y=np.arange(3))
    return file.getvalue()


def tarball() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("a.png", picture("PNG")), ("a.txt", b"words"), ("ü" * 120 + ".json", b'{"label": 1}')):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def parquet_table() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"path": ["a.png", "b.png"], "label": [1, 2], "caption": [["a"], ["b"]]}), file)
    return file.getvalue()


def saved() -> bytes:
    file = io.BytesIO()
    torch.save({"step": 2, "x": torch.zeros(9)}, file)
    return file.getvalue()


RECORDS = [{"path": "a.png", "label": 1, "caption": "a b", "split": "train"}, {"path": "b.png", "label": None}]
CARD = {"format": "nearfar encoder", "version": 2, "backbone": "micro", "image_size": 32, "mean": [0, 0, 0],
        "std": [1, 1, 1], "embedding": {"kind": "plain"}, "config": {"data": {"path": "x"}}}  # fmt: skip
COCO = {
    "images": [{"id": 1, "file_name": "a.png", "width": 4, "height": 4}],
    "annotations": [{"image_id": 1, "category_id": 2, "bbox": [0, 0, 2, 2], "caption": "words"}],
    "categories": [{"id": 2, "name": "thing"}],
}
XML = (
    "<annotation><filename>file.png</filename><size><width>4</width><height>4</height></size><object><name>a</name>"
    "<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></object></annotation>"
)
TS = "@problemName x\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n1,?,3:4,5:b\n"

TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "yaml": (opened(".yaml", configuration), [TrainConfig().to_yaml().encode(), b"data: a\noptimizer: {lr: 1e-3}\n"]),
    "csv": (opened(".csv", table), [b"path,label,caption\na.png,1,one\nb.png,dog,two\n", b"text\nhello\nworld\n"]),
    "tsv": (opened(".tsv", table), [b'sentence1\tsentence2\tscore\na\t"b\t1.5\nc\td\t2\n']),
    "jsonl": (opened(".jsonl", table), ["\n".join(map(json.dumps, RECORDS)).encode()]),
    "parquet": (opened(".parquet", table), [parquet_table()]),
    "image": (image, [picture(k) for k in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")] + [picture("PNG", "I;16")]),
    "sound": (opened(".wav", sound), [wave(kind) for kind in ("WAV", "FLAC", "OGG", "AIFF", "W64", "CAF")]),
    "npy": (opened(".npy", arrays), [array()]),
    "npz": (opened(".npz", arrays), [array("x")]),
    "ts": (opened(".ts", read_series), [TS.encode()]),
    "series": (opened(".csv", read_series), [b"1,0.5,2,?\n2,1,1,1\n", b"series,time,value,label\na,0,1,x\na,1,2,x\n"]),
    "tar": (opened(".tar", shard), [tarball()]),
    "captions": (opened(".json", captions), [json.dumps(COCO).encode()]),
    "coco": (opened(".json", boxes), [json.dumps(COCO).encode()]),
    "voc": (opened(".xml", voc), [XML.encode()]),
    "checkpoint": (opened(".pt", step), [saved()]),
    "embeddings": (opened(".parquet", embeddings), [embedded(".parquet")]),
    "embeddings.npz": (opened(".npz", embeddings), [embedded(".npz")]),
    "embeddings.npy": (opened(".npy", embeddings), [vectors()]),
    "embeddings.csv": (opened(".npy.csv", npy_names), [b"path,label\na,x\nb,\nc,y\n"]),
    "run": (opened(".json", run_file), [json.dumps({"results": []}).encode(), b'{"step": 1, "loss": 2}\n', sampled()]),
    "card": (opened(".json", card), [json.dumps(CARD).encode()]),
}


def deflated(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()
