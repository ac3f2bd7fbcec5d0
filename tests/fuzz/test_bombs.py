"""Files that claim more than they hold, or hold more than any memory: each was, or would be, a way to bring it down."""

import io
import json
import os
import re
import struct
import sys
import tarfile
import time
import wave
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

if sys.platform == "win32":
    pytest.skip("limits of memory and time as POSIX has them", allow_module_level=True)

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.data.columns import label_column
from nearfar.data.config import ReadConfig
from nearfar.data.tables import read_columns
from nearfar.evaluation.results import Results
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data import annotations, shards
from nearfar.modalities.image.data.decode import decode, why
from nearfar.modalities.image.data.opening import image_files, open_images
from nearfar.modalities.image.data.shards import shard_files
from nearfar.modalities.series.files import read_series
from nearfar.modalities.sound.files import decode_sound
from nearfar.modalities.sound.name_pattern import NamePattern
from nearfar.modalities.table.data import open_table
from nearfar.modalities.text.data import open_texts
from nearfar.report.run import read_run
from nearfar.report.samples import ReportSamples
from nearfar.search.files import Embeddings
from tests.fuzz.targets import bounded, deflated, picture
from tests.fuzz.targets import wave as sound
from tests.support.facts import facts, tells


@pytest.fixture(autouse=True)
def little() -> object:
    with bounded():
        yield


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Configurations


LAUGHS = "options:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {chr(b)}: &{chr(b)} [{', '.join([f'*{chr(b - 1)}'] * 9)}]\n" for b in range(ord("b"), ord("k"))
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "aliases"),
        ("options: &a [*a]", "aliases"),
        ("options: " + "[" * 20_000, "nested"),
        ("seed: " + "9" * 5000, "YAML Exceeds the limit"),
        ("data: 2001-99-99", "YAML month"),
        ("data: " + "x" * (1 << 21), "1 MB"),
        ("seed: 99999999999999999999", "seed 99999999999999999999 below"),
        ("image_size: 1000000", "image_size 1000000 8,192"),
        ("data: {stored_size: 100000}", "data.stored_size 100000"),
        ("text: {vocab_size: 1000000000000}", "text.vocab_size 1000000000000"),
        ("sound: {n_mels: 1000000000}", "sound.n_mels is"),
        ("optimizer: {lr: .inf}", "optimizer lr inf finite"),
        ("optimizer: {weight_decay: .nan}", "weight_decay nan finite"),
        (f"optimizer: {{lr: 1{'0' * 400}}}", "optimizer lr"),
        ("seed: " + ":".join(["1"] * 200_000), "seed"),
        ("options: {" + ", ".join(f"k{i}: 1" for i in range(60_000)) + ", k7: 2}", "'k7' twice"),
        ("config: /etc/passwd", "'config'"),
        ("sound: {f_min: nan}", "sound f_min nan"),
    ],
)
def test_configurations(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.yaml", text)
    with pytest.raises(ValueError, match=facts(message)) as error:
        TrainConfig.from_yaml(path)
    assert len(str(error.value)) < 1000
    if "sound" not in text:
        assert main(["train", f"--config={path}", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "o")]) != 0
        said = capsys.readouterr().err
        assert "Traceback" not in said and said.count("\n") == 1 and len(said) < 1200


