"""From a folder of pictures to neighbours, duplicates and an exported folder: each command as a process of its own."""

import subprocess
import sys
from pathlib import Path

from tests.search.pictures import folder_of, run_folder
from tests.support.facts import tells


def nearfar(place: Path, *words: str) -> str:
    run = subprocess.run([sys.executable, "-m", "nearfar", *words], cwd=place, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_embed_search_duplicates_doctor_export(tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    folder_of(tmp_path / "photos", 40)
    assert tells(nearfar(tmp_path, "embed", "run", "photos/", "-o", "photos.parquet"), "40 256")
    found = nearfar(tmp_path, "search", "run", "photos.parquet", "--image", "photos/class0/0000.png", "-k", "5")
    assert "0000-neighbours.png" in found and (tmp_path / "0000-neighbours.png").is_file()
    assert "photos.parquet.groups.csv" in nearfar(tmp_path, "duplicates", "photos.parquet")
    assert tells(nearfar(tmp_path, "doctor", "photos"), "no duplicates")
    assert "run/export/nearfar" in nearfar(tmp_path, "export", "run")
