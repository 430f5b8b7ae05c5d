"""Any invalid input of a client is answered with a useful error, never with INTERNAL."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest
from google.protobuf import struct_pb2, timestamp_pb2

from helpers.daemon import Daemon, run_state
from helpers.refusal import refused
from toban.v1 import dead_letter_pb2, job_pb2, run_pb2, system_pb2
from toban.v1 import workflow_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOWHERE = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def run(daemon: Daemon) -> run_pb2.Run:
    """A run that has ended and has printed something."""
    steps = [{"name": "only", "run": "echo one; echo two"}]
    daemon.apply(json.dumps({"name": "fine", "description": "for a test", "steps": steps}))
    return daemon.run("fine")


@pytest.fixture(autouse=True)
def still_well(daemon: Daemon) -> Any:
    yield
    assert '"request_failed"' not in daemon.log.read_text(), daemon.tail()
    assert daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).pid == daemon.pid


def token(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def lists(daemon: Daemon, run: run_pb2.Run) -> dict[str, Callable[..., Any]]:
    """Every call that gives pages, by the name of its token's field."""

    def list_workflows(size: int, given: str) -> object:
        return daemon.workflows.ListWorkflows(pb.ListWorkflowsRequest(page_size=size, page_token=given))

    def list_versions(size: int, given: str) -> object:
        return daemon.workflows.ListWorkflowVersions(
            pb.ListWorkflowVersionsRequest(workflow="fine", page_size=size, page_token=given)
        )

    def list_runs(size: int, given: str) -> object:
        return daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=size, page_token=given))

    def list_processes(size: int, given: str) -> object:
        return daemon.runs.ListProcessExecutions(run_pb2.ListProcessExecutionsRequest(page_size=size, page_token=given))

    def get_run(size: int, given: str) -> object:
        return daemon.runs.GetRun(run_pb2.GetRunRequest(id=run.id, step_page_size=size, step_page_token=given))

    def list_summaries(size: int, given: str) -> object:
        request = pb.ListWorkflowSummariesRequest(page_size=size, page_token=given)
        return daemon.workflows.ListWorkflowSummaries(request)

    def list_jobs(size: int, given: str) -> object:
        return daemon.jobs.ListJobs(job_pb2.ListJobsRequest(page_size=size, page_token=given))

    def list_dead_letters(size: int, given: str) -> object:
        return daemon.dead_letters.ListDeadLetters(
            dead_letter_pb2.ListDeadLettersRequest(page_size=size, page_token=given)
        )

    def list_artifacts(size: int, given: str) -> object:
        return daemon.runs.ListArtifacts(run_pb2.ListArtifactsRequest(run_id=run.id, page_size=size, page_token=given))

    return {
        "ListJobs": list_jobs,
        "ListDeadLetters": list_dead_letters,
        "ListArtifacts": list_artifacts,
        "ListWorkflows": list_workflows,
        "ListWorkflowSummaries": list_summaries,
        "ListWorkflowVersions": list_versions,
        "ListRuns": list_runs,
        "ListProcessExecutions": list_processes,
        "GetRun": get_run,
    }


STEP = {"GetRun": "step_"}
LISTS = [
    "ListWorkflows",
    "ListWorkflowSummaries",
    "ListWorkflowVersions",
    "ListRuns",
    "ListProcessExecutions",
    "GetRun",
    "ListJobs",
    "ListDeadLetters",
    "ListArtifacts",
]


@pytest.mark.parametrize("name", LISTS)
def test_a_negative_page_size_is_refused(daemon: Daemon, run: run_pb2.Run, name: str) -> None:
    for size in (-1, -(2**31)):
        refusal = refused(lambda size=size: lists(daemon, run)[name](size, ""))  # type: ignore[misc]
        assert refusal.code is INVALID
        assert [field for field, _ in refusal.violations] == [f"{STEP.get(name, '')}page_size"]


@pytest.mark.parametrize("name", LISTS)
def test_the_largest_page_size_is_taken_as_the_most(daemon: Daemon, run: run_pb2.Run, name: str) -> None:
    lists(daemon, run)[name](2**31 - 1, "")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("given", ["!", "a", "日本", token(b"\xff\xfe"), "=" * 9, "x" * 100_000])
def test_a_token_that_no_list_gave_is_refused(daemon: Daemon, run: run_pb2.Run, name: str, given: str) -> None:
    refusal = refused(lambda: lists(daemon, run)[name](10, given))
    assert refusal.code is INVALID
    assert [field for field, _ in refusal.violations] == [f"{STEP.get(name, '')}page_token"]