@pytest.mark.parametrize(
    "words", [["train", "--text"], ["plan", "--sound"], ["evaluate", "timm:resnet10t", "--protocols"]]
)
def test_sections_given_as_files(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parser would read them itself: with aliases, devices and all."""
    assert main([*words, str(written(tmp_path / "a.yaml", LAUGHS))]) == 1
    assert tells(capsys.readouterr().err, words[-1] + " section")


def test_a_panic_of_a_library_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class PanicException(BaseException):
        """As pyo3's, which is no Exception."""

    def panic(arguments: list[str]) -> int:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("nearfar.cli.check.main", panic)
    assert main(["check"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("nearfar check: PanicException index out of bounds in ") and said.endswith("the traceback")


# Tables


def test_records_with_keys_of_their_own_each(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"path": "a.png", **{f"{i}-{k}": 1 for k in range(9)}}) + "\n" for i in range(9000))
    with pytest.raises(ValueError, match=facts("9,000 81,001")):
        image_files(written(tmp_path / "a.jsonl", lines))


def test_numbers_of_thousands_of_digits(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts("line 1 JSON Exceeds")):
        image_files(written(tmp_path / "a.jsonl", '{"path": "a.png", "label": ' + "9" * 5000 + "}"))
    assert label_column(["9" * 5000, "2"])[1] == ["2", "9" * 5000]  # a name, as any other
    path = written(tmp_path / "s.jsonl", '{"series": 1, "value": 1' + "0" * 400 + '}\n{"series": 2, "value": 1}\n')
    assert [s.reason[:9] for s in read_series(path).skipped] == ["'10000000"]


def test_paths_with_zero_bytes_cost_their_row(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "b.png")
    data = open_images(
        written(tmp_path / "a.jsonl", '{"path": "a\\u0000.png"}\n{"path": "b.png"}\n'),
        stored_size=4,
        cache=tmp_path / "c",
    )
    assert data.names == ["b.png"] and [s.reason for s in data.skipped] == ["embedded null byte"]


def test_a_parquet_file_of_more_rows_than_bytes(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000_000, np.int8)), pa.array(["a.png"]))
    parquet.write_table(pa.table({"path": same}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 30_000
    with pytest.raises(ValueError, match=facts("3,000,000 rows")):
        image_files(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=facts("Parquet")):
        image_files(written(tmp_path / "b.parquet", b"PAR1" + b"\xff" * 50 + b"\x30\0\0\0PAR1"))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.npy", "a.json"])
def test_pipes_are_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=facts("device pipe")):
        image_files(tmp_path / name)


def test_pipes_among_pictures_and_texts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=facts("device pipe")) as error:
        decode(tmp_path / "a.jpg", 8)
    assert tells(why(error.value), "device pipe")
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError, match=facts("file")):
        open_texts(tmp_path / "a.txt")


# Pictures and sounds


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "WEBP", "JPEG"])
def test_pictures_that_claim_any_size(kind: str) -> None:
    content = {
        "PNG": png(100_000, 100_000),
        "BMP": picture("BMP")[:18] + struct.pack("<ii", 100_000, 100_000) + picture("BMP")[26:],
        "GIF": picture("GIF")[:6] + b"\xff\xff\xff\xff" + picture("GIF")[10:],
        "TIFF": picture("TIFF").replace(struct.pack("<HHII", 256, 4, 1, 13), struct.pack("<HHII", 256, 4, 1, 10**5)),
        "WEBP": picture("WEBP")[:26] + b"\xff\x3f\xff\x3f" + picture("WEBP")[30:],
        "JPEG": picture("JPEG").replace(struct.pack(">HH", 9, 13), b"\xff\xdc\xff\xdc"),
    }[kind]
    with pytest.raises(Exception) as error:
        decode(io.BytesIO(content), 8)
    assert not isinstance(error.value, MemoryError) and "\n" not in why(error.value)


def test_sounds_that_claim_any_rate_or_length(tmp_path: Path) -> None:
    for number, rate in enumerate((1, 4_294_967_291, 0)):
        path = tmp_path / f"{number}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(b"\0\x20" * 100_000)
        content = bytearray(path.read_bytes())
        content[24:28] = struct.pack("<I", rate)
        path.write_bytes(content)
        with pytest.raises(Exception) as error:
            decode_sound(path, 16_000)
        assert not isinstance(error.value, MemoryError | OverflowError), repr(error.value)
    flac = bytearray(sound("FLAC"))
    flac[21:26] = bytes([flac[21] | 15]) + b"\xff\xff\xff\xff"  # 2^36 - 1 samples
    with pytest.raises(ValueError, match=facts("limit")):
        decode_sound(written(tmp_path / "a.flac", bytes(flac)), 16_000)


# Arrays


def npy(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})  # type: ignore[no-untyped-call]
    return file.getvalue() + b"\0" * 100


@pytest.mark.parametrize(
    "shape", [(10**12, 32, 32, 3), (1, 100_000, 100_000), (-4, 8, 8), (0, 4, 4), (3, 0, 0), (10**30, 4, 4)]
)
def test_arrays_that_claim_any_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    for path, content in ((tmp_path / "a.npy", npy(shape)), (tmp_path / "a.npz", deflated({"x.npy": npy(shape)}))):
        with pytest.raises(ValueError, match=facts("shape short")):
            image_files(written(path, content))


