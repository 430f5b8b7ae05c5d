"""A caller that is limited to some workflows: what its lists, streams and definitions have."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.callers import Caller
from helpers.daemon import Daemon
from helpers.gate import Gate
from helpers.refusal import refused
from integration.access.conftest import NewCaller
from toban.v1 import (
    access_pb2,
    access_rule_pb2,
    dead_letter_pb2,
    dead_letter_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    run_pb2,
    schedule_pb2,
    schedule_pb2_grpc,
    system_pb2,
    workflow_pb2,
)

EDITOR, VIEWER = access_rule_pb2.ROLE_EDITOR, access_rule_pb2.ROLE_VIEWER
FAILS = [{"name": "s", "run": "exit 1", "on_failure": "retry", "max_retries": 1, "retry": {"delay": "0s"}}]
COUNT = 4
_CALLS = f"""{sys.executable} - <<'END'
import os
from toban.sdk import SyncClient, TobanError

def attempt(what, call):
    try:
        found = call()
        print(f"{{what}}: {{found if isinstance(found, str) else 'OK'}}")
    except TobanError as error:
        print(f"{{what}}: {{error.reason}}")

with SyncClient() as client:
    attempt("start mine-0", lambda: client.start_run("mine-0"))
    attempt("start other-0", lambda: client.start_run("other-0"))
    attempt("own run", lambda: client.get_run(os.environ["TOBAN_RUN_ID"]))
    attempt("runs", lambda: ",".join(sorted({{run.workflow for run in client.list_runs()}})))
    attempt("delete mine-1", lambda: client.delete_workflow("mine-1"))
