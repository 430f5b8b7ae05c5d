from __future__ import annotations

from datetime import UTC, datetime

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.sdk import Client, InvalidArgument, NotFound, SyncClient
from toban.v1 import workflow_pb2

AT = datetime(2026, 2, 1, 3, 0, tzinfo=UTC)


async def test_when_it_is_due_and_why_it_ran(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.due_times += [workflow_pb2.DueTime(schedule_index=index) for index in range(5)]
    daemon.explanation.sentences.append("It was skipped.")
    async with Client(daemon.address) as client:
        found = await client.preview_schedule("nightly", count=2, start=AT)
        assert [each.schedule_index for each in found] == [0, 1]
        assert (await client.explain_schedule("nightly", at=AT)).sentences == ["It was skipped."]
        await client.preview_schedule("nightly")
        await client.explain_schedule("nightly")
        with pytest.raises(NotFound):
            await client.preview_schedule("absent")
        with pytest.raises(NotFound):
            await client.explain_schedule("absent")
        with pytest.raises(InvalidArgument):
            await client.explain_schedule("nightly", at=AT.replace(tzinfo=None))
    preview, explain, later, lately = daemon.seen[:4]
    assert isinstance(preview, workflow_pb2.PreviewScheduleRequest)
    assert isinstance(explain, workflow_pb2.ExplainScheduleRequest)
    assert isinstance(later, workflow_pb2.PreviewScheduleRequest)
    assert isinstance(lately, workflow_pb2.ExplainScheduleRequest)
    assert preview.from_time.ToDatetime(tzinfo=UTC) == explain.at.ToDatetime(tzinfo=UTC) == AT
    assert (later.count, later.HasField("from_time"), lately.HasField("at")) == (10, False, False)


async def test_the_ledger_pages_by_itself(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    daemon.fires += [workflow_pb2.Fire(workflow="nightly", run_id=f"r{number}") for number in range(5)]
    async with Client(daemon.address) as client:
        found = [fire.run_id async for fire in client.list_fires(workflow="nightly", page_size=2)]
    assert found == [f"r{number}" for number in range(5)]
    assert daemon.calls["ListFires"] == 3


def test_draining_is_repeated_without_harm(daemon: FakeDaemon) -> None:
    with SyncClient(daemon.address) as client:
        assert [client.drain(), client.drain()] == [True, False]
        assert client.get_info().draining
        assert [client.resume(), client.resume()] == [True, False]
        assert not client.get_info().draining
