"""Sounds by number, from anywhere: `open_sounds` is the one door."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data import tables
from nearfar.data.cache import cache_folder
from nearfar.data.columns import nearest
from nearfar.data.config import ReadConfig, read_config
from nearfar.data.dataset import Dataset, Facts, Skipped
from nearfar.data.pack import pack_samples
from nearfar.data.row_sums import RowSums
from nearfar.data.rows import PATHS, Columns, RowSamples, Wanted, find_column, samples
from nearfar.data.sources import Source, built_in, built_in_split, folder_source, from_samples, is_folder, walk
from nearfar.modalities.image.data.decode import SUFFIXES as PICTURES
from nearfar.modalities.sound.files import SUFFIXES, VERSION, decode_sound, reader, why
from nearfar.modalities.sound.name_pattern import NamePattern
from nearfar.modalities.sound.store import SoundStore, Wave

OVER = -32_768  # no value of a sound: it says that the sound is over
BUILT_IN = {"melodies": 4000, "spoken": 2000}  # and how many, where it is not said
LOOKED_AT = 1000  # files of a folder, to see what it is a folder of


class SoundDataset(Dataset):
    """Sounds of any length, one after the other in one array, in memory or mapped from a file.

    Args:
        values: int16, all sounds.
        starts, lengths: (N,) of each sound.
        sample_rate: values a second.
        longest: values of a sound that `fetch` gives, at most: the first of them.
        clipped: names of sounds that are cut off at the top.
        rows, sums: (N,) numbers of the sounds in their pack, and what they are compared with when they are read.
        facts: labels, classes, groups, names, skipped.

    >>> sounds = SoundDataset(np.arange(5, dtype=np.int16), np.array([0, 2]), np.array([2, 3]), sample_rate=8000)
    >>> sounds.fetch(torch.tensor([0, 1])).tolist()
    [[0, 1, -32768], [2, 3, 4]]
    """

    columns = ("starts", "lengths", "rows")
    sample_rate: int

    def __init__(
        self,
        values: NDArray[np.int16],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        sample_rate: int,
        longest: int | None = None,
        clipped: Sequence[str] = (),
        rows: NDArray[np.int64] | None = None,
        sums: RowSums | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        self.values, self.starts, self.lengths = values, starts, lengths
        self.sample_rate = self.size = sample_rate
        self.longest, self.clipped = longest, list(clipped)
        self.rows, self.sums = np.arange(len(starts)) if rows is None else rows, sums
        self.describe(**facts)

    def __len__(self) -> int:
        return len(self.starts)

    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to (B, L) int16, L the longest of them; after the end of a sound -32768."""
        rows = indices.cpu().numpy()
        if self.sums is not None:
            ranges = zip(self.starts[rows], self.lengths[rows], strict=True)
            self.sums.check(self.rows[rows], (self.values[start : start + length] for start, length in ranges))
        lengths = np.minimum(self.lengths[rows], self.longest or self.lengths[rows])
        batch = np.full((len(rows), int(lengths.max(initial=0))), OVER, np.int16)
        for place, (start, length) in enumerate(zip(self.starts[rows], lengths, strict=True)):
            batch[place, :length] = self.values[start : start + length]
        return torch.from_numpy(batch)

    def subset(self, indices: Tensor) -> Self:
        part, clipped = super().subset(indices), set(self.clipped)
        part.clipped = [name for name in part.names if name in clipped]
        return part


@dataclass(frozen=True, eq=False)
class SoundSource(Source):
    """Sound files, before any of them is decoded."""

    def read(self, index: int, size: int) -> Wave:
        """Sample `index`; `size` is the sample rate."""
        assert self.paths is not None
        return decode_sound(self.paths[index], size)


