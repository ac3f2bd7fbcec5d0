"""Damaged and invented files, always the same ones: none brings a traceback, hangs, or asks for memory without end."""

import sys

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

if sys.platform == "win32":
    pytest.skip("limits of memory and time as POSIX has them", allow_module_level=True)

from tests.fuzz.targets import TARGETS, bounded

pytestmark = pytest.mark.filterwarnings("ignore")  # of Pillow, about files that it reads nonetheless

EXAMPLES = 40  # a target; `make fuzz` has no such end
FIXED = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(FIXED, max_examples=500)

Edit = tuple[int, str, bytes]
PLACES = st.one_of(st.integers(0, 80), st.integers(0, 1 << 16))  # most that matters is in the header
NASTY = st.sampled_from(
    [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\x80", b"\0", b"\n", b'"', b"1e999", b"nan", b"-1",
     b"9" * 5000, b"[" * 3000, b"{" * 50, b"*a", b"&a ", b"\xed\xa0\x80", b"\xfe\xff", b"../", b",", b":" * 99]
)  # fmt: skip
KINDS = st.sampled_from(["set", "insert", "cut", "drop", "double"])
EDITS = st.lists(st.tuples(PLACES, KINDS, st.one_of(NASTY, st.binary(max_size=6))), min_size=1, max_size=5)


def edited(content: bytes, edits: list[Edit]) -> bytes:
    """
    >>> edited(b"hello", [(1, "set", b"u"), (4, "insert", b"_")])
    b'hull_o'
    """
    for place, kind, value in edits:
        at = place % (len(content) + 1)
        head, tail = content[:at], content[at:]
        content = {
            "set": lambda: head + value + tail[len(value) :],  # noqa: B023
            "insert": lambda: head + value + tail,  # noqa: B023
            "cut": lambda: head,  # noqa: B023
            "drop": lambda: head + tail[len(value) or 1 :],  # noqa: B023
            "double": lambda: head + tail + tail,  # noqa: B023
        }[kind]()
    return content


@pytest.mark.parametrize("name", TARGETS)
@seed(0)
@FIXED
@given(edits=EDITS, number=st.integers(0, 7))
def test_damaged_files_are_refused_in_a_line(name: str, edits: list[Edit], number: int) -> None:
    target, seeds = TARGETS[name]
    with bounded():
        target(edited(seeds[number % len(seeds)], edits))


@pytest.mark.drill
@pytest.mark.parametrize("name", TARGETS)
@LONG
@given(edits=EDITS, number=st.integers(0, 7))
def test_many_damaged_files_are_refused_in_a_line(name: str, edits: list[Edit], number: int) -> None:
    target, seeds = TARGETS[name]
    with bounded():
        target(edited(seeds[number % len(seeds)], edits))


@pytest.mark.parametrize("name", TARGETS)
def test_the_files_to_begin_with_are_whole(name: str) -> None:
    """Else nothing behind their headers would be looked at."""
    target, seeds = TARGETS[name]
    for content in (*seeds, b"", b"\0" * 600):
        with bounded():
            target(content)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


@seed(0)
@settings(FIXED, max_examples=150)
@given(values=st.data())
def test_any_values_of_a_configuration_are_taken_or_refused_in_a_line(values: st.DataObject) -> None:
    from dataclasses import asdict

    import yaml

    from nearfar.config import TrainConfig

    whole = asdict(TrainConfig())
    inner = [f"{group}.{key}" for group, keys in whole.items() if isinstance(keys, dict) for key in keys]
    name = values.draw(st.sampled_from([*whole, *inner]))
    value = values.draw(VALUES)
    group, _, key = name.partition(".")
    target = TARGETS["yaml"][0]
    with bounded():
        target(yaml.safe_dump({group: {key: value} if key else value}, allow_unicode=True).encode("utf-8", "replace"))