@pytest.mark.parametrize("name", ["ListWorkflowVersions", "GetRun"])
@pytest.mark.parametrize("given", ["name", "-1", "²", "٣", "9" * 30, "9" * 5000, "1\0"])
def test_a_token_of_another_list_is_refused(daemon: Daemon, run: run_pb2.Run, name: str, given: str) -> None:
    refusal = refused(lambda: lists(daemon, run)[name](10, token(given)))
    assert refusal.code is INVALID
    assert [field for field, _ in refusal.violations] == [f"{STEP.get(name, '')}page_token"]


def test_a_page_behind_the_last_step_is_empty(daemon: Daemon, run: run_pb2.Run) -> None:
    page = lists(daemon, run)["GetRun"](10, token("7000"))
    assert list(page.run.steps) == []
    assert page.next_step_page_token == ""


@pytest.mark.parametrize("run_id", ["", "x", NOWHERE, "日本", "x" * 100_000, "../.."])
def test_an_unknown_run_is_not_found_by_any_call(daemon: Daemon, run_id: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: daemon.get_run(run_id),
        lambda: daemon.cancel(run_id),
        lambda: daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=run_id), timeout=20),
        lambda: daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run_id), timeout=20),
        lambda: daemon.runs.StreamLogs(run_pb2.StreamLogsRequest(run_id=run_id, step="only"), timeout=20),
        lambda: daemon.runs.RetryRun(run_pb2.RetryRunRequest(id=run_id), timeout=20),
        lambda: daemon.runs.PauseRun(run_pb2.PauseRunRequest(id=run_id), timeout=20),
        lambda: daemon.runs.ResumeRun(run_pb2.ResumeRunRequest(id=run_id), timeout=20),
        lambda: daemon.runs.DeleteRun(run_pb2.DeleteRunRequest(id=run_id), timeout=20),
        lambda: daemon.runs.DecideApproval(
            run_pb2.DecideApprovalRequest(run_id=run_id, step="only", decision=run_pb2.APPROVAL_DECISION_APPROVED),
            timeout=20,
        ),
        lambda: daemon.runs.ListArtifacts(run_pb2.ListArtifactsRequest(run_id=run_id), timeout=20),
        lambda: daemon.runs.DownloadArtifact(
            run_pb2.DownloadArtifactRequest(run_id=run_id, step="only", name="x"), timeout=20
        ),
    ]
    if run_id:
        calls.append(lambda: daemon.processes(run_id))
    for call in calls:
        refusal = refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
        assert run_id.startswith(refusal.metadata["run_id"].removesuffix("…"))


@pytest.mark.parametrize("name", ["", "x", "日本", "x" * 100_000, "../.."])
def test_an_unknown_job_or_dead_letter_is_not_found_by_any_call(daemon: Daemon, name: str) -> None:
    of_job: list[Callable[[], object]] = [
        lambda: daemon.jobs.GetJob(job_pb2.GetJobRequest(name=name), timeout=20),
        lambda: daemon.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=name), timeout=20),
        lambda: daemon.jobs.RunJob(job_pb2.RunJobRequest(name=name), timeout=20),
    ]
    of_letter: list[Callable[[], object]] = [
        lambda: daemon.dead_letters.GetDeadLetter(dead_letter_pb2.GetDeadLetterRequest(id=name), timeout=20),
        lambda: daemon.dead_letters.RequeueDeadLetter(dead_letter_pb2.RequeueDeadLetterRequest(id=name), timeout=20),
        lambda: daemon.dead_letters.DiscardDeadLetter(dead_letter_pb2.DiscardDeadLetterRequest(id=name), timeout=20),
    ]
    for calls, reason in ((of_job, "JOB_NOT_FOUND"), (of_letter, "DEAD_LETTER_NOT_FOUND")):
        for call in calls:
            refusal = refused(call)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, reason)


def test_a_version_that_cannot_be_is_not_restored(daemon: Daemon, run: run_pb2.Run) -> None:
    for version in (0, -1, 2, 2**63 - 1):
        asked = pb.RestoreWorkflowVersionRequest(workflow="fine", version=version)
        refusal = refused(lambda a=asked: daemon.workflows.RestoreWorkflowVersion(a, timeout=20))  # type: ignore[misc]
        assert refusal.reason == "VERSION_NOT_FOUND"


def test_an_unknown_process_is_not_found(daemon: Daemon) -> None:
    request = run_pb2.GetProcessExecutionRequest(id=NOWHERE)
    refusal = refused(lambda: daemon.runs.GetProcessExecution(request, timeout=20))
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    assert refusal.reason == "PROCESS_EXECUTION_NOT_FOUND"
    assert refusal.metadata == {"process_execution_id": NOWHERE}


def stream(daemon: Daemon, run: run_pb2.Run, **fields: Any) -> Callable[[], object]:
    request = run_pb2.StreamLogsRequest(run_id=run.id, **fields)
    return lambda: daemon.runs.StreamLogs(request, timeout=20)


