"""RunService: starting, listing and reading runs."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from helpers.daemon import Daemon, run_state, step_states
from helpers.gate import Gate
from helpers.processes import look_inside
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import job_pb2, run_pb2_grpc, workflow_pb2
from toban.v1 import run_pb2 as pb


def apply(daemon: Daemon, name: str, run: str = "true", **fields: object) -> None:
    steps = fields.pop("steps", [{"name": "only", "run": run}])
    definition = {"name": name, "description": "for a test", **fields, "steps": steps}
    daemon.apply(json.dumps(definition))


def listed(daemon: Daemon, size: int = 0, **filters: Any) -> list[str]:
    """Every id, page by page."""
    found, token = [], ""
    while True:
        request = pb.ListRunsRequest(page_size=size, page_token=token, **filters)
        page = daemon.runs.ListRuns(request, timeout=20)
        assert len(page.runs) <= (size or 50)
        assert all(not run.steps for run in page.runs)
        found += [run.id for run in page.runs]
        token = page.next_page_token
        if not token:
            return found


def test_a_started_run_is_told_whole(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = {
        "first": {"run": "true"},
        "second": {"run": f"read _ < {gate.path}", "depends_on": ["first"]},
    }
    apply(daemon, "whole", steps=steps, params={"day": {"type": "string", "default": "friday"}})
    request = pb.StartRunRequest(workflow="whole", triggered_by=pb.TRIGGER_MANUAL)
    made = daemon.runs.StartRun(request, timeout=20).run
    assert uuid.UUID(made.id).version == 7
    assert (made.workflow, made.version, made.number, made.scope) == ("whole", 1, 1, "full")
    assert made.triggered_by == pb.TRIGGER_MANUAL
    assert made.caller
    assert dict(made.params) == {"day": "friday"}
    assert [(step.id, step.index) for step in made.steps] == [("first", 0), ("second", 1)]
    assert list(made.steps[1].depends_on) == ["first"]
    daemon.wait_started(made.id, "second")
    current = pb.GetCurrentRunRequest(workflow="whole")
    for run in (
        daemon.get_run(made.id),
        daemon.runs.GetCurrentRun(current, timeout=20).run,
        daemon.runs.ListRuns(pb.ListRunsRequest(workflow="whole"), timeout=20).runs[0],
    ):
        assert (run.id, run_state(run)) == (made.id, "RUNNING")
        assert (run.current_step, run.current_step_index) == ("second", 1)
        assert (run.steps_ended, run.steps_total) == (1, 2)
        assert run.HasField("started_at")
        assert not run.HasField("finished_at")
    gate.release_now()
    run = daemon.wait_run(made.id)
    assert (run_state(run), run.current_step, run.current_step_index) == ("SUCCEEDED", "", -1)
    assert (run.steps_ended, run.steps_total, run.failed_steps) == (2, 2, 0)
    (found,) = daemon.runs.ListRuns(pb.ListRunsRequest(workflow="whole"), timeout=20).runs
    assert [(each.state, each.count) for each in found.summary.counts] == [(pb.STEP_STATE_SUCCEEDED, 2)]
    assert run.summary.counts == found.summary.counts
    assert not found.summary.steps
    times = [run.created_at, run.started_at, run.steps[0].started_at, run.steps[0].finished_at]
    times += [run.steps[1].started_at, run.steps[1].finished_at, run.finished_at]
    moments = [time.ToMicroseconds() for time in times]
    assert moments == sorted(moments)


def test_the_summary_has_each_step_in_short(daemon: Daemon) -> None:
    steps = {
        "good": {"run": "true", "for_each": ["a", "b"]},
        "flaky": {"run": "exit 7", "max_retries": 1, "on_failure": "continue", "retry": {"delay": "10ms"}},
        "unwanted": {"run": "true", "when": "false"},
        "bad": {"run": "exit 3", "depends_on": ["good", "flaky"]},
        "after": {"run": "true", "depends_on": ["bad"]},
    }
    apply(daemon, "summed-up", steps=steps)
    run = daemon.run("summed-up")
    found = {step.id: step for step in run.summary.steps}
    assert list(found) == list(steps)
    assert (found["good"].instances, found["good"].instances_ended, found["good"].attempts) == (2, 2, 2)
    assert (found["flaky"].state, found["flaky"].attempts, found["flaky"].error) == (
        pb.STEP_STATE_FAILED,
        2,
        "exit code 7",
    )
    assert found["flaky"].duration.ToMicroseconds() > 0
    assert (found["bad"].error, found["bad"].attempts) == ("exit code 3", 1)
    assert (found["unwanted"].skip_reason, found["unwanted"].HasField("duration")) == (pb.SKIP_REASON_WHEN, False)
    assert found["after"].skip_reason
    assert {each.state: each.count for each in run.summary.counts} == {
        pb.STEP_STATE_SUCCEEDED: 1,
        pb.STEP_STATE_FAILED: 2,
        pb.STEP_STATE_SKIPPED: 2,
    }
    pages = [pb.GetRunRequest(id=run.id, step_page_size=1)]
    pages.append(pb.GetRunRequest(id=run.id, step_page_token=daemon.runs.GetRun(pages[0]).next_step_page_token))
    first, rest = (daemon.runs.GetRun(page, timeout=20).run.summary for page in pages)
    assert (first, list(rest.steps)) == (run.summary, [])


def test_runs_are_listed_newest_first_and_pages_are_stable_under_inserts(daemon: Daemon) -> None:
    apply(daemon, "listed", overlap="allow")
    ids = [daemon.run("listed").id for _ in range(7)]
    assert listed(daemon, workflow="listed") == ids[::-1]
    assert listed(daemon, 3, workflow="listed") == ids[::-1]
    first = daemon.runs.ListRuns(pb.ListRunsRequest(workflow="listed", page_size=4), timeout=20)
    daemon.run("listed")
    rest = pb.ListRunsRequest(workflow="listed", page_token=first.next_page_token, page_size=4)
    second = daemon.runs.ListRuns(rest, timeout=20)
    assert [run.id for run in [*first.runs, *second.runs]] == ids[::-1]
    assert second.next_page_token == ""
    assert [run.number for run in first.runs] == [7, 6, 5, 4]


def test_runs_are_listed_by_number_and_time_and_found_by_a_part_of_their_id(daemon: Daemon) -> None:
    apply(daemon, "numbered", overlap="allow")
    made = [daemon.run("numbered") for _ in range(3)]
    ids = [run.id for run in made]
    assert listed(daemon, workflow="numbered", number=2) == [ids[1]]
    assert listed(daemon, workflow="numbered", number=4) == []
    assert listed(daemon, ids=[ids[2], ids[0]]) == [ids[2], ids[0]]
    assert listed(daemon, 1, ids=[ids[2], ids[0]]) == [ids[2], ids[0]]
    assert refused(partial(listed, daemon, ids=[str(n) for n in range(501)])).violations[0][0] == "ids"
    middle = made[1].created_at
    assert set(listed(daemon, workflow="numbered", created_after=middle)) >= set(ids[1:])
    assert ids[0] in listed(daemon, workflow="numbered", created_before=middle) or made[0].created_at == middle
    assert ids[2] not in listed(daemon, workflow="numbered", created_before=middle)
    assert listed(daemon, 1, workflow="numbered", created_after=made[0].created_at)[:1] == [ids[2]]

    def found(part: str, kind: pb.IdKind.ValueType = pb.ID_KIND_RUN) -> list[str]:
        return list(daemon.runs.FindIds(pb.FindIdsRequest(kind=kind, part=part), timeout=20).ids)

    assert found(ids[1]) == found(ids[1][-12:].upper()) == [ids[1]]
    assert set(found(ids[1][:4])) >= set(ids)
    assert found(ids[1], pb.ID_KIND_EVENT) == []
    for request in (
        pb.FindIdsRequest(kind=pb.ID_KIND_RUN, part="abc"),
        pb.FindIdsRequest(kind=pb.ID_KIND_RUN, part="%%%%"),
        pb.FindIdsRequest(part="abcd"),
    ):
        assert refused(partial(daemon.runs.FindIds, request, timeout=20)).violations
    assert refused(partial(listed, daemon, number=1)).violations[0][0] == "number"


def started(daemon: Daemon, workflow: str, params: dict[str, Any] | None = None, **fields: Any) -> str:
    request = pb.StartRunRequest(workflow=workflow, **fields)
    request.params.update(params or {})
    return daemon.runs.StartRun(request, timeout=20).run.id


def test_runs_are_found_by_label_parameter_and_text(daemon: Daemon) -> None:
    params = {
        "day": {"type": "string", "default": "friday"},
        "rows": {"type": "integer", "default": 1},
        "note": {"type": "string", "default": ""},
    }
    apply(daemon, "searched", "exit {{ params.rows }}", params=params, labels={"own": "definition"})
    ticket = {"ticket": "OPS-17"}
    wanted: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"rows": 0}, {**ticket, "team": "a"}),
        ({"rows": 3, "day": "monday"}, ticket),
        ({"rows": 0, "note": "Ünïcode " + "x" * 5000}, {"team": "a"}),
        ({"rows": 0}, {}),
    ]
    ids = []
    for given, labels in wanted:
        ids.append(started(daemon, "searched", given, labels=labels))
        run = daemon.wait_run(ids[-1])
        assert dict(run.labels) == labels
    (again,) = (daemon.runs.RetryRun(pb.RetryRunRequest(id=ids[1]), timeout=20).run,)
    daemon.wait_run(again.id)
    ids.append(again.id)

    def found(**filters: Any) -> list[int]:
        return [ids.index(each) for each in listed(daemon, 2, workflow="searched", **filters)]

    assert found(labels=ticket) == [4, 1, 0]
    assert found(labels={**ticket, "team": "a"}) == [0]
    assert found(labels=ticket, states=[pb.RUN_STATE_FAILED]) == [4, 1]
    assert found(labels={"own": "definition"}) == []
    assert found(params={"rows": "3"}) == [4, 1]
    assert found(params={"rows": "0", "day": "friday"}) == [3, 2, 0]
    assert found(params={"rows": "0"}, labels={"team": "a"}) == [2, 0]
    assert found(params={"nothing": ""}) == []
    assert found(text="EXIT CODE 3") == [4, 1]
    assert found(text="ops-17") == [4, 1, 0]
    assert found(text="ünïcode X") == [2], "large parameters are searched too"
    assert found(text="searched#4") == [3]
    assert found(text=ids[0][:24].upper(), params={"rows": "0"})[-1] == 0
    assert found(text="monday", states=[pb.RUN_STATE_SUCCEEDED]) == []
    shown = daemon.get_run(ids[2])
    assert shown.labels == {"team": "a"}

    invalid: list[dict[str, str]] = [
        dict.fromkeys(map(str, range(33)), ""),
        {"": "v"},
        {"k" * 65: "v"},
        {"k": "v" * 257},
    ]
    for each in invalid:
        refusal = refused(partial(started, daemon, "searched", labels=each))
        assert refusal.violations[0][0] == "labels"
    long = pb.ListRunsRequest(text="x" * 257)
    assert refused(lambda: daemon.runs.ListRuns(long, timeout=20)).violations[0][0] == "text"


def test_runs_are_listed_by_workflow_and_state(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "good", labels={"kind": "mixed"})
    apply(daemon, "bad", run="exit 3")
    apply(daemon, "held", run=f"read _ < {gate.path}")
    good, bad, held = daemon.run("good").id, daemon.run("bad").id, daemon.start_run("held")
    active = [pb.RUN_STATE_PENDING, pb.RUN_STATE_RUNNING]
    assert listed(daemon, workflow="held", states=active) == [held]
    assert held in listed(daemon, states=active)
    assert listed(daemon, workflow="bad", states=[pb.RUN_STATE_FAILED]) == [bad]
    assert listed(daemon, workflow="bad", states=[pb.RUN_STATE_SUCCEEDED]) == []
    ended = [pb.RUN_STATE_SUCCEEDED, pb.RUN_STATE_FAILED]
    assert [run for run in listed(daemon, 2, states=ended) if run in (good, bad)] == [bad, good]
    assert held not in listed(daemon, states=ended)
    assert listed(daemon, workflow="nobody") == []
    gate.release_now()
    daemon.wait_run(held)
    assert held not in listed(daemon, states=active)


def test_the_current_run_is_the_active_one_else_the_latest(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(
        daemon,
        "current",
        overlap="allow",
        params={"gate": {"type": "string", "default": ""}},
        steps=[{"name": "only", "run": "test -z {{ params.gate }} || read _ < {{ params.gate }}"}],
    )
    request = pb.GetCurrentRunRequest(workflow="current")
    refusal = refused(lambda: daemon.runs.GetCurrentRun(request, timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
    assert refusal.metadata == {"workflow": "current"}
    held = daemon.start_run("current", gate=gate.path)
    newer = daemon.run("current").id
    assert daemon.runs.GetCurrentRun(request, timeout=20).run.id == held
    gate.release_now()
    daemon.wait_run(held)
    assert daemon.runs.GetCurrentRun(request, timeout=20).run.id == newer


def test_the_steps_of_a_large_run_come_in_pages(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = {f"s{n}": {"run": f"read _ < {gate.path}"} for n in range(1200)}
    apply(daemon, "large", steps=steps, concurrency=1)
    run_id = daemon.start_run("large")
    names = list(steps)

    def pages(size: int) -> list[list[str]]:
        found: list[list[str]] = []
        token = ""
        while True:
            request = pb.GetRunRequest(id=run_id, step_page_size=size, step_page_token=token)
            page = daemon.runs.GetRun(request, timeout=20)
            found.append([step.id for step in page.run.steps])
            assert page.run.steps_total == 1200
            token = page.next_step_page_token
            if not token:
                return found

    assert pages(0) == [names[:500], names[500:1000], names[1000:]]
    assert pages(1000) == [names[:1000], names[1000:]]
    assert pages(5000) == pages(1000), "more than the most is the most"
    assert pages(600) == [names[:600], names[600:]], "no empty page at the end"
    picture = iter(daemon.runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
    seen = [next(picture)]
    while seen[-1].partial:
        seen.append(next(picture))
    assert len(seen) > 2
    assert len({message.sequence for message in seen}) == 1
    assert [step.id for message in seen for step in message.run.steps] == names
    # One that was never begun would be skipped as well.
    daemon.wait_started(run_id, "s0")
    daemon.cancel(run_id)
    states: dict[str, str] = {}
    for message in picture:
        states |= step_states(message.run)
    assert states.pop("s0") == "CANCELLED"
    assert set(states.values()) == {"SKIPPED(cancelled)"}
    assert len(states) == 1199
    assert run_state(daemon.get_run(run_id)) == "CANCELLED"


def test_processes_are_listed_newest_first_and_one_by_one(daemon: Daemon) -> None:
    steps = [{"name": f"s{n}", "run": f"exit {n}", "on_failure": "continue"} for n in range(5)]
    apply(daemon, "processes", steps=steps)
    run = daemon.run("processes")
    found, token = [], ""
    while True:
        request = pb.ListProcessExecutionsRequest(run_id=run.id, page_size=2, page_token=token)
        page = daemon.runs.ListProcessExecutions(request, timeout=20)
        found += list(page.process_executions)
        token = page.next_page_token
        if not token:
            break
    assert [each.step for each in found] == ["s4", "s3", "s2", "s1", "s0"]
    assert [each.exit_code for each in found] == [4, 3, 2, 1, 0]
    assert {each.workflow for each in found} == {"processes"}
    for each in found:
        asked = pb.GetProcessExecutionRequest(id=each.id, without_output=True)
        assert daemon.runs.GetProcessExecution(asked, timeout=20).process_execution == each
    of_step = pb.ListProcessExecutionsRequest(run_id=run.id, step="s2")
    (only,) = daemon.runs.ListProcessExecutions(of_step, timeout=20).process_executions
    assert only == found[2]
    of_all = pb.ListProcessExecutionsRequest(page_size=1)
    assert daemon.runs.ListProcessExecutions(of_all, timeout=20).process_executions[0] == found[0]


def test_a_process_has_the_command_as_it_ran(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = {
        "made": {"run": "echo it\\'s"},
        "shell": {
            "run": "cat {{ params.file }} > /dev/null\necho {{ steps.made.stdout }} {{ env.KEY }}",
            "env": {"OWN": "hidden"},
            "depends_on": ["made"],
        },
        "exec": {"job_type": "exec", "target": "echo", "args": ["{{ params.file }}", "a b"]},
        "each": {"run": "echo {{ item }}", "for_each": ["x"]},
        "absent": {"job_type": "exec", "target": "/no/such/{{ run.number }}", "on_failure": "continue"},
    }
    params = {"file": {"type": "string", "default": gate.path}}
    apply(daemon, "as-it-ran", steps=steps, params=params, env={"KEY": "hidden"})
    run_id = daemon.start_run("as-it-ran")
    daemon.wait_started(run_id, "shell")
    expected = f"cat {gate.path} > /dev/null ⏎ echo 'it'\"'\"'s' {{{{ env.KEY }}}}"
    wait_until(lambda: daemon.process_of(run_id, "shell").command == expected, "it has another command")
    gate.release_now()
    daemon.wait_run(run_id)
    request = pb.ListProcessExecutionsRequest(run_id=run_id)
    listed = daemon.runs.ListProcessExecutions(request, timeout=20).process_executions
    assert {each.step: each.command for each in listed} == {
        "made": "echo it\\'s",
        "shell": expected,
        "exec": f"echo {gate.path} 'a b'",
        "each[0]": "echo x",
        "absent": "/no/such/1",
    }


def processes(daemon: Daemon, **filters: Any) -> list[str]:
    """Ids, page by page."""
    found, token = [], ""
    while True:
        request = pb.ListProcessExecutionsRequest(page_size=2, page_token=token, **filters)
        page = daemon.runs.ListProcessExecutions(request, timeout=20)
        found += [each.id for each in page.process_executions]
        token = page.next_page_token
        if not token:
            return found


def test_processes_are_found_by_job_workflow_state_and_time(daemon: Daemon) -> None:
    job = {"run": "exit $CODE"}
    definition = workflow_pb2.Definition(source=json.dumps({"jobs": {"found-job": job}}))
    daemon.jobs.CreateJob(job_pb2.CreateJobRequest(definition=definition), timeout=20)
    for workflow in ("found-a", "found-b"):
        steps = {
            f"s{code}": {"job": "found-job", "env": {"CODE": str(code)}, "on_failure": "continue"} for code in range(3)
        }
        apply(daemon, workflow, steps={**steps, "other": {"run": "true"}}, concurrency=1)
    runs = [daemon.run(name) for name in ("found-a", "found-b", "found-a")]
    of_run = [processes(daemon, run_id=run.id) for run in runs]
    assert processes(daemon, workflow="found-a") == [*of_run[2], *of_run[0]]
    by_job = processes(daemon, job="found-job")
    assert len(by_job) == 9
    assert processes(daemon, job="found-job", workflow="found-b") == [each for each in of_run[1] if each in by_job]
    failed = processes(daemon, job="found-job", states=[pb.PROCESS_STATE_FAILED])
    assert len(failed) == 6
    assert failed == sorted(failed, reverse=True)
    assert processes(daemon, workflow="found-b", states=[pb.PROCESS_STATE_FAILED]) == failed[2:4]
    both = [pb.PROCESS_STATE_FAILED, pb.PROCESS_STATE_COMPLETED]
    assert processes(daemon, job="found-job", states=both) == by_job
    assert processes(daemon, workflow="found-a", states=[pb.PROCESS_STATE_RUNNING]) == []
    one = daemon.runs.GetProcessExecution(pb.GetProcessExecutionRequest(id=of_run[1][-1]), timeout=20)
    began = one.process_execution.launched_at
    assert processes(daemon, job="found-job", launched_after=began)[-1] == of_run[1][-1]
    assert processes(daemon, workflow="found-a", launched_before=began) == of_run[0]
    assert processes(daemon, workflow="nowhere") == processes(daemon, job="nothing") == []
    unknown = pb.ListProcessExecutionsRequest(states=[99])  # type: ignore[list-item]
    assert refused(lambda: daemon.runs.ListProcessExecutions(unknown, timeout=20)).violations[0][0] == "states"


def test_a_process_has_the_end_of_its_output(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = {
        "large": {"run": "echo first >&2; seq 1 40000; echo \\\\377 >&2"},
        "held": {"run": f"echo so far; read _ < {gate.path}", "depends_on": ["large"]},
    }
    apply(daemon, "ends", steps=steps)
    run_id = daemon.start_run("ends")
    daemon.wait_started(run_id, "held")

    def shown(step: str, *, without_output: bool = False) -> pb.ProcessExecution:
        request = pb.GetProcessExecutionRequest(id=daemon.process_of(run_id, step).id, without_output=without_output)
        return daemon.runs.GetProcessExecution(request, timeout=20).process_execution

    wait_until(lambda: shown("held").stdout == "so far\n", "its output so far is not shown")
    large = shown("large")
    whole = "".join(f"{number}\n" for number in range(1, 40001))
    assert (large.stdout, large.stdout_truncated) == (whole[-64 * 1024 :], True)
    assert (large.stderr, large.stderr_truncated) == ("first\n\ufffd\n", False)
    assert (shown("large", without_output=True).stdout, large.stdout_log_bytes) == ("", len(whole))
    gate.release_now()
    daemon.wait_run(run_id)
    (listed,) = daemon.runs.ListProcessExecutions(
        pb.ListProcessExecutionsRequest(run_id=run_id, step="large"), timeout=20
    ).process_executions
    assert (listed.stdout, listed.stderr) == ("", "")

    def read(**asked: Any) -> bytes:
        request = pb.StreamLogsRequest(process_execution_id=large.id, **asked)
        messages = list(daemon.runs.StreamLogs(request, timeout=20))
        assert {message.chunk.process_execution_id for message in messages[:-1]} == {large.id}
        assert messages[-1].end.complete
        return b"".join(record.data for message in messages for record in message.chunk.records)

    assert read(streams=[pb.LOG_STREAM_STDOUT]) == whole.encode()
    assert read(run_id=run_id, streams=[pb.LOG_STREAM_STDERR]) == b"first\n\377\n"
    assert refused(lambda: read(step="large")).violations[0][0] == "process_execution_id"
    assert refused(lambda: read(run_id=str(uuid.uuid4()))).violations[0][0] == "run_id"
    nowhere = pb.StreamLogsRequest(process_execution_id=str(uuid.uuid4()))
    assert refused(lambda: list(daemon.runs.StreamLogs(nowhere, timeout=20))).reason == "PROCESS_EXECUTION_NOT_FOUND"


def test_exactly_one_of_many_starts_at_once_wins(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "one", run=f"read _ < {gate.path}")

    def start(_: int) -> str:
        try:
            return daemon.start_run("one")
        except grpc.RpcError:
            return ""

    with ThreadPoolExecutor(16) as pool:
        won = [run_id for run_id in pool.map(start, range(32)) if run_id]
    assert len(won) == 1
    assert listed(daemon, workflow="one") == won
    refusal = refused(lambda: daemon.start_run("one"))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "RUN_ALREADY_ACTIVE",
    )
    assert refusal.metadata == {"run_id": won[0], "run": "one#1"}
    assert refusal.text == "run one#1 is active"
    gate.release_now()
    assert run_state(daemon.wait_run(won[0])) == "SUCCEEDED"
    gate_again = daemon.start_run("one")
    daemon.cancel(gate_again)
    daemon.wait_run(gate_again)


def test_up_to_max_active_runs_may_be_active(daemon: Daemon, tmp_path: Path) -> None:
    gates = [Gate(f"{tmp_path}/gate{n}") for n in range(4)]
    held = [{"name": "only", "run": "read _ < {{ params.gate }}"}]
    params = {"gate": {"type": "string", "required": True}}
    apply(daemon, "three", steps=held, params=params, max_active_runs=3)
    ids = [daemon.start_run("three", gate=gate.path) for gate in gates[:3]]
    refusal = refused(lambda: daemon.start_run("three", gate=gates[3].path))
    assert refusal.metadata == {"run_id": ids[0], "run": "three#1"}, "the oldest one is named"
    gates[1].release_now()
    daemon.wait_run(ids[1])
    ids[1] = daemon.start_run("three", gate=gates[3].path)
    for gate in (gates[0], gates[2], gates[3]):
        gate.release_now()
    assert {run_state(daemon.wait_run(run_id)) for run_id in ids} == {"SUCCEEDED"}


def test_overlap_allow_knows_no_limit(daemon: Daemon, tmp_path: Path) -> None:
    gates = [Gate(f"{tmp_path}/gate{n}") for n in range(5)]
    held = [{"name": "only", "run": "read _ < {{ params.gate }}"}]
    params = {"gate": {"type": "string", "required": True}}
    apply(daemon, "any", steps=held, params=params, overlap="allow")
    ids = [daemon.start_run("any", gate=gate.path) for gate in gates]
    for gate in gates:
        gate.release_now()
    assert {run_state(daemon.wait_run(run_id)) for run_id in ids} == {"SUCCEEDED"}


def test_a_run_whose_caller_gave_up_ends_like_any_other(daemon: Daemon) -> None:
    apply(daemon, "forsaken", overlap="allow")
    answered = {daemon.run("forsaken").id}

    def give_up() -> bool:
        """From at once to after the answer, whatever that takes here; whether one was stored without its caller."""
        began = time.monotonic()
        answered.add(daemon.start_run("forsaken"))
        took = time.monotonic() - began
        for patience in range(40):
            request = pb.StartRunRequest(workflow="forsaken")
            call = daemon.runs.StartRun.future(request, timeout=20)
            with contextlib.suppress(grpc.FutureTimeoutError):
                answered.add(call.result(timeout=took * patience / 30).run.id)
            cast(Any, call).cancel()
        # A call behind all of them.
        answered.add(daemon.run("forsaken").id)
        return not answered.issuperset(listed(daemon, workflow="forsaken"))

    wait_until(give_up, "none was stored before its caller left")
    ended = [pb.RUN_STATE_SUCCEEDED]

    def all_ended() -> bool:
        return listed(daemon, workflow="forsaken", states=ended) == listed(daemon, workflow="forsaken")

    wait_until(all_ended, "a run that was stored never began", deadline=60)


def test_answers_stay_small_enough_for_every_client(daemon: Daemon) -> None:
    """Steps with large items, and runs with large parameters: more pages, never too large a message."""
    large = {"run": "true", "for_each": "[1, 2, 3, 4, 5, 6].map(n, params.v)"}
    text = {"v": {"type": "string", "required": True}}
    apply(daemon, "weighty", steps={"large": large}, params=text)
    run_id = daemon.run("weighty", v="x" * 690_000).id
    expected = [("large", 0), *((f"large[{n}]", 690_002) for n in range(6))]
    params = {"v": {"type": "string", "required": True}}
    apply(daemon, "laden", params=params)
    laden = [daemon.run("laden", v="x" * 900_000).id for _ in range(5)]
    with grpc.insecure_channel(f"unix:{daemon.state_dir}/toban.sock") as channel:
        runs = run_pb2_grpc.RunServiceStub(channel)
        steps, token = [], ""
        while True:
            asked = pb.GetRunRequest(id=run_id, step_page_token=token)
            page = runs.GetRun(asked, timeout=60)
            steps += [(step.id, len(step.item_json)) for step in page.run.steps]
            token = page.next_step_page_token
            if not token:
                break
        assert steps == expected
        picture = list(runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
        assert [message.partial for message in picture] == [True] * (len(picture) - 1) + [False]
        assert [(step.id, len(step.item_json)) for message in picture for step in message.run.steps] == expected
        history = runs.WatchRun(pb.WatchRunRequest(id=run_id, after_sequence=1), timeout=60)
        assert {step.id for message in history for step in message.run.steps} == {name for name, _ in expected}
        found: list[str] = []
        while True:
            request = pb.ListRunsRequest(workflow="laden", page_token=token)
            listing = runs.ListRuns(request, timeout=60)
            found += [run.id for run in listing.runs]
            assert all(not run.params.fields for run in listing.runs)
            assert all(run.params_bytes > 900_000 for run in listing.runs)
            token = listing.next_page_token
            if not token:
                break
        assert found == laden[::-1]


def test_a_run_at_its_limits_can_be_read_watched_and_retried(daemon: Daemon) -> None:
    """With as many small values as parameters may have: they are largest in a message."""
    params = {"n": {"type": "list", "required": True}}
    steps = {"each": {"run": "true", "for_each": "[1, 2, 3, 4]", "max_parallel": 1}}
    apply(daemon, "brimful", steps=steps, params=params)
    run_id = daemon.run("brimful", n=[1] * 87_000).id
    with grpc.insecure_channel(f"unix:{daemon.state_dir}/toban.sock") as channel:
        runs = run_pb2_grpc.RunServiceStub(channel)
        whole = runs.GetRun(pb.GetRunRequest(id=run_id), timeout=60).run
        assert len(whole.params.fields["n"].list_value.values) == 87_000
        current = runs.GetCurrentRun(pb.GetCurrentRunRequest(workflow="brimful"), timeout=60).run
        assert current.params == whole.params
        picture = list(runs.WatchRun(pb.WatchRunRequest(id=run_id), timeout=60))
        assert picture[0].run.params == whole.params
        changes = list(runs.WatchRun(pb.WatchRunRequest(id=run_id, after_sequence=1), timeout=60))
        assert len(changes) >= 5
        assert sum(change.ByteSize() for change in changes) < 100_000
        assert all(change.run.params_bytes > 87_000 for change in changes)
        request = pb.RetryRunRequest(id=run_id, everything=True)
        again = runs.RetryRun(request, timeout=60).run
        assert again.params == whole.params
        assert run_state(daemon.wait_run(again.id)) == "SUCCEEDED"


def memory(daemon: Daemon, name: str) -> int:
    """In bytes, as the kernel says."""
    text = Path(f"/proc/{daemon.pid}/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def test_many_lists_at_once_take_little_memory(daemon: Daemon) -> None:
    """Each had all parameters of all of its runs in memory, several times over."""
    apply(daemon, "enumerated", params={"v": {"type": "string", "required": True}})
    for _ in range(30):
        daemon.run("enumerated", v="x" * 1_000_000)
    for _ in range(30):
        daemon.run("enumerated", v="x" * 3_900)
    look_inside(daemon.pid)
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")  # forget the peak so far
    before = memory(daemon, "VmRSS")
    request = pb.ListRunsRequest(workflow="enumerated", page_size=1000)
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: daemon.runs.ListRuns(request, timeout=60), range(100)))
    assert memory(daemon, "VmHWM") - before < 200 * 1024 * 1024
    assert {len(answer.runs) for answer in answers} == {60}


def test_parameters_that_are_too_large_are_refused(daemon: Daemon) -> None:
    """Fifteen MB were taken once; after that GetRun, WatchRun and `logs` failed for good."""
    params = {"v": {"type": "string", "required": True}, "n": {"type": "list", "default": []}}
    apply(daemon, "bounded", params=params)

    def start(**values: Any) -> pb.StartRunRequest:
        request = pb.StartRunRequest(workflow="bounded")
        request.params.update(values)
        return request

    with pytest.raises(grpc.RpcError) as caught:
        daemon.runs.StartRun(start(v="x" * 15_000_000), timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "4194304" in str(caught.value.details()), "the limit is told"
    for request in (start(v="x" * 1_100_000), start(v="", n=json.dumps([1] * 100_000))):
        refusal = refused(partial(daemon.runs.StartRun, request, timeout=60))
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_PARAMS",
        )
        assert "all parameters together must not exceed 1 MiB" in refusal.text
        assert [field for field, _ in refusal.violations] == ["params"]
    assert listed(daemon, workflow="bounded") == []
    largest = daemon.run("bounded", v="x" * 1_048_000)
    assert run_state(largest) == "SUCCEEDED"


def test_items_that_are_too_large_fail_their_step(daemon: Daemon) -> None:
    steps = {
        "many": {
            "run": "true",
            "for_each": "[1, 2, 3, 4, 5].map(n, params.v)",
            "on_failure": "continue",
        },
        "other": {"run": "true"},
    }
    apply(daemon, "heavy", steps=steps, params={"v": {"type": "string", "required": True}})
    run = daemon.run("heavy", v="x" * 1_000_000)
    assert step_states(run) == {"many": "FAILED", "other": "SUCCEEDED"}
    assert "all items together must not exceed 4 MiB" in run.steps[0].reason


def test_outputs_that_are_too_large_fail_their_step(daemon: Daemon) -> None:
    """They were left out without a word, and the step had succeeded."""
    large = "head -c 1100000 /dev/zero | tr '\\0' x >> $TOBAN_OUTPUT"
    steps = {
        "fits": {"run": "printf k=v > $TOBAN_OUTPUT"},
        "large": {"run": f"printf k= > $TOBAN_OUTPUT; {large}"},
    }
    apply(daemon, "talkative", steps=steps)
    run = daemon.run("talkative")
    assert step_states(run) == {"fits": "SUCCEEDED", "large": "FAILED"}
    assert "cannot keep its output: it is larger than 1,048,576 bytes" in run.steps[1].reason


def test_a_reason_that_is_too_long_is_refused(daemon: Daemon) -> None:
    refusal = refused(lambda: daemon.cancel("any", "x" * 1001))
    assert [field for field, _ in refusal.violations] == ["reason"]
