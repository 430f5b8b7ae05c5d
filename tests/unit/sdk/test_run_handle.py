"""Runs as objects, of both clients."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest

from doubles.daemon.fake_daemon import FakeDaemon, RunRecord
from toban import sdk
from toban.sdk import (
    Artifact,
    Client,
    Conflict,
    LogLevel,
    LogStream,
    NotFound,
    Progress,
    RunFailed,
    RunState,
    SkipReason,
    StepState,
    SyncClient,
    SyncRun,
    Trigger,
    WaitingFor,
    states,
)
from toban.sdk.log_line import LogLines
from toban.sdk.run_facts import RunFacts
from toban.sdk.run_handle import Run
from toban.v1 import run_pb2

KINDS = [kind for kind in vars(states).values() if inspect.isclass(kind) and issubclass(kind, StrEnum)]
OUT, ERR = run_pb2.LOG_STREAM_STDOUT, run_pb2.LOG_STREAM_STDERR


class Facts(RunFacts):
    def __init__(self, run: run_pb2.Run) -> None:
        self._run = run

    @property
    def message(self) -> run_pb2.Run:
        return self._run


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not StrEnum])
def test_an_enum_has_every_value_of_its_message(kind: type[StrEnum]) -> None:
    numbers: Any = getattr(run_pb2, kind.__name__)
    known = [number for number in numbers.values() if number]
    members = [states.from_number(kind, number) for number in known]
    assert members == [member for member in kind if member != "unknown"]
    assert [states.to_number(member) for member in members] == known
    assert states.from_number(kind, 999) == "unknown"
    assert states.maybe_from_number(kind, 0) is None
    assert states.to_number(kind("unknown")) == 0


def test_terminal_states() -> None:
    assert {states.to_number(state) for state in RunState if state.terminal} == sdk.TERMINAL
    assert not StepState.CHECKING.terminal
    assert StepState.SKIPPED.terminal


def test_facts_are_python_values() -> None:
    run = run_pb2.Run(
        workflow="nightly", number=12, state=run_pb2.RUN_STATE_RUNNING, triggered_by=run_pb2.TRIGGER_EVENT
    )
    run.waiting_for = run_pb2.WAITING_FOR_LOCK
    run.params.update({"rows": 5, "share": 0.5, "tags": ["a", 1], "by": {"n": None}})
    began = datetime(2026, 3, 5, 3, 0, tzinfo=UTC)
    run.started_at.FromDatetime(began)
    run.steps.add(id="a", state=run_pb2.STEP_STATE_SUCCEEDED, result_json='{"n": 1}', outputs={"k": "v"})
    run.steps.add(id="b", state=run_pb2.STEP_STATE_FAILED, reason="exit code 3", exit_code=3)
    run.steps.add(id="c", skip_reason=run_pb2.SKIP_REASON_WHEN, state=run_pb2.STEP_STATE_SKIPPED, progress_current=2)
    facts = Facts(run)
    assert (facts.name, facts.title, facts.state, facts.trigger) == ("nightly#12", "nightly", "running", Trigger.EVENT)
    assert facts.waiting_for is WaitingFor.LOCK
    assert facts.params == {"rows": 5, "share": 0.5, "tags": ["a", 1], "by": {"n": None}}
    assert type(facts.params["rows"]) is int
    assert (facts.started_at, facts.finished_at, facts.duration) == (began, None, None)
    run.finished_at.FromDatetime(began + timedelta(seconds=90))
    assert facts.duration == timedelta(seconds=90)
    assert list(facts.steps) == ["a", "b", "c"]
    assert facts.steps["a"].result == {"n": 1}
    assert facts.steps["a"].outputs == {"k": "v"}
    assert facts.steps["a"].exit_code is None
    assert {name: (step.error, step.exit_code) for name, step in facts.failed_steps.items()} == {
        "b": ("exit code 3", 3)
    }
    assert facts.steps["c"].skip_reason is SkipReason.WHEN
    assert facts.steps["c"].progress == Progress(current=2, total=0, message="")
    assert facts.progress is None
    assert repr(facts.steps["c"]) == "<Step c: skipped>"


def chunk(step: str, *pieces: bytes, stream: run_pb2.LogStream.ValueType = OUT) -> run_pb2.LogChunk:
    made = run_pb2.LogChunk(step=step, attempt=1, process_execution_id=step)
    for number, piece in enumerate(pieces):
        record = made.records.add(stream=stream, data=piece)
        record.at.FromSeconds(number)
    return made


def test_lines_are_put_together() -> None:
    lines = LogLines()
    found = list(lines.feed(chunk("a", b"one\ntw", b"o\n\nth", b"\xe3\x81")))
    found += lines.feed(chunk("b", b"other\n", stream=ERR))
    found += lines.feed(chunk("a", b"\x82ree"))
    assert [(line.step, str(line)) for line in found] == [("a", "one"), ("a", "two"), ("a", ""), ("b", "other")]
    assert [line.at.second for line in found] == [0, 0, 1, 0]
    assert found[-1].stream is LogStream.STDERR
    assert [line.text for line in lines.finish()] == ["thあree"]
    assert list(lines.finish()) == []
    assert [len(line.text) for line in lines.feed(chunk("a", b"x" * 2_000_000))] == [2_000_000]
    marked = run_pb2.LogChunk(step="a", attempt=1)
    marked.records.add(stream=OUT, level=run_pb2.LOG_LEVEL_WARNING, message="full", data=b"full\n")
    assert [(line.text, line.level) for line in lines.feed(marked)] == [("full", LogLevel.WARNING)]


def end(daemon: FakeDaemon, record: RunRecord, *, error: str = "") -> None:
    state = run_pb2.RUN_STATE_FAILED if error else run_pb2.RUN_STATE_SUCCEEDED
    daemon.step(record, "one", run_pb2.STEP_STATE_FAILED if error else run_pb2.STEP_STATE_SUCCEEDED)
    daemon.finish(record, state, error)


async def test_a_run_is_started_followed_and_waited_for(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    async with Client(daemon.address) as toban:
        run = await toban.run("nightly", {"rows": 5}, labels={"by": "test"})
        assert run.labels == {"by": "test"}
        record = daemon.runs[run.id]
        assert (run.name, run.state, run.params, run.ended) == ("nightly#1", RunState.PENDING, {"rows": 5}, False)
        daemon.write(record, "one", b"hello\nwor", b"ld\n")
        logs = run.logs()
        assert [(await anext(logs)).text, (await anext(logs)).text] == ["hello", "world"]
        end(daemon, record)
        assert [line async for line in logs] == []
        assert await run.wait(check=True) is run
        assert run.succeeded
        assert run.steps["one"].state is StepState.SUCCEEDED
        assert [line.text async for line in run.logs(follow=False, streams=[LogStream.STDERR])] == []
        again = await toban.find_run(run.id)
        assert again.steps.keys() == {"one"}
        assert (await toban.find_run("nightly#1")).steps.keys() == {"one"}
        for missing in ("nightly#2", "nightly", "none#1"):
            with pytest.raises(NotFound):
                await toban.find_run(missing)
        found = [each.name async for each in toban.find_runs(workflow="nightly", states=[RunState.SUCCEEDED])]
        assert found == ["nightly#1"]
        with pytest.raises(NotFound):
            await toban.run("none")


async def test_a_watched_run_is_kept_up_to_date(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["one", "two"])
    record.run.params.update({"day": "monday"})
    async with Client(daemon.address) as toban:
        run = await toban.find_run(record.run.id)
        seen = []
        async for now in run.watch():
            assert now is run
            seen.append(([str(step.state) for step in run.steps.values()], str(run.state)))
            if len(seen) == 1:
                record.run.ClearField("params")
                record.run.params_bytes = 5000
                daemon.step(record, "two", run_pb2.STEP_STATE_RUNNING)
            elif len(seen) == 2:
                daemon.stop()
                daemon.start()
                end(daemon, record)
        assert seen[0] == (["pending", "pending"], "running")
        assert seen[1] == (["pending", "running"], "running")
        assert seen[-1] == (["succeeded", "running"], "succeeded")
        assert run.params == {"day": "monday"}


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (run_pb2.RUN_STATE_FAILED, "step one: exit code 3", "run x#1 failed: step one: exit code 3"),
        (run_pb2.RUN_STATE_TIMED_OUT, "", "run x#1 timed out"),
        (run_pb2.RUN_STATE_CANCELLED, "", "run x#1 was cancelled"),
    ],
)
async def test_a_checked_wait_raises(
    daemon: FakeDaemon, state: run_pb2.RunState.ValueType, error: str, text: str
) -> None:
    record = daemon.add_run("x")
    daemon.finish(record, state, error)
    async with Client(daemon.address) as toban:
        run = await toban.find_run(record.run.id)
        assert not (await run.wait()).succeeded
        with pytest.raises(RunFailed) as caught:
            await run.wait(check=True)
    assert str(caught.value) == text
    assert caught.value.run is run


async def test_a_wait_has_a_limit(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x")
    async with Client(daemon.address) as toban:
        run = await toban.find_run(record.run.id)
        with pytest.raises(TimeoutError):
            await run.wait(timeout=0.05)


async def test_a_run_is_controlled(daemon: FakeDaemon) -> None:
    record = daemon.add_run("x", steps=["one", "gate", "door"])
    for step in record.run.steps[1:]:
        step.waiting_for = run_pb2.WAITING_FOR_APPROVAL
    async with Client(daemon.address) as toban:
        run = await toban.find_run(record.run.id)
        await run.pause()
        assert run.message.HasField("paused_at")
        assert not (await run.resume()).message.HasField("paused_at")
        assert (await run.approve("gate")).steps["gate"].state is StepState.SUCCEEDED
        assert (await run.reject("door")).steps["door"].state is StepState.FAILED
        assert (await run.pin(note="why")).message.HasField("pin")
        assert not (await run.unpin()).message.HasField("pin")
        await run.cancel(reason="enough")
        daemon.finish(record, run_pb2.RUN_STATE_CANCELLED)
        with pytest.raises(Conflict):
            await run.cancel()
        repeated = await run.retry(everything=True)
        assert repeated.message.retry_of == run.id
        await run.delete()
        with pytest.raises(NotFound):
            await run.refresh()


def test_the_blocking_form_does_the_same(daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    methods = {name for name, member in inspect.getmembers(Run) if not name.startswith("_")}
    assert methods <= set(dir(SyncRun))
    assert inspect.signature(SyncRun.wait).parameters == inspect.signature(Run.wait).parameters
    with SyncClient(daemon.address) as toban:
        run = toban.run("nightly")
        record = daemon.runs[run.id]
        daemon.write(record, "one", b"hello\nworld")
        artifact = record.run.steps[0].artifacts.add(name="pages", files=1, bytes=3)
        artifact.state = run_pb2.PROCESS_STATE_COMPLETED
        record.contents["one", "pages", ""] = (run_pb2.ArtifactHeader(file_name="a"), b"ab", b"c")
        changes = run.watch()
        assert next(changes) is run
        end(daemon, record)
        assert [str(each.state) for each in changes][-1] == "succeeded"
        assert run.wait(check=True) is run
        assert [str(line) for line in run.logs()] == ["hello", "world"]
        (left,) = run.artifacts()
        assert isinstance(left, Artifact)
        assert (left.step, left.name, left.state, left.bytes) == ("one", "pages", "completed", 3)
        assert b"".join(run.artifact_data("one", "pages")) == b"abc"
        repeated = run.retry(everything=True)
        assert isinstance(repeated, SyncRun)
        assert repeated.name == "nightly#2"
        assert [each.name for each in toban.find_runs(workflow="nightly")] == ["nightly#2", "nightly#1"]
        assert toban.find_run(run.id).refresh().succeeded


def test_the_command_line_does_not_load_them() -> None:
    code = (
        "import sys, toban.sdk; late = ('run_handle', 'sync_run', 'run_facts', 'log_line', 'states');"
        "print([name for name in late if f'toban.sdk.{name}' in sys.modules]);"
        "from toban.sdk import *; print(RunState.FAILED)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "failed"]
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sdk.Nothing  # type: ignore[attr-defined]
