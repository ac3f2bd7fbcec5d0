"""Strategies equal plain definitions on small sets, and keep their guarantees against the best of all subsets."""

import math
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.selection.pool import Pool, duplicate_threshold, quotas
from nearfar.selection.strategies import facility_location, k_center, random, typical, uncertain

NONE = torch.zeros(0, dtype=torch.long)


def rows_of(pool: Pool) -> list[int]:
    return [pick.row for pick in pool.picks]


def unit_rows(n: int, seed: int, d: int = 3) -> Tensor:
    return F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)


def radius(x: Tensor, chosen: list[int]) -> float:
    """The largest distance of a row from the nearest chosen one."""
    return max(min(float((x[i] - x[j]).norm()) for j in chosen) for i in range(len(x)))


def coverage(x: Tensor, chosen: list[int]) -> float:
    """Σ_i max_j of the cosines of rows minus their mean."""
    z = F.normalize(x - x.mean(0), dim=1)
    return sum(max([0.0, *(float(z[i] @ z[j]) for j in chosen)]) for i in range(len(z)))


@pytest.mark.parametrize("labelled", [[], [3, 5]])
@pytest.mark.parametrize("seed", range(3))
def test_facility_location_is_the_plain_greedy_and_near_the_best(seed: int, labelled: list[int]) -> None:
    x = unit_rows(14, seed)
    pool = Pool(x, torch.tensor(labelled, dtype=torch.long), seed, 4)
    facility_location(pool)
    rest = [row for row in range(14) if row not in labelled]
    for count, row in enumerate(rows_of(pool)):  # of equally good rows, either may come first
        there = [*labelled, *rows_of(pool)[:count]]
        best = max(coverage(x, [*there, other]) for other in rest)
        assert coverage(x, [*there, row]) == pytest.approx(best, abs=1e-4)
    before = coverage(x, labelled)
    best = max(coverage(x, [*labelled, *subset]) for subset in combinations(rest, 4)) - before
    assert coverage(x, [*labelled, *rows_of(pool)]) - before >= (1 - 1 / math.e) * best


def test_lazy_gains_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = unit_rows(150, 4, 8)
    found = []
    for stale in (1, 7, 150):
        monkeypatch.setattr("nearfar.selection.strategies.STALE", stale)
        pool = Pool(x, NONE, 0, 30)
        facility_location(pool)
        found.append(rows_of(pool))
    assert found[0] == found[1] == found[2] and len(set(found[0])) == 30


@pytest.mark.parametrize("seed", range(3))
def test_k_center_takes_the_farthest_and_is_within_twice_the_best_radius(seed: int) -> None:
    x = unit_rows(12, seed)
    pool = Pool(x, NONE, seed, 3)
    k_center(pool)
    chosen = rows_of(pool)
    for count in (1, 2):
        distance = [min(float((x[i] - x[j]).norm()) for j in chosen[:count]) for i in range(12)]
        assert distance[chosen[count]] == pytest.approx(max(distance), abs=1e-5)
    assert radius(x, chosen) <= 2 * min(radius(x, list(each)) for each in combinations(range(12), 3)) + 1e-5


def test_what_is_labelled_is_covered_and_not_selected() -> None:
    corners = torch.eye(4)
    x = F.normalize(corners.repeat(10, 1) + 0.05 * unit_rows(40, 0, 4), dim=1)
    for strategy in (k_center, facility_location, typical):
        pool = Pool(x, torch.tensor([0, 1]), 0, 2)
        strategy(pool)
        assert {row % 4 for row in rows_of(pool)} == {2, 3}, strategy.__name__


def test_typical_rows_are_near_the_middle_of_their_clusters() -> None:
    noise = 0.2 * unit_rows(90, 1, 3)
    x = F.normalize(torch.eye(3).repeat(30, 1) + noise, dim=1)
    x[0] = F.normalize(torch.tensor([1.0, 0.4, 0.4]), dim=0)
    pool = Pool(x, NONE, 0, 3)
    typical(pool)
    assert {row % 3 for row in rows_of(pool)} == {0, 1, 2} and 0 not in rows_of(pool)


def test_uncertain_rows_have_the_smallest_margin() -> None:
    p = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.45, 0.05], [0.4, 0.2, 0.4], [0.7, 0.2, 0.1]])
    pool = Pool(unit_rows(4, 0), torch.tensor([3]), 0, 2)
    uncertain(pool, p, ["a", "b", "c"])
    assert rows_of(pool) == [2, 1] and "a or c" in pool.picks[0].reason


def test_near_duplicates_of_what_is_there_are_left_out() -> None:
    x = unit_rows(60, 2, 16)
    x = torch.cat([x, x[:20]])
    threshold = duplicate_threshold(x, 0)
    for strategy in (k_center, facility_location, typical, random):
        pool = Pool(x, torch.tensor([0]), 0, 80, threshold=threshold)
        strategy(pool)
        chosen = rows_of(pool)
        assert len({row % 60 for row in chosen}) == len(chosen) == 59 and pool.left_out == 20, strategy.__name__


def test_groups_get_as_many_rows_as_they_have() -> None:
    groups = torch.tensor([0] * 50 + [1] * 8 + [2] * 2)
    pool = Pool(unit_rows(60, 3), torch.tensor([0, 1]), 0, 18, groups=groups)
    random(pool)
    assert groups[torch.tensor(rows_of(pool))].bincount().tolist() == [8, 8, 2]
    assert quotas(groups, torch.tensor([0, 1]), 3).tolist() == [0, 2, 1]
