"""Values that shell completion offers, by name of the argument.

Completion reports no errors and does not block: without a daemon it offers nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from toban.cli.session import quiet_grpc, session
from toban.cli.syntax import CommandContext
from toban.safe_text import safe

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2, schedule_pb2

_TIMEOUT: Final = 1.0
_MOST: Final = 500

# Also in toban.definition.model.event_triggers, which takes too long to load for a completion.
_KNOWN_TYPES: Final = (
    "DAEMON_STARTED",
    "DATA_CHANGED",
    "DEFINITION_CHANGED",
    "FILE_CHANGED",
    "RUN_FAILED",
    "RUN_SUCCEEDED",
    "SCHEDULE_TRIGGERED",
    "STEP_FAILED",
)

# The values of toban.v1.ScheduleAction.
ACTIONS: Final = (
    "reminder",
    "escalate",
    "auto_close",
    "follow_up",
    "check_progress",
    "workflow",
)


def token_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Names of tokens."""
    return _matching(incomplete, _ask(ctx, lambda client: [one.name for one in islice(client.list_tokens(), _MOST)]))


def session_ids(ctx: CommandContext, incomplete: str) -> list[str]:
    """Ids of sessions."""
    return _matching(incomplete, _ask(ctx, lambda client: [one.id for one in islice(client.list_sessions(), _MOST)]))


def workflow_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Names of workflows."""
    return _matching(incomplete, _ask(ctx, _workflows))


def context_names(incomplete: str) -> list[str]:
    """Names of contexts."""
    quiet_grpc()
    from toban.sdk import TobanError, contexts

    try:
        return _matching(incomplete, list(contexts.load().servers))
    except TobanError:
        return []


def job_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Ids of jobs."""
    return _matching(incomplete, _ask(ctx, _jobs))


def dead_letter_ids(ctx: CommandContext, incomplete: str) -> list[str]:
    """Ids of open dead letters."""
    return _matching(incomplete, _ask(ctx, _open_letters))


def hook_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Names of hooks."""
    return _matching(incomplete, _ask(ctx, lambda client: [one.name for one in islice(client.list_hooks(), _MOST)]))


def secret_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Names of secrets."""
    return _matching(incomplete, _ask(ctx, lambda client: [one.name for one in islice(client.list_secrets(), _MOST)]))


def type_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Event types: recent ones and built-in ones."""
    return _matching(incomplete, sorted({*_KNOWN_TYPES, *_ask(ctx, _types)}))


def event_ids(ctx: CommandContext, incomplete: str) -> list[str]:
    """Ids of the newest events."""
    return _matching(incomplete, _ask(ctx, _events))


def schedule_ids(ctx: CommandContext, incomplete: str) -> list[str]:
    """Ids of active schedules of subjects."""
    found = _ask(ctx, lambda client: [one.id for one in _schedules(client)])
    return _matching(incomplete, found)


def subject_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Subjects that have active schedules."""
    found = _ask(ctx, lambda client: [one.subject for one in _schedules(client)])
    return _matching(incomplete, list(dict.fromkeys(found)))


def action_names(incomplete: str) -> list[str]:
    """Actions of schedules."""
    return _matching(incomplete, list(ACTIONS))


def startable_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Names of workflows and ids of jobs."""
    return _matching(incomplete, _ask(ctx, lambda client: _workflows(client) + _jobs(client)))


def step_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Steps of the workflow or run on the command line."""
    return _matching(incomplete, _ask(ctx, lambda client: _steps(client, _given(ctx))))


def waiting_steps(ctx: CommandContext, incomplete: str) -> list[str]:
    """Steps that wait for approval in the run on the command line."""
    return _matching(incomplete, _ask(ctx, lambda client: _waiting(client, _given(ctx))))


