"""A request for every RPC of the contract, about one of several targets.

Each passes the checks of permissions if its caller may make it, and then changes as little as it can: it has a stale
etag, an unknown step, a run that has ended.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from toban.v1 import (
    access_pb2,
    dead_letter_pb2,
    event_pb2,
    history_pb2,
    hook_pb2,
    job_pb2,
    run_pb2,
    schedule_pb2,
    secret_pb2,
    system_pb2,
    workflow_pb2,
)

STALE = "999-999"


def source_of(name: str) -> str:
    """The definition of a target's workflow."""
    return (
        f"name: {name}\ndescription: d\nlabels: {{team: {name}}}\nsteps:\n- name: only\n  run: echo hi > out\n"
        "  outputs: [{name: out, path: out}]\n"
        "- {name: fails, run: exit 1, on_failure: retry, max_retries: 1, retry: {delay: 0s}}\n"
    )


def job_source_of(name: str) -> str:
    return f"jobs: {{{name}-job: {{run: 'true', labels: {{team: {name}}}}}}}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where `workflow` is empty, the target has only a run with its process, and an event."""

    workflow: str
    run: str
    attempt: str
    event: str = ""
    letter: str = ""
    schedule: str = ""
    hook_secret: str = ""
    pinned: str = ""
    doomed: Iterator[str] = field(default_factory=lambda: iter(()))
    """Hooks to delete: one for each call."""


def _definition(source: str) -> workflow_pb2.Definition:
    return workflow_pb2.Definition(source=source)


def _update(target: Target) -> workflow_pb2.UpdateWorkflowRequest:
    changed = source_of(target.workflow).replace("echo hi", "echo ho")
    workflow = workflow_pb2.Workflow(name=target.workflow, etag=STALE, definition=_definition(changed))
    return workflow_pb2.UpdateWorkflowRequest(workflow=workflow)


def _update_job(target: Target) -> job_pb2.UpdateJobRequest:
    changed = job_source_of(target.workflow).replace("true", "false")
    job = job_pb2.Job(name=f"{target.workflow}-job", etag=STALE, definition=_definition(changed))
    return job_pb2.UpdateJobRequest(job=job)


def _backfill(target: Target) -> workflow_pb2.BackfillScheduleRequest:
    request = workflow_pb2.BackfillScheduleRequest(workflow=target.workflow, validate_only=True)
    request.from_time.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    request.to_time.FromDatetime(datetime(2026, 1, 2, tzinfo=UTC))
    return request


