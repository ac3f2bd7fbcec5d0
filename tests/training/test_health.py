"""What the measures say, in words, of runs that are well and runs that are not."""

import io
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

from nearfar.methods.advice import Verdict
from nearfar.methods.method import Step
from nearfar.methods.simclr import SimCLR
from nearfar.report.verdict import health
from nearfar.training.callbacks import TrainingMonitor
from nearfar.training.health import judge, measure, twins_found, well
from tests.support.facts import tells


def step(z1: torch.Tensor, z2: torch.Tensor, loss: float, **log: torch.Tensor) -> Step:
    return Step(torch.tensor(loss), z1, z2, candidates=2 * len(z1) - 1, log=log)


def names(found: dict[str, float | list[float]], at: int = 50, total: int = 100) -> set[str]:
    return {verdict.name for verdict in judge(found, at, total)}


def test_a_healthy_batch_is_left_in_peace() -> None:
    torch.manual_seed(0)
    z1 = torch.randn(256, 64)
    found = measure(step(z1, z1 + 0.5 * torch.randn_like(z1), 2.0)) | {"loss": 2.0}
    assert names(found) == set()


def test_collapse_is_named_with_its_rank() -> None:
    z = torch.ones(256, 64) + 1e-3 * torch.randn(256, 64, generator=torch.Generator().manual_seed(0))
    z[:, 2:] = 0
    found = measure(step(z, z, 6.2)) | {"loss": 6.2}
    (verdict,) = [v for v in judge(found, 50, 100) if v.name == "collapse"]
    assert verdict.level == "error" and "of 64: collapse" in verdict.text


def test_a_loss_of_log_n_is_told_alone_unless_all_is_one_point() -> None:
    """Of CPC on a few sounds both were told, with contrary advice."""
    found: dict[str, float | list[float]] = {"dimensions": 128.0, "rank_limit": 128.0, "loss": 4.06, "ceiling": 4.06}
    assert names(found | {"effective_rank": 6.0}) == {"nothing_learned"}
    assert names(found | {"effective_rank": 1.2}) == {"collapse"}
    assert names(found | {"effective_rank": 1.2}, at=1) == {"nothing_learned"}  # an untrained encoder is like that
    assert names(found | {"effective_rank": 6.0, "loss": 3.0}) == {"collapse"}


def test_a_rank_little_above_a_collapse_is_not_called_well() -> None:
    found: dict[str, float | list[float]] = {"dimensions": 128.0, "rank_limit": 128.0, "effective_rank": 7.17}
    (verdict,) = judge(found, 50, 100)
    assert (verdict.level, verdict.name) == ("warning", "low_rank")
    assert tells(verdict.text, "effective rank 7.17 128")
    assert well(found).level == "note" and "no collapse" not in well(found).text
    assert judge(found | {"effective_rank": 10.0}, 50, 100) == []
    assert tells(well(found | {"effective_rank": 10.0}).text, "no collapse effective rank 10 128")


def test_three_rows_are_too_few_to_judge() -> None:
    found: dict[str, float | list[float]] = {"dimensions": 128.0, "rank_limit": 2.0, "effective_rank": 1.0}
    assert judge(found, 50, 100) == []
    said = well(found)
    assert said.level == "note" and tells(said.text, "few collapse")
    level, text = health([said])
    assert level == "note" and said.text in text  # type: ignore[list-item]


def test_a_loss_of_log_n_has_taught_nothing() -> None:
    z1, z2 = torch.randn(2, 256, 64, generator=torch.Generator().manual_seed(0))
    found = measure(step(z1, z2, math.log(511))) | {"loss": math.log(511)}
    assert "nothing_learned" in names(found)
    (verdict,) = [v for v in judge(found, 50, 100) if v.name == "nothing_learned"]
    assert "log(511)" in verdict.text


def test_identical_positives_mean_weak_views() -> None:
    z = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))
    assert "weak_views" in names(measure(step(z, z.clone(), 1.0)) | {"loss": 1.0})


def test_the_bound_is_reported_with_its_ceiling_and_never_above() -> None:
    z = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    found = measure(step(z, z, 0.001)) | {"loss": 0.001}
    assert found["ceiling"] == math.log(127) and 0 <= float(found["bound"]) <= math.log(127)  # type: ignore[arg-type]
    assert "ceiling" in names(found)


def test_where_ids_leave_negatives_out_there_is_no_bound() -> None:
    """Views that share their class alone share log 4 nats; log N - L over those of other classes is far above."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(4).repeat(64)
    centres = F.normalize(torch.randn(4, 16, generator=generator), dim=1)
    z1, z2 = (centres[classes] + 0.05 * torch.randn(256, 16, generator=generator) for _ in range(2))
    encoder = torch.nn.Identity()
    method = SimCLR(encoder, features=16, temperature=0.1)
    for ids, told in ((torch.arange(256), True), (classes, False)):
        found = measure(method.contrast({"z1": z1, "z2": z2, "ids": ids}))
        assert ("bound" in found) == told and found["ceiling"] == math.log(511)
        assert "nothing learned" in well(found).text or not told
        shown = math.log(511) - float(method.contrast({"z1": z1, "z2": z2, "ids": ids}).loss)
        assert (shown <= math.log(4)) == told


def test_a_filling_queue_explains_the_rising_loss() -> None:
    z = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    found = measure(step(z, z + torch.randn_like(z), 3.0, queue_fill=torch.tensor(0.25)))
    (verdict,) = [v for v in judge(found, 1, 100) if v.name == "queue"]
    assert "25% full" in verdict.text


def test_twins_found_counts_nearest_partners() -> None:
    z1 = F.normalize(torch.eye(4), dim=1)
    assert twins_found(z1, z1) == 1.0
    assert twins_found(z1, z1[[1, 0, 2, 3]]) == 0.5


def test_a_log_that_is_no_terminal_hears_of_the_run_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr("nearfar.training.callbacks.time.perf_counter", lambda: clock)
    for terminal, lines in (
        (False, ["step 4 of 100: loss 2.500, ETA 0:12:48", "step 8 of 100: loss 2.500, ETA 0:12:16"]),
        (True, []),
    ):
        clock = 0.0
        console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        monitor = TrainingMonitor(tmp_path, None, 10, console, "")
        for done in range(1, 11):
            clock += 8.0
            values, last = SimpleNamespace(loss=2.5), SimpleNamespace()
            module = SimpleNamespace(done=done, total=100, last=last, values=values)
            monitor._print_progress(module)  # type: ignore[arg-type]
        assert console.file.getvalue().splitlines() == lines  # type: ignore[attr-defined]


def test_a_run_that_is_well_is_told_so_and_told_again_after_a_warning(tmp_path: Path) -> None:
    monitor = TrainingMonitor(tmp_path, None, 10, Console(quiet=True), "")
    found: dict[str, float | list[float]] = {"effective_rank": 30.0, "rank_limit": 64.0, "bound": 2.0, "ceiling": 4.0}
    bad = Verdict("warning", "weak_views", "too weak")
    for done, verdicts in ((1, []), (2, [bad]), (3, []), (4, [bad]), (5, []), (6, [])):
        for verdict in verdicts:
            monitor.announce(verdict, done)
        monitor._announce_if_healthy(found, verdicts, SimpleNamespace(done=done, total=6))  # type: ignore[arg-type]
    told = [(verdict["step"], verdict["level"]) for verdict in monitor.verdicts]
    assert told == [(2, "warning"), (3, "good"), (4, "warning"), (5, "good"), (6, "good")]
    assert tells(monitor.verdicts[-1]["text"], "no collapse effective rank 30 64 loss 2.00 4.00")
