"""Shards that `nearfar shard` writes: read by ourselves, by WebDataset, after a kill, and in training."""

import errno
import io
import itertools
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import webdataset
from PIL import Image

from nearfar.cli import main
from nearfar.data import retry
from nearfar.data import tar_reader as members
from nearfar.data.dataset import how_many
from nearfar.data.loader import Loader, by_parts
from nearfar.data.tar_reader import Members
from nearfar.modalities.image.data import shard_writer
from nearfar.modalities.image.data.opening import find_images, image_files, open_images
from nearfar.modalities.image.data.shard_writer import write_shards
from nearfar.modalities.image.data.shards import shard_files
from nearfar.modalities.image.data.source import ImageSource as Source
from nearfar.modalities.image.data.stream import StreamDataset
from tests.support.facts import facts, tells


def table(folder: Path, n: int = 10) -> Path:
    """Pictures of their own number, two of them broken, with labels, groups, and one or two captions."""
    folder.mkdir()
    rows = []
    for i in range(n):
        Image.new("L", (6, 4), 10 * i).save(folder / f"{i}.{'png' if i % 2 else 'jpg'}")
        rows.append({"path": f"{i}.{'png' if i % 2 else 'jpg'}", "label": "cat" if i % 2 else "dog", "group": i // 2})
        rows[-1]["captions"] = [f"number {i}", "even"] if i % 4 == 0 else f"number {i}"
    (folder / "3.png").write_bytes(b"no picture")
    (folder / "4.jpg").unlink()
    file = folder / "table.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    source = image_files(table(tmp_path / "photos"))
    done = write_shards(source, tmp_path / "shards", samples=3, progress=False)
    listed = json.loads((tmp_path / "shards" / "index.json").read_text())
    assert [shard["samples"] for shard in listed["shards"]] == [3, 3, 2] and listed["samples"] == 8 == done.samples
    assert sorted(path for path, _ in listed["skipped"]) == ["3.png", "4.jpg"] and listed["complete"]
    read = image_files(tmp_path / "shards")
    assert read.skipped == [] and read.classes == source.classes == ["cat", "dog"]
    with tarfile.open(tmp_path / "shards" / "shard-000000.tar") as tar:
        assert tar.getnames()[0].endswith((".jpg", ".png"))
    where = {}
    for place in range(8):
        image = np.asarray(Image.open(io.BytesIO(read.items[place])))  # type: ignore[arg-type]
        where[round(int(image.mean()) / 10)] = place
    assert sorted(where) == [0, 1, 2, 5, 6, 7, 8, 9] and [*where] != sorted(where)  # shuffled
    assert source.captions and read.captions and source.labels is not None and read.labels is not None
    assert source.groups is not None and read.groups is not None
    for number, place in where.items():
        assert read.captions[place] == source.captions[number] and read.labels[place] == source.labels[number]
    assert read.groups[where[0]] == read.groups[where[1]] != read.groups[where[2]]


def test_webdataset_reads_them_and_bytes_are_as_they_were(tmp_path: Path) -> None:
    folder = table(tmp_path / "photos").parent
    write_shards(image_files(folder / "table.jsonl"), tmp_path / "shards", seed=None, progress=False)
    files = [str(file) for file in shard_files(tmp_path / "shards")]
    found = list(webdataset.WebDataset(files, shardshuffle=False))
    assert len(found) == 8 and json.loads(found[1]["json"])["source"] == "1.png"
    assert found[1]["png"] == (folder / "1.png").read_bytes() and found[0]["jpg"] == (folder / "0.jpg").read_bytes()
    assert (found[1]["cls"], json.loads(found[0]["json"])["captions"]) == (b"0", ["number 0", "even"])
    write_shards(find_images("glyphs:5"), tmp_path / "glyphs", seed=None, progress=False)
    found = list(webdataset.WebDataset(str(tmp_path / "glyphs" / "shard-000000.tar"), shardshuffle=False))
    assert [each["txt"].decode() for each in found] == [c[0] for c in find_images("glyphs:5").captions or ()]


def test_arrays_glyphs_and_shards_become_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", "glyphs:30", "-o", str(tmp_path / "a"), "--megabytes", "0.02"]) == 0
    said = capsys.readouterr().out
    assert f"nearfar train --data {tmp_path / 'a'} --data.stream true" in said
    assert main(["shard", str(tmp_path / "a"), "-o", str(tmp_path / "b"), "--split", "shard", "--in-order"]) == 0
    made = open_images("glyphs:30", progress=False)
    first, second = (open_images(tmp_path / name, stored_size=32, stream=True) for name in "ab")
    assert len(first) == len(second) == 30 and len(shard_files(tmp_path / "a")) > 1
    pictures = [sorted(map(bytes, d.fetch(torch.arange(30)).numpy())) for d in (made, first, second)]
    assert pictures[0] == pictures[1] == pictures[2] and first.classes == second.classes == made.classes
    assert first.captions == second.captions and sorted(first.captions or ()) == sorted(made.captions or ())


@pytest.mark.parametrize("kind", ["png", "jpg", "webp", "gif", "tif", "bmp"])
def test_pictures_that_are_cut_short_are_left_out(tmp_path: Path, kind: str) -> None:
    whole = tmp_path / "photos" / f"whole.{kind}"
    whole.parent.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)).save(whole)
    content = whole.read_bytes()
    (whole.parent / f"cut.{kind}").write_bytes(content[: len(content) * 2 // 3])
    source = image_files(whole.parent)
    done = write_shards(source, tmp_path / "shards", progress=False)
    assert done.samples == 1 and [name for name, _ in done.skipped] == [f"cut.{kind}"]
    kept = write_shards(source, tmp_path / "headers", verify=False, progress=False)
    assert kept.samples == (1 if kind == "webp" else 2)  # whose header has its length


def test_killed_it_goes_on_and_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, whole = image_files(table(tmp_path / "photos")), tmp_path / "whole"
    write_shards(source, whole, samples=3, progress=False)
    count = itertools.count()
    add = shard_writer._add

    class Killed(BaseException):
        pass

    def until(tar: tarfile.TarFile, name: str, content: bytes) -> None:
        if next(count) == 13:  # within the second shard
            raise Killed
        add(tar, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(shard_writer, "_add", until)
        with pytest.raises(Killed):
            write_shards(source, tmp_path / "killed", samples=3, progress=False)
    assert [file.name for file in shard_files(tmp_path / "killed")] == ["shard-000000.tar"]
    (tmp_path / "killed" / ".shard-000001.tar.x.tar").write_bytes(b"half")  # what kill -9 would leave
    assert len(image_files(tmp_path / "killed")) == 3
    write_shards(source, tmp_path / "killed", samples=3, progress=False)
    for file in shard_files(whole):
        assert (tmp_path / "killed" / file.name).read_bytes() == file.read_bytes()
    assert json.loads((whole / "index.json").read_text()) == json.loads(
        (tmp_path / "killed" / "index.json").read_text()
    )
    with pytest.raises(FileExistsError, match=facts("folder")):
        write_shards(source, whole, samples=4, progress=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.tar").write_bytes(b"")
    with pytest.raises(FileExistsError, match=facts("a.tar")):
        write_shards(source, tmp_path / "other", progress=False)


@pytest.mark.parametrize(
    ("damage", "lost", "said"),
    [
        ("gone", 3, "3 of the 3 index.json"),
        ("cut", 2, "cut 2 3 index.json"),
        ("noise", 2, "broken byte 2 3 index.json"),
    ],
)
def test_shards_that_are_lost_are_told_with_their_samples(tmp_path: Path, damage: str, lost: int, said: str) -> None:
    source, folder = image_files(table(tmp_path / "photos")), tmp_path / "shards"
    write_shards(source, folder, samples=3, progress=False)
    file = folder / "shard-000001.tar"
    with tarfile.open(file) as tar:
        place = next(m for m in tar.getmembers()[1:] if m.name.endswith(("png", "jpg")))
    content = bytearray(file.read_bytes())
    if damage == "noise":
        content[place.offset : place.offset + 512] = b"\xa7" * 512
    file.write_bytes(content[: place.offset_data + 10] if damage == "cut" else content)
    if damage == "gone":
        file.unlink()
    read = image_files(folder)
    assert len(read) == 8 - lost and how_many(read.skipped) == str(lost)
    assert [Path(s.path).name for s in read.skipped] == ["shard-000001.tar"]
    assert tells(read.skipped[0].reason, said)
    assert image_files(folder / "shard-000000.tar").skipped == []
    (folder / "index.json").unlink()
    assert how_many(image_files(folder).skipped) == ("0" if damage == "gone" else "at least 1")


# Order, ranks and workers


@pytest.mark.parametrize("window", [0, 1, 5, 1000])
def test_no_sample_moves_further_than_the_window_and_shards_come_one_after_the_other(window: int) -> None:
    parts = torch.tensor([2] * 40 + [0] * 25 + [1] * 35)
    orders = [by_parts(parts, window, torch.Generator().manual_seed(seed)) for seed in range(6)]
    for order in orders:
        assert order.sort().values.tolist() == list(range(100))
        firsts = dict.fromkeys(parts[order].tolist()) if window <= 1 else None
        plain = torch.cat([(parts == part).nonzero()[:, 0] for part in firsts]) if firsts else None
        if plain is not None:
            assert order.tolist() == plain.tolist()
    assert len({tuple(order.tolist()) for order in orders}) > (3 if window <= 1 else 5)
    if window == 5:  # by the definition: where each would be, were the shards read as they are
        turns = [by_parts(parts, 0, torch.Generator().manual_seed(seed)) for seed in range(6)]
        for order, plain in zip(orders, turns, strict=True):
            moved = torch.argsort(order)[plain] - torch.arange(100)
            assert int(moved.abs().max()) < 5 and int(moved.abs().max()) > 1


class Numbers:
    """A data set whose samples are their numbers."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def fetch(self, indices: torch.Tensor) -> torch.Tensor:
        return indices * 10

    def failed(self, indices: torch.Tensor) -> dict[int, object]:
        return {}


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_ranks_and_workers_see_every_sample_once(world: int, workers: int, shards: int) -> None:
    """Also with more workers than shards, and than batches."""
    n = 60
    loader = Loader(n, 12, 3, parts=torch.arange(n) * shards // n, window=8)
    seen: list[int] = []
    for rank, worker in itertools.product(range(world), range(workers)):
        batches = list(
            loader.fetched(Numbers(n), 2, rank=rank, world=world, worker=worker, workers=workers)  # type: ignore[arg-type]
        )
        assert all(batch.step % workers == worker for batch in batches)
        assert all(torch.equal(batch.x, 10 * batch.indices) for batch in batches)
        seen += [i for batch in batches for i in batch.indices.tolist()]
        later = loader.fetched(Numbers(n), 2, 3, rank=rank, world=world, worker=worker, workers=workers)  # type: ignore[arg-type]
        assert [b.indices.tolist() for b in later] == [b.indices.tolist() for b in batches if b.step >= 3]
    assert sorted(seen) == list(range(n))


def test_the_global_batches_are_the_same_for_any_number_of_processes() -> None:
    loader = Loader(48, 12, 0, parts=torch.arange(48) // 16, window=20)
    for (step, whole), *shares in zip(
        loader.batches(1),
        *(loader.fetched(Numbers(48), 1, rank=rank, world=4) for rank in range(4)),  # type: ignore[arg-type]
        strict=True,
    ):
        assert torch.cat([share.indices for share in shares]).tolist() == whole.tolist()
        assert {share.step for share in shares} == {step}


def test_worker_out_of_range() -> None:
    with pytest.raises(ValueError, match=facts("worker 2 0")):
        next(Loader(4, 2, 0).fetched(Numbers(4), 0, worker=2, workers=2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("parts")):
        Loader(4, 2, 0, parts=torch.zeros(3))


# Errors of reading


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Pauses that are noted and not made."""
    pauses: list[float] = []
    monkeypatch.setattr(retry.time, "sleep", pauses.append)
    return pauses  # type: ignore[return-value]


def streamed(tmp_path: Path, n: int = 12) -> StreamDataset:
    images = np.arange(1, n + 1, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2) * 10
    source = Source("made", [str(i) for i in range(n)], load=lambda: images)  # type: ignore[arg-type,return-value]
    write_shards(source, tmp_path / "shards", samples=4, seed=None, progress=False)
    data = open_images(tmp_path / "shards", stored_size=4, stream=True, workers=1, cache=tmp_path / "cache")
    assert isinstance(data, StreamDataset)
    return data


def test_a_read_that_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: list[float]
) -> None:
    data = streamed(tmp_path)
    faults = iter([errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
    read = members._read_at

    def failing(*arguments: object) -> bytes:
        if (number := next(faults, None)) is not None:
            raise OSError(number, os.strerror(number))
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(members, "_read_at", failing)
    assert data.fetch(torch.arange(12))[:, 0, 0, 0].tolist() == [10 * i for i in range(1, 13)]
    assert quick == list(retry.PAUSES) and data.skipped == []


def test_a_shard_that_is_gone_is_skipped_counted_and_listed_without_waiting_for_each_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: list[float]
) -> None:
    data = streamed(tmp_path)
    read = members._read_at

    def failing(file: io.FileIO, start: int, size: int) -> bytes:
        if Path(str(file.name)).name == "shard-000001.tar":
            raise OSError(errno.EIO, "Input/output error")
        return read(file, start, size)

    with monkeypatch.context() as patch:
        patch.setattr(members, "_read_at", failing)
        values = data.fetch(torch.arange(12))[:, 0, 0, 0].tolist()
    assert values == [10, 20, 30, 40, 128, 128, 128, 128, 90, 100, 110, 120]
    assert [(s.path, s.reason) for s in data.skipped] == [
        (f"shard-000001.tar/{i:09d}.png", "Input/output error") for i in range(4, 8)
    ]
    assert len(quick) == members.GIVEN_UP * len(retry.PAUSES)  # the last one is tried once
    assert data.fetch(torch.arange(4, 8))[:, 0, 0, 0].tolist() == [50, 60, 70, 80]  # it is back


def test_a_shard_that_was_cut_after_it_was_opened(tmp_path: Path, quick: list[float]) -> None:
    data = streamed(tmp_path)
    file = tmp_path / "shards" / "shard-000002.tar"
    os.truncate(file, 1024)
    assert data.fetch(torch.arange(8, 12))[1:, 0, 0, 0].tolist() == [128] * 3
    assert tells(data.skipped[-1].reason, "byte")


def test_what_will_not_pass_is_not_tried_again(tmp_path: Path, quick: list[float]) -> None:
    with pytest.raises(FileNotFoundError):
        retry.retried(lambda: (tmp_path / "nowhere").read_bytes())
    assert quick == []


def test_a_header_that_cannot_be_read_for_a_moment_is_not_remembered_as_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: list[float]
) -> None:
    streamed(tmp_path)
    following = tarfile.TarFile.next
    count = itertools.count()

    def failing(self: tarfile.TarFile) -> tarfile.TarInfo | None:
        if next(count) % 5 == 4:
            raise OSError(errno.EIO, "Input/output error")
        return following(self)

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "next", failing)
        with pytest.raises(ValueError, match=facts("3 Input/output")):
            open_images(tmp_path / "shards", stream=True, cache=tmp_path / "other")
    assert len(open_images(tmp_path / "shards", stream=True, cache=tmp_path / "other")) == 12


def test_more_shards_than_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "OPEN", 2)
    data = streamed(tmp_path)
    for order in (torch.arange(12), torch.arange(12).flip(0), torch.tensor([0, 4, 8, 1, 5, 9])):
        assert data.fetch(order)[:, 0, 0, 0].tolist() == ((order + 1) * 10).tolist()
    pictures = data.source.items
    assert isinstance(pictures, Members) and len(pictures._open) == 2