END
"""


def define(daemon: Daemon, name: str, steps: object = "true", **fields: object) -> None:
    steps = [{"name": "s", "run": steps}] if isinstance(steps, str) else steps
    daemon.apply(json.dumps({"name": name, "description": "d", **fields, "steps": steps}))


def remind(daemon: Daemon, workflow: str) -> None:
    request = schedule_pb2.CreateScheduleRequest(subject="narrowed", workflow=workflow)
    request.rule.words = "every day at 9:00"
    daemon.schedules.CreateSchedule(request, timeout=60)


@pytest.fixture(scope="module")
def both(daemon: Daemon) -> Daemon:
    """With the same of everything in workflows that are visible and in others."""
    for number in range(COUNT):
        for kind in ("mine", "other"):
            name = f"{kind}-{number}"
            define(daemon, name, FAILS, labels={"team": kind}, schedule="0 3 * * *")
            job = job_pb2.CreateJobRequest()
            job.definition.source = f"jobs: {{{name}-job: {{run: 'true', labels: {{team: {kind}}}}}}}"
            daemon.jobs.CreateJob(job, timeout=60)
            remind(daemon, name)
            daemon.run(name)
    return daemon


class Lists:
    """Every list that has pages, as a caller gets it; each entry by the workflow that it belongs to and its key."""

    def __init__(self, caller: Caller) -> None:
        self._letters = dead_letter_pb2_grpc.DeadLetterServiceStub(caller.channel)
        self._jobs = job_pb2_grpc.JobServiceStub(caller.channel)
        self._schedules = schedule_pb2_grpc.ScheduleServiceStub(caller.channel)
        self._caller = caller

    def all(self) -> dict[str, tuple[Callable[..., Any], Any, str, Callable[[Any], tuple[str, str]]]]:
        runs, workflows = self._caller.runs, self._caller.workflows
        return {
            "workflows": (workflows.ListWorkflows, workflow_pb2.ListWorkflowsRequest, "workflows", _named),
            "summaries": (
                workflows.ListWorkflowSummaries,
                workflow_pb2.ListWorkflowSummariesRequest,
                "summaries",
                _named,
            ),
            "jobs": (self._jobs.ListJobs, job_pb2.ListJobsRequest, "jobs", _named),
            "runs": (runs.ListRuns, run_pb2.ListRunsRequest, "runs", _identified),
            "processes": (
                runs.ListProcessExecutions,
                run_pb2.ListProcessExecutionsRequest,
                "process_executions",
                _identified,
            ),
            "letters": (
                self._letters.ListDeadLetters,
                dead_letter_pb2.ListDeadLettersRequest,
                "dead_letters",
                _identified,
            ),
            "schedules": (self._schedules.ListSchedules, schedule_pb2.ListSchedulesRequest, "schedules", _identified),
        }

    def walk(self, name: str, size: int, between: Callable[[], None] = lambda: None) -> Iterator[tuple[str, str]]:
        call, request, field, key = self.all()[name]
        token = ""
        while True:
            page = call(request(page_size=size, page_token=token), timeout=60)
            entries = getattr(page, field)
            token = page.next_page_token
            assert len(entries) == size or not token, f"a page of {name} is not full"
            yield from map(key, entries)
            if not token:
                return
            between()


def _named(message: Any) -> tuple[str, str]:
    return message.name, message.name


def _identified(message: Any) -> tuple[str, str]:
    return message.workflow, message.id


@pytest.mark.parametrize("by", ["names", "labels"])
def test_every_list_has_exactly_its_own_in_order_while_others_come(
    both: Daemon, new_caller: NewCaller, by: str
) -> None:
    limits: dict[str, Any] = {"workflows": ("mine-*",)} if by == "names" else {"team": "mine"}
    mine, everyone = Lists(new_caller(f"walks-{by}", VIEWER, **limits)), Lists(Caller(both.channel))
    for name in mine.all():
        before = [each for each in everyone.walk(name, 1000) if each[0].startswith("mine-")]
        started: list[str] = []

        def come() -> None:
            """Others, and newer ones of its own, which a walk from the newest on does not reach."""
            if len(started) < 2:  # noqa: B023
                started.extend(both.start_run(workflow) for workflow in ("other-0", "mine-0"))  # noqa: B023
                remind(both, "other-0")

        assert len(before) >= COUNT
        assert list(mine.walk(name, 1, come)) == before, name
        for run_id in started:
            both.wait_run(run_id)
        assert list(mine.walk(name, 3))[-len(before) :] == before, name


def test_counts_are_its_own(both: Daemon, new_caller: NewCaller) -> None:
    caller = new_caller("counts", VIEWER, ("mine-*",))
    found = caller.workflows.GetOverview(workflow_pb2.GetOverviewRequest(), timeout=60)
    assert (found.workflow_count, found.job_count) == (COUNT, COUNT)
    failed = caller.runs.ListRuns(
        run_pb2.ListRunsRequest(states=[run_pb2.RUN_STATE_FAILED], page_size=1000), timeout=60
    )
    assert found.failure_count == len(failed.runs)
    assert {run.workflow.partition("-")[0] for run in found.failures} == {"mine"}
    assert {each.name.partition("-")[0] for each in found.summaries} == {"mine"}
    run = both.runs.ListRuns(run_pb2.ListRunsRequest(workflow="other-0"), timeout=60).runs[0].id
    ids = run_pb2.FindIdsRequest(kind=run_pb2.ID_KIND_RUN, part=run)
    assert list(both.runs.FindIds(ids, timeout=60).ids) == [run]
    assert not caller.runs.FindIds(ids, timeout=60).ids
    info = caller.system.GetInfo(system_pb2.GetInfoRequest(), timeout=60)
    assert (info.workflows, info.active_runs, list(info.definition_files), info.state_dir) == (0, 0, [], "")
    assert info.version


def test_all_runs_are_watched_without_those_of_others(both: Daemon, new_caller: NewCaller) -> None:
    caller = new_caller("watches", VIEWER, ("mine-*",))
    stream = caller.runs.WatchRuns(run_pb2.WatchRunsRequest(only_changes=True), timeout=60)
    position = next(iter(stream)).position
    both.run("other-0")
    last = both.run("mine-0")
    seen = [message.run for message in _until(stream, last.id)]
    assert {run.workflow for run in seen if run.id} == {"mine-0"}
    again = caller.runs.WatchRuns(run_pb2.WatchRunsRequest(position=position), timeout=60)
    assert {message.run.workflow for message in _until(again, last.id) if message.run.id} == {"mine-0"}


def _until(stream: Any, run_id: str) -> Sequence[Any]:
    """The messages until the run has ended."""
    found = []
    for message in stream:
        found.append(message)
        if message.run.id == run_id and message.run.state in (run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED):
            break
    stream.cancel()
    return found


def test_a_stream_ends_when_labels_put_its_run_out_of_reach(
    both: Daemon, new_caller: NewCaller, tmp_path: Path
) -> None:
    gate = Gate(f"{tmp_path}/gate")
    define(both, "relabelled", f"read _ < {gate.path}", labels={"team": "mine"})
    caller, run_id = new_caller("follows", VIEWER, team="mine"), both.start_run("relabelled")
    stream = caller.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=60)
    assert next(iter(stream)).run.id == run_id
    source = json.dumps({"name": "relabelled", "description": "d", "steps": {"s": {"run": "true"}}})
    text = workflow_pb2.DefinitionText(definition=workflow_pb2.Definition(source=source))
    both.workflows.ApplyDefinitions(workflow_pb2.ApplyDefinitionsRequest(texts=[text]), timeout=60)
    refusal = refused(lambda: stream)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "WORKFLOW_NOT_PERMITTED")
    gate.release_now()
    both.wait_run(run_id)


def test_what_is_foreign_looks_as_if_it_did_not_exist(both: Daemon, new_caller: NewCaller) -> None:
    caller = new_caller("asks", EDITOR, team="mine")
    run = both.runs.ListRuns(run_pb2.ListRunsRequest(workflow="other-0"), timeout=60).runs[0].id
    absent = run[:-4] + "ffff"
    texts = []
    for run_id in (run, absent):
        refusal = refused(lambda: caller.runs.GetRun(run_pb2.GetRunRequest(id=run_id), timeout=60))  # noqa: B023
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "WORKFLOW_NOT_PERMITTED")
        texts.append(refusal.text.replace(run_id, ""))
    assert texts[0] == texts[1]
    request = run_pb2.ListRunsRequest(workflow="other-0")
    assert not caller.runs.ListRuns(request, timeout=60).runs
    assert not caller.runs.ListRuns(run_pb2.ListRunsRequest(ids=[run]), timeout=60).runs


def test_an_editor_stays_within_its_limits(both: Daemon, new_caller: NewCaller) -> None:
    caller = new_caller("edits", EDITOR, team="mine")

    def applied(name: str, **fields: object) -> Any:
        source = json.dumps({"name": name, "description": "d", "steps": {"s": {"run": "true"}}, **fields})
        text = workflow_pb2.DefinitionText(definition=workflow_pb2.Definition(source=source))
        request = workflow_pb2.ApplyDefinitionsRequest(texts=[text])
        return lambda: caller.workflows.ApplyDefinitions(request, timeout=60)

    assert applied("edited", labels={"team": "mine"})().definitions[0].version == 1
    for call in (
        applied("edited", labels={"team": "other"}),
        applied("other-0", labels={"team": "mine"}),
        applied("unlabelled"),
        applied("edited", labels={"team": "mine"}, grants=[{"role": "editor"}]),
        applied("edited", labels={"team": "mine"}, steps={"s": {"job_type": "workflow", "target": "other-0"}}),
        applied("edited", labels={"team": "mine"}, steps={"s": {"job": "other-0-job"}}),
    ):
        assert refused(call).reason == "WORKFLOW_NOT_PERMITTED"
    assert refused(applied("edited", labels={"team": "mine"}, grants=[{"role": "admin"}])).reason == "ROLE_REQUIRED"


def test_a_step_acts_with_the_grants_of_its_workflow_and_no_more(both: Daemon, new_caller: NewCaller) -> None:
    caller = new_caller("steps", EDITOR, ("mine-*", "acting"))
    source = {
        "name": "acting",
        "description": "d",
        "grants": [{"role": "viewer", "workflows": ["mine-1"]}],
        "steps": [{"name": "s", "run": _CALLS}],
    }
    text = workflow_pb2.DefinitionText(definition=workflow_pb2.Definition(source=json.dumps(source)))
    caller.workflows.ApplyDefinitions(workflow_pb2.ApplyDefinitionsRequest(texts=[text]), timeout=60)
    run = both.run("acting")
    printed = both.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT].decode().split("\n")
    assert printed == [
        "start mine-0: OK",
        "start other-0: STEP_NOT_PERMITTED",
        "own run: OK",
        "runs: mine-1",
        "delete mine-1: STEP_NOT_PERMITTED",
        "",
    ]
    started = both.runs.ListRuns(run_pb2.ListRunsRequest(workflow="mine-0"), timeout=60).runs[0]
    assert started.caller == f"step:{run.id}/s"


def test_a_decision_is_made_by_who_calls(both: Daemon, new_caller: NewCaller) -> None:
    gate = [{"name": "gate", "job_type": "approval", "approvers": ["token:boss", "role:admin"]}]
    define(both, "decided", gate)
    run_id = both.start_run("decided")
    request = run_pb2.DecideApprovalRequest(
        run_id=run_id, step="gate", decision=run_pb2.APPROVAL_DECISION_APPROVED, note="fine"
    )
    boss, other = (new_caller(name, access_rule_pb2.ROLE_OPERATOR) for name in ("boss", "clerk"))
    refusal = refused(lambda: other.runs.DecideApproval(request, timeout=60))
    assert (refusal.reason, refusal.metadata["caller"]) == ("NOT_AN_APPROVER", "token:clerk")
    assert refusal.text == (
        "token:clerk with the role operator cannot decide step 'gate': its approvers are token:boss, role:admin"
    )
    for _ in range(2):
        boss.runs.DecideApproval(request, timeout=60)
    (step,) = both.wait_run(run_id).steps
    assert json.loads(step.result_json)["by"] == "token:boss"


def test_records_name_the_caller(both: Daemon, new_caller: NewCaller) -> None:
    caller = new_caller("records", access_rule_pb2.ROLE_ADMIN)
    define(both, "recorded")
    run = caller.runs.StartRun(run_pb2.StartRunRequest(workflow="recorded"), timeout=60).run
    both.wait_run(run.id)
    pinned = caller.runs.PinRun(run_pb2.PinRunRequest(id=run.id), timeout=60).run
    assert (run.caller, pinned.pin.by) == ("token:records", "token:records")
    request = schedule_pb2.CreateScheduleRequest(subject="recorded", workflow="recorded")
    request.rule.words = "every day at 9:00"
    schedules = schedule_pb2_grpc.ScheduleServiceStub(caller.channel)
    assert schedules.CreateSchedule(request, timeout=60).schedule.caller == "token:records"
    entry = caller.access.ListAuditEntries(access_pb2.ListAuditEntriesRequest(page_size=1), timeout=60).entries[0]
    assert (entry.actor, entry.method) == ("token:records", "ScheduleService/CreateSchedule")
