"""Field names of other tools and of database tables, and what to write instead of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

# Each word with what to write instead; the first field that the mapping has is named.
_INSTEAD: Mapping[str, tuple[str, ...]] = {
    "action": ("run",),
    "active": ("enabled",),
    "after": ("depends_on", "start"),
    "after_script": ("finally",),
    "allow_failure": ("on_failure: continue",),
    "allowed": ("choices",),
    "always": ("finally",),
    "arguments": ("args", "params"),
    "artifacts": ("outputs",),
    "attempts": ("max_retries",),
    "callable": ("target",),
    "catchup": ("misfire",),
    "chdir": ("workspace", "defaults: {workspace: …}"),
    "cleanup": ("finally",),
    "cmd": ("run",),
    "command": ("run",),
    "commands": ("run",),
    "comment": ("description",),
    "condition": ("when",),
    "continue_on_error": ("on_failure: continue",),
    "cpu": ("resources: {cpu: …}",),
    "cpus": ("cpu", "resources: {cpu: …}"),
    "cron": ("schedule",),
    "crontab": ("cron", "schedule"),
    "cwd": ("workspace", "defaults: {workspace: …}"),
    "dag": ("steps",),
    "deadline": ("timeout",),
    "dependencies": ("depends_on",),
    "depends": ("depends_on",),
    "desc": ("description",),
    "dir": ("workspace", "defaults: {workspace: …}"),
    "directory": ("workspace", "defaults: {workspace: …}"),
    "disabled": ("enabled: false",),
    "display_name": ("title", "name"),
    "end_date": ("end",),
    "ensure": ("finally",),
    "entrypoint": ("target",),
    "enum": ("choices",),
    "env_vars": ("env",),
    "environment": ("env",),
    "environment_variables": ("env",),
    "event": ("on",),
    "event_type": ("event", "on"),
    "event_types": ("event", "on"),
    "events": ("event", "on"),
    "every": ("schedule: {every: …}",),
    "execution_timeout": ("timeout",),
    "executor": ("steps, with job_type: python and target", "target"),
    "filter": ("condition",),
    "finally_steps": ("finally",),
    "function": ("target",),
    "handler_on": ("finally",),
    "handlers": ("finally",),
    "if": ("when", "condition"),
    "ignore_errors": ("on_failure: continue",),
    "input": ("stdin",),
    "interval": ("every", "schedule: {every: …}"),
    "is_retryable": ("on", "retry: {on: …}"),
    "kind": ("job_type", "type"),
    "loop": ("for_each",),
    "matrix": ("for_each",),
    "max_attempts": ("max_retries", "defaults: {max_retries: …}"),
    "max_concurrency": ("concurrency", "max_parallel"),
    "max_instances": ("max_active_runs",),
    "max_retries": ("defaults: {max_retries: …}",),
    "mem_limit": ("resources: {memory: …}",),
    "memory": ("resources: {memory: …}",),
    "needs": ("depends_on",),
    "on_abort": ("on_cancel",),
    "on_cancelled": ("on_cancel",),
    "on_complete": ("finally",),
    "on_completion": ("finally",),
    "on_error": ("on_failure",),
    "on_exit": ("finally",),
    "on_failed": ("on_failure",),
    "on_succeeded": ("on_success",),
    "onerror": ("on_failure",),
    "options": ("choices",),
    "parallel": ("concurrency", "max_parallel"),
    "parallelism": ("concurrency", "max_parallel"),
    "parameters": ("params", "kwargs"),
    "post": ("finally",),
    "program": ("target",),
    "python_callable": ("target",),
    "requires": ("depends_on",),
    "resources": ("defaults: {resources: …}",),
    "retries": ("max_retries", "defaults: {max_retries: …}"),
    "retry": ("defaults: {retry: …}",),
    "retry_count": ("max_retries",),
    "retry_delay": ("delay", "retry: {delay: …}"),
    "run_as": ("user", "defaults: {user: …}"),
    "schedule_interval": ("schedule",),
    "script": ("run",),
    "shell": ("defaults: {shell: …}",),
    "sleep": ("wait: {for: …}",),
    "stages": ("steps",),
    "step_order": ("depends_on",),
    "order": ("step_order", "depends_on"),
    "start_date": ("start",),
    "strategy": ("for_each",),
    "tags": ("labels",),
    "tasks": ("steps",),
    "teardown": ("finally",),
    "timeout_minutes": ("timeout",),
    "timeout_ms": ("timeout",),
    "timeout_sec": ("timeout",),
    "timeout_seconds": ("timeout",),
    "tz": ("timezone",),
    "until": ("end", "completion_check"),
    "upstream": ("depends_on",),
    "use_exponential_backoff": ("backoff", "retry: {backoff: …}"),
    "user": ("defaults: {user: …}",),
    "uses": ("job",),
    "variables": ("env",),
    "wait_for": ("wait",),
    "when": ("condition",),
    "with": ("kwargs",),
    "with_items": ("for_each",),
    "workdir": ("workspace", "defaults: {workspace: …}"),
    "working_dir": ("workspace", "defaults: {workspace: …}"),
    "working_directory": ("workspace", "defaults: {workspace: …}"),
    "workspace": ("defaults: {workspace: …}",),
}
# Columns of a table of definitions, which a file does not have.
_NOT_WRITTEN: Mapping[str, str] = {
    "created_at": "remove it: the daemon records when a version was stored",
    "updated_at": "remove it: the daemon records when a version was stored",
    "workflow_id": "remove it: a step belongs to the workflow that lists it",
}
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FIELD = re.compile(r"[a-z_]+")


def names_what_runs(written: Collection[str]) -> bool:
    """Whether one of the words is that of another tool for `run`, `job` or `wait`."""
    return any(text.startswith(("run", "job", "wait")) for word in written for text in _INSTEAD.get(_words(word), ()))


def beside_steps(written: str, workflow_fields: Collection[str]) -> str:
    """`: write finally beside steps` for a field of the workflow that a step has, or nothing."""
    word = _words(written)
    for text in (word, *_INSTEAD.get(word, ())):
        field = _FIELD.match(text)
        if field is not None and field[0] == text and text in workflow_fields:
            return f": write {text} beside steps, for the whole workflow"
    return ""


def instead_of(written: str, allowed: Collection[str], aliases: Mapping[str, str]) -> str:
    """`: write depends_on` for a word of another tool, or nothing; never names a field that is not `allowed`."""
    word = _words(written)
    word = aliases.get(word, word)
    if word in allowed:
        return f": write {word}"
    for text in _INSTEAD.get(word, ()):
        field = _FIELD.match(text)
        if field is not None and field[0] in allowed:
            return f": write {text}"
    return f": {_NOT_WRITTEN[word]}" if word in _NOT_WRITTEN else ""


def _words(written: str) -> str:
    """`dependsOn` and `depends-on` as `depends_on`."""
    return _WORD_START.sub("_", written).replace("-", "_").lower()
