from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.sdk import Client, Conflict, NotFound, Unreachable
from toban.v1 import dead_letter_pb2, run_pb2


async def test_a_part_of_a_workflow_is_asked_for(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    async with Client(daemon.address) as client:
        await client.start_run("nightly", scope="quick", only=["a", "b"], from_steps=("c",), from_run="r1")
    request = daemon.seen[-1]
    assert isinstance(request, run_pb2.StartRunRequest)
    assert (request.scope, request.from_run) == ("quick", "r1")
    assert (list(request.only), list(request.from_steps)) == (["a", "b"], ["c"])


async def test_a_plan_is_asked_for_as_a_run_is(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.plan.steps.add(id="a", command="echo monday")
    async with Client(daemon.address) as client:
        plan = await client.plan_run(
            "nightly", {"day": "monday"}, scope="quick", only=["a"], from_steps=["b"], from_run="r1"
        )
        with pytest.raises(NotFound):
            await client.plan_run("none")
    assert [step.command for step in plan.steps] == ["echo monday"]
    request = daemon.seen[0]
    assert isinstance(request, run_pb2.PlanRunRequest)
    assert request.params["day"] == "monday"
    assert (request.scope, request.from_run) == ("quick", "r1")
    assert (list(request.only), list(request.from_steps)) == (["a"], ["b"])
    assert daemon.runs == {}


async def test_a_retry_is_another_run_and_only_one(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["a", "b"])
    async with Client(daemon.address) as client:
        with pytest.raises(Conflict) as caught:
            await client.retry_run(record.run.id)
        assert caught.value.reason == "RUN_NOT_TERMINAL"
        daemon.finish(record, run_pb2.RUN_STATE_FAILED)
        daemon.lose["RetryRun"] = 1
        again = await client.retry_run(record.run.id, from_steps=["b"], newest_version=True)
    assert list(daemon.runs) == [record.run.id, again.id]
    assert (again.retry_of, again.triggered_by) == (record.run.id, run_pb2.TRIGGER_RETRY)
    request = daemon.seen[-1]
    assert isinstance(request, run_pb2.RetryRunRequest)
    assert (list(request.from_steps), request.newest_version) == (["b"], True)
    assert not request.everything


async def test_pause_and_resume(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    async with Client(daemon.address) as client:
        assert (await client.pause_run(record.run.id)).HasField("paused_at")
        assert not (await client.resume_run(record.run.id)).HasField("paused_at")
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        with pytest.raises(Conflict) as caught:
            await client.pause_run(record.run.id)
    assert caught.value.reason == "RUN_ALREADY_TERMINAL"


@pytest.mark.parametrize(
    ("approved", "state"),
    [(True, run_pb2.STEP_STATE_SUCCEEDED), (False, run_pb2.STEP_STATE_FAILED)],
)
async def test_a_step_is_decided(daemon: FakeDaemon, approved: bool, state: run_pb2.StepState.ValueType) -> None:
    record = daemon.add_run("x", steps=["gate"])
    record.run.steps[0].waiting_for = run_pb2.WAITING_FOR_APPROVAL
    async with Client(daemon.address) as client:
        run = await client.decide_approval(record.run.id, "gate", approved=approved, note="why")
        assert run.steps[0].state == state
        with pytest.raises(Conflict) as caught:
            await client.decide_approval(record.run.id, "gate", approved=approved)
    assert caught.value.reason == "STEP_NOT_WAITING"
    request = daemon.seen[0]
    assert isinstance(request, run_pb2.DecideApprovalRequest)
    sent = run_pb2.APPROVAL_DECISION_APPROVED if approved else run_pb2.APPROVAL_DECISION_REJECTED
    assert (request.decision, request.note) == (sent, "why")


async def test_a_run_is_deleted_once_it_has_ended(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    async with Client(daemon.address) as client:
        with pytest.raises(Conflict):
            await client.delete_run(record.run.id)
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        daemon.lose["DeleteRun"] = 1
        await client.delete_run(record.run.id)
        assert daemon.runs == {}
        with pytest.raises(NotFound):
            await client.delete_run(record.run.id)


async def test_artifacts_are_listed_over_all_pages(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["build", "build[0]", "test"])
    record.run.steps[1].parent = "build"
    for step in record.run.steps:
        for name in ("log", "report"):
            step.artifacts.add(name=name, path=f"{step.id}/{name}", files=1, bytes=3)
    async with Client(daemon.address) as client:
        found = [(each.step, each.artifact.name) async for each in client.list_artifacts(record.run.id, page_size=4)]
        of_build = [each.step async for each in client.list_artifacts(record.run.id, step="build")]
    assert found[2:5] == [("build[0]", "log"), ("build[0]", "report"), ("test", "log")]
    assert len(found) == 6
    assert of_build == ["build", "build", "build[0]", "build[0]"]


async def test_a_download_is_a_header_and_then_the_data(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    header = run_pb2.ArtifactHeader(file_name="r.html", bytes=6)
    record.contents["one", "report", ""] = (header, b"abc", b"def")
    async with Client(daemon.address) as client:
        messages = [message async for message in client.download_artifact(record.run.id, "one", "report")]
        with pytest.raises(NotFound) as caught:
            async for _ in client.download_artifact(record.run.id, "one", "report", path="x"):
                pass
    assert messages[0].header == header
    assert b"".join(message.data for message in messages[1:]) == b"abcdef"
    assert caught.value.reason == "ARTIFACT_NOT_FOUND"


async def test_a_download_that_breaks_off_is_an_error_and_never_goes_on_twice(
    daemon: FakeDaemon,
) -> None:
    record = daemon.add_run("x")
    record.contents["one", "report", ""] = (run_pb2.ArtifactHeader(bytes=6), b"abc", None)
    async with Client(daemon.address) as client:
        messages = client.download_artifact(record.run.id, "one", "report")
        assert (await anext(messages)).HasField("header")
        assert (await anext(messages)).data == b"abc"
        with pytest.raises(Unreachable):
            await anext(messages)
    assert daemon.calls["DownloadArtifact"] == 1


async def test_dead_letters(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["a"], state=run_pb2.RUN_STATE_FAILED)
    first, second, third = (daemon.add_letter(record, "a", f"e{number}") for number in range(3))
    opened = [dead_letter_pb2.DEAD_LETTER_STATE_OPEN]
    async with Client(daemon.address) as client:
        found = [letter.id async for letter in client.list_dead_letters(page_size=2)]
        assert found == [third.id, second.id, first.id]
        assert [letter async for letter in client.list_dead_letters(workflow="y")] == []
        assert (await client.get_dead_letter(first.id)).error_message == "e0"

        daemon.lose["RequeueDeadLetter"] = 1
        run = await client.requeue_dead_letter(first.id)
        assert run.retry_of == record.run.id
        assert len(daemon.runs) == 2
        discarded = await client.discard_dead_letter(second.id)
        assert discarded.state == dead_letter_pb2.DEAD_LETTER_STATE_DISCARDED
        await client.discard_dead_letter(second.id)
        with pytest.raises(Conflict) as caught:
            await client.discard_dead_letter(first.id)
        assert caught.value.reason == "DEAD_LETTER_CLOSED"
        left = [letter.id async for letter in client.list_dead_letters(states=opened)]
        assert left == [third.id]
        with pytest.raises(NotFound):
            await client.get_dead_letter("none")
