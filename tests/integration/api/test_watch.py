"""WatchRun: the whole run first, then each change in order, from any sequence number on."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from google.protobuf.message import Message

from helpers.daemon import Daemon, cause_name, run_state, step_states
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2 as pb


def apply(daemon: Daemon, name: str, steps: object, **fields: object) -> None:
    definition = {"name": name, "description": "for a test", **fields, "steps": steps}
    daemon.apply(json.dumps(definition))


def watch(daemon: Daemon, run_id: str, after: int = 0) -> list[pb.WatchRunResponse]:
    request = pb.WatchRunRequest(id=run_id, after_sequence=after)
    return list(daemon.runs.WatchRun(request, timeout=60))


@pytest.fixture(scope="module")
def changes(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> list[pb.WatchRunResponse]:
    """All messages of a run that was watched from its start, over several branches."""
    gate = Gate(f"{tmp_path_factory.mktemp('g')}/gate")
    steps = {
        "first": {"run": f"read _ < {gate.path}"},
        "left": {"run": "echo left", "depends_on": ["first"]},
        "right": {"run": "exit 4", "depends_on": ["first"], "on_failure": "continue"},
        "last": {"run": "true", "depends_on": ["left", "right"]},
    }
    apply(daemon, "branches", steps)
    run_id = daemon.start_run("branches")
    daemon.wait_started(run_id, "first")
    stream = iter(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
    messages = [next(stream)]
    gate.release_now()
    return [*messages, *stream]


def test_the_first_message_is_the_whole_run(changes: list[pb.WatchRunResponse]) -> None:
    first = changes[0]
    assert (first.change, first.partial) == (pb.RUN_CHANGE_KIND_UNSPECIFIED, False)
    assert step_states(first.run) == {
        "first": "RUNNING",
        "left": "PENDING",
        "right": "PENDING",
        "last": "PENDING",
    }
    assert list(first.run.steps[3].depends_on) == ["left", "right"]
    assert (first.run.current_step, first.run.current_step_index) == ("first", 0)


def test_each_change_comes_once_in_order_and_the_last_one_is_the_end(
    changes: list[pb.WatchRunResponse],
) -> None:
    numbers = [message.sequence for message in changes]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert all(message.change for message in changes[1:])
    assert [run_state(message.run) for message in changes[:-1]] == ["RUNNING"] * (len(changes) - 1)
    assert run_state(changes[-1].run) == "SUCCEEDED"
    assert changes[-1].run.failed_steps == 1
    progress = [message.run.steps_ended for message in changes]
    assert progress == sorted(progress)
    assert (progress[0], progress[-1]) == (0, 4)


def test_every_change_counts_the_steps_by_state(changes: list[pb.WatchRunResponse]) -> None:
    assert all(sum(each.count for each in message.run.summary.counts) == 4 for message in changes)
    assert [step.id for step in changes[0].run.summary.steps] == ["first", "left", "right", "last"]
    assert not any(message.run.summary.steps for message in changes[1:])
    counts = {each.state: each.count for each in changes[-1].run.summary.counts}
    assert counts == {pb.STEP_STATE_SUCCEEDED: 3, pb.STEP_STATE_FAILED: 1}


def test_changes_put_together_are_the_run(daemon: Daemon, changes: list[pb.WatchRunResponse]) -> None:
    steps = {step.id: step for message in changes for step in message.run.steps}
    assert all(len(message.run.steps) < 4 for message in changes[1:]), "only what changed"
    whole = daemon.get_run(changes[0].run.id)
    assert [steps[step.id] for step in whole.steps] == list(whole.steps)
    last = pb.Run()
    last.CopyFrom(changes[-1].run)
    assert header(last) == header(whole)


def header(run: pb.Run) -> Message:
    made = pb.Run()
    made.CopyFrom(run)
    del made.steps[:]
    made.summary.ClearField("steps")
    return made


def test_every_sequence_number_gives_exactly_the_rest(daemon: Daemon, changes: list[pb.WatchRunResponse]) -> None:
    run_id = changes[0].run.id
    history = watch(daemon, run_id, 1)
    assert [message.sequence for message in history] == list(range(2, changes[-1].sequence + 1))
    for after in range(1, changes[-1].sequence + 1):
        assert watch(daemon, run_id, after) == [m for m in history if m.sequence > after]
    assert [m for m in history if m.sequence > changes[0].sequence] == changes[1:]


def test_a_late_watcher_gets_one_picture_of_the_end(daemon: Daemon, changes: list[pb.WatchRunResponse]) -> None:
    (only,) = watch(daemon, changes[0].run.id)
    assert only.sequence == changes[-1].sequence
    assert only.run == daemon.get_run(only.run.id)


def test_watchers_of_a_quick_run_lose_nothing(daemon: Daemon) -> None:
    """Many watchers, joined at any moment: each has every number from its first one on."""
    steps = [{"name": f"s{n}", "run": "true"} for n in range(30)]
    apply(daemon, "quick", steps)
    run_id = daemon.start_run("quick")
    found: list[list[pb.WatchRunResponse]] = []
    watchers = [threading.Thread(target=lambda: found.append(watch(daemon, run_id))) for _ in range(6)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join(60)
    assert len(found) == 6
    for messages in found:
        numbers = [message.sequence for message in messages]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert run_state(messages[-1].run) == "SUCCEEDED"
        states: dict[str, str] = {}
        for message in messages:
            states |= step_states(message.run)
        assert list(states.values()) == ["SUCCEEDED"] * 30


def test_a_cancelled_run_is_watched_to_its_end(daemon: Daemon, tmp_path: Path) -> None:
    apply(daemon, "ended", [{"name": "only", "run": "sleep 60"}])
    run_id = daemon.start_run("ended")
    # A process that was never begun has no end.
    daemon.wait_started(run_id, "only")
    stream = iter(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
    next(stream)
    daemon.cancel(run_id, "enough")
    messages = list(stream)
    kinds = [message.change for message in messages]
    asked = kinds.index(pb.RUN_CHANGE_KIND_CANCEL_REQUESTED)
    assert run_state(messages[asked].run) == "RUNNING"
    assert cause_name(messages[asked].run.ending) == "cancelled"
    assert messages[asked].run.waiting_for
    assert (kinds[-1], run_state(messages[-1].run)) == (pb.RUN_CHANGE_KIND_ATTEMPT_ENDED, "CANCELLED")
    assert messages[-1].run.error_message == "cancelled: enough"


def reported(run: pb.Run | pb.Step) -> tuple[float, float, str]:
    return run.progress_current, run.progress_total, run.progress_message


def test_the_last_reported_progress_is_shown_while_a_step_runs_and_kept_after_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    gate, end = Gate(str(tmp_path / "gate")), Gate(str(tmp_path / "end"))
    count = f"echo '::progress 1/4 rows'; read _ < {gate.path}; echo '::progress 4/4 rows'; echo done"
    steps = {"count": {"run": count}, "wait": {"run": f"read _ < {end.path}", "depends_on": ["count"]}}
    apply(daemon, "reporting", steps)
    run_id = daemon.start_run("reporting")
    stream = iter(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
    message = next(each for each in stream if each.change == pb.RUN_CHANGE_KIND_PROGRESS_REPORTED)
    assert (reported(message.run), run_state(message.run)) == ((1, 4, "rows"), "RUNNING")
    assert message.run.steps_total == 2
    assert [(step.id, reported(step)) for step in message.run.steps] == [("count", (1, 4, "rows"))]
    assert reported(daemon.get_run(run_id)) == (1, 4, "rows")
    assert [reported(step) for step in daemon.get_run(run_id).steps] == [(1, 4, "rows"), (0, 0, "")]
    listed = daemon.runs.ListRuns(pb.ListRunsRequest(workflow="reporting"), timeout=20).runs
    assert [reported(run) for run in listed] == [(1, 4, "rows")]

    gate.release_now()
    after = next(each for each in stream if each.change == pb.RUN_CHANGE_KIND_ATTEMPT_ENDED)
    assert (reported(after.run), after.run.steps_ended) == ((4, 4, "rows"), 1)
    daemon.wait_started(run_id, "wait")
    assert reported(daemon.get_run(run_id)) == (4, 4, "rows")
    end.release_now()
    last = list(stream)[-1]
    assert (reported(last.run), run_state(last.run)) == ((4, 4, "rows"), "SUCCEEDED")
    assert reported(daemon.get_run(run_id)) == (4, 4, "rows")
    assert [reported(step) for step in daemon.get_run(run_id).steps] == [(4, 4, "rows"), (0, 0, "")]


def test_each_instance_reports_its_own_progress_and_each_attempt_begins_anew(daemon: Daemon, tmp_path: Path) -> None:
    gates = [Gate(str(tmp_path / f"gate{n}")) for n in range(4)]
    script = (
        'n={{ item }}; if [ $TOBAN_ATTEMPT = 1 ]; then echo "::progress $n/10" >&2; '
        f"read _ < {tmp_path}/gate$n; exit 1; fi; read _ < {tmp_path}/gate$((n+2)); echo '::progress 10/10 done'"
    )
    each = {"run": script, "for_each": [0, 1], "max_retries": 1, "retry": {"delay": "10ms"}}
    apply(daemon, "reporting-each", {"each": each})
    run_id = daemon.start_run("reporting-each")
    stream = iter(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
    seen: dict[str, set[tuple[float, float, str]]] = {"each[0]": set(), "each[1]": set()}
    while (1.0, 10.0, "") not in seen["each[1]"] or (0.0, 10.0, "") not in seen["each[0]"]:
        for step in next(stream).run.steps:
            seen.setdefault(step.id, set()).add(reported(step))

    def now() -> list[tuple[float, float, str]]:
        return [reported(step) for step in daemon.get_run(run_id).steps]

    assert now() == [(0, 0, ""), (0, 10, ""), (1, 10, "")]
    gates[0].release_now()
    wait_until(lambda: now() == [(0, 0, ""), (0, 0, ""), (1, 10, "")], "the second attempt has reported nothing yet")
    gates[1].release_now()
    gates[2].release_now()
    gates[3].release_now()
    assert run_state(list(stream)[-1].run) == "SUCCEEDED"
    assert now() == [(0, 0, ""), (10, 10, "done"), (10, 10, "done")]


def test_a_flood_of_reports_is_watched_at_a_modest_rate(daemon: Daemon) -> None:
    script = 'i=0; while [ $i -lt 60000 ]; do echo "::progress $i/60000"; i=$((i+1)); done'
    apply(daemon, "flood", {"flood": {"run": script}})
    run_id = daemon.start_run("flood")
    began = time.monotonic()
    messages = list(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
    reports = [message for message in messages if message.change == pb.RUN_CHANGE_KIND_PROGRESS_REPORTED]
    assert len(reports) <= 2 * (time.monotonic() - began) + 2
    assert [reported(step) for step in messages[-1].run.steps] == [(59999, 60000, "")]
    assert daemon.log_of(run_id) == {}
