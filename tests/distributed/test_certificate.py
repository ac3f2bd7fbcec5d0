"""The certificate of methods catches the errors that circulate: right loss, wrong training."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nearfar.cli import main
from nearfar.distributed.certificate import CertificateRow, certify_methods, check_method, rows_of
from nearfar.distributed.contract import draws, same_object
from nearfar.distributed.gather import gather
from nearfar.distributed.processes import run_in_processes
from nearfar.distributed.variants import VARIANTS, Subject, Variant, VariantResult
from nearfar.losses.engine.tiles import _TILE
from nearfar.methods import METHODS, Batch, Step
from nearfar.methods.check import subject_from, toy_subjects
from nearfar.methods.simclr import SimCLR
from nearfar.methods.toy import ToyImageEncoder, toy_batch, with_more_views
from tests.distributed import work
from tests.support.facts import all_tell, tells


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, CertificateRow]]:
    """Rows by what is wrong and by variant; all in one start of two processes."""
    wrong = {
        "detached": (simclr(), work.detached_gather),
        "factor": (simclr(), work.gather_without_factor),
        "offset": (simclr(work.WithoutOffset), gather),
    }
    given = {name: (Subject(name, method, batches()), how) for name, (method, how) in wrong.items()}
    walks = run_in_processes(2, work.walks_of_wrong, given)[0]
    return {name: {row.variant: row for row in rows_of(given[name][0], walks[name])} for name in wrong}


def batches() -> list[Batch]:
    return [toy_batch(seed=seed) for seed in range(2)]


def simclr(kind: type[SimCLR] = SimCLR) -> SimCLR:
    torch.manual_seed(0)
    return kind(ToyImageEncoder(), features=16, dim=8)


def test_a_detached_gather_is_caught(found: dict[str, dict[str, CertificateRow]]) -> None:
    """The loss is right, and the rows of others have lost their gradient."""
    rows = found["detached"]
    assert not rows["gather"].passed and rows["gather"].gradient_error > 0.1
    assert rows["float32"].passed and rows["ring"].passed


def test_a_gather_without_the_number_of_processes_is_caught(found: dict[str, dict[str, CertificateRow]]) -> None:
    row = found["factor"]["gather"]
    assert not row.passed and row.gradient_error == pytest.approx(0.5, abs=0.2)


def test_rows_numbered_without_an_offset_are_caught(found: dict[str, dict[str, CertificateRow]]) -> None:
    rows = found["offset"]
    assert rows["float32"].passed  # right, as long as there is one process
    assert not rows["gather"].passed and rows["gather"].value_error > 1e-3
    assert not rows["ring"].passed


def test_a_momentum_network_that_is_the_network_itself_is_caught() -> None:
    rows = check_method(work.SameObject(ToyImageEncoder()), batches(), processes=1)
    assert not any(row.passed for row in rows)
    assert tells(rows[0].note, "encoder target same network frozen_copy") and not any(row.off for row in rows)


def test_rows_that_are_wrong_but_not_off_are_not_called_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = Subject("same", work.SameObject(ToyImageEncoder()), batches())
    monkeypatch.setattr("nearfar.cli.check.subjects", lambda *_: [subject])
    assert main(["check", "same:object", "--processes", "1"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert tells(said, "wrong") and "off by more" not in said


def test_every_method_on_many_views_and_with_the_options_of_its_paper() -> None:
    """Tiled, cached, on two processes, by ring and sharded, in float64: all as plain; one start of the processes."""
    subjects = [subject for subject in toy_subjects() if "views" in subject.name or "paper" in subject.name]
    subjects.append(Subject("noise", *with_more_views(METHODS["instdisc"].toy(noise_per_sample=True))))
    assert len(subjects) == 17 + 14 + 1
    for rows in certify_methods(subjects, processes=2):
        wrong = {(row.what, row.variant): row.note or row.gradient_error for row in rows if not row.passed}
        assert not wrong
        assert {"float64, tiles of 5", "float64, cached", "gather, uneven", "fsdp"} <= {row.variant for row in rows}


@pytest.mark.parametrize("name", ["byol", "moco", "moco_v3", "simsiam", "nnclr", "clip"])
def test_a_true_copy_is_none(name: str) -> None:
    assert same_object(Subject(name, *METHODS[name].toy())) == ""


def test_one_process_alone_and_a_method_left_as_it_is() -> None:
    method = simclr()
    before = {name: x.clone() for name, x in method.state_dict().items()}
    rows = check_method(method, batches(), processes=1, name="mine")
    assert all(row.passed and row.what == "mine" for row in rows) and len(rows) == len(VARIANTS) == 6
    assert all(torch.equal(x, before[name]) for name, x in method.state_dict().items())


def test_a_wrong_value_of_one_variant_is_seen() -> None:
    """Something that hangs on the type of its numbers."""

    class Coarse(SimCLR):
        def encode(self, batch: Batch) -> dict[str, torch.Tensor]:
            encoded = super().encode(batch)
            factor = 1.01 if encoded["z1"].dtype == torch.float32 else 1.0
            return {**encoded, "z1": encoded["z1"] + (factor - 1)}

    (rows,) = certify_methods([Subject("coarse", simclr(Coarse), batches())], processes=1)
    wrong = {row.variant for row in rows if not row.passed}
    assert "float32" in wrong and "float32, tiles of 3" not in wrong  # which is compared with float32


def test_a_small_error_of_float32_is_seen_where_relus_turn_over() -> None:
    """What a thousandth of a loss in tiles does must not pass for rounding."""

    class Tiled(SimCLR):
        def contrast(self, encoded: dict[str, torch.Tensor]) -> Step:
            step = super().contrast(encoded)
            small = _TILE.get() == 3 and encoded["z1"].dtype == torch.float32
            return replace(step, loss=step.loss * (1.001 if small else 1.0))

    torch.manual_seed(0)
    kinked = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16))
    method = Tiled(kinked, features=16, dim=8)
    images = [replace(b, views=[x.round() for x in b.views]) for b in batches()]  # even places, as in drawings
    rows = {row.variant: row for row in check_method(method, images, processes=1)}
    assert rows["float32"].passed
    assert not rows["float32, tiles of 3"].passed and rows["float32, tiles of 3"].tolerance <= 1e-4


@pytest.mark.parametrize("place", range(3))
def test_what_is_not_a_number_is_off(place: int) -> None:
    errors = [math.nan if i == place else 0.0 for i in range(3)]
    row = CertificateRow("method", "variant", *errors, 1e-3)
    assert row.off and not row.passed
    reasoned = CertificateRow("method", "variant", *errors, 1e-3, "it cannot be cut")
    assert not reasoned.off and not reasoned.passed


def test_chance_that_hangs_on_the_type_is_named() -> None:
    class Noisy(SimCLR):
        def encode(self, batch: Batch) -> dict[str, torch.Tensor]:
            return {
                name: x + 0.1 * torch.rand_like(x) for name, x in super().encode(batch).items() if name != "ids"
            } | {"ids": batch.ids}

    rows = check_method(simclr(Noisy), batches(), processes=1)
    assert all(tells(row.note, "encode rand_like") for row in rows if row.off)
    assert {row.variant for row in rows if row.off} >= {"float32"}
    assert {row.variant for row in rows if row.passed} >= {"float64, tiles of 5", "float64, cached"}
    assert draws(Subject("dropout", simclr(), batches())) == ""


def test_ones_own_method_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mymodule.py").write_text(
        "from nearfar.methods import SimCLR\n"
        "from nearfar.methods.toy import ToyImageEncoder, toy_batch\n"
        "class Mine(SimCLR):\n    pass\n"
        "def both():\n"
        "    return SimCLR(ToyImageEncoder(), features=16, dim=8), [toy_batch(seed=s) for s in range(2)]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert type(subject_from("mymodule:Mine").method).__name__ == "Mine"
    assert type(subject_from("mymodule:both").method) is SimCLR
    assert main(["check", "mymodule:Mine", "--processes", "1"]) == 0
    assert all_tell(capsys.readouterr().out.splitlines()[1:3], ["reading", "Mine one process"])


MISTAKES = """
from torch import nn
from nearfar.methods import Method, SimCLR, Step
from nearfar.methods.toy import ToyImageEncoder, toy_batch

