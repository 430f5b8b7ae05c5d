"""What each route of the gateway needs, written down a second time, with a request to try it with.

`limited` is what a caller that is limited to other workflows gets: `all` the call, `visible` an answer without the
rest, or `no`. In paths and bodies `WORKFLOW` is a workflow of the test, and `RUN` an ended run of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PUBLIC = "public"
EVERY = "every identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    role: str
    limited: str
    query: str = ""
    body: Any = None


SOURCE = "name: WORKFLOW\ndescription: Of a test.\nsteps:\n  - id: only\n    run: 'true'\n"
JOB = "jobs:\n  job-WORKFLOW:\n    description: Of a test.\n    run: 'true'\n"
_ID = "01a1f5d2-267b-705e-91f9-f1404222216a"


def _row(role: str, limited: str, query: str = "", body: Any = None) -> RouteRow:
    return RouteRow(role=role, limited=limited, query=query, body=body)


_DEFINED = {"definition": {"source": SOURCE}}
_DEFINED_JOB = {"definition": {"source": JOB}}

TABLE: Mapping[str, RouteRow] = {
    # Definitions.
    "listWorkflows": _row("viewer", "visible"),
    "createWorkflow": _row("editor", "no", body=_DEFINED),
    "getWorkflow": _row("viewer", "no"),
    "updateWorkflow": _row("editor", "no", body=_DEFINED),
    "deleteWorkflow": _row("editor", "no"),
    "enableWorkflow": _row("editor", "no"),
    "disableWorkflow": _row("editor", "no"),
    "runWorkflow": _row("operator", "no"),
    "planWorkflow": _row("viewer", "no"),
    "listWorkflowVersions": _row("viewer", "no"),
    "getWorkflowVersion": _row("viewer", "no"),
    "restoreWorkflowVersion": _row("editor", "no"),
    "diffWorkflowVersions": _row("viewer", "no"),
    "previewSchedule": _row("viewer", "no"),
    "explainSchedule": _row("viewer", "no"),
    "backfillSchedule": _row(
        "operator", "no", body={"from_time": "2026-01-01T00:00:00Z", "to_time": "2026-01-02T00:00:00Z"}
    ),
    "listFires": _row("viewer", "visible"),
    "listWorkflowSummaries": _row("viewer", "visible"),
    "getOverview": _row("viewer", "visible"),
    "validateDefinition": _row("viewer", "no", body=_DEFINED),
    "applyDefinitions": _row("editor", "no", body={"texts": [_DEFINED]}),
    "listJobs": _row("viewer", "visible"),
    "createJob": _row("editor", "no", body=_DEFINED_JOB),
    "getJob": _row("viewer", "no"),
    "updateJob": _row("editor", "no", body=_DEFINED_JOB),
    "deleteJob": _row("editor", "no"),
    "enableJob": _row("editor", "no"),
    "disableJob": _row("editor", "no"),
    "runJob": _row("operator", "no"),
    # Runs.
    "listRuns": _row("viewer", "visible"),
    "getCurrentRun": _row("viewer", "no", "workflow=WORKFLOW"),
    "getRun": _row("viewer", "no"),
    "deleteRun": _row("operator", "no"),
    "countRunsByDay": _row("viewer", "visible"),
    "listRunGrid": _row("viewer", "no"),
    "cancelRun": _row("operator", "no"),
    "retryRun": _row("operator", "no"),
    "pauseRun": _row("operator", "no"),
    "resumeRun": _row("operator", "no"),
    "decideApproval": _row("operator", "no", body={"step": "only", "decision": "approved"}),
    "pinRun": _row("operator", "no"),
    "unpinRun": _row("operator", "no"),
    "findIds": _row("viewer", "visible", "kind=run&part=01a1"),
    "listProcessLogs": _row("viewer", "no", "run_id=RUN"),
    "getProcessLog": _row("viewer", "no"),
    "readProcessLog": _row("viewer", "no"),
    "searchProcessLog": _row("viewer", "no", "text=a"),
    "readRunLog": _row("viewer", "no", "step=only"),
    "searchRunLogs": _row("viewer", "no", "text=a"),
    "listArtifacts": _row("viewer", "no", "run_id=RUN"),
    "downloadArtifact": _row("viewer", "no"),
    "streamRunLogs": _row("viewer", "no"),
    "downloadRunLog": _row("viewer", "no"),
    "streamChanges": _row("viewer", "visible"),
    "listApprovals": _row("viewer", "visible"),
    "listDeadLetters": _row("viewer", "visible"),
    "getDeadLetter": _row("viewer", "no"),
    "requeueDeadLetter": _row("operator", "no"),
    "discardDeadLetter": _row("operator", "no"),
    # Runs, in other words.
    "listProjectRuns": _row("viewer", "no"),
    "startProjectRun": _row("operator", "no", body={"scope": ""}),
    "getCurrentProjectRun": _row("viewer", "no"),
    "getProjectRun": _row("viewer", "no"),
    "cancelProjectRun": _row("operator", "no"),
    "streamProjectRunLogs": _row("viewer", "no"),
    # Events and schedules of subjects.
    "listEvents": _row("viewer", "no"),
    "emitEvent": _row("operator", "no", body={"type": "of.a.test"}),
    "getEvent": _row("viewer", "no"),
    "getEventChain": _row("viewer", "no"),
    "resolveEvent": _row("viewer", "no", body={"type": "of.a.test"}),
    "listSchedules": _row("viewer", "visible"),
    "createSchedule": _row(
        "editor",
        "no",
        body={"subject": "a", "rule": {"words": "tomorrow 9:00"}, "action": "workflow", "workflow": "WORKFLOW"},
    ),
    "interpretTime": _row("viewer", "all", body={"words": "tomorrow 9:00"}),
    "cancelSchedulesOfSubject": _row("editor", "no", body={"subject": "nobody"}),
    "getSchedule": _row("viewer", "no"),
    "cancelSchedule": _row("editor", "no"),
    "listHooks": _row("viewer", "visible"),
    "createHook": _row("editor", "no", body={"name": "WORKFLOW", "workflow": "WORKFLOW"}),
    "getHook": _row("viewer", "no"),
    "deleteHook": _row("editor", "no"),
    "deliverHook": _row(PUBLIC, "all", body={}),
    # The daemon.
    "getSystem": _row("viewer", "all"),
    "getConfig": _row("admin", "no"),
    "reloadConfig": _row("admin", "no"),
    "runDoctor": _row("admin", "no"),
    "drainSystem": _row("admin", "no"),
    "resumeSystem": _row("admin", "no"),
    "reloadDefinitions": _row("admin", "no"),
    "collectGarbage": _row("admin", "no", body={"dry_run": True}),
    "listLocks": _row("viewer", "no"),
    "getAccess": _row("viewer", "all"),
    "listTokens": _row("admin", "no"),
    "createToken": _row("admin", "no", body={"name": "WORKFLOW", "role": "viewer"}),
    "revokeToken": _row("admin", "no"),
    "listSessions": _row("viewer", "all"),
    "revokeSession": _row("viewer", "all"),
    "listAudit": _row("admin", "no"),
    "verifyAudit": _row("admin", "no"),
    "listSecrets": _row("admin", "no"),
    # The gateway itself.
    "getOpenApi": _row(PUBLIC, "all"),
    "getDefinitionSchema": _row(PUBLIC, "all"),
    "listLoginMethods": _row(PUBLIC, "all"),
    "beginLogin": _row(PUBLIC, "all"),
    "finishLogin": _row(PUBLIC, "all"),
    "logIn": _row(PUBLIC, "all", body={"token": "no-token"}),
    "getSession": _row(EVERY, "all"),
    "logOut": _row(EVERY, "all"),
}
"""By operation."""

PLACES: Mapping[str, str] = {
    "name": "WORKFLOW",
    "workflow": "WORKFLOW",
    "version": "1",
    "id": "RUN",
    "run_id": "RUN",
    "step": "only",
    "token": "no-token",
}
"""What stands for a placeholder of a path."""

OTHER_PLACES: Mapping[str, Mapping[str, str]] = {
    "getJob": {"name": "job-WORKFLOW"},
    "updateJob": {"name": "job-WORKFLOW"},
    "deleteJob": {"name": "job-WORKFLOW"},
    "enableJob": {"name": "job-WORKFLOW"},
    "disableJob": {"name": "job-WORKFLOW"},
    "runJob": {"name": "job-WORKFLOW"},
    "downloadArtifact": {"name": "no-artifact"},
    "getProcessLog": {"id": "PROCESS"},
    "readProcessLog": {"id": "PROCESS"},
    "searchProcessLog": {"id": "PROCESS"},
    "getDeadLetter": {"id": _ID},
    "requeueDeadLetter": {"id": _ID},
    "discardDeadLetter": {"id": _ID},
    "getEvent": {"id": _ID},
    "getSchedule": {"id": _ID},
    "cancelSchedule": {"id": _ID},
    "revokeSession": {"id": "0123456789abcdef"},
}
