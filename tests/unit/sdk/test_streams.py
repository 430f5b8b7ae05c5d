"""Streams go on over a real stop and start of the server, with nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

import grpc
import pytest

from doubles.daemon.fake_daemon import DEADLINE, FakeDaemon
from doubles.daemon.fake_errors import info
from toban.sdk import Client, NotFound, Unreachable
from toban.v1 import run_pb2

_Item = TypeVar("_Item")


async def rest(stream: AsyncGenerator[_Item, None]) -> list[_Item]:
    async with asyncio.timeout(DEADLINE):
        return [item async for item in stream]


def text(messages: list[run_pb2.StreamLogsResponse]) -> bytes:
    return b"".join(record.data for message in messages for record in message.chunk.records)


async def test_watching_begins_with_the_whole_run_and_ends_with_it(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["a", "b"])
    async with Client(daemon.address) as client:
        changes = client.watch_run(record.run.id)
        first = await anext(changes)
        assert [step.id for step in first.run.steps] == ["a", "b"]
        daemon.step(record, "a", run_pb2.STEP_STATE_RUNNING)
        daemon.step(record, "a", run_pb2.STEP_STATE_SUCCEEDED)
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        later = await rest(changes)
    assert [change.sequence for change in later] == [2, 3, 4]
    assert [step.id for step in later[0].run.steps] == ["a"]
    assert later[-1].run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_picture_in_pages_arrives_as_one(daemon: FakeDaemon) -> None:
    daemon.steps_per_page = 3
    names = [f"s{number}" for number in range(8)]
    record = daemon.add_run("x", steps=names, state=run_pb2.RUN_STATE_SUCCEEDED)
    async with Client(daemon.address) as client:
        (picture,) = await rest(client.watch_run(record.run.id))
    assert [step.id for step in picture.run.steps] == names
    assert not picture.partial


async def test_a_change_of_many_steps_arrives_as_one(daemon: FakeDaemon) -> None:
    daemon.steps_per_page = 2
    names = [f"s{number}" for number in range(5)]
    record = daemon.add_run("x", steps=names)
    skipped = [run_pb2.Step(id=name, state=run_pb2.STEP_STATE_SKIPPED) for name in names]
    async with Client(daemon.address) as client:
        changes = client.watch_run(record.run.id)
        await anext(changes)
        daemon.hold_after = 5
        daemon.change(record, run_pb2.RUN_CHANGE_KIND_CANCEL_REQUESTED, *skipped)
        # It breaks off in the middle of the change, which comes again whole.
        await asyncio.to_thread(daemon.wait_for, "hold")
        daemon.stop()
        daemon.hold_after = None
        daemon.start()
        change = await anext(changes)
        await changes.aclose()
    assert [step.id for step in change.run.steps] == names
    assert (change.change, change.sequence, change.partial) == (run_pb2.RUN_CHANGE_KIND_CANCEL_REQUESTED, 2, False)


async def test_watching_goes_on_after_a_restart(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["a", "b"])
    async with Client(daemon.address) as client:
        changes = client.watch_run(record.run.id)
        assert (await anext(changes)).sequence == 1
        daemon.step(record, "a", run_pb2.STEP_STATE_RUNNING)
        assert (await anext(changes)).sequence == 2
        daemon.stop()
        # Things happen while nobody is connected.
        daemon.step(record, "a", run_pb2.STEP_STATE_SUCCEEDED)
        daemon.step(record, "b", run_pb2.STEP_STATE_RUNNING)
        daemon.start()
        assert (await anext(changes)).sequence == 3
        daemon.stop()
        daemon.start()
        daemon.step(record, "b", run_pb2.STEP_STATE_SUCCEEDED)
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        later = await rest(changes)
    assert [change.sequence for change in later] == [4, 5, 6]
    assert daemon.calls["WatchRun"] >= 3


async def test_watching_all_runs_goes_on_after_a_restart(daemon: FakeDaemon) -> None:
    daemon.change_of_run("a", 0)
    async with Client(daemon.address) as client:
        changes = client.watch_runs(workflow="x")
        seen = [await anext(changes)]
        for number in range(3):
            daemon.stop()
            daemon.change_of_run("a", 2 * number + 1)
            daemon.change_of_run("a", 2 * number + 2)
            daemon.start()
            seen += [await anext(changes), await anext(changes)]
        await changes.aclose()
        again = client.watch_runs(position=seen[4].position)
        assert [(await anext(again)).sequence for _ in range(2)] == [5, 6]
        await again.aclose()
    assert [message.sequence for message in seen] == list(range(7))


async def test_half_a_picture_is_asked_for_again(daemon: FakeDaemon) -> None:
    daemon.steps_per_page = 2
    daemon.hold_after = 1
    record = daemon.add_run("x", steps=["a", "b", "c"], state=run_pb2.RUN_STATE_FAILED)
    async with Client(daemon.address) as client:
        watching = asyncio.create_task(rest(client.watch_run(record.run.id)))
        await asyncio.to_thread(daemon.wait_for, "hold")
        daemon.stop()
        daemon.hold_after = None
        daemon.start()
        (picture,) = await watching
    assert [step.id for step in picture.run.steps] == ["a", "b", "c"]


async def test_watching_from_a_number_gives_only_what_is_later(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["a"])
    daemon.step(record, "a", run_pb2.STEP_STATE_RUNNING)
    daemon.finish(record, run_pb2.RUN_STATE_FAILED)
    async with Client(daemon.address) as client:
        changes = await rest(client.watch_run(record.run.id, after_sequence=2))
    assert [change.sequence for change in changes] == [3]


async def test_a_daemon_that_stays_away_ends_the_stream(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    async with Client(daemon.address) as client:
        changes = client.watch_run(record.run.id, reconnect=0.3)
        await anext(changes)
        daemon.stop()
        with pytest.raises(Unreachable, match="no daemon answers"):
            await rest(changes)


async def test_an_unknown_run_is_not_waited_for(daemon: FakeDaemon) -> None:
    async with Client(daemon.address) as client:
        with pytest.raises(NotFound):
            await rest(client.watch_run("none"))
        with pytest.raises(NotFound):
            await rest(client.stream_logs("none", follow=True))
    assert daemon.calls["WatchRun"] == daemon.calls["StreamLogs"] == 1


async def test_waiting_gives_the_ended_run_with_all_steps(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["a", "b"])
    async with Client(daemon.address) as client:
        waiting = asyncio.create_task(client.wait_run(record.run.id))
        await asyncio.to_thread(daemon.wait_for, "WatchRun")
        daemon.finish(record, run_pb2.RUN_STATE_TIMED_OUT)
        run = await waiting
        with pytest.raises(TimeoutError):
            await client.wait_run(daemon.add_run("y").run.id, timeout=0.1)
    assert run.state == run_pb2.RUN_STATE_TIMED_OUT
    assert len(run.steps) == 2


async def test_a_late_reader_gets_everything_and_then_the_end(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", state=run_pb2.RUN_STATE_FAILED)
    daemon.write(record, "one", b"a\n", b"b")
    daemon.write(record, "one", b"c\n")
    async with Client(daemon.address) as client:
        messages = await rest(client.stream_logs(record.run.id, follow=True))
    assert text(messages) == b"a\nbc\n"
    assert messages[-1].end.run_state == run_pb2.RUN_STATE_FAILED


async def test_following_goes_on_after_a_restart(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    daemon.write(record, "one", b"0\n")
    async with Client(daemon.address) as client:
        logs = client.stream_logs(record.run.id, follow=True, tail=5)
        messages = [await anext(logs)]
        for round_number in range(1, 4):
            daemon.stop()
            daemon.write(record, "one", b"%d away\n" % round_number)
            daemon.start()
            daemon.write(record, "one", b"%d back\n" % round_number)
            messages += [await anext(logs), await anext(logs)]
        daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
        messages += await rest(logs)
    expected = b"".join(b"%d away\n%d back\n" % (number, number) for number in range(1, 4))
    assert text(messages) == b"0\n" + expected
    reopened = [one for one in daemon.seen if isinstance(one, run_pb2.StreamLogsRequest)]
    assert reopened[0].tail == 5
    # A position and a tail exclude each other.
    assert [(one.position != "", one.tail) for one in reopened[1:]] == [(True, 0)] * len(reopened[1:])


async def test_many_records_over_many_restarts(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    for number in range(300):
        daemon.runs[record.run.id].chunks.append(
            run_pb2.LogChunk(step="one", records=[run_pb2.LogRecord(data=b"%d\n" % number)])
        )
    daemon.finish(record, run_pb2.RUN_STATE_SUCCEEDED)
    async with Client(daemon.address) as client:
        logs = client.stream_logs(record.run.id, follow=True)
        messages = []
        daemon.hold_after = 60
        daemon_calls = 0
        async with asyncio.timeout(DEADLINE):
            async for message in logs:
                messages.append(message)
                if len(messages) % 60 == 0 and daemon.calls["StreamLogs"] > daemon_calls:
                    daemon_calls = daemon.calls["StreamLogs"]
                    daemon.stop()
                    daemon.start()
    assert text(messages) == b"".join(b"%d\n" % number for number in range(300))
    assert daemon.calls["StreamLogs"] > 3


async def test_a_log_read_once_over_goes_on_too(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", state=run_pb2.RUN_STATE_SUCCEEDED)
    for number in range(4):
        daemon.write(record, "one", b"%d" % number)
    daemon.hold_after = 2
    async with Client(daemon.address) as client:
        logs = client.stream_logs(record.run.id)
        messages = [await anext(logs), await anext(logs)]
        daemon.stop()
        daemon.hold_after = None
        daemon.start()
        messages += await rest(logs)
    assert text(messages) == b"0123"


async def test_a_position_can_be_kept_and_used_later(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    daemon.write(record, "one", b"a")
    daemon.write(record, "one", b"b")
    async with Client(daemon.address) as client:
        first = await anext(client.stream_logs(record.run.id))
    async with Client(daemon.address) as client:
        later = await rest(client.stream_logs(record.run.id, position=first.position))
    assert text(later) == b"b"


async def test_a_log_that_has_expired_is_not_found(daemon: FakeDaemon) -> None:
    daemon.fail["StreamLogs"] = (grpc.StatusCode.OUT_OF_RANGE, "expired", (info("LOG_EXPIRED"),))
    async with Client(daemon.address) as client:
        with pytest.raises(NotFound) as caught:
            await rest(client.stream_logs("x"))
    assert caught.value.reason == "LOG_EXPIRED"


async def test_a_reader_who_leaves_ends_the_call(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    daemon.write(record, "one", b"a")
    async with Client(daemon.address) as client:
        logs = client.stream_logs(record.run.id, follow=True)
        await anext(logs)
        await logs.aclose()
        reading = asyncio.create_task(rest(client.stream_logs(record.run.id, follow=True)))
        await asyncio.to_thread(daemon.wait_for, "StreamLogs", 2)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
