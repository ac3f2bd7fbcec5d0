import pytest
import torch

from nearfar.losses import reference, top_k_similarity
from tests.losses.agreement import TILE_SIDES, assert_equals_reference, assert_gradcheck, rows, tiles_of


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize(("queries", "keys"), [(1, 4), (3, 7), (7, 6)])
@pytest.mark.parametrize("with_ids", [False, True])
def test_top_k_equals_sorting_every_row(with_ids: bool, queries: int, keys: int, k: int) -> None:
    query_ids = torch.arange(queries) % 3 if with_ids else None
    key_ids = torch.arange(keys).flip(0) % 6 + 2 if with_ids else None
    q, keys_ = rows(queries, 3), rows(keys, 3, seed=1)
    k = min(k, keys - 2) if with_ids else k
    assert_equals_reference(
        lambda q, x: top_k_similarity(q, x, k=k, query_ids=query_ids, key_ids=key_ids)[0],
        lambda q, x: reference.top_k_similarity(q, x, k, query_ids, key_ids)[0],
        q,
        keys_,
    )
    expected = reference.top_k_similarity(q, keys_, k, query_ids, key_ids)[1]
    for side in TILE_SIDES:
        with tiles_of(side):
            assert torch.equal(top_k_similarity(q, keys_, k=k, query_ids=query_ids, key_ids=key_ids)[1], expected)


def test_top_k_passes_gradcheck_when_queries_and_keys_are_one_tensor() -> None:
    ids = torch.tensor([0, 1, 0, 2])
    assert_gradcheck(lambda z: top_k_similarity(z, z, k=2, query_ids=ids, key_ids=ids)[0], rows(4, 3))


@pytest.mark.parametrize("dtypes", [(torch.int64, torch.int32), (torch.int32, torch.int64)])
def test_ids_of_different_integer_types_are_compared_by_value(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    wide = torch.tensor([2**32 + 1, 5]) if dtypes[0] == torch.int64 else torch.tensor([1, 5])
    key_ids = torch.tensor([1, 1, 1, 5])
    q, keys = rows(2, 3), rows(4, 3, seed=1)
    found, _ = top_k_similarity(q, keys, k=1, query_ids=wide.to(dtypes[0]), key_ids=key_ids.to(dtypes[1]))
    expected, _ = reference.top_k_similarity(q, keys, 1, wide, key_ids)
    torch.testing.assert_close(found, expected)
    if dtypes[0] == torch.int64:  # 2³² + 1 is not 1: the first query has four negatives, the second three
        top_k_similarity(q, keys, k=3, query_ids=wide, key_ids=key_ids.int())