class Plain:
    pass

class Bare(nn.Module):
    def __init__(self, encoder, **_):
        super().__init__()

class NoFeatures(SimCLR):
    def __init__(self, encoder):
        super().__init__(encoder, features=16)

class Raises(SimCLR):
    def __init__(self, encoder, **_):
        raise RuntimeError("my own mistake")

class Key(SimCLR):
    def encode(self, batch):
        return {}["no such thing"]

class Bald(SimCLR):
    def contrast(self, encoded):
        return super().contrast(encoded).loss

class Lists(SimCLR):
    def encode(self, batch):
        return [self.encoder(x) for x in batch.views]

class Late(SimCLR):
    def after_step(self, progress):
        raise ValueError("too late")

class Mixes(SimCLR):
    def encode(self, batch):
        return {"mean": super().encode(batch)["z1"].mean(0)}

class Matrix(SimCLR):
    def encode(self, batch):
        encoded = super().encode(batch)
        return encoded | {"all": encoded["z1"] @ encoded["z2"].T}

three = 3

def one():
    return SimCLR(ToyImageEncoder(), features=16)

def words():
    return SimCLR(ToyImageEncoder(), features=16), ["a", "b"]
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mistakes:Plain", "mistakes:Plain class nearfar.methods.Method"),
        ("mistakes:Bare", "Bare encode contrast after_step"),
        ("mistakes:NoFeatures", "NoFeatures(encoder features=16 samples=64 TypeError"),
        ("mistakes:Raises", "samples=64 RuntimeError (mistakes.py:18) --debug"),
        ("mistakes:Key", "Key.encode KeyError 'no such thing' (mistakes.py:22)"),
        ("mistakes:Bald", "Bald.contrast Tensor nearfar.methods.Step"),
        ("mistakes:Lists", "Lists.encode list"),
        ("mistakes:Late", "Late.after_step ValueError"),
        (
            "mistakes:Mixes",
            "Mixes.encode 'mean' (8,) 12",
        ),
        ("mistakes:Matrix", "'all' (12,) 12 (5,) 5"),
        ("mistakes:three", "mistakes:three class"),
        ("mistakes:one", "mistakes:one() SimCLR"),
        ("mistakes:words", "words nearfar.methods.Batch"),
        ("mistakes:Absent", "mistakes:Absent mistakes"),
        (":Name", "':Name' MODULE:NAME"),
        ("failing:Any", "failing RuntimeError (failing.py:1) --debug"),
        ("needing:Any", "ModuleNotFoundError 'absent_package'"),
    ],
)
def test_a_mistake_in_ones_own_method_is_told_with_its_place(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mistakes.py").write_text(MISTAKES.lstrip())
    (tmp_path / "failing.py").write_text("raise RuntimeError('at import')")
    (tmp_path / "needing.py").write_text("import absent_package")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mistakes", raising=False)
    assert main(["check", name, "--processes", "1"]) == 1
    line = capsys.readouterr().err
    assert tells(line, said) and len(line.splitlines()) == 1, line


@pytest.mark.parametrize("what", ["nowhere:Method", "nearfar.methods:Absent", "no/run"])
def test_what_is_not_there_is_said_in_one_line(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", what]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and what in said


@pytest.mark.parametrize("name", METHODS)
def test_every_small_setting_is_of_its_method(name: str) -> None:
    assert METHODS[name].toy_options.keys() <= METHODS[name].options().keys()


@pytest.mark.parametrize(
    ("float32_error", "magnified", "passes"), [(8e-4, 6e-2, True), (8e-4, 1e-6, False), (1e-6, 6e-2, False)]
)
def test_tiles_in_float32_may_be_off_by_what_float32_is_off_where_rounding_is_magnified(
    float32_error: float, magnified: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain float32 fell on the other side of a kink than float64 and the tiles did, and no fine shake showed it."""

    def run(subject: Subject, variant: Variant) -> VariantResult:
        plain = variant.dtype == torch.float32 and variant.tolerance == 0
        off = {"fine": 2e-5, "coarse": magnified}.get(subject.name, float32_error if plain else 0.0)
        x = torch.full((2, 3), 1 + off, dtype=torch.float64)
        return VariantResult(torch.ones(2), x, torch.ones(1), torch.zeros(0))

    def shaken(subject: Subject, shake: float, *seed: int) -> Subject:
        return replace(subject, name="fine" if shake < 1e-6 else "coarse")

    monkeypatch.setattr("nearfar.distributed.certificate.run_variant", run)
    monkeypatch.setattr("nearfar.distributed.certificate._shaken", shaken)
    rows = {row.variant: row for row in rows_of(Subject("any", simclr(), batches()), {})}
    assert rows["float32, tiles of 3"].passed == (passes or float32_error < 1e-4)
    assert (rows["float32, tiles of 3"].tolerance > 3e-4) == passes
