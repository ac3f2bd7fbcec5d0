"""Patterns of file names, such as {label}_{speaker}_{take}: what stands in braces becomes a column."""

import re
from pathlib import Path

from nearfar.modalities.sound.files import SUFFIXES


class NamePattern:
    """A pattern; one without a suffix fits any.

    As a regular expression with a group for each field, a name that does not fit could take time that grows with its
    length to the power of the fields. Here, what did not fit from a place on is remembered.

    Attributes:
        names: of the fields.

    >>> NamePattern("{label}_{speaker}_{take}").match("7_theo_12.wav")
    {'label': '7', 'speaker': 'theo', 'take': '12'}
    """

    def __init__(self, pattern: str) -> None:
        pieces = re.split(r"\{(\w+)\}", pattern)
        self.names, self._texts = pieces[1::2], pieces[::2]  # a text before each field, and one behind the last
        unusable = any(not name.isidentifier() for name in self.names) or "path" in self.names
        if not self.names or len(set(self.names)) < len(self.names) or unusable:
            example = "'{label}_{speaker}_{take}'"
            raise ValueError(f"the pattern is {pattern!r}, expected different names in braces, such as {example}")
        self._any_suffix = Path(pattern).suffix.lower() not in SUFFIXES

    def match(self, name: str) -> dict[str, str] | None:
        """The text of each field, each as short as can be; None where the name does not fit."""
        if self._any_suffix:
            name, _, suffix = name.rpartition(".")
            if not re.fullmatch(r"\w+", suffix):
                return None
        if not name.startswith(self._texts[0]):
            return None
        ends = self._ends(name, 0, len(self._texts[0]), set())
        if ends is None:
            return None
        starts = [len(self._texts[0]), *(end + len(text) for end, text in zip(ends, self._texts[1:], strict=True))]
        return {field: name[starts[i] : ends[i]] for i, field in enumerate(self.names)}

    def _ends(self, name: str, field: int, start: int, failed: set[tuple[int, int]]) -> list[int] | None:
        """Where this field and those behind it end, if this one begins at `start`."""
        if (field, start) in failed:
            return None
        text = self._texts[field + 1]
        end, last = name.find(text, start + 1), field == len(self.names) - 1
        while end >= 0 and "/" not in name[start:end]:
            if last and end + len(text) == len(name):
                return [end]
            rest = None if last else self._ends(name, field + 1, end + len(text), failed)
            if rest is not None:
                return [end, *rest]
            end = name.find(text, end + 1)
        failed.add((field, start))
        return None
