"""Captions of contact sheets: as wide as their cell, with the folder and the end of a path."""

from PIL import ImageFont

from nearfar.search.contact_sheet import CELL, _fit


def test_a_long_path_is_cut_in_its_middle() -> None:
    font = ImageFont.load_default(12)
    shown = _fit("shoes/24535295-abe3-4613-91f6-a7fe87954662.jpg", font)
    assert shown.startswith("shoes/") and shown.endswith("4662.jpg") and "…" in shown
    assert font.getlength(shown) <= CELL
    assert _fit("hat/1.jpg", font) == "hat/1.jpg" and _fit("a\n b", font) == "a b"
