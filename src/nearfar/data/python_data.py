"""Data that are Python objects: arrays, data sets of other libraries, lists, frames, generators.

Paths and texts become a table in the cache, which is read like any other. Samples in memory stay where they are: they
are registered (`nearfar.python_objects`), and a modality opens them by that name.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.python_items import TARGETS, is_array, plain_label, split_item
from nearfar.data.python_tables import Frame, as_frame, file_suffix, is_texts, write_frame
from nearfar.data.rows import usual_column
from nearfar.data.sources import Items, MadeItems
from nearfar.messages import one_line
from nearfar.progress import print_note, progress_bar
from nearfar.python_objects import find_object, register, registered_objects

_MANY = 1000  # samples, from which reading them shows a progress bar
_TRIED = 16  # samples, one of which must be readable
FORMS = (
    "a path, a list of paths or texts, an array or tensor, (samples, labels), a map-style Dataset, a frame, or a "
    "function that returns an iterator"
)


@dataclass(frozen=True)
class DataSpec:
    """Data as a configuration names them.

    Attributes:
        path: as `DataConfig.path` has it.
        root: folder that the paths of a table start from.
        suffix: of the files that the data list; "" for texts; None if the data are no list.
        notes: what a user should know about how the object is read.
    """

    path: str
    root: str | None = None
    suffix: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(eq=False)
class ObjectData:
    """N samples of a Python object, as they are, and what the object says of them.

    Attributes:
        name: of its class and its length, for messages.
        length: N; None if it shows only at the end of an iterator.
        read: gives item n; None of an iterator.
        iterate: gives all items in order, for objects that have no numbers.
        labels, classes, captions: of the N samples, if the object has them as columns; else items are looked at.
    """

    name: str
    length: int | None
    read: Callable[[int], Any] | None = None
    iterate: Callable[[], Iterable[Any]] | None = None
    labels: Sequence[Any] | None = None
    classes: list[str] | None = None
    captions: Sequence[Any] | None = None
    array: Any = field(default=None, repr=False)  # all samples in one
    origin: tuple[Any, ...] = field(default=(), repr=False)  # what the user gave

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def samples(self) -> Items:
        """The samples by number; an iterator is read to its end, once."""
        if self.array is not None:
            return np.asarray(self.array)
        if self.read is not None and self.length is not None:
            read = self.read
            return MadeItems(self.length, lambda row: split_item(read(row))[0])
        return [sample for sample, _, _ in self._items]

    @cached_property
    def _items(self) -> list[tuple[Any, Any, Any]]:
        """All items, each as sample, label and caption; read once."""
        found = []
        with progress_bar(self._bar("reading"), self.length or 0) as advance:
            assert self.iterate is not None or (self.read is not None and self.length is not None)
            try:
                source = self.iterate() if self.iterate is not None else map(self.read, range(self.length or 0))  # type: ignore[arg-type]
                for item in source:
                    found.append(split_item(item))
                    advance(1)
            except Exception as error:  # of the user's own code
                raise ValueError(f"{self.name} failed after {len(found)} items: {one_line(error)}") from error
        if not found:
            raise ValueError(f"{self.name} has no items, expected one for each sample")
        return found

    @cached_property
    def first_row(self) -> int:
        """Number of the first sample that can be read; those that cannot are listed when all are read."""
        if self.array is not None:
            return 0
        reasons: list[Exception] = []
        for row in range(min(_TRIED, len(self.samples))):
            try:
                self.samples[row]
            except Exception as error:  # of the user's own code
                reasons.append(error)
            else:
                return row
        said = "" if len(reasons) == 1 else f", nor can the next {len(reasons) - 1}"
        raise ValueError(f"item 0 of {self.name} cannot be read{said}: {one_line(reasons[0])}") from reasons[0]

    @property
    def first(self) -> Any:
        """The first sample that can be read."""
        return self.samples[self.first_row]

    def as_arrays(self) -> list[NDArray[np.float64]]:
        """All samples as arrays, for data that are kept whole: one that cannot be read is an error."""
        found: list[NDArray[np.float64]] = []
        for row in range(len(self)):
            try:
                found.append(np.asarray(self.samples[row], np.float64))
            except Exception as error:  # of the user's own code
                raise ValueError(f"item {row} of {self.name} cannot be read: {one_line(error)}") from error
        return found

    def facts(self) -> tuple[Sequence[Any] | None, Sequence[tuple[str, ...]] | None]:
        """N labels and N captions, each None if the object has none."""
        labels, captions = self.labels, self.captions
        if self.array is None and labels is None and captions is None and self._states_facts():
            labels, captions = ([item[place] for item in self._light_items()] for place in (1, 2))
            labels, captions = _known(labels), _known(captions)
        if labels is not None and _are_captions(labels):
            labels = None
        if captions is not None:
            captions = [(each,) if isinstance(each, str) else tuple(each) for each in captions]
        return labels, captions

    def _bar(self, what: str) -> str:
        """The label of a progress bar; none for a few samples."""
        return f"{what} {self.name}" if self.length is None or self.length > _MANY else ""

    def _states_facts(self) -> bool:
        first = self._items[0] if self.read is None else split_item(self.read(self.first_row))
        return first[1] is not None or first[2] is not None

    def _light_items(self) -> Iterable[tuple[Any, Any, Any]]:
        """All items for their labels; samples that have numbers are not kept, since they may not fit into memory."""
        if self.read is None:
            return self._items
        read, length = self.read, self.length or 0
        with progress_bar(self._bar("reading the labels of"), length) as advance:
            found = []
            for row in range(length):
                try:
                    found.append((None, *split_item(read(row))[1:]))
                except Exception:  # of the user's own code; told when the sample is read
                    found.append((None, None, None))
                advance(1)
        return found


def _known(column: Sequence[Any]) -> list[Any] | None:
    return None if all(each is None for each in column) else list(column)


def _are_captions(labels: Sequence[Any]) -> bool:
    """Whether texts say something of each sample instead of naming its class: most of them occur once."""
    texts = [each for each in labels if isinstance(each, str)]
    return len(texts) > 2 and len(set(texts)) > len(texts) / 2


def as_data(data: Any, *, relative: bool = False) -> DataSpec:
    """How a configuration names data; objects are registered, or written to the cache as a table.

    Args:
        data: `FORMS`.
        relative: write paths relative to `DataSpec.root`, for data whose configuration has one.
    """
    if isinstance(data, str | Path):
        return DataSpec(str(data))
    if is_loader(data):
        note = "a DataLoader was given: its data set is used, in nearfar's own order and batches"
        inner = as_data(data.dataset, relative=relative)
        return replace(inner, notes=(note, *inner.notes))
    if (frame := as_frame(data)) is not None:
        return _from_frame(*frame, relative)
    found = object_data(data)
    if isinstance(found.first, str | Path) and (listed := _listed(found)) is not None:
        return _from_frame(listed, (), relative)
    spec = register(found, f"{found.name}-{found.length}" if found.length is not None else found.name)
    return DataSpec(spec)


def _listed(data: ObjectData) -> Frame | None:
    """The columns of a data set whose samples are paths or texts; None if others are among them."""
    labels, captions = data.facts()
    frame = as_frame([data.samples[row] for row in range(len(data))])
    if frame is None:
        return None
    if labels is not None and data.classes is not None:
        labels = [None if n is None else data.classes[n] for n in labels]
    more = {"label": labels, "caption": captions if "path" in frame[0] else None}
    return {**frame[0], **{name: list(column) for name, column in more.items() if column is not None}}


def _from_frame(frame: Frame, notes: tuple[str, ...], relative: bool) -> DataSpec:
    suffix = file_suffix(frame)
    path, root = write_frame(frame, relative=relative)
    return DataSpec(str(path), root, "" if is_texts(frame) else suffix, notes=notes)


def object_data(data: Any) -> ObjectData:
    """The samples of an object; the same for the same object, so that it keeps its name."""
    origin = data if isinstance(data, tuple) else (data,)
    for known in registered_objects(ObjectData):
        if len(known.origin) == len(origin) and all(map(operator.is_, known.origin, origin)):
            return known
    made = _made(data)
    made.origin = origin
    return made


def _made(data: Any) -> ObjectData:
    if is_array(data):
        return _of_array(data, None)
    if isinstance(data, tuple) and len(data) == 2 and _are_labels(data[1], data[0]):
        return _with_labels(data[0], data[1])
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, Mapping):
        return _of_items(data)
    if callable(data):
        name = getattr(data, "__name__", type(data).__name__)
        return ObjectData("generator" if name == "<lambda>" else name, None, iterate=data)
    if isinstance(data, Iterable) and not isinstance(data, Mapping):
        return ObjectData(type(data).__name__, None, iterate=lambda: data)
    parts = f"; give one of its values, {', '.join(map(repr, data))}" if isinstance(data, Mapping) else ""
    raise TypeError(f"data is of type {type(data).__name__}, expected {FORMS}{parts}")


def is_loader(data: Any) -> bool:
    """A DataLoader, whose data set is meant."""
    return hasattr(data, "dataset") and hasattr(data, "batch_size")


def _of_array(data: Any, labels: Sequence[Any] | None) -> ObjectData:
    array = data.detach().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)
    if len(array) == 0:
        raise ValueError(f"data is an array of shape {array.shape}, expected at least one sample")
    return ObjectData("array", len(array), labels=labels, array=array)


def _are_labels(labels: Any, samples: Any) -> bool:
    try:
        flat = np.asarray(labels).ndim == 1
        return bool(flat and hasattr(samples, "__len__") and len(labels) == len(samples))
    except (TypeError, ValueError):
        return False


def _with_labels(samples: Any, labels: Any) -> ObjectData:
    column = [plain_label(each) for each in (labels.tolist() if hasattr(labels, "tolist") else labels)]
    if is_array(samples):
        return _of_array(samples, column)
    return ObjectData("list", len(samples), read=lambda row: samples[row], labels=column)


def _of_items(data: Any) -> ObjectData:
    """A list of samples, or a map-style data set of torch, torchvision or Hugging Face."""
    if len(data) == 0:
        raise ValueError(f"data is a {type(data).__name__} without items, expected one for each sample")
    labels, classes = _stated_labels(data)
    name = type(data).__name__
    return ObjectData(name, len(data), read=lambda row: data[row], labels=labels, classes=classes)


def _stated_labels(data: Any) -> tuple[list[Any] | None, list[str] | None]:
    """Labels that the data set has as a column, so that no sample need be read for them."""
    features = getattr(data, "features", None)
    if hasattr(data, "column_names") and isinstance(features, Mapping):  # of Hugging Face
        key = usual_column(data.column_names, TARGETS)
        names = None if key is None else getattr(features[key], "names", None)
        return (None, None) if key is None else ([plain_label(each) for each in data[key]], names)
    values = getattr(data, "targets", None)
    if values is None or not hasattr(values, "__len__") or len(values) != len(data):
        return None, None
    column = [plain_label(each) for each in (values.tolist() if hasattr(values, "tolist") else values)]
    classes = getattr(data, "classes", None)
    known = isinstance(classes, Sequence) and all(isinstance(each, int) and each < len(classes) for each in column)
    return _known(column), [str(each) for each in classes] if known and classes is not None else None


def first_sample(spec: str) -> Any:
    """The first sample of a registered object, to see what kind of data it is."""
    data: ObjectData = find_object(spec, "data")
    return data.first


def tell_notes(spec: DataSpec) -> None:
    """Print what a user should know about how an object is read."""
    for note in spec.notes:
        print_note(note)
