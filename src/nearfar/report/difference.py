"""The difference of two numbers whose samples are not known to be the same."""

import math

from nearfar.evaluation.results import Row


def difference(row: Row, other: Row) -> tuple[float, float, float]:
    """The difference of two values and its interval: each limit is the root of the summed squares of the two arms.

    For two proportions it is Newcombe's. It does not use that both were measured on the same samples, so it is wide;
    `evaluation.paired` does.

    Reference: Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10,
    https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C873::AID-SIM779%3E3.0.CO;2-I
    """
    if row.value < other.value:
        row, other = other, row
    assert row.low is not None and row.high is not None and other.low is not None and other.high is not None
    gap = row.value - other.value
    down = math.hypot(row.value - row.low, other.high - other.value)
    up = math.hypot(row.high - row.value, other.value - other.low)
    return gap, gap - down, gap + up