def open_sounds(
    spec: str | Path,
    read: ReadConfig | None = None,
    *,
    sample_rate: int = 16_000,
    max_seconds: float | None = None,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    captions: bool | None = False,
    seed: int = 0,
    cache: Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> SoundDataset:
    """The sounds that `spec` names: one channel, one rate, decoded once into the cache.

    A file that is empty, silent, cut off, no sound or has values that are not finite is left out and listed in
    `skipped`. One that was recorded too loud, so that it is cut off at the top, stays, and is named in `clipped`: it
    may still be heard.

    Args:
        spec: "melodies" or "melodies:4000", or "spoken" (words by eSpeak NG, extra `spoken`, GPL-3); a
            folder of .wav, .flac, .ogg or .mp3; or a table with a column of paths, whose name may end in
            ":column=value" or ":column!=value", which means those rows alone.
        sample_rate: values a second of the result.
        max_seconds: seconds read of each sound, from its start.
        read: how to read, as in a run's configuration; `settings` are its fields as keywords: labels=True. A `pattern`
            is of file names, such as "{label}_{speaker}_{take}.wav"; with a / in it, of paths below the folder. What
            stands in braces is a column, as of a table.
        split: a sub-folder; of a table or a pattern also some rows ("speaker!=theo,george"); None takes all.
        classes: names of the labels in the order to number them, such as those of the training data.
        captions: of a table: whether to read them; None where they are there. Rows of one path are then one sound.
        seed: of sounds made by code.
        cache, progress: as in `pack_samples`.
    """
    read = read_config(read, settings)
    most = None if max_seconds is None else max(1, round(max_seconds * sample_rate))
    if (made := built_in(spec, BUILT_IN)) is not None:
        drawn = _made(*made, sample_rate, most, split, seed, cache_folder(cache))
        if read.labels is False:
            drawn.labels, drawn.classes = None, None
        if captions is False:
            drawn.captions = None
        return drawn
    source = find_sounds(spec, read, split=split, classes=classes, captions=captions)
    reader()  # what is missing is said once, and not of each file
    done = pack_samples(
        source,
        SoundStore,
        size=sample_rate,
        what="sounds",
        version=f"sounds {VERSION}",
        why=why,
        cache=cache,
        strict=read.strict,
        workers=read.workers,
        progress=progress,
    )
    told, kept = done.rows, done.kept
    return SoundDataset(
        np.memmap(done.folder / "sounds.i16", "<i2", "r"),
        told["at"][kept],
        told["length"][kept],
        sample_rate=sample_rate,
        longest=most,
        **source.facts(torch.from_numpy(kept), done.skipped),
        clipped=[source.names[row] for row in kept if told["clipped"][row]],
        rows=kept,
        sums=RowSums(done.folder, told["sum"]),
    )


def find_sounds(
    spec: str | Path,
    read: ReadConfig,
    *,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    captions: bool | None = False,
) -> SoundSource:
    """What `open_sounds` would open of a folder or a table, before anything is decoded; arguments as there."""
    spec, rows = tables.path_and_rows(spec)
    wanted = Wanted.of(read, split=rows or split, classes=classes, captions=captions)
    return _source(Path(spec).expanduser().absolute(), str(spec), wanted, read)


def _made(
    name: str, count: int, sample_rate: int, most: int | None, split: str | None, seed: int, cache: Path
) -> SoundDataset:
    """Built-in sounds; a fifth as many in the test split."""
    from nearfar.modalities.sound.melodies import RATE, melodies
    from nearfar.modalities.sound.spoken import spoken

    count, part = built_in_split(name, count, split)
    if name == "spoken":
        return spoken(count, sample_rate=sample_rate, seed=seed, split=part, longest=most, cache=cache)
    if sample_rate != RATE:
        raise ValueError(f"the rate is {sample_rate}, but melodies are made at {RATE}: set --sound.sample_rate {RATE}")
    return melodies(count, seed=seed, split=part, longest=most, cache=cache)


def _source(path: Path, spec: str, wanted: Wanted, read: ReadConfig) -> SoundSource:
    part = f" ({wanted.split})" if wanted.split else ""
    if path.is_dir() and read.pattern is not None:
        if wanted.split and is_folder(path / wanted.split):  # train/ or test/, not a column
            path, wanted = path / wanted.split, replace(wanted, split=None)
        found = _by_pattern(path, read.pattern, wanted)
        name = f"folder {path} by {read.pattern}{part}"
        return from_samples(SoundSource, name, found, paths=[path / name for name in found.names])
    if path.is_dir():
        return folder_source(
            SoundSource,
            path,
            labels=read.labels or False,
            classes=wanted.classes,
            split=wanted.split,
            what="sound",
            suffixes=SUFFIXES,
        )
    if not path.exists():
        close = nearest(spec, list(BUILT_IN)) or "; expected 'melodies', 'spoken', a folder or a table"
        raise FileNotFoundError(f"{spec!r} is neither a file or folder nor the name of built-in sounds{close}")
    if path.suffix.lower() in SUFFIXES:
        raise ValueError(f"{spec!r} is one sound, expected a folder of sounds: give its folder")
    if path.suffix.lower() not in tables.READERS:
        raise ValueError(
            f"{spec!r} is not a collection of sounds, expected a folder or one of {', '.join(tables.READERS)}"
        )
    found = tables.read(path, wanted)
    folder = read.folder or path.parent
    return from_samples(SoundSource, f"table {path}{part}", found, paths=[folder / name for name in found.names])


def _by_pattern(folder: Path, pattern: str, wanted: Wanted) -> RowSamples:
    """What file names say, as the rows of a table."""
    asked = NamePattern(pattern)
    others: list[Skipped] = []
    paths = sorted(path.relative_to(folder) for path in walk(folder, SUFFIXES, others))
    if not paths:
        raise ValueError(f"there is no sound in {folder}, expected {', '.join(sorted(SUFFIXES))} at any depth")
    columns: Columns = {"path": [], **{name: [] for name in asked.names}}
    for path in paths:
        whole = path.as_posix() if "/" in pattern else path.name
        match = asked.match(whole)
        if match is None:
            others.append(Skipped(path.as_posix(), f"its name does not match the pattern {pattern}"))
            continue
        columns["path"].append(path.as_posix())
        for name, value in match.items():
            columns[name].append(value)
    if not columns["path"]:
        raise ValueError(
            f"none of {len(paths)} names in {folder} matches the pattern {pattern}; the first is {paths[0]}"
        )
    found = samples(columns, wanted, f"{folder} by the pattern {pattern}")
    found.skipped[:0] = others
    return found


def are_sounds(spec: str | Path) -> bool:
    """Whether a name or path looks like sounds: built in, a folder with more sounds than anything else, or a table.

    >>> are_sounds("melodies:200"), are_sounds("glyphs")
    (True, False)
    """
    path = Path(tables.path_and_rows(spec)[0]).expanduser()
    if built_in(spec, BUILT_IN) is not None:
        return True
    if path.is_dir():
        found = [file.suffix.lower() in SUFFIXES for file in islice(walk(path, SUFFIXES | PICTURES), LOOKED_AT)]
        return sum(found) > len(found) / 2
    if path.suffix.lower() in tables.READERS and path.is_file():
        try:
            column = find_column(tables.read_columns(path), "path", None, PATHS, str(path)) or []
        except ValueError:
            return False
        return any(Path(str(cell)).suffix.lower() in SUFFIXES for cell in column[:LOOKED_AT])
    return False
