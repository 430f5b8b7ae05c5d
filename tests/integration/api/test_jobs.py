"""JobService: storing jobs, using them in workflows, and running them alone."""

from __future__ import annotations

import json

import grpc
from google.protobuf import field_mask_pb2

from helpers.daemon import Daemon, run_state, step_states
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import job_pb2 as pb
from toban.v1 import run_pb2, system_pb2, workflow_pb2


def source(name: str, run: str = "true", **fields: object) -> str:
    return json.dumps({"jobs": {name: {"run": run, **fields}}})


def create(daemon: Daemon, text: str, **more: str) -> pb.Job:
    definition = workflow_pb2.Definition(source=text)
    return daemon.jobs.CreateJob(pb.CreateJobRequest(definition=definition, **more), timeout=20).job


def update(daemon: Daemon, name: str, text: str, etag: str = "") -> pb.UpdateJobResponse:
    job = pb.Job(name=name, etag=etag, definition=workflow_pb2.Definition(source=text))
    return daemon.jobs.UpdateJob(pb.UpdateJobRequest(job=job), timeout=20)


def get(daemon: Daemon, name: str) -> pb.Job:
    return daemon.jobs.GetJob(pb.GetJobRequest(name=name), timeout=20).job


def use(daemon: Daemon, name: str, job: str, **fields: object) -> workflow_pb2.Workflow:
    steps = {"only": {"job": job, **fields}}
    return daemon.apply(json.dumps({"name": name, "description": "for a test", "steps": steps}))


def run_job(daemon: Daemon, name: str, request_id: str = "") -> run_pb2.Run:
    asked = pb.RunJobRequest(name=name, request_id=request_id)
    return daemon.jobs.RunJob(asked, timeout=20).run


def test_a_created_job_comes_back_as_it_was_given(daemon: Daemon) -> None:
    text = source("job-made", title="Made", description="for a test", labels={"team": "tools"})
    made = create(daemon, text)
    assert get(daemon, "job-made") == made
    assert (made.name, made.title, made.version, made.enabled) == ("job-made", "Made", 1, True)
    assert (dict(made.labels), list(made.used_by)) == ({"team": "tools"}, [])
    assert made.definition.source == text
    (step,) = json.loads(made.definition.parsed_json)["steps"]
    assert step["id"] == "job-made"


def test_a_repeated_request_creates_no_second_job(daemon: Daemon) -> None:
    text = source("job-once")
    first = create(daemon, text, request_id="job-once")
    assert create(daemon, text, request_id="job-once") == first
    taken = refused(lambda: create(daemon, text))
    assert (taken.code, taken.reason) == (grpc.StatusCode.ALREADY_EXISTS, "JOB_EXISTS")
    assert taken.metadata == {"job": "job-once"}


