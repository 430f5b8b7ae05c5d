"""What a step sends: values of its secrets are masked in every text, and what is sent on purpose stays."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from toban.v1 import event_pb2, run_pb2, secret_pb2, workflow_pb2
from toband.api.step_requests import mask_request
from toband.engine.caller import CallOrigin
from toband.masker import Masker
from toband.ports import SecretUnavailableError

VALUE = 's3cret "quoted" value'
NUMBER = "7250419"
ORIGIN = CallOrigin(run_id="r", token="t")


class Maskers:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def of_call(self, origin: CallOrigin) -> Masker | None:
        assert origin is ORIGIN
        if self.error is not None:
            raise self.error
        return Masker([VALUE, NUMBER])


async def masked(request: Message, method: str = "/toban.v1.EventService/EmitEvent") -> Any:
    await mask_request(cast(Any, Maskers()), method, ORIGIN, request)
    return request


@pytest.mark.parametrize("size", [1, 100_000], ids=["in the loop", "in a thread"])
async def test_a_payload_stays_json(size: int) -> None:
    payload = {"a": [VALUE, {VALUE: 1}], "number": int(NUMBER), "text": "x" * size}
    found = await masked(
        event_pb2.EmitEventRequest(type="T", payload_json=json.dumps(payload), dedupe_key=f"k {VALUE}")
    )
    assert json.loads(found.payload_json) == {"a": ["***", {"***": 1}], "number": "***", "text": "x" * size}
    assert (found.type, found.dedupe_key) == ("T", "k ***")
    broken = await masked(event_pb2.EmitEventRequest(payload_json=f"{{{VALUE}"))
    assert broken.payload_json == "{***"


async def test_all_texts_are_masked_but_parameters_of_a_run() -> None:
    run = run_pb2.StartRunRequest(workflow=VALUE, labels={"of": VALUE, VALUE: "x"}, only=[VALUE, "a"])
    run.params.update({"password": VALUE, "inner": [VALUE]})
    found = await masked(run, "/toban.v1.RunService/StartRun")
    assert (found.workflow, dict(found.labels), list(found.only)) == ("***", {"of": "***", "***": "x"}, ["***", "a"])
    assert found.params["password"] == VALUE, "the run knows which of them are secret"
    backfill = workflow_pb2.BackfillScheduleRequest(workflow="w", limit=int(NUMBER))
    backfill.params.update({"note": VALUE, VALUE: [{"x": VALUE}, 1.5]})
    found = await masked(backfill, "/toban.v1.WorkflowService/BackfillSchedule")
    assert dict(found.params)["note"] == "***"
    assert found.params["***"][0]["x"] == "***"
    assert (found.params["***"][1], found.limit) == (1.5, int(NUMBER))


async def test_a_secret_that_a_step_sets_is_not_changed() -> None:
    request = secret_pb2.SetSecretRequest(name="db", value=VALUE)
    assert (await masked(request, "/toban.v1.SecretService/SetSecret")).value == VALUE


async def test_a_call_is_refused_without_the_values() -> None:
    error = SecretUnavailableError("db", "the vault is closed")
    with pytest.raises(SecretUnavailableError):
        await mask_request(cast(Any, Maskers(error)), "/x/y", ORIGIN, event_pb2.EmitEventRequest())
