"""Planted duplicates are found by a threshold from the data, and none where none were planted."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.cli import main
from nearfar.modalities.image.data.opening import image_files
from nearfar.search.duplicates import find_duplicates
from nearfar.search.search import InMemory
from tests.support.facts import tells


def drawn(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def planted(x: torch.Tensor, count: int, noise: float) -> torch.Tensor:
    """The rows, and a copy of the first ones with noise of that part of their length."""
    return torch.cat([x, x[:count] + noise * drawn(count, x.shape[1], seed=1)])


def pairs(groups: torch.Tensor) -> set[tuple[int, int]]:
    same = (groups[:, None] == groups).triu(1).nonzero()
    return {(int(a), int(b)) for a, b in same}


@pytest.mark.parametrize("dim", [3, 8, 32, 128])
def test_nothing_is_called_a_duplicate_where_there_is_none(dim: int) -> None:
    for seed in range(3):
        assert find_duplicates(InMemory(drawn(700, dim, seed))).members() == []


@pytest.mark.parametrize(("dim", "noise"), [(8, 0.001), (32, 0.02), (128, 0.05)])
@pytest.mark.parametrize("count", [3, 60, 600])
def test_planted_pairs_are_found_be_they_few_or_all(dim: int, noise: float, count: int) -> None:
    found = pairs(find_duplicates(InMemory(planted(drawn(600, dim), count, noise))).groups)
    truth = {(i, 600 + i) for i in range(count)}
    assert len(found & truth) >= 0.95 * count
    assert len(found - truth) <= max(1, 0.05 * count)


def test_the_threshold_follows_the_data() -> None:
    """Ten times the noise, in rows that are as far apart as before: another threshold, the same pairs."""
    near, far = (find_duplicates(InMemory(planted(drawn(600, 64), 60, noise))) for noise in (0.003, 0.1))
    assert pairs(near.groups) >= {(i, 600 + i) for i in range(60)} <= pairs(far.groups)
    fixed = find_duplicates(InMemory(planted(drawn(600, 64), 60, 0.1)), threshold=near.nearest[:60].min().item())
    assert not pairs(fixed.groups)


def test_dense_clusters_are_not_duplicates() -> None:
    clusters = drawn(20, 24).repeat(40, 1) + 0.05 * drawn(800, 24, seed=2)  # cosines of 0.99 and more within each
    found = find_duplicates(InMemory(clusters))
    assert float(found.nearest.median()) > 0.99 and found.members() == []
    found = find_duplicates(InMemory(planted(clusters, 40, 1e-3)))
    assert len(pairs(found.groups) & {(i, 800 + i) for i in range(40)}) >= 38


def test_the_dimension_is_that_of_the_data_not_of_the_vectors() -> None:
    flat = drawn(1500, 7) @ drawn(7, 100, seed=3)  # directions in 7 dimensions lie on a sphere of 6
    dimension = find_duplicates(InMemory(flat)).dimension
    assert dimension is not None and 4.5 < dimension < 7


def test_a_large_group_of_equal_rows_hides_nothing() -> None:
    x = torch.cat([drawn(400, 16), drawn(1, 16, seed=5).expand(100, 16), drawn(30, 16) + 1e-3])
    groups = find_duplicates(InMemory(x)).members()
    assert [len(rows) for rows in groups] == [100] + [2] * 30


def test_few_rows_are_duplicates_only_when_equal() -> None:
    x = drawn(6, 4)
    assert find_duplicates(InMemory(torch.cat([x, x[:1] * 3]))).members() == [[0, 6]]
    assert find_duplicates(InMemory(x[:1])).members() == []


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_the_command_writes_groups_that_a_table_reader_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    x = planted(drawn(300, 16), 10, 1e-4)
    np.save(tmp_path / "x.npy", x.numpy())
    with (tmp_path / "x.npy.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *([f"{i}.png", ""] for i in range(310))])
    assert main(["duplicates", str(tmp_path / "x.npy"), "--index", kind]) == 0
    told = capsys.readouterr().out
    assert tells(told, "20 310 10 groups") and tells(told, "5 more")
    assert tells(told, "doctor pictures")  # which are compared themselves there
    table = image_files(tmp_path / "x.npy.groups.csv")
    assert table.groups is not None and len(table.names) == 20
    named = {name: int(group) for name, group in zip(table.names, table.groups, strict=True)}
    assert all(named[f"{i}.png"] == named[f"{300 + i}.png"] for i in range(10)) and len(set(named.values())) == 10


def test_bad_input_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    assert main(["duplicates", str(tmp_path / "x.npy"), "--threshold", "2"]) == 1
    assert main(["duplicates", str(tmp_path / "gone.npy")]) == 1
    lines = capsys.readouterr().err.splitlines()  # and no progress bar
    assert len(lines) == 2 and tells(lines[0], "cosine") and tells(lines[1], "file")


@pytest.mark.parametrize("count", [10, 28, 50])
def test_small_sets_have_a_threshold_too(count: int) -> None:
    rows = drawn(count, 12, seed=count)
    assert pairs(find_duplicates(InMemory(planted(rows, 3, 0.05))).groups) == {(i, count + i) for i in range(3)}
    assert find_duplicates(InMemory(rows)).members() == []
