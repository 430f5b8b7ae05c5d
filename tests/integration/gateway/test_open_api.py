"""Generated requests to every operation of the document, for every role: no answer is a fault, and each is described.

`TOBAN_TEST_HTTP_EXAMPLES` is how many of each kind an operation gets; `scripts/fuzz --http` is the long form.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from helpers.daemon import Daemon
from helpers.gateway import Gateway
from toban.gateway.further_paths import FURTHER
from toban.gateway.open_api import document
from toban.gateway.operations.operation_table import OPERATIONS

from .conftest import ROLES

EXAMPLES = int(os.environ.get("TOBAN_TEST_HTTP_EXAMPLES", "1"))
SEED = int(os.environ.get("TOBAN_TEST_HTTP_SEED", "1"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
DOCUMENT = document(OPERATIONS, FURTHER)
# They last until the client ends them.
ENDLESS = {"streamChanges"}
# A daemon that drains, or with other settings, would no longer do what the other operations ask for.
LEFT_OUT = {"runDoctor", "verifyAudit", "drainSystem"}


def operations() -> Iterator[APIOperation[Any, Any, Any, Any]]:
    for result in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.definition.raw["operationId"] not in ENDLESS | LEFT_OUT:
            yield operation


OPERATIONS_OF_TEST = list(operations())


@pytest.fixture(scope="module")
def begun(daemon: Daemon) -> None:
    """Something that operations may find."""
    daemon.apply("name: a\ndescription: x\nsteps: [{id: only, run: 'echo 1'}]\n")
    daemon.run("a")


KINDS = [
    *(pytest.param(role, GenerationMode.POSITIVE, id=role) for role in (*ROLES, "limited", "nobody")),
    *(pytest.param(role, GenerationMode.NEGATIVE, id=f"{role}, invalid") for role in ("viewer", "admin")),
]


@pytest.mark.parametrize(("role", "mode"), KINDS)
def test_every_answer_is_described(
    begun: None, gateway: Gateway, tokens: Mapping[str, str], role: str, mode: GenerationMode
) -> None:
    headers = {"Authorization": f"Bearer {tokens[role]}"} if role in tokens else {}
    found = 0
    for operation in OPERATIONS_OF_TEST:
        found += ask(operation, mode, gateway.url, headers, len(role))
    assert found >= len(OPERATIONS_OF_TEST) / 2


def ask(
    operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, url: str, headers: dict[str, str], variant: int
) -> int:
    """Sends generated requests; how many."""
    asked = 0

    @seed(SEED + variant)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def once(case: schemathesis.Case[Any]) -> None:
        nonlocal asked
        asked += 1
        response = case.call(base_url=url, headers={**headers, "Toban-Request": "1"}, timeout=60)
        case.validate_response(response, checks=CHECKS)

    try:
        once()
    except Unsatisfiable:
        # An operation without input has no wrong one.
        assert mode is GenerationMode.NEGATIVE
    return asked
