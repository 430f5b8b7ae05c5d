"""All fuzz targets by name."""

from __future__ import annotations

from fuzz import attempt_targets, definition_targets, state_targets, time_targets

_LATER = {
    "attempt-file", "log", "values", "side-files", "boot", "definition-files", "placed", "expressions",
    "event-conditions",
}  # fmt: skip
"""Not yet fed: what they find is known."""

TARGETS = {
    target.name: target
    for target in (
        *attempt_targets.TARGETS,
        *state_targets.TARGETS,
        *definition_targets.TARGETS,
        *time_targets.TARGETS,
    )
    if target.name not in _LATER
}