_WORKFLOWS: Mapping[str, Callable[[Target], Any]] = {
    "CreateWorkflow": lambda to: workflow_pb2.CreateWorkflowRequest(definition=_definition(source_of(to.workflow))),
    "GetWorkflow": lambda to: workflow_pb2.GetWorkflowRequest(name=to.workflow),
    "ListWorkflows": lambda _: workflow_pb2.ListWorkflowsRequest(),
    "ListWorkflowSummaries": lambda _: workflow_pb2.ListWorkflowSummariesRequest(),
    "GetOverview": lambda _: workflow_pb2.GetOverviewRequest(),
    "UpdateWorkflow": _update,
    "DeleteWorkflow": lambda to: workflow_pb2.DeleteWorkflowRequest(name=to.workflow, etag=STALE),
    "ValidateWorkflow": lambda to: workflow_pb2.ValidateWorkflowRequest(definition=_definition(source_of(to.workflow))),
    "ApplyDefinitions": lambda to: workflow_pb2.ApplyDefinitionsRequest(
        texts=[workflow_pb2.DefinitionText(definition=_definition(source_of(to.workflow)))], validate_only=True
    ),
    "ListWorkflowVersions": lambda to: workflow_pb2.ListWorkflowVersionsRequest(workflow=to.workflow),
    "GetWorkflowVersion": lambda to: workflow_pb2.GetWorkflowVersionRequest(workflow=to.workflow, version=1),
    "RestoreWorkflowVersion": lambda to: workflow_pb2.RestoreWorkflowVersionRequest(workflow=to.workflow, version=99),
    "SetWorkflowEnabled": lambda to: workflow_pb2.SetWorkflowEnabledRequest(name=to.workflow, enabled=True),
    "PreviewSchedule": lambda to: workflow_pb2.PreviewScheduleRequest(workflow=to.workflow),
    "BackfillSchedule": _backfill,
    "ExplainSchedule": lambda to: workflow_pb2.ExplainScheduleRequest(workflow=to.workflow),
    "ListFires": lambda to: workflow_pb2.ListFiresRequest(workflow=to.workflow),
}
_JOBS: Mapping[str, Callable[[Target], Any]] = {
    "CreateJob": lambda to: job_pb2.CreateJobRequest(definition=_definition(job_source_of(to.workflow))),
    "GetJob": lambda to: job_pb2.GetJobRequest(name=f"{to.workflow}-job"),
    "ListJobs": lambda _: job_pb2.ListJobsRequest(),
    "UpdateJob": _update_job,
    "DeleteJob": lambda to: job_pb2.DeleteJobRequest(name=f"{to.workflow}-job", etag=STALE),
    "SetJobEnabled": lambda to: job_pb2.SetJobEnabledRequest(name=f"{to.workflow}-job", enabled=True),
    # It is no job.
    "RunJob": lambda to: job_pb2.RunJobRequest(name=to.workflow),
}
_RUNS: Mapping[str, Callable[[Target], Any]] = {
    "StartRun": lambda to: run_pb2.StartRunRequest(workflow=to.workflow, only=["absent"]),
    "PlanRun": lambda to: run_pb2.PlanRunRequest(workflow=to.workflow),
    "GetRun": lambda to: run_pb2.GetRunRequest(id=to.run),
    "GetCurrentRun": lambda to: run_pb2.GetCurrentRunRequest(workflow=to.workflow),
    "ListRuns": lambda _: run_pb2.ListRunsRequest(),
    "FindIds": lambda to: run_pb2.FindIdsRequest(kind=run_pb2.ID_KIND_RUN, part=to.run[:8]),
    "CancelRun": lambda to: run_pb2.CancelRunRequest(id=to.run),
    "RetryRun": lambda to: run_pb2.RetryRunRequest(id=to.run, from_steps=["absent"]),
    "PauseRun": lambda to: run_pb2.PauseRunRequest(id=to.run),
    "ResumeRun": lambda to: run_pb2.ResumeRunRequest(id=to.run),
    "DecideApproval": lambda to: run_pb2.DecideApprovalRequest(
        run_id=to.run, step="only", decision=run_pb2.APPROVAL_DECISION_APPROVED
    ),
    "DeleteRun": lambda to: run_pb2.DeleteRunRequest(id=to.pinned),
    "PinRun": lambda to: run_pb2.PinRunRequest(id=to.pinned),
    "UnpinRun": lambda to: run_pb2.UnpinRunRequest(id=to.run),
    "WatchRun": lambda to: run_pb2.WatchRunRequest(id=to.run),
    "WatchRuns": lambda _: run_pb2.WatchRunsRequest(only_changes=True),
    "StreamLogs": lambda to: run_pb2.StreamLogsRequest(run_id=to.run),
    "ReadLog": lambda to: run_pb2.ReadLogRequest(process_execution_id=to.attempt),
    "SearchLogs": lambda to: run_pb2.SearchLogsRequest(run_id=to.run, text="hi"),
    "ListProcessExecutions": lambda to: run_pb2.ListProcessExecutionsRequest(run_id=to.run),
    "GetProcessExecution": lambda to: run_pb2.GetProcessExecutionRequest(id=to.attempt),
    "ListArtifacts": lambda to: run_pb2.ListArtifactsRequest(run_id=to.run),
    "DownloadArtifact": lambda to: run_pb2.DownloadArtifactRequest(run_id=to.run, step="only", name="out"),
}
_LETTERS: Mapping[str, Callable[[Target], Any]] = {
    "ListDeadLetters": lambda _: dead_letter_pb2.ListDeadLettersRequest(),
    "GetDeadLetter": lambda to: dead_letter_pb2.GetDeadLetterRequest(id=to.letter),
    # It was discarded.
    "RequeueDeadLetter": lambda to: dead_letter_pb2.RequeueDeadLetterRequest(id=to.letter),
    "DiscardDeadLetter": lambda to: dead_letter_pb2.DiscardDeadLetterRequest(id=to.letter),
}
_EVENTS: Mapping[str, Callable[[Target], Any]] = {
    "EmitEvent": lambda _: event_pb2.EmitEventRequest(type="MATRIX", payload_json="{"),
    "GetEvent": lambda to: event_pb2.GetEventRequest(id=to.event),
    "ListEvents": lambda _: event_pb2.ListEventsRequest(),
    "WatchEvents": lambda _: event_pb2.WatchEventsRequest(),
    "ResolveEvent": lambda _: event_pb2.ResolveEventRequest(type="MATRIX"),
}
_SCHEDULES: Mapping[str, Callable[[Target], Any]] = {
    "CreateSchedule": lambda to: schedule_pb2.CreateScheduleRequest(workflow=to.workflow, subject="matrix"),
    "GetSchedule": lambda to: schedule_pb2.GetScheduleRequest(id=to.schedule),
    "ListSchedules": lambda to: schedule_pb2.ListSchedulesRequest(subject="matrix"),
    "CancelSchedule": lambda to: schedule_pb2.CancelScheduleRequest(id=to.schedule),
    "CancelBySubject": lambda _: schedule_pb2.CancelBySubjectRequest(subject="absent"),
    "InterpretTime": lambda _: schedule_pb2.InterpretTimeRequest(words="tomorrow at 9"),
}