def test_a_header_that_is_no_python(tmp_path: Path) -> None:
    """numpy reads it as such, and raises what Python's tokenizer does."""
    content = npy((3, 4, 4)).replace(b"(3, 4, 4)", b"((3, 4, 4")
    for path, whole in ((tmp_path / "a.npy", content), (tmp_path / "a.npz", deflated({"x.npy": content}))):
        with pytest.raises(ValueError, match=facts("array")):
            image_files(written(path, whole))
    with pytest.raises(ValueError, match=facts(".npz")):
        read_series(tmp_path / "a.npz")


def test_archives_that_unpack_to_more_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((1000, 100, 100), np.uint8))
    path = written(tmp_path / "a.npz", deflated({"x.npy": file.getvalue()}))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("nearfar.safe_read.physical_memory", lambda: 10_000_000)
    with pytest.raises(ValueError, match=facts("0.0 GB memory .npy")):
        _ = image_files(path).items
    with pytest.raises(ValueError, match=facts("unpack")):
        read_series(path)


def test_weights_in_a_compressed_archive_are_refused(tmp_path: Path) -> None:
    import zipfile

    torch.save(backbone("micro", size=32).state_dict(), tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    backbone("micro", size=32, weights=tmp_path / "a.pt")
    written(tmp_path / "b.pt", deflated(members))
    with pytest.raises(ValueError, match=facts("weights")):
        backbone("micro", size=32, weights=tmp_path / "b.pt")


def test_files_that_unpack_to_hundreds_of_times_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    monkeypatch.setattr("nearfar.safe_read.SMALL", 20_000_000)
    file = io.BytesIO()
    np.save(file, np.zeros((3000, 100, 100), np.uint8))
    archive = written(tmp_path / "a.npz", deflated({"x.npy": file.getvalue(), "vector.npy": file.getvalue()}))
    for open_ in (lambda path: image_files(path).items, read_series, Embeddings, ReportSamples.load):
        with pytest.raises(ValueError, match=facts("unpacks")):
            open_(archive)
    table = pa.table({"path": pa.array(["x" * 10_000] * 5000)})
    parquet.write_table(table, tmp_path / "a.parquet", compression="gzip")
    assert (tmp_path / "a.parquet").stat().st_size < 50_000
    with pytest.raises(ValueError, match=facts("unpacks")):
        image_files(tmp_path / "a.parquet")


def test_a_table_of_repeated_texts_reads_as_before(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        "path": ["a.png", None, "b.png"] * 100,
        "caption": [["x", "y"], None, []] * 100,
        "label": [1, 2, None] * 100,
    }
    for name, size in (("a.parquet", 100), ("b.parquet", 7)):
        parquet.write_table(pa.table(columns), tmp_path / name, row_group_size=size)
        assert read_columns(tmp_path / name) == columns
    broken = pa.array([b"\xff", b"good"]).view(pa.string())
    parquet.write_table(pa.table({"path": broken}), tmp_path / "c.parquet")
    assert read_columns(tmp_path / "c.parquet") == {"path": ["\udcff", "good"]}


def test_a_log_without_end(tmp_path: Path) -> None:
    """As a link to a device that a stranger's run may hold."""
    for name in ("metrics.jsonl", "evaluation.json", "verdicts.json", "config.yaml", "views.png"):
        (tmp_path / name).symlink_to("/dev/zero")
    found = read_run(tmp_path)
    assert len(found.problems) >= 4
    with pytest.raises(ValueError, match=facts("device")):
        Results.load(tmp_path / "evaluation.json")


def test_names_that_almost_fit_a_pattern() -> None:
    fields = NamePattern("_".join(f"{{a{i}}}" for i in range(12)) + "_end.wav")
    start = time.process_time()
    assert fields.match("_".join("x" * 120) + ".wav") is None
    assert time.process_time() - start < 1
    for pattern, name in (
        ("{a}-{b}", "x-y-z.tar.wav"),
        ("{a}/{b}_{c}", "p/q_r.wav"),
        ("{a}{b}", "xyz.wav"),
        ("s{a}.wav", "st.wav"),
    ):
        literal = "".join(
            f"(?P<{p}>[^/]+?)" if i % 2 else re.escape(p) for i, p in enumerate(re.split(r"\{(\w+)\}", pattern))
        )
        found = re.fullmatch(literal + ("" if ".wav" in pattern else r"\.\w+"), name)
        assert found is not None and NamePattern(pattern).match(name) == found.groupdict()


# Shards


def tar(*members: tarfile.TarInfo, content: bytes = b"") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for info in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def checked(header: bytearray) -> bytes:
    """With its sum."""
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)