def test_names_are_shared_with_workflows(daemon: Daemon) -> None:
    create(daemon, source("job-name"))
    daemon.apply('{"name": "flow-name", "description": "d", "steps": [{"name": "a", "run": "true"}]}')
    assert refused(lambda: create(daemon, source("flow-name"))).reason == "WORKFLOW_EXISTS"
    flow = '{"name": "job-name", "description": "d", "steps": [{"name": "a", "run": "true"}]}'
    assert refused(lambda: daemon.apply(flow)).reason == "JOB_EXISTS"
    missing = refused(lambda: get(daemon, "flow-name"))
    assert (missing.code, missing.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")
    asked = workflow_pb2.GetWorkflowRequest(name="job-name")
    found = refused(lambda: daemon.workflows.GetWorkflow(asked, timeout=20))
    assert found.reason == "WORKFLOW_NOT_FOUND"


def test_jobs_are_listed_in_pages_and_workflows_are_not_among_them(daemon: Daemon) -> None:
    labels = {"list": "jobs"}
    for number in range(5):
        create(daemon, source(f"listed-{number}", labels=labels))
    found, token = [], ""
    while True:
        asked = pb.ListJobsRequest(page_size=2, page_token=token, labels=labels)
        page = daemon.jobs.ListJobs(asked, timeout=20)
        assert all(not job.HasField("definition") for job in page.jobs)
        found += [job.name for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert found == [f"listed-{number}" for number in range(5)]
    listed = workflow_pb2.ListWorkflowsRequest(labels=labels)
    assert not daemon.workflows.ListWorkflows(listed, timeout=20).workflows
    info = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20)
    assert info.jobs >= 5


def test_a_change_of_a_job_reaches_those_who_use_it(daemon: Daemon) -> None:
    create(daemon, source("shared", "echo one"))
    use(daemon, "user-a", "shared")
    use(daemon, "user-b", "shared", env={"A": "1"})
    before = daemon.run("user-a")
    assert list(get(daemon, "shared").used_by) == ["user-a", "user-b"]
    answer = update(daemon, "shared", source("shared", "echo two"))
    assert (answer.changed, answer.job.version) == (True, 2)
    assert list(answer.updated_workflows) == ["user-a", "user-b"]
    after = daemon.run("user-a")
    assert (before.version, after.version) == (1, 2)
    assert daemon.log_of(after.id)[run_pb2.LOG_STREAM_STDOUT] == b"two\n"
    assert (after.steps[0].job, daemon.processes(after.id)[0].job) == ("shared", "shared")
    again = update(daemon, "shared", source("shared", "echo two"))
    assert not again.changed
    assert not again.updated_workflows


def test_a_change_that_a_user_could_not_bear_changes_nothing(daemon: Daemon) -> None:
    create(daemon, source("strict", "true"))
    use(daemon, "strict-user", "strict", success_codes=[0, 1])
    approval = json.dumps({"jobs": {"strict": {"job_type": "approval"}}})
    refusal = refused(lambda: update(daemon, "strict", approval))
    assert refusal.reason == "INVALID_DEFINITION"
    assert any("strict-user" in problem.message for problem in refusal.problems)
    assert get(daemon, "strict").version == 1


def test_an_update_is_of_the_definition_and_of_what_was_read(daemon: Daemon) -> None:
    made = create(daemon, source("etag-job"))
    update(daemon, "etag-job", source("etag-job", "false"), made.etag)
    late = refused(lambda: update(daemon, "etag-job", source("etag-job"), made.etag))
    assert late.reason == "ETAG_MISMATCH"
    mask = field_mask_pb2.FieldMask(paths=["title"])
    asked = pb.UpdateJobRequest(job=pb.Job(name="etag-job"), update_mask=mask)
    assert refused(lambda: daemon.jobs.UpdateJob(asked, timeout=20)).violations[0][0] == ("update_mask")
    unknown = refused(lambda: update(daemon, "no-such-job", source("no-such-job")))
    assert unknown.reason == "JOB_NOT_FOUND"


def test_a_job_in_use_is_not_deleted(daemon: Daemon) -> None:
    create(daemon, source("kept-job"))
    use(daemon, "keeper", "kept-job")
    asked = pb.DeleteJobRequest(name="kept-job")
    refusal = refused(lambda: daemon.jobs.DeleteJob(asked, timeout=20))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "JOB_IN_USE")
    assert refusal.metadata == {"workflows": "keeper"}
    daemon.workflows.DeleteWorkflow(workflow_pb2.DeleteWorkflowRequest(name="keeper"), timeout=20)
    daemon.jobs.DeleteJob(asked, timeout=20)
    assert refused(lambda: daemon.jobs.DeleteJob(asked, timeout=20)).reason == "JOB_NOT_FOUND"


