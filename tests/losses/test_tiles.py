import pytest

from nearfar.losses import tile_size
from nearfar.losses.engine.tiles import Grid
from tests.losses.agreement import rows
from tests.support.facts import facts


def tiles_under(side: int) -> int:
    with tile_size(side):
        return len(list(Grid(12, 12, None, None, like=rows(1, 1)).tiles()))


def test_tile_size_holds_inside_its_context_and_ends_with_it() -> None:
    assert tiles_under(4) == 9
    with tile_size(3):
        assert tiles_under(6) == 4
        assert len(list(Grid(12, 12, None, None, like=rows(1, 1)).tiles())) == 16
    assert len(list(Grid(12, 12, None, None, like=rows(1, 1)).tiles())) == 1


def test_tile_size_ends_with_its_context_even_through_an_error() -> None:
    with pytest.raises(KeyError), tile_size(1):
        raise KeyError
    assert Grid(12, 12, None, None, like=rows(1, 1)).single


def test_symmetric_matrix_is_walked_on_and_above_the_diagonal_only() -> None:
    with tile_size(3):
        tiles = list(Grid(12, None, None, None, like=rows(1, 1)).tiles())
    assert len(tiles) == 10
    assert all(tile.rows.start <= tile.columns.start for tile in tiles)
    assert sum(tile.mirrored for tile in tiles) == 6


@pytest.mark.parametrize("side", [0, -1, 2.0, True, "4", None])
def test_tile_size_refuses_what_is_no_whole_number_above_zero(side: object) -> None:
    with pytest.raises(ValueError, match=facts("tile_size side")), tile_size(side):  # type: ignore[arg-type]
        pass


def test_automatic_tile_does_not_grow_with_the_matrix() -> None:
    for columns in (None, 100_000):
        tiles = list(Grid(100_000, columns, None, None, like=rows(1, 1)).tiles())
        assert max((t.rows.stop - t.rows.start) * (t.columns.stop - t.columns.start) for t in tiles) <= 4096**2
