"""The JSON Schema of what `-o json` writes, for each command.

Messages follow the rule of `message_schema`; VERBS says which message a command writes.
"""

from __future__ import annotations

from typing import Any, Final

from toban.message_json.message_schema import FLAG as _FLAG
from toban.message_json.message_schema import INTEGER as _INTEGER
from toban.message_json.message_schema import TEXT as _TEXT
from toban.message_json.message_schema import TIME as _TIME
from toban.message_json.message_schema import array_of as _list
from toban.message_json.message_schema import object_of as _object
from toban.message_json.message_schema import schemas_of


def _message(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _with(name: str, further: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """A message with further fields in the same object."""
    return {"allOf": [_message(name), _object(further, optional=optional)]}


_CONTEXT: Final = _object(
    {
        "name": _TEXT,
        "server": _TEXT,
        "current": _FLAG,
        "credentials": _list({"enum": ["token", "ca", "certificate"]}),
    }
)
_DELETED: Final = _list(_object({"name": _TEXT, "outcome": {"const": "deleted"}}))
_DIFF: Final = _object({"name": _TEXT, "from": _INTEGER, "to": _INTEGER, "diff": _TEXT})
_RESTORED: Final = _object({"state_dir": _TEXT, "database": _TEXT, "runs": _INTEGER, "taken_at": _TIME, "of": _TEXT})
_MOVED_STORE: Final = _object(
    {
        "database": _TEXT,
        "config_file": _TEXT,
        "rows": _INTEGER,
        "tables": _list(_object({"table": _TEXT, "rows": _INTEGER, "sha256": _TEXT})),
    }
)
_DRAINING: Final = _object({"draining": _FLAG, "changed": _FLAG})
_TIMES: Final = _list(_TIME)
_IMPORTED: Final = _object(
    {
        "workflows": _list(
            _object(
                {
                    "name": _TEXT,
                    "file": _TEXT,
                    "source": _TEXT,
                    "notes": _list(_TEXT),
                    "due_there": {"anyOf": [_TIMES, {"type": "null"}]},
                    "due_here": _TIMES,
                    "same": {"type": ["boolean", "null"]},
                }
            )
        ),
        "refused": _list(_object({"source": _TEXT, "reason": _TEXT})),
    }
)
_APPLIED: Final = _object(
    {
        "name": _TEXT,
        "kind": {"enum": ["workflow", "job"]},
        "outcome": {"enum": ["created", "updated", "unchanged", "deleted"]},
        "version": _INTEGER,
        "warnings": _list(_TEXT),
        "updated_workflows": _list(_TEXT),
        "dry_run": {"const": True},
        "diff": _TEXT,
    },
    optional=("dry_run", "diff"),
)
_PROBLEM: Final = _object(
    {"file": _TEXT, "line": _INTEGER, "column": _INTEGER, "path": _TEXT, "message": _TEXT, "warning": _FLAG}
)
# Several runs that are changed by one command.
_CHANGED: Final = _list(
    _object({"id": _TEXT, "run": _TEXT, "outcome": {"enum": ["done", "failed", "planned"]}, "error": _TEXT})
)
_LOG_LINE: Final = _object(
    {
        "at": _TIME,
        "step": _TEXT,
        "step_title": _TEXT,
        "attempt": _INTEGER,
        "stream": {"enum": ["stdout", "stderr", "system"]},
        "text": _TEXT,
        "level": {"enum": ["debug", "info", "warning", "error", None]},
        "message": _TEXT,
        "process_execution_id": _TEXT,
    }
)

_SERVICE_CHANGES: Final = _object(
    {
        "changes": _list(_object({"action": _TEXT, "subject": _TEXT, "note": _TEXT})),
        "dry_run": _FLAG,
        "version": _TEXT,
    },
    optional=("version",),
)
_SERVICE_FACTS: Final = _object(
    {
        "installed": _FLAG,
        "active": _FLAG,
        "state": _TEXT,
        "status": _TEXT,
        "pid": _INTEGER,
        "since": _TEXT,
        "restarts": _INTEGER,
        "enabled": _FLAG,
        "unit": _TEXT,
        "version": _TEXT,
        "previous_version": _TEXT,
        "config": _TEXT,
        "state_dir": _TEXT,
        "steps": _INTEGER,
    }
)
_ACCESS_FILES: Final = _object(
    {"files": _list(_TEXT), "token": _object({"name": _TEXT, "id": _TEXT, "text": _TEXT}), "config": _TEXT}
)

VERBS: Final[dict[str, dict[str, Any]]] = {
    "init": _object({"name": _TEXT, "files": _list(_TEXT)}),
    "apply": _list(_APPLIED),
    "validate": _list(_PROBLEM),
    "workflows list": _list(_message("Workflow")),
    "workflows show": {"anyOf": [_message("Workflow"), _message("WorkflowVersion")]},
    "workflows delete": _DELETED,
    "workflows enable": _list(_message("Workflow")),
    "workflows disable": _list(_message("Workflow")),
    "workflows versions": _list(_message("WorkflowVersion")),
    "workflows diff": _DIFF,
    "workflows restore": _message("WorkflowVersion"),
    "workflows next": _list(_message("DueTime")),
    "jobs list": _list(_message("Job")),
    "jobs show": {"anyOf": [_message("Job"), _message("WorkflowVersion")]},
    "jobs run": _message("Run"),
    "jobs enable": _list(_message("Job")),
    "jobs disable": _list(_message("Job")),
    "jobs delete": _DELETED,
    "jobs versions": _list(_message("WorkflowVersion")),
    "jobs diff": _DIFF,
    "jobs restore": _message("WorkflowVersion"),
    "import crontab": _IMPORTED,
    "import systemd": _IMPORTED,
    "status": _with("GetOverviewResponse", {"daemon": _message("GetInfoResponse")}),
    "top": _object(
        {
            "daemon": _message("GetInfoResponse"),
            "running_runs": _INTEGER,
            "waiting_runs": _INTEGER,
            "process_executions": _list(_message("ProcessExecution")),
        }
    ),
    "run": {"anyOf": [_message("Run"), _message("PlanRunResponse"), _message("WatchRunResponse")]},
    "runs list": _list(_message("Run")),
    "runs show": _message("Run"),
    "runs watch": _message("WatchRunResponse"),
    "runs cancel": {"anyOf": [_message("Run"), _CHANGED]},
    "runs retry": {"anyOf": [_message("Run"), _CHANGED, _message("WatchRunResponse")]},
    "runs pause": {"anyOf": [_message("Run"), _CHANGED]},
    "runs resume": {"anyOf": [_message("Run"), _CHANGED]},
    "runs approve": _message("Run"),
    "runs processes": _list(_message("ProcessExecution")),
    "runs artifacts": {
        "anyOf": [_list(_message("StepArtifact")), _object({"path": _TEXT, "bytes": _INTEGER, "tar": _FLAG})]
    },
    "runs pin": {"anyOf": [_message("Run"), _CHANGED]},
    "runs unpin": _message("Run"),
    "runs delete": {"anyOf": [_list(_object({"id": _TEXT, "run": _TEXT, "outcome": {"const": "deleted"}})), _CHANGED]},
    "logs": {"anyOf": [_LOG_LINE, _object({"end": _message("LogEnd")})]},
    "processes list": _list(_message("ProcessExecution")),
    "processes show": _message("ProcessExecution"),
    "dead-letters list": _list(_message("DeadLetter")),
    "dead-letters show": _message("DeadLetter"),
    "dead-letters requeue": {"anyOf": [_message("Run"), _message("WatchRunResponse")]},
    "dead-letters discard": _list(_message("DeadLetter")),
    "backfill": _list(_message("BackfilledTime")),
    "why": {"anyOf": [_message("ExplainScheduleResponse"), _list(_message("Fire"))]},
    "schedule": {"anyOf": [_with("Schedule", {"created": _FLAG}), _message("InterpretTimeResponse")]},
    "schedules list": _list(_message("Schedule")),
    "schedules show": _message("Schedule"),
    "schedules cancel": {"anyOf": [_list(_message("Schedule")), _object({"subject": _TEXT, "cancelled": _INTEGER})]},
    "emit": _with("Event", {"created": _FLAG, "all_ended": _FLAG}, optional=("all_ended",)),
    "events list": _list(_message("Event")),
    "events show": _with("Event", {"all_ended": _FLAG}),
    "events watch": _message("Event"),
    "events resolve": _message("ResolveEventResponse"),
    "locks list": _list(_message("Lock")),
    "locks release": _list(_message("LockLeftover")),
    "hooks create": _message("CreateHookResponse"),
    "hooks list": _list(_message("Hook")),
    "hooks show": _message("Hook"),
    "hooks delete": _DELETED,
    "secrets set": _message("Secret"),
    "secrets list": _list(_message("Secret")),
    "secrets show": _message("Secret"),
    "secrets grant": _message("Secret"),
    "secrets revoke": _message("Secret"),
    "secrets delete": _DELETED,
    "secrets rotate-key": _message("RotateSecretsKeyResponse"),
    "service install": _SERVICE_CHANGES,
    "service upgrade": _SERVICE_CHANGES,
    "service rollback": _SERVICE_CHANGES,
    "service uninstall": _SERVICE_CHANGES,
    "service restart": _object({"version": _TEXT, "steps": _INTEGER}),
    "service logs": {"type": "object"},
    "service status": _SERVICE_FACTS,
    "system info": _message("GetInfoResponse"),
    "system config": _list(_message("ConfigValue")),
    "backup": _with("BackupSummary", {"path": _TEXT, "size": _INTEGER}),
    "restore": _RESTORED,
    "system gc": _message("CollectGarbageResponse"),
    "system doctor": _list(_message("Finding")),
    "system drain": _DRAINING,
    "system resume": _DRAINING,
    "system reload": _with("ReloadResponse", {"configuration": _message("ReloadConfigResponse")}),
    "system migrate-store": _MOVED_STORE,
    "whoami": _message("WhoAmIResponse"),
    "access show": _message("GetAccessResponse"),
    "access init": _ACCESS_FILES,
    "access renew": _object({"files": _list(_TEXT)}),
    "tokens create": _message("CreateTokenResponse"),
    "tokens list": _list(_message("Token")),
    "tokens revoke": _list(_message("Token")),
    "sessions create": _message("CreateSessionResponse"),
    "sessions list": _list(_message("Session")),
    "sessions revoke": _list(_message("Session")),
    "audit list": _list(_message("AuditEntry")),
    "audit show": _message("AuditEntry"),
    "audit verify": _message("VerifyAuditResponse"),
    "context add": _CONTEXT,
    "context use": {"anyOf": [_CONTEXT, {"type": "null"}]},
    "context list": _list(_CONTEXT),
    "context show": _CONTEXT,
    "context rename": _CONTEXT,
    "context remove": _CONTEXT,
}
"""By command. `logs`, `service logs`, `events watch`, `runs watch` and `--follow` write one such value per line."""


def output_schema(verb: str) -> dict[str, Any]:
    """The schema of a command, with the messages that it needs."""
    shape = VERBS[verb]
    title = f"toban {verb} -o json"
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **shape}
    needed = schemas_of(shape)
    return {**schema, "$defs": needed} if needed else schema
