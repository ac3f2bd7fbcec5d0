"""The split of a run, found again for an evaluation: no sample that the run was trained on is tested on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.data.dataset import Dataset
from nearfar.data.sample_ids import SampleIds, sample_ids, text_ids
from nearfar.evaluation.splits import SplitRecord
from nearfar.modalities.base import Modality, Splits


def own_splits(
    reader: Modality, config: TrainConfig, record: SplitRecord, given: Mapping[str, object], test: str | None
) -> Splits:
    """The run's own parts: the same samples, even if they are read with other settings or the data have changed.

    The split is drawn again as in the run, and its digests say whether the data are still the same. If they are not,
    the samples are found by the names or texts that the run recorded; data without any are split as drawn, with a note.

    Args:
        reader: reads the data, images perhaps at another size than the run.
        config, record: of the run.
        given: settings of reading that differ from the run's; with "held_out" the user asks for another split.
        test: other data for the test part.
    """
    path, noun, other_test = config.data.path, reader.noun, test is not None
    merged = replace(config.data, **given, test=test or config.data.test)  # type: ignore[arg-type]
    if "held_out" in given:
        return reader.reading(merged).split()
    drawn = before = _drawn(reader, merged, all_rows=bool(given) and not other_test)
    if given or reader.config.image_size != config.image_size:
        own = reader.fitted_copy()
        own.config = replace(config, data=replace(config.data, test=merged.test))
        before = own.split()
    changes = record.changes(before, test=not other_test)
    unchanged = bool(record.parts) and not changes
    if unchanged and not given:
        return replace(drawn, notes=[*drawn.notes, *record.notes])
    if unchanged:
        ids = {name: _ids_of_names(part) for name, part in before.parts.items() if part is not None}
        found = _find(drawn, ids, _ids_of_names, keep_test=other_test)
        why, otherwise = f"{path} is read with other settings than in the run", ""
    elif record.ids is not None and sample_ids(drawn.everything or drawn.train) is not None:
        found = _find(drawn, record.ids, _ids, keep_test=other_test)
        why, otherwise = f"{path} has changed since the run", f"some of its {noun} have other labels or contents"
    else:
        drawn = reader.reading(merged).split() if given else drawn
        return replace(drawn, notes=[*drawn.notes, *record.notes, *_warnings(path, record, changes)])
    if found.splits is None:
        raise ValueError(f"{why}: none of the {noun} that it was trained on is there; give other data with --data")
    note = found.note(noun) or otherwise
    notes = [*found.splits.notes, *record.notes, *([f"{why}: {note}"] if note else [])]
    return replace(found.splits, notes=notes)


def _drawn(reader: Modality, read: DataConfig, *, all_rows: bool) -> Splits:
    """The samples among which those of the run are looked for, split by the run's rule.

    Args:
        all_rows: open held-out rows together with all others: a new pattern may not have the column that tells them.
    """
    if read.held_out is None or not all_rows:
        return reader.reading(read).split()
    every = reader.reading(replace(read, held_out=None)).open(reader.config.data.path)
    train = reader.for_training(every)
    return Splits(train, None, every, everything=train)


class _Found(NamedTuple):
    """The samples of a run that were found: their split, or None if the training part is empty."""

    splits: Splits | None
    left_out: int  # samples that the run did not have in that part
    gone: int  # samples of the run that were not found

    def note(self, noun: str) -> str:
        what = [f"{self.left_out:,} {noun} were not in that part of the run and are left out"] if self.left_out else []
        return "; ".join([*what, f"{self.gone:,} of the run's {noun} are gone"] if self.gone else what)


def _find(
    drawn: Splits, ids: Mapping[str, SampleIds], ids_of: Callable[[Dataset], SampleIds], *, keep_test: bool
) -> _Found:
    """The samples of `drawn` in the parts that they had in the run.

    Args:
        ids: of the samples of each part of the run.
        ids_of: the ids of any samples.
        keep_test: whether the test part is other data, and stays as it is.
    """
    pool = drawn.everything or drawn.train
    there = ids_of(pool)
    train, validation = (_among(there, ids.get(name)) for name in ("train", "validation"))
    validation &= ~train
    test, wanted = drawn.test, [ids[name] for name in ("train", "validation") if name in ids]
    used, candidates = [there[train | validation]], [there]
    if test is not None and not keep_test:
        there = ids_of(test)
        rows = _among(there, ids.get("test"))
        test, used, candidates = _subset(test, rows), [*used, there[rows]], [*candidates, there]
        wanted += [ids["test"]] if "test" in ids else []
    left_out, gone = (len(np.setdiff1d(np.concatenate(some), np.concatenate(used))) for some in (candidates, wanted))
    learned = _subset(pool, train)
    if learned is None:
        return _Found(None, left_out, gone)
    parts = learned, _subset(pool, validation), test
    return _Found(Splits(*parts, drawn.test_name, drawn.notes, _subset(pool, train | validation)), left_out, gone)


def _ids_of_names(data: Dataset) -> SampleIds:
    return text_ids(data.names)


def _ids(data: Dataset) -> SampleIds:
    found = sample_ids(data)
    return _ids_of_names(data) if found is None else found


def _among(ids: SampleIds, stored: SampleIds | None) -> NDArray[np.bool_]:
    return np.zeros(len(ids), bool) if stored is None else np.isin(ids, stored)


def _subset(data: Dataset, rows: NDArray[np.bool_]) -> Dataset | None:
    return data.subset(torch.from_numpy(rows.nonzero()[0])) if rows.any() else None


def _warnings(path: str, record: SplitRecord, changes: Mapping[str, tuple[int, int]]) -> list[str]:
    """What to know of a split that was drawn again and cannot be compared sample by sample."""
    if not record.parts:
        return [f"whether {path} has changed since the run is not known: training samples may be tested on"]
    return [
        f"{path} has changed since the run: its {part} part had {then:,} samples and has "
        f"{now:,}{' other ones' if then == now else ''}, so training samples may be tested on"
        for part, (then, now) in changes.items()
    ]
