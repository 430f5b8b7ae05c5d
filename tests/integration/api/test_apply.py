"""ApplyDefinitions: several workflows and jobs at once, all or none."""

from __future__ import annotations

import grpc
import pytest

from helpers.daemon import Daemon
from helpers.refusal import refused
from toban.limits import MAX_APPLIED, MAX_MESSAGE_BYTES
from toban.sdk import DefinitionText, InvalidArgument, SyncClient
from toban.v1 import workflow_pb2 as pb

CREATED, UPDATED, UNCHANGED = pb.APPLY_OUTCOME_CREATED, pb.APPLY_OUTCOME_UPDATED, pb.APPLY_OUTCOME_UNCHANGED


def flow(name: str, step: str = "{run: 'true'}") -> str:
    return f"name: {name}\ndescription: for a test\nsteps:\n  only: {step}\n"


def job(name: str, run: str = "true") -> str:
    return f"jobs:\n  {name}:\n    run: '{run}'\n"


def apply(daemon: Daemon, *sources: str, **more: object) -> pb.ApplyDefinitionsResponse:
    texts = [
        pb.DefinitionText(definition=pb.Definition(source=source), file=f"{number}.yaml")
        for number, source in enumerate(sources)
    ]
    request = pb.ApplyDefinitionsRequest(texts=texts, **more)  # type: ignore[arg-type]
    return daemon.workflows.ApplyDefinitions(request, timeout=60)


def outcomes(answer: pb.ApplyDefinitionsResponse) -> dict[str, tuple[int, int]]:
    return {each.name: (each.outcome, each.version) for each in answer.definitions}


def version(daemon: Daemon, name: str) -> int:
    """0: there is none."""
    try:
        return daemon.workflows.GetWorkflow(pb.GetWorkflowRequest(name=name), timeout=20).workflow.version
    except grpc.RpcError:
        return 0


def test_workflows_and_the_jobs_that_they_use_in_any_order(daemon: Daemon) -> None:
    sources = [flow("ap-user", "{job: ap-tool}") + "---\n" + flow("ap-plain"), job("ap-tool")]
    answer = apply(daemon, *sources)
    assert answer.valid
    assert outcomes(answer) == {"ap-user": (CREATED, 1), "ap-plain": (CREATED, 1), "ap-tool": (CREATED, 1)}
    user, plain, tool = answer.definitions
    assert (user.kind, tool.kind) == (pb.DEFINITION_KIND_WORKFLOW, pb.DEFINITION_KIND_JOB)
    assert (user.file, user.line, plain.line, tool.file) == ("0.yaml", 1, 6, "1.yaml")
    stored = daemon.workflows.GetWorkflow(pb.GetWorkflowRequest(name="ap-user"), timeout=20).workflow
    assert (stored.definition.source, stored.etag) == (flow("ap-user", "{job: ap-tool}"), user.etag)
    again = apply(daemon, *sources)
    assert {outcome for outcome, _ in outcomes(again).values()} == {UNCHANGED}


def test_nothing_is_stored_if_one_is_invalid(daemon: Daemon) -> None:
    refusal = refused(lambda: apply(daemon, flow("no-good") + "---\n" + flow("no-job", "{job: nowhere}"), "name: ["))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_DEFINITION")
    assert [(each.file, each.line) for each in refusal.problems] == [("0.yaml", 9), ("1.yaml", 1)]
    assert version(daemon, "no-good") == 0


def test_a_job_that_breaks_a_workflow_may_come_with_the_workflow_that_bears_it(daemon: Daemon) -> None:
    apply(daemon, job("br-tool"), flow("br-user", "{job: br-tool, success_codes: [0, 1]}"), flow("br-other"))
    approval = "jobs:\n  br-tool: {job_type: approval}\n"
    refusal = refused(lambda: apply(daemon, flow("br-other", "{run: 'false'}"), approval))
    (problem,) = refusal.problems
    assert (problem.file, problem.path) == ("1.yaml", "jobs.br-tool")
    assert "'br-user'" in problem.message
    assert version(daemon, "br-other") == 1
    answer = apply(daemon, flow("br-user", "{job: br-tool}"), approval)
    assert outcomes(answer) == {"br-user": (UPDATED, 2), "br-tool": (UPDATED, 2)}


def test_workflows_elsewhere_get_a_new_version_with_a_changed_job(daemon: Daemon) -> None:
    apply(daemon, job("el-tool"), flow("el-user", "{job: el-tool}"))
    tool, other = apply(daemon, job("el-tool", "false"), flow("el-other", "{job: el-tool}")).definitions
    assert (list(tool.updated_workflows), list(other.updated_workflows)) == (["el-user"], [])
    assert version(daemon, "el-user") == 2


