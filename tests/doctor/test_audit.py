"""`nearfar doctor --encoder` and `nearfar evaluate --label-errors`: tables and pictures of doubted labels, outliers."""

import csv
from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.doctor.audit import Audit, DoubtedLabel, Outlier, write_audit
from nearfar.model.load import load
from nearfar.search.location import Location
from tests.search.pictures import run_folder
from tests.support.facts import tells
from tests.support.small_data import pictures


def test_an_audit_is_written_with_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "photos", 40)
    run = run_folder(tmp_path / "run")
    assert main(["doctor", "photos", "--labels", "--encoder", str(run), "-o", "found"]) == 0
    assert tells(capsys.readouterr().out, "of 40 labels samples")
    names = sorted(file.relative_to("photos").as_posix() for file in Path("photos").rglob("*.png"))
    audit = Audit([DoubtedLabel(names[0], "ball", "car", 0.5)], [Outlier(names[1], 0.1)], 40, 40, Location("photos"))
    written = write_audit(audit, load(run), tmp_path / "out")
    assert all(isinstance(path, Path) and path.stat().st_size for path in written.values()) and len(written) == 4
    with (tmp_path / "out" / "label-errors.csv").open() as file:
        assert next(csv.DictReader(file)) == {
            "path": names[0], "label": "ball", "suggested": "car", "margin": "0.5000"
        }  # fmt: skip
    clean = Audit(None, [], 40, 0, Location("photos"))
    assert write_audit(clean, load(run), tmp_path / "out") == {} and not list((tmp_path / "out").iterdir())
