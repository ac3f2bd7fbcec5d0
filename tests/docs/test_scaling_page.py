"""docs/scaling.md: the method that it shows passes the certificate."""

from pathlib import Path

import pytest
from nearfar.methods.toy_methods import subject_named

from nearfar.distributed.certificate import check_method


def test_the_method_of_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    code = next(block for block in page.split("```python\n")[1:] if "class MyMethod" in block).partition("```")[0]
    (tmp_path / "the_page.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    subject = subject_named("the_page:MyMethod")
    assert all(row.passed for row in check_method(subject.method, subject.batches, processes=1))
    assert "calls it as `MyMethod(encoder, features=16, samples=64)`" in page