def test_a_disabled_job_is_started_by_people_and_workflows_only(daemon: Daemon) -> None:
    create(daemon, source("due-job", schedule={"every": "1s"}))
    runs = run_pb2.ListRunsRequest(workflow="due-job")
    wait_until(lambda: daemon.runs.ListRuns(runs, timeout=20).runs, "it is not due")
    asked = pb.SetJobEnabledRequest(name="due-job", enabled=False)
    disabled = daemon.jobs.SetJobEnabled(asked, timeout=20).job
    assert (disabled.enabled, disabled.version) == (False, 1)
    assert get(daemon, "due-job") == disabled
    fires = workflow_pb2.ListFiresRequest(workflow="due-job")
    skipped = wait_until(
        lambda: [
            each
            for each in daemon.workflows.ListFires(fires, timeout=20).fires
            if each.outcome == workflow_pb2.FIRE_OUTCOME_SKIPPED
        ],
        "nothing is skipped",
    )
    assert skipped[0].reason == workflow_pb2.NOT_STARTED_REASON_DISABLED
    for each in daemon.runs.ListRuns(runs, timeout=20).runs:
        daemon.wait_run(each.id)
    use(daemon, "due-user", "due-job")
    for run_id in (run_job(daemon, "due-job").id, daemon.start_run("due-user")):
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    daemon.jobs.SetJobEnabled(pb.SetJobEnabledRequest(name="due-job", enabled=True), timeout=20)
    assert get(daemon, "due-job").enabled
    daemon.workflows.DeleteWorkflow(workflow_pb2.DeleteWorkflowRequest(name="due-user"), timeout=20)
    asked = pb.SetJobEnabledRequest(name="due-user", enabled=False)
    unknown = refused(lambda: daemon.jobs.SetJobEnabled(asked, timeout=20))
    assert (unknown.code, unknown.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")
    # It is nobody else's business how often it is due.
    daemon.jobs.SetJobEnabled(pb.SetJobEnabledRequest(name="due-job"), timeout=20)


def test_a_job_runs_alone(daemon: Daemon) -> None:
    create(daemon, source("alone", "echo {{ run.workflow }}"))
    first = run_job(daemon, "alone", request_id="alone")
    run = daemon.wait_run(first.id)
    assert (run.workflow, run.number, run_state(run)) == ("alone", 1, "SUCCEEDED")
    assert step_states(run) == {"alone": "SUCCEEDED"}
    assert daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT] == b"alone\n"
    assert run_job(daemon, "alone", request_id="alone").id == first.id
    use(daemon, "not-a-job", "alone")
    assert refused(lambda: run_job(daemon, "not-a-job")).reason == "JOB_NOT_FOUND"
    assert refused(lambda: run_job(daemon, "nothing")).reason == "JOB_NOT_FOUND"


def test_versions_of_a_job_are_listed_and_restored(daemon: Daemon) -> None:
    create(daemon, source("old-job", "echo old"))
    use(daemon, "old-user", "old-job")
    update(daemon, "old-job", source("old-job", "echo new"))
    asked = workflow_pb2.RestoreWorkflowVersionRequest(workflow="old-job", version=1)
    restored = daemon.workflows.RestoreWorkflowVersion(asked, timeout=20)
    assert (restored.changed, restored.version.version) == (True, 3)
    listed = workflow_pb2.ListWorkflowVersionsRequest(workflow="old-job")
    versions = daemon.workflows.ListWorkflowVersions(listed, timeout=20).versions
    assert [each.version for each in versions] == [3, 2, 1]
    run = daemon.run("old-user")
    assert (run.version, daemon.log_of(run.id)[run_pb2.LOG_STREAM_STDOUT]) == (3, b"old\n")


def test_validation_knows_the_stored_jobs(daemon: Daemon) -> None:
    create(daemon, source("known-job"))

    def problems(job: str) -> list[str]:
        steps = {"a": {"job": job}}
        text = json.dumps({"name": "v", "description": "d", "steps": steps})
        definition = workflow_pb2.Definition(source=text)
        asked = workflow_pb2.ValidateWorkflowRequest(definition=definition)
        return [each.path for each in daemon.workflows.ValidateWorkflow(asked, timeout=20).problems]

    assert problems("known-job") == []
    assert problems("unknown-job") == ["steps.a.job"]
