"""docs/scaling.md: the method that it shows passes the certificate."""

from pathlib import Path

import pytest

from nearfar.distributed.certificate import check_method
from nearfar.methods.check import subject_from


def test_the_method_of_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    code = next(block for block in page.split("```python\n")[1:] if "class MyMethod" in block).partition("```")[0]
    (tmp_path / "the_page.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    subject = subject_from("the_page:MyMethod")
    assert all(row.passed for row in check_method(subject.method, subject.batches, processes=1))
    assert "calls `MyMethod(encoder, features=16, samples=64)`" in page
