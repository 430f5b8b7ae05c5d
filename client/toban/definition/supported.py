"""What the format knows beyond what is built: one place to shorten as work goes on.

Fields and values listed here belong to the format but are refused with "not supported yet"; aliases are
the names of earlier documents that are still accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

WORKFLOW_ALIASES: Mapping[str, str] = {"is_enabled": "enabled"}
STEP_ALIASES: Mapping[str, str] = {"on_fail": "on_failure", "job_id": "job"}
VALUE_ALIASES: Mapping[str, Mapping[str, str]] = {"on_failure": {"stop": "abort"}}

UNSUPPORTED_WORKFLOW_FIELDS = frozenset(
    {
        "blackout",
        "context_dir",
        "jobs",
        "notify",
        "on",
        "schedule",
        "scopes",
        "timezone",
        "watch",
    }
)

UNSUPPORTED_STEP_FIELDS = frozenset(
    {
        "approvers",
        "capabilities",
        "completion_check",
        "error_classes",
        "for_each",
        "inputs",
        "instructions",
        "job",
        "max_command_time",
        "max_iterations",
        "max_parallel",
        "max_retries",
        "max_steps",
        "on_failure_exhausted",
        "on_iterations_exhausted",
        "outputs",
        "python",
        "retry",
        "stdin",
        "stop_when_unchanged",
        "when",
        "worker",
    }
)

# Of those, the ones that say what runs: with one of them a step needs no job_type.
UNSUPPORTED_KIND_FIELDS = frozenset({"job", "worker"})

UNSUPPORTED_VALUES: Mapping[str, frozenset[str]] = {
    "job_type": frozenset({"approval", "worker", "workflow"}),
    "on_failure": frozenset({"retry", "skip"}),
    "overlap": frozenset({"queue", "replace"}),
}

# Fields of a step that cannot be inherited.
NOT_IN_DEFAULTS = frozenset({"depends_on", "name"})