def scope_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Scopes of the workflow on the command line."""
    return _matching(incomplete, _ask(ctx, lambda client: _scopes(client, _given(ctx))))


def run_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Names of workflows; once typing has begun, also `NAME#number` and ids of the newest runs."""
    workflow, number, _ = incomplete.partition("#")
    if number:
        return _matching(incomplete, _ask(ctx, lambda client: _numbers(client, workflow)))
    found = _ask(ctx, _workflows)
    if incomplete:
        found += _ask(ctx, _ids)
    return _matching(incomplete, found)


def _workflows(client: SyncClient) -> list[str]:
    return [one.name for one in islice(client.list_workflows(page_size=_MOST), _MOST)]


def _jobs(client: SyncClient) -> list[str]:
    return [one.name for one in islice(client.list_jobs(page_size=_MOST), _MOST)]


def _types(client: SyncClient) -> list[str]:
    return [one.type for one in islice(client.list_events(page_size=_MOST), _MOST)]


def _events(client: SyncClient) -> list[str]:
    return [one.id for one in islice(client.list_events(page_size=_MOST), _MOST)]


def _schedules(client: SyncClient) -> list[schedule_pb2.Schedule]:
    return list(islice(client.list_schedules(page_size=_MOST), _MOST))


def _open_letters(client: SyncClient) -> list[str]:
    from toban.v1 import dead_letter_pb2

    found = client.list_dead_letters(states=[dead_letter_pb2.DEAD_LETTER_STATE_OPEN], page_size=_MOST)
    return [one.id for one in islice(found, _MOST)]


def _given(ctx: CommandContext) -> dict[str, str]:
    """The `run` or `name` that is already on the command line."""
    given: dict[str, str] = {key: str(ctx.params[key]) for key in ("run", "name") if key in ctx.params}
    # Commands for one run or for many have a list.
    runs = ctx.params.get("runs") or []
    return given | {"run": str(runs[0])} if runs else given


def _steps(client: SyncClient, given: Mapping[str, str]) -> list[str]:
    if not given:
        return []
    if "run" in given:
        return [step.id for step in _run(client, given).steps if not step.parent]
    return [step["id"] for step in _definition(client, given).get("steps", [])]


def _waiting(client: SyncClient, given: Mapping[str, str]) -> list[str]:
    from toban.cli.render.step_text import needs_approval

    return [step.id for step in _run(client, given).steps if needs_approval(step)]


def _scopes(client: SyncClient, given: Mapping[str, str]) -> list[str]:
    return list(_definition(client, given).get("scopes", {}))


def _run(client: SyncClient, given: Mapping[str, str]) -> run_pb2.Run:
    from toban.cli.args.name_arguments import run_id
    from toban.cli.error_report import Failure
    from toban.v1 import run_pb2

    try:
        return client.get_run(run_id(client, given["run"]))
    except Failure:
        return run_pb2.Run()


def _definition(client: SyncClient, given: Mapping[str, str]) -> Mapping[str, Any]:
    """The parsed definition of the workflow."""
    stored = client.get_workflow(given["name"])
    parsed: dict[str, Any] = json.loads(stored.definition.parsed_json or "{}")
    return parsed


def _numbers(client: SyncClient, workflow: str) -> list[str]:
    runs = islice(client.list_runs(workflow=workflow, page_size=_MOST), _MOST)
    return [f"{workflow}#{run.number}" for run in runs]


def _ids(client: SyncClient) -> list[str]:
    return [run.id for run in islice(client.list_runs(page_size=_MOST), _MOST)]


def _matching(incomplete: str, names: list[str]) -> list[str]:
    # The shell does not escape what it shows.
    return [name for name in names if name.startswith(incomplete) and safe(name)]


def _ask(ctx: CommandContext, fetch: Callable[[SyncClient], list[str]]) -> list[str]:
    quiet_grpc()
    from toban.sdk import TobanError

    try:
        with session(ctx).client(timeout=_TIMEOUT, retry_for=0) as client:
            return fetch(client)
    except TobanError:
        return []