def _delivery(target: Target) -> hook_pb2.DeliverHookRequest:
    """A signed ping, which changes nothing."""
    signature = hmac.new(target.hook_secret.encode(), b"{}", "sha256").hexdigest()
    headers = {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Delivery": "matrix",
        "X-GitHub-Event": "ping",
    }
    return hook_pb2.DeliverHookRequest(name=f"{target.workflow}-hook", headers=headers, body=b"{}")


_HOOKS: Mapping[str, Callable[[Target], Any]] = {
    "CreateHook": lambda to: hook_pb2.CreateHookRequest(name="not a name", workflow=to.workflow),
    "GetHook": lambda to: hook_pb2.GetHookRequest(name=f"{to.workflow}-hook"),
    "ListHooks": lambda _: hook_pb2.ListHooksRequest(),
    "DeleteHook": lambda to: hook_pb2.DeleteHookRequest(name=next(to.doomed)),
    "DeliverHook": _delivery,
}
_HISTORY: Mapping[str, Callable[[Target], Any]] = {
    "CountRunsByDay": lambda _: history_pb2.CountRunsByDayRequest(days=1),
    "ListRunGrid": lambda to: history_pb2.ListRunGridRequest(workflow=to.workflow),
    "GetEventChain": lambda to: history_pb2.GetEventChainRequest(id=to.event),
}
_SYSTEM: Mapping[str, Callable[[Target], Any]] = {
    "GetInfo": lambda _: system_pb2.GetInfoRequest(),
    "GetConfig": lambda _: system_pb2.GetConfigRequest(),
    "CollectGarbage": lambda _: system_pb2.CollectGarbageRequest(dry_run=True),
    "Doctor": lambda _: system_pb2.DoctorRequest(),
    "Backup": lambda _: system_pb2.BackupRequest(),
    "Drain": lambda _: system_pb2.DrainRequest(),
    "Resume": lambda _: system_pb2.ResumeRequest(),
    "ReloadConfig": lambda _: system_pb2.ReloadConfigRequest(),
    "Reload": lambda _: system_pb2.ReloadRequest(),
    "ListLocks": lambda _: system_pb2.ListLocksRequest(),
    "ReleaseLock": lambda _: system_pb2.ReleaseLockRequest(name="absent"),
}
_ACCESS: Mapping[str, Callable[[Target], Any]] = {
    "WhoAmI": lambda _: access_pb2.WhoAmIRequest(),
    "GetAccess": lambda _: access_pb2.GetAccessRequest(),
    "CreateToken": lambda _: access_pb2.CreateTokenRequest(name="without-role"),
    "ListTokens": lambda _: access_pb2.ListTokensRequest(),
    "RevokeToken": lambda _: access_pb2.RevokeTokenRequest(token="absent"),
    "CreateSession": lambda _: access_pb2.CreateSessionRequest(label="\n"),
    "ListSessions": lambda _: access_pb2.ListSessionsRequest(),
    "RevokeSession": lambda _: access_pb2.RevokeSessionRequest(id="absent"),
    "ListAuditEntries": lambda _: access_pb2.ListAuditEntriesRequest(page_size=1),
    "VerifyAudit": lambda _: access_pb2.VerifyAuditRequest(known_sequence=1, known_hash="wrong"),
}
_SECRETS: Mapping[str, Callable[[Target], Any]] = {
    "SetSecret": lambda _: secret_pb2.SetSecretRequest(name="not a name"),
    "GetSecret": lambda _: secret_pb2.GetSecretRequest(name="absent"),
    "ListSecrets": lambda _: secret_pb2.ListSecretsRequest(),
    "DeleteSecret": lambda _: secret_pb2.DeleteSecretRequest(name="absent"),
    "GrantSecret": lambda _: secret_pb2.GrantSecretRequest(name="absent", workflows=["x"]),
    "RevokeSecretGrant": lambda _: secret_pb2.RevokeSecretGrantRequest(name="absent", workflows=["x"]),
    "RotateSecretsKey": lambda _: secret_pb2.RotateSecretsKeyRequest(),
}
REQUESTS: Mapping[str, Callable[[Target], Any]] = {
    f"{service}/{method}": make
    for service, rows in (
        ("WorkflowService", _WORKFLOWS),
        ("JobService", _JOBS),
        ("RunService", _RUNS),
        ("DeadLetterService", _LETTERS),
        ("EventService", _EVENTS),
        ("ScheduleService", _SCHEDULES),
        ("SystemService", _SYSTEM),
        ("AccessService", _ACCESS),
        ("SecretService", _SECRETS),
        ("HookService", _HOOKS),
        ("HistoryService", _HISTORY),
    )
    for method, make in rows.items()
}
