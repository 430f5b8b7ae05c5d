"""Parts of the format that are not implemented yet, and aliases.

Fields and values listed here belong to the format but are refused with "not supported yet"; aliases are the names of
earlier documents that are still accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

WORKFLOW_ALIASES: Mapping[str, str] = {"is_enabled": "enabled"}
STEP_ALIASES: Mapping[str, str] = {"on_fail": "on_failure", "job_id": "job"}
JOB_ALIASES: Mapping[str, str] = {"on_fail": "on_failure", "is_enabled": "enabled"}
TRIGGER_ALIASES: Mapping[str, str] = {"eventTypes": "event"}
VALUE_ALIASES: Mapping[str, Mapping[str, str]] = {
    "on_failure": {"stop": "abort"},
    "on_failure_exhausted": {"stop": "abort"},
    "on_iterations_exhausted": {"stop": "abort"},
    "stop_when_unchanged": {"stdout": "output"},
}

UNSUPPORTED_WORKFLOW_FIELDS = frozenset({"notify"})

UNSUPPORTED_STEP_FIELDS = frozenset({"capabilities", "instructions", "max_command_time", "max_steps", "worker"})

UNSUPPORTED_JOB_FIELDS = UNSUPPORTED_STEP_FIELDS

# Those that say what to run: a step with one of them needs no job_type.
UNSUPPORTED_KIND_FIELDS = frozenset({"worker"})

UNSUPPORTED_VALUES: Mapping[str, frozenset[str]] = {"job_type": frozenset({"worker"})}

# Fields of a step that cannot be inherited.
NOT_IN_DEFAULTS = frozenset({"depends_on", "id", "inputs", "job", "name", "step_order", "title", "wait"})
