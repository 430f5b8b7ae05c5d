"""What each RPC needs, written down a second time: a rule that is loosened in the contract alone fails the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toband.domain.identity import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`role`: the least one; None: every identity."""

    role: Role | None
    narrowed: str
    """What a narrowed identity may call it for: `all`, `own` for its own workflows, `no`, or `visible` with an answer
    that leaves out the rest."""
    step: str = "no"
    """What a step may call it for without grants: `all`, `chain` for its own run and what that started, or `no`."""
    signed: bool = False
    """The signature of the request is its only credential: who calls does not matter."""


_TEXT = """
every identity | all     | all   | AccessService: WhoAmI
signature      | all     | no    | HookService: DeliverHook
viewer         | all     | no    | AccessService: GetAccess; SystemService: GetInfo
viewer         | all     | no    | AccessService: CreateSession ListSessions RevokeSession
viewer         | own     | no    | WorkflowService: ValidateWorkflow
viewer         | all     | all   | ScheduleService: InterpretTime
viewer         | own     | no    | WorkflowService: GetWorkflow ListWorkflowVersions GetWorkflowVersion PreviewSchedule
viewer         | own     | no    | WorkflowService: ExplainSchedule; JobService: GetJob; RunService: GetCurrentRun
viewer         | own     | no    | DeadLetterService: GetDeadLetter; HookService: GetHook
viewer         | own     | all   | RunService: PlanRun; ScheduleService: GetSchedule
viewer         | own     | chain | RunService: GetRun WatchRun StreamLogs ReadLog SearchLogs
viewer         | own     | chain | RunService: ListArtifacts DownloadArtifact
viewer         | own     | chain | RunService: GetProcessExecution
viewer         | visible | no    | WorkflowService: ListWorkflows ListWorkflowSummaries GetOverview ListFires
viewer         | visible | no    | JobService: ListJobs; RunService: ListRuns FindIds WatchRuns
viewer         | own     | no    | RunService: ListProcessExecutions
viewer         | visible | no    | DeadLetterService: ListDeadLetters; HookService: ListHooks
viewer         | visible | no    | HistoryService: CountRunsByDay
viewer         | own     | no    | HistoryService: ListRunGrid
viewer         | no      | no    | HistoryService: GetEventChain
viewer         | visible | all   | ScheduleService: ListSchedules
viewer         | no      | no    | EventService: ListEvents WatchEvents ResolveEvent; SystemService: ListLocks
viewer         | no      | chain | EventService: GetEvent
operator       | own     | no    | RunService: RetryRun DecideApproval DeleteRun PinRun UnpinRun
operator       | own     | chain | RunService: CancelRun PauseRun ResumeRun
operator       | own     | all   | RunService: StartRun; JobService: RunJob
operator       | own     | no    | WorkflowService: BackfillSchedule
operator       | own     | no    | DeadLetterService: RequeueDeadLetter DiscardDeadLetter
operator       | no      | all   | EventService: EmitEvent
editor         | own     | no    | WorkflowService: CreateWorkflow UpdateWorkflow ApplyDefinitions DeleteWorkflow
editor         | own     | no    | WorkflowService: RestoreWorkflowVersion SetWorkflowEnabled
editor         | own     | no    | HookService: CreateHook DeleteHook
editor         | own     | no    | JobService: CreateJob UpdateJob DeleteJob SetJobEnabled
editor         | own     | all   | ScheduleService: CreateSchedule CancelSchedule
editor         | no      | all   | ScheduleService: CancelBySubject
admin          | no      | no    | AccessService: CreateToken ListTokens RevokeToken ListAuditEntries VerifyAudit
admin          | no      | no    | SecretService: SetSecret GetSecret ListSecrets DeleteSecret GrantSecret
admin          | no      | no    | SecretService: RevokeSecretGrant RotateSecretsKey
admin          | no      | no    | SystemService: GetConfig ReloadConfig CollectGarbage Doctor Drain Resume Reload
admin          | no      | no    | SystemService: Backup ReleaseLock
"""


def _read() -> Mapping[str, Row]:
    found: dict[str, Row] = {}
    for line in _TEXT.strip().splitlines():
        role, narrowed, step, services = (part.strip() for part in line.split("|"))
        least = None if role in ("every identity", "signature") else Role[role.upper()]
        row = Row(role=least, narrowed=narrowed, step=step, signed=role == "signature")
        for service in services.split(";"):
            name, _, methods = service.strip().partition(": ")
            for method in methods.split():
                assert found.setdefault(f"{name}/{method}", row) is row, f"{name}/{method} has two rows"
    return found


TABLE = _read()
"""By method, such as `RunService/GetRun`."""