def test_tar_members_of_sizes_that_lie(tmp_path: Path) -> None:
    good = tar(tarfile.TarInfo("a.png"), content=picture("PNG"))
    end = good.index(b"\0" * 1024, 512)
    end += -end % 512
    for size in (b"\xff" * 12, b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7, b"77777777777\0"):  # -1, 2^63, 8 GB
        lying = bytearray(tar(tarfile.TarInfo("b.png"))[:512])
        lying[124:136] = size
        path = written(tmp_path / "a.tar", good[:end] + checked(lying) + b"\0" * 1024)
        data = image_files(path)
        assert data.names == ["a.tar/a.png"] and data.skipped[0].reason


def test_tar_headers_that_lead_back_or_into_each_other(tmp_path: Path) -> None:
    good = tar(tarfile.TarInfo("a.png"), content=picture("PNG"))
    end = good.index(b"\0" * 1024, 512)
    end += -end % 512
    back = bytearray(tar(tarfile.TarInfo("b.txt"))[:512])
    back[124:136] = struct.pack(">bxxxq", -1, -1024).replace(b"\0\0\0", b"\xff\xff\xff", 1)
    long = bytearray(tar(tarfile.TarInfo("b.txt"))[:512])
    long[156:157] = b"L"
    for block in (checked(back), checked(long) * 5000):
        data = image_files(written(tmp_path / "a.tar", good[:end] + block + b"\0" * 1024))
        assert data.names == ["a.tar/a.png"] and len(data.skipped) <= 1


def test_json_of_shards_with_keys_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for i in range(300):
            record = {"label": i % 3, **{f"{i}-{k}": 1 for k in range(300)}}
            for name, content in ((f"{i}.png", picture("PNG")), (f"{i}.json", json.dumps(record).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    data = image_files(path)
    assert len(data) == 300 and data.labels is not None and data.labels[4] == 1


def test_patterns_that_name_any_number_of_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MOST_SHARDS", 1000)  # of a million it takes seconds to say so
    for pattern in ("a-{0..99999999999}.tar", "{0..9}" * 12 + ".tar"):
        with pytest.raises(ValueError, match=facts("1,000 shards")):
            shard_files(pattern)


# Series and boxes


def test_channels_of_unequal_length(tmp_path: Path) -> None:
    line = ":".join(["1"] * 50_000) + ":" + ",".join(["1"] * 50_000)
    rows = read_series(written(tmp_path / "a.ts", f"@data\n{line}\n1,2,3\n"))
    assert tells(rows.skipped[0].reason, "50,001 50,000 100,000") and len(rows.values) == 1
    labelled = read_series(written(tmp_path / "b.ts", "@classLabel true\n@data\na\n1,2:b\n"))
    assert tells(labelled.skipped[0].reason, "values")
    assert read_series(written(tmp_path / "c.jsonl", '{"series": 1, "value": 1, "label": [2]}\n')).labels == [[2]]


def test_a_first_line_without_end(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="field larger than field limit"):
        read_series(written(tmp_path / "a.csv", "x" * 200_000))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    text = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>'
    (tmp_path / "a.xml").write_text(text, encoding=encoding)
    found = annotations.read_voc(tmp_path)
    assert not found.pictures and tells(found.faults.notes("test")[0], "entities")


def test_an_archive_with_members_that_are_no_arrays(tmp_path: Path) -> None:
    """numpy gives their bytes: the readers took them for arrays."""
    names = ("x", "x.npy", "vector", "vector.npy", "path.npy", "y.npy")
    path = written(tmp_path / "a.npz", deflated(dict.fromkeys(names, b"no array")))
    for open_ in (read_series, lambda file: open_table(str(file), ReadConfig()), Embeddings, ReportSamples.load):
        with pytest.raises(ValueError, match=facts("a.npz")):
            open_(path)