def test_an_unknown_step_has_no_log(daemon: Daemon, run: run_pb2.Run) -> None:
    refusal = refused(stream(daemon, run, step="other"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "STEP_NOT_FOUND")
    assert refusal.metadata == {"run_id": run.id, "step": "other"}


@pytest.mark.parametrize(
    "position",
    [
        "x",
        "2.0",
        "1",
        "1.",
        "1.-1",
        "1.0.0",
        "1.0.0-",
        "1.0.0-x",
        "1.0.0--2",
        "1.0.-1-0",
        "1.0.0-0-0",
        "1.٣",
        "1.1_0",
        "1. 1",
        f"1.{2**80}",
        f"1.0.{2**80}-0",
        f"1.0.0-{2**80}",
        f"1.0.0-{2**62}",
        "1.0.0-0+",
        "1.0.0--1+1",
        "1.0.0-0+x",
        f"1.0.0-0+{2**80}",
        "1.2",
        "1.0.1-0",
        "1.0.0-999999",
        "1." + "9" * 5000,
        "1.0." + ".".join(f"{n}-0" for n in range(20_000)),
    ],
    ids=lambda text: text[:20],
)
def test_a_position_that_no_stream_gave_is_refused(daemon: Daemon, run: run_pb2.Run, position: str) -> None:
    for follow in (False, True):
        refusal = refused(stream(daemon, run, position=position, follow=follow))
        assert (refusal.code, refusal.reason) == (INVALID, "INVALID_POSITION")
        assert [field for field, _ in refusal.violations] == ["position"]
        assert len(refusal.text) < 1000


def test_an_offset_where_no_piece_begins_gives_no_bytes_and_does_not_pretend(daemon: Daemon, run: run_pb2.Run) -> None:
    (end,) = daemon.chunks(run.id, "1.0.0-7")
    assert end.HasField("end")
    assert not end.end.complete


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"tail": -1}, "tail"),
        ({"step": "only", "attempt": -1}, "attempt"),
        ({"attempt": 1}, "attempt"),
        ({"tail": 1, "position": "1.0"}, "tail"),
        ({"streams": [99]}, "streams"),
        ({"since": timestamp_pb2.Timestamp(seconds=2**62)}, "since"),
        ({"since": timestamp_pb2.Timestamp(nanos=-5)}, "since"),
    ],
    ids=str,
)
def test_a_wrong_selection_of_a_log_is_refused(
    daemon: Daemon, run: run_pb2.Run, fields: dict[str, Any], wrong: str
) -> None:
    refusal = refused(stream(daemon, run, **fields))
    assert refusal.code is INVALID
    assert [field for field, _ in refusal.violations] == [wrong]


def test_a_wrong_sequence_number_is_refused(daemon: Daemon, run: run_pb2.Run) -> None:
    for after in (-1, -(2**63), 1000, 2**63 - 1):
        request = run_pb2.WatchRunRequest(id=run.id, after_sequence=after)
        refusal = refused(lambda r=request: daemon.runs.WatchRun(r, timeout=20))  # type: ignore[misc]
        assert refusal.code is INVALID
        assert [field for field, _ in refusal.violations] == ["after_sequence"]


def test_states_that_do_not_exist_are_refused(daemon: Daemon) -> None:
    for state in (0, 99, -1):
        request = run_pb2.ListRunsRequest(states=[cast(Any, state)])
        refusal = refused(lambda r=request: daemon.runs.ListRuns(r, timeout=20))  # type: ignore[misc]
        assert refusal.code is INVALID
        assert [field for field, _ in refusal.violations] == ["states"]
        asked = dead_letter_pb2.ListDeadLettersRequest(states=[cast(Any, state)])
        refusal = refused(lambda a=asked: daemon.dead_letters.ListDeadLetters(a, timeout=20))  # type: ignore[misc]
        assert [field for field, _ in refusal.violations] == ["states"]


def test_a_trigger_that_nobody_can_be_is_refused(daemon: Daemon, run: run_pb2.Run) -> None:
    for trigger in (77, run_pb2.TRIGGER_RETRY, run_pb2.TRIGGER_PARENT):
        request = run_pb2.StartRunRequest(workflow="fine", triggered_by=cast(Any, trigger))
        refusal = refused(lambda r=request: daemon.runs.StartRun(r, timeout=20))  # type: ignore[misc]
        assert refusal.code is INVALID
        assert [field for field, _ in refusal.violations] == ["triggered_by"]


def deep(levels: int) -> struct_pb2.Value:
    value = struct_pb2.Value(string_value="bottom")
    for _ in range(levels):
        value = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))
    return value


