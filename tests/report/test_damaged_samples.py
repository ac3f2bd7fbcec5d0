"""Samples of a report that are whole by their shapes and wrong in their values cost their sections alone."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearfar.report.page import write_report
from nearfar.report.samples import SAMPLES
from tests.fuzz.targets import sampled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("names", np.arange(6)),
        ("names", np.array([b"\xff"] * 6)),
        ("nearest", np.full((6, 2), 0.5)),
        ("random", np.zeros((6, 2, 2), np.int64)),
        ("positive", np.zeros(3, np.float32)),
        ("counts", np.full(3, -1)),
        ("clusters", np.full(6, 10**12)),
        ("sheet", np.frombuffer(b"RIFF", np.uint8)),
        ("labels", np.zeros(6, np.complex64)),
        ("components", np.full((6, 2), "x")),
    ],
)
def test_a_damaged_array_does_not_stop_the_report(name: str, value: NDArray[Any], tmp_path: Path) -> None:
    content = dict(np.load(io.BytesIO(sampled())))
    (tmp_path / "report").mkdir()
    np.savez(tmp_path / SAMPLES, **{**content, name: value})
    assert "<html" in write_report(tmp_path).read_text(encoding="utf-8")
