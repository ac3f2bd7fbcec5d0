"""Fixtures of the training tests."""

import pytest

from nearfar.evaluation.results import Results
from nearfar.training.run import Run


@pytest.fixture
def train_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation left out."""
    monkeypatch.setattr(Run, "_evaluate", lambda self: Results())
