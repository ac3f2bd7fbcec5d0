"""Tests run side by side, as many as there are cores, so each has one core's threads."""

import os
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # also of the processes that tests start

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton: its kernels run on a CPU

pytest_plugins = ["tests.support.browser"]

PAGES = [Path(__file__).parent / name for name in ("docs", "pitfalls")]  # what they check is pages: `make docs-check`


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of pages are not even imported where they would be deselected."""
    return True if collection_path in PAGES and "not docs" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in PAGES):
            item.add_marker("docs")


@pytest.fixture(autouse=True)
def no_weights_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed, runs start from random weights unless a test names others, or sets this back."""
    from nearfar.modalities.automatic import Request

    monkeypatch.setattr(Request, "has_package", lambda *_: False)
