"""A table of path and group, as the doctor writes it, in the data and in the split."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.data.dataset import ArrayDataset
from nearfar.data.groups import caption_ids, connected, held_out, merged_ids, with_groups
from tests.support.facts import facts


def numbered(n: int, groups: list[int] | None = None) -> ArrayDataset:
    names = [f"{i}.png" for i in range(n)]
    return ArrayDataset(np.zeros((n, 2, 2, 3), np.uint8), names=names, groups=groups)


def test_samples_not_in_the_table_are_alone(tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("path,group\n3.png,7\n1.png,7\n4.png,a\nelsewhere.png,7\n")
    groups = with_groups(numbered(5), tmp_path / "groups.csv").groups
    assert groups is not None and groups[1] == groups[3]
    assert len(groups.unique()) == 4


def test_groups_of_the_data_and_of_the_table_become_one_where_they_touch(tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("path,group\n0.png,a\n1.png,a\n")
    data = numbered(4, groups=[5, 6, 6, 7])
    groups = with_groups(data, tmp_path / "groups.csv").groups
    assert groups is not None and groups.tolist() == [0, 0, 0, 1]
    assert data.groups is not None and data.groups.tolist() == [5, 6, 6, 7]  # left as it was


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("path,group\nother/1.png,1\n", "1 path"),
        ("path,label\n1.png,1\n", "column 'group'"),
        ("path,group\n1.png\n", "1 field 2"),
        ("", "column path"),
    ],
)
def test_a_table_that_does_not_fit_is_told_in_a_line(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "groups.csv").write_text(content)
    with pytest.raises(ValueError, match=facts(told)) as error:
        with_groups(numbered(3), tmp_path / "groups.csv")
    assert "\n" not in str(error.value)


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=facts("groups.csv")):
        with_groups(numbered(3), tmp_path / "groups.csv")


def test_held_out_groups_stay_whole() -> None:
    groups = torch.arange(60) // 3
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    out = held_out(groups, order, 12)
    assert int(out.sum()) == 12
    assert all(len(out[groups == group].unique()) == 1 for group in range(20))
    assert held_out(None, order, 12).nonzero()[:, 0].tolist() == order[:12].sort().values.tolist()
    assert int(held_out(torch.zeros(60, dtype=torch.long), order, 12).sum()) == 0


def test_long_chains_are_joined() -> None:
    assert set(connected(5000, [(i + 1, i) for i in reversed(range(4999))])) == {0}


def test_captions_are_equal_whatever_their_case_space_and_accents() -> None:
    texts = ["A caf\u00e9", "a  cafe\u0301 ", "a cafe", "", " ", "STRASSE", "straße"]
    assert caption_ids(texts).tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert caption_ids([]).shape == (0,)


def test_pairs_of_one_image_or_one_caption_have_one_id() -> None:
    images = torch.tensor([10**15, 10**15, -3, 4, 5])  # two captions of the first image
    captions = caption_ids(["a dog", "a dog runs", "a dog", "a cat", "two cats"])  # and another dog
    assert merged_ids(images, captions).tolist() == [0, 0, 0, 1, 2]
    assert merged_ids(torch.arange(3), torch.arange(3)).tolist() == [0, 1, 2]
    assert merged_ids(torch.arange(3), torch.zeros(3, dtype=torch.long)).tolist() == [0, 0, 0]
    assert merged_ids(torch.arange(0), torch.arange(0)).tolist() == []
    with pytest.raises(ValueError, match=facts("groups (3,) caption (2,)")):
        merged_ids(torch.arange(3), torch.arange(2))


def test_merged_ids_are_the_connected_components() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randint(0, 30, (2, 40), generator=generator)
    joined = (a[:, None] == a) | (b[:, None] == b)
    for _ in range(6):  # paths twice as long each time
        joined = (joined.float() @ joined.float()) > 0
    ids = merged_ids(a, b)
    assert torch.equal(ids[:, None] == ids, joined)