@pytest.mark.parametrize(
    "value",
    [
        struct_pb2.Value(number_value=math.nan),
        struct_pb2.Value(number_value=math.inf),
        struct_pb2.Value(),
        struct_pb2.Value(string_value="a\0b"),
        deep(40),
    ],
    ids=["nan", "inf", "nothing", "nul", "deep"],
)
def test_values_that_no_parameter_can_take_are_refused(
    daemon: Daemon, run: run_pb2.Run, value: struct_pb2.Value
) -> None:
    request = run_pb2.StartRunRequest(workflow="fine")
    request.params.fields["day"].CopyFrom(value)
    refusal = refused(lambda: daemon.runs.StartRun(request, timeout=20))
    assert (refusal.code, refusal.reason) == (INVALID, "INVALID_PARAMS")
    assert [field for field, _ in refusal.violations] == ["params.day"]


def test_a_large_definition_is_stored_and_one_beyond_the_limit_is_not(daemon: Daemon) -> None:
    comment = "# " + "x" * 998 + "\n"
    text = "name: commented\ndescription: with a long comment\nsteps: [{name: only, run: 'true'}]\n"
    made = daemon.apply(text + comment * 1000)
    assert len(made.definition.source) > 1_000_000
    assert run_state(daemon.run("commented")) == "SUCCEEDED"
    definition = pb.Definition(source=text + comment * 20_000)
    with pytest.raises(grpc.RpcError) as caught:
        daemon.workflows.CreateWorkflow(pb.CreateWorkflowRequest(definition=definition), timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_definition_with_many_problems_is_refused_with_those_that_fit(daemon: Daemon) -> None:
    steps = {f"s{n}": {"run": "true", "depends_on": [f"nobody{n}"]} for n in range(1000)}
    text = json.dumps({"name": "wrong", "description": "日本語" * 100, "steps": steps})
    refusal = refused(lambda: daemon.apply(text))
    assert (refusal.code, refusal.reason) == (INVALID, "INVALID_DEFINITION")
    assert "1000 problems" in refusal.text
    assert refusal.metadata == {"problems": "1000"}
    assert 10 < len(refusal.problems) < 1000
    assert len(refusal.violations) == len(refusal.problems)
    assert [each.path for each in refusal.problems[:2]] == [
        "steps.s0.depends_on[0]",
        "steps.s1.depends_on[0]",
    ]
    request = pb.ValidateWorkflowRequest(definition=pb.Definition(source=text))
    answer = daemon.workflows.ValidateWorkflow(request, timeout=20)
    assert len(answer.problems) == 1000
    assert list(answer.problems)[: len(refusal.problems)] == refusal.problems


def test_many_wrong_parameters_are_refused_with_those_that_fit(daemon: Daemon, run: run_pb2.Run) -> None:
    wrong = {f"日本{n}" * 30: "x" for n in range(300)}
    refusal = refused(lambda: daemon.start_run("fine", **wrong))
    assert (refusal.code, refusal.reason) == (INVALID, "INVALID_PARAMS")
    assert 3 < len(refusal.violations) < 300


def test_an_unknown_call_harms_nobody(daemon: Daemon) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        cast(Any, daemon.channel).unary_unary("/toban.v1.RunService/Nothing")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "step",
    [
        r'{"run": "x", "when": "// x"}',
        r'{"run": "x", "when": "{[1]: true}"}',
        r'{"run": "x", "when": "\ud800 == 1"}',
        r'{"run": "echo {{ {null: 1} }}"}',
        r'{"run": "\ud800"}',
        r'{"\ud800": "x"}',
        '{"run": "x", "for_each": {'
        + ", ".join(f'"k{number}": [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]' for number in range(4300))
        + "}}",
    ],
    ids=["comment", "list key", "half in when", "null key", "half", "half in a key", "matrix"],
)
def test_definitions_that_made_the_reader_itself_fail(daemon: Daemon, step: str) -> None:
    source = f'{{"name": "odd", "description": "x", "steps": {{"a": {step}}}}}'
    request = pb.ValidateWorkflowRequest(definition=pb.Definition(source=source))
    problems = daemon.workflows.ValidateWorkflow(request, timeout=60).problems
    assert any(not problem.warning for problem in problems)
    create = pb.CreateWorkflowRequest(definition=pb.Definition(source=source))
    assert refused(lambda: daemon.workflows.CreateWorkflow(create, timeout=60)).code is INVALID


def test_half_a_character_in_a_parameter(daemon: Daemon) -> None:
    daemon.apply("name: halves\ndescription: x\nparams: {m: {type: mapping}}\nsteps: {a: {run: x}}\n")
    for given in (r'"\ud800"', r'{"\ud800": 1}', r'{"a": "\ud800"}'):
        request = run_pb2.StartRunRequest(workflow="halves")
        request.params.update({"m": given})
        assert refused(lambda: daemon.runs.StartRun(request, timeout=20)).code is INVALID  # noqa: B023
