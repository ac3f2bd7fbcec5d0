"""Loss and gradient norm are read a step later where reading would wait, and no such step reaches a checkpoint."""

from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from nearfar.modalities.image.modality import ImageModality
from nearfar.model import checkpoint
from nearfar.training import lightning_module, step_values
from nearfar.training.errors import NotFiniteError
from nearfar.training.run import Run
from nearfar.training.step_values import StepValues
from tests.support.facts import facts
from tests.training.runs import QUIET, config


def fail(step: int) -> NoReturn:
    raise NotFiniteError(f"step {step}")


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that passes for an accelerator."""
    for module in (step_values, lightning_module):
        monkeypatch.setattr(module, "read_at_once", lambda x: False)


def take(values: StepValues, step: int, loss: float, norm: float = 1.0, strict: bool = True) -> None:
    values.take_loss(torch.tensor(loss), step)
    values.take_gradient_norm(torch.tensor(norm), step, strict=strict)


def test_a_cpu_reads_at_once() -> None:
    values = StepValues(fail)
    take(values, 0, 2.0, 3.0)
    assert (values.loss, values.gradient_norm) == (2.0, 3.0)
    with pytest.raises(NotFiniteError, match="step 1"):
        values.take_loss(torch.tensor(torch.inf), 1)
    take(values, 2, 2.0, torch.inf, strict=False)
    with pytest.raises(NotFiniteError, match="step 3"):
        take(values, 3, 2.0, torch.nan)


def test_an_accelerator_reads_the_step_before(late: None) -> None:
    values = StepValues(fail)
    take(values, 0, 2.0, 3.0)
    assert values.loss != values.loss  # nothing has arrived
    take(values, 1, 5.0, 6.0)
    assert (values.loss, values.gradient_norm) == (2.0, 3.0)
    values.finish()
    assert (values.loss, values.gradient_norm) == (5.0, 6.0)
    values.finish()
    take(values, 2, torch.nan)
    with pytest.raises(NotFiniteError, match="step 2"):
        take(values, 3, 1.0)
    take(values, 4, 1.0, torch.inf)
    with pytest.raises(NotFiniteError, match="step 4"):
        values.finish()


def test_no_checkpoint_is_of_weights_that_are_not_finite(
    late: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    made = ImageModality.views_of_rows

    def poisoned(self: ImageModality, *arguments: Any, step: int, **others: Any) -> Any:
        views = made(self, *arguments, step=step, **others)
        return lambda rows: [x * (torch.nan if step == 3 else 1.0) for x in views(rows)]

    monkeypatch.setattr(ImageModality, "views_of_rows", poisoned)
    with pytest.raises(NotFiniteError, match=facts("finite step 3 step-000000002.pt")):
        Run(config("moco", checkpoint_every=2), tmp_path, resume=False, console=QUIET).execute()
    state, _, _ = checkpoint.load_newest(tmp_path / "checkpoints")
    assert state["step"] == 2 and all(x.isfinite().all() for x in state["method"].values())
