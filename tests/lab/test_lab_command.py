"""`nearfar lab`: every experiment agrees with theory, says so, and says when it does not."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from nearfar.cli import lab as command
from nearfar.cli import main
from nearfar.lab.experiments import EXPERIMENTS
from nearfar.lab.findings import Claim, Findings, Line, Panel, Relation, Table
from tests.support.facts import tells


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_agrees_with_theory(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.get_rng_state()
    assert main(["lab", name, "--quick", "--out", str(tmp_path / "new" / "lab")]) == 0
    assert torch.equal(before, torch.get_rng_state())  # nothing of the caller's chance is used
    said = capsys.readouterr().out
    assert tells(said, "predictions agree") and "DIFFERS" not in said
    written = json.loads((tmp_path / "new" / "lab" / f"{name}.json").read_text(encoding="utf-8"))
    assert written["agrees"] and len(written["claims"]) > 5 and written["quick"] and written["seed"] == 0
    assert all(claim["agrees"] for claim in written["claims"])
    assert {claim["kind"] for claim in written["claims"]} <= {"theory", "identity", "ours"}
    assert (tmp_path / "new" / "lab" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_help_names_every_experiment() -> None:
    assert list(command.EXPERIMENTS) == list(EXPERIMENTS)


def test_a_seed_is_a_run() -> None:
    first, again, other = (EXPERIMENTS["collapse"](seed, quick=True).numbers() for seed in (3, 3, 4))
    assert first == again != other


def wrong(seed: int, *, quick: bool, progress: object) -> Findings:
    panel = Panel("", "", "", [Line("nothing", [0.0], [math.nan])])
    return Findings("bound", "one is two", [Claim("one", "=", 2.0, 1.0, 0.5)], [Table("", ["a"], [[1]])], [panel])


def test_a_disagreement_is_told_and_is_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "bound", wrong)
    assert main(["lab", "bound", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS" in said and tells(said, "1 of 1 prediction")
    written = json.loads((tmp_path / "bound.json").read_text(encoding="utf-8"))
    assert written["agrees"] is False and written["curves"][0]["lines"][0]["y"] == [None]


@pytest.mark.parametrize(
    ("relation", "measured", "agrees"),
    [
        ("=", 1.1, True),
        ("=", 1.2, False),
        ("=", 0.8, False),
        ("≤", 0.0, True),
        ("≤", 1.1, True),
        ("≤", 1.2, False),
        ("≥", 9.0, True),
        ("≥", 0.9, True),
        ("≥", 0.8, False),
        ("≤", math.nan, False),
        ("≤", -math.inf, False),
    ],
)
def test_a_claim_is_judged_by_its_numbers(relation: Relation, measured: float, agrees: bool) -> None:
    assert Claim("", relation, 1.0, measured, 0.1 + 1e-12).agrees is agrees


def test_claims_of_each_kind_are_counted_apart() -> None:
    held = [Claim("", "=", 1.0, 1.0), Claim("", "=", 1.0, 1.0), Claim("", "≤", 1.0, 0.0, kind="identity")]
    own = Claim("", "≥", 1.0, 2.0, kind="ours")
    assert re.findall(r"\d+", Findings("", "", [*held, own, own], []).verdict()) == ["2", "2", "1", "1", "2", "2"]
    missed = [Claim("", "=", 1.0, 2.0), Claim("", "≥", 1.0, 0.0, kind="ours")]
    found = Findings("", "", [*held, *missed], [])
    assert re.findall(r"\d+", found.verdict()) == ["2", "3", "1", "1", "0", "1"]
    assert [claim["kind"] for claim in found.numbers()["claims"]] == ["theory", "theory", "identity", "theory", "ours"]


def test_bad_input_is_one_line_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for arguments, said in (
        (["boundd"], "invalid choice: 'boundd'"),
        ([], "required: EXPERIMENT"),
        (["bound", "--seed", "-1"], "--seed -1"),
        (["bound", "--seed", "one"], "invalid int value: 'one'"),
        (["bound", "--out", str(tmp_path / "file")], "file"),
        (["bound", "--out", str(tmp_path / "file" / "lab")], "file"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["lab", *arguments])
        assert stop.value.code == 2 and tells(capsys.readouterr().err.splitlines()[-1], said)
