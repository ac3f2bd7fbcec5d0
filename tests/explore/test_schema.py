"""The OpenAPI document against the application: whatever a request is, the answer is one that was promised."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from nearfar.explore.app import make_app
from tests.explore.place import colors

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: make setup")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("explore")
    app = make_app([colors(folder, count=3)])
    return schemathesis.openapi.from_asgi("/api/openapi.json", app).exclude(path="/api/live")


FEW = settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_answers_are_as_promised(document: Any) -> None:
    checked = set()
    for found in document.get_all_operations():
        operation = found.ok()

        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @FEW
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                answer = case.call()
                while answer.status_code == 503 and "retry-after" in {name.lower() for name in answer.headers}:
                    time.sleep(0.05)  # another search for duplicates is at work: it is told to come again, and does
                    answer = case.call()
                case.validate_response(answer, checks=CHECKS)

            if mode.is_positive or operation.path != "/api/runs":  # which takes nothing that could be wrong
                check()
        checked.add(operation.path)
    assert {"/api/search", "/api/embed", "/api/neighbours", "/api/runs"} < checked
