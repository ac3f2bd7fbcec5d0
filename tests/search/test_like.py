"""Search by a sample of the file itself, whatever its modality; contact sheets where there are pictures."""

from pathlib import Path

import pytest
from PIL import Image

import nearfar
from nearfar.cli import main
from nearfar.search.files import Embeddings
from tests.support.facts import tells
from tests.support.models import KINDS, save_untrained_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_finds_itself_by_its_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    encoder = nearfar.load(save_untrained_of(kind, tmp_path))
    assert main(["embed", "run", encoder.modality.config.data.path, "-o", "x.parquet"]) == 0
    name = Embeddings("x.parquet").names()[2]
    capsys.readouterr()
    assert main(["search", "run", "x.parquet", "--like", name, "-k", "3"]) == 0
    told = capsys.readouterr().out
    first = next(line for line in told.splitlines() if name in line)
    assert "1.0000" in first
    sheets = list(tmp_path.glob("*-neighbours.png"))
    assert len(sheets) == encoder.modality.has_pictures == ("contact sheet" in told) == (kind != "text")
    if sheets:
        with Image.open(sheets[0]) as sheet:
            assert len(sheet.convert("L").getcolors(1 << 16) or []) > 20  # pictures, and not an even gray
    assert main(["search", "run", "x.parquet", "--like", "no such name"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and tells(lines[0], "'no such name' x.parquet")