def test_validate_only_stores_nothing_and_has_all_problems(daemon: Daemon) -> None:
    apply(daemon, flow("va-old"))
    answer = apply(daemon, flow("va-old", "{run: 'false'}"), flow("va-new"), validate_only=True)
    assert answer.valid
    assert outcomes(answer) == {"va-old": (UPDATED, 2), "va-new": (CREATED, 1)}
    assert (version(daemon, "va-old"), version(daemon, "va-new")) == (1, 0)
    wrong = "name: va-wrong\nsteps:\n" + "".join(f"  s{number}: {{foo: 1}}\n" for number in range(300))
    answer = apply(daemon, flow("va-new"), wrong, "- 1\n", validate_only=True)
    good, bad, unreadable = answer.definitions
    assert not answer.valid
    assert (good.name, good.outcome, good.version) == ("va-new", pb.APPLY_OUTCOME_UNSPECIFIED, 0)
    assert not good.problems
    assert len([each for each in bad.problems if not each.warning]) >= 300
    assert (unreadable.name, unreadable.kind) == ("", pb.DEFINITION_KIND_UNSPECIFIED)
    assert unreadable.problems[0].file == "2.yaml"


def test_a_cycle_of_children(daemon: Daemon) -> None:
    child = "{{job_type: workflow, target: {}}}".format
    sources = [flow("cy-a", child("cy-b")), flow("cy-b", child("cy-a"))]
    refusal = refused(lambda: apply(daemon, *sources))
    assert (refusal.reason, refusal.metadata) == ("WORKFLOW_RECURSION", {"path": "cy-a → cy-b → cy-a"})
    first, _ = apply(daemon, *sources, validate_only=True).definitions
    assert [each.path for each in first.problems] == ["steps"]
    answer = apply(daemon, flow("cy-a", child("cy-b")))
    assert [each.warning for each in answer.definitions[0].problems] == [True]


def test_one_name_twice(daemon: Daemon) -> None:
    refusal = refused(lambda: apply(daemon, flow("tw-a"), job("tw-a")))
    (problem,) = refusal.problems
    assert problem.message == "'tw-a' is defined twice: also in 0.yaml:1"
    same = pb.DefinitionText(file="x", definition=pb.Definition(source=flow("tw-b")))
    request = pb.ApplyDefinitionsRequest(texts=[same, same])
    refusal = refused(lambda: daemon.workflows.ApplyDefinitions(request, timeout=20))
    assert refusal.violations[0][0] == "texts.file"


def test_a_name_of_the_other_kind(daemon: Daemon) -> None:
    apply(daemon, flow("ki-flow"), job("ki-job"))
    assert refused(lambda: apply(daemon, flow("ki-new"), job("ki-flow"))).reason == "WORKFLOW_EXISTS"
    assert refused(lambda: apply(daemon, flow("ki-new"), flow("ki-job"))).reason == "JOB_EXISTS"
    assert version(daemon, "ki-new") == 0


def test_etags(daemon: Daemon) -> None:
    (first,) = apply(daemon, flow("et-a")).definitions
    apply(daemon, flow("et-a", "{run: 'false'}"))
    refusal = refused(lambda: apply(daemon, flow("et-new"), flow("et-a"), etags={"et-a": first.etag}))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    assert refusal.metadata == {"name": "et-a", "etag": "2-0"}
    assert version(daemon, "et-new") == 0


def test_a_repeated_request_answers_as_the_first_one_did(daemon: Daemon) -> None:
    first = apply(daemon, job("re-tool"), flow("re-flow"), request_id="re")
    apply(daemon, flow("re-flow", "{run: 'false'}"))
    assert apply(daemon, job("re-tool"), flow("re-flow"), request_id="re") == first
    assert version(daemon, "re-flow") == 2
    assert refused(lambda: apply(daemon, flow("re-flow"), request_id="re")).reason == "REQUEST_ID_REUSED"


def test_what_is_too_much_for_one_call(daemon: Daemon) -> None:
    many = "---\n".join(flow(f"many-{number}") for number in range(MAX_APPLIED // 2 + 1))
    refusal = refused(lambda: apply(daemon, many, many.replace("many", "more")))
    assert (refusal.reason, refusal.metadata) == ("TOO_MANY_DEFINITIONS", {"limit": str(MAX_APPLIED)})
    assert refused(lambda: apply(daemon)).violations[0][0] == "texts"
    filler = "#" * (MAX_MESSAGE_BYTES // 4) + "\n"
    with SyncClient(daemon.socket) as client, pytest.raises(InvalidArgument, match="found 5 texts with 5") as large:
        client.apply_definitions(DefinitionText(source=filler + flow(f"la-{n}"), file=str(n)) for n in range(5))
    assert "expected at most 1,000 definitions and 4 MiB in one call: split them" in str(large.value)


def test_the_most_definitions_of_one_call(daemon: Daemon) -> None:
    texts = [
        DefinitionText(source="---\n".join(flow(f"most-{n}-{m}") for m in range(100)), file=f"{n}.yaml")
        for n in range(MAX_APPLIED // 100)
    ]
    with SyncClient(daemon.socket, timeout=120) as client:
        answer = client.apply_definitions(texts)
    assert [each.outcome for each in answer.definitions] == [CREATED] * MAX_APPLIED
