"""All fuzz targets by name."""

from __future__ import annotations

from fuzz import (
    attempt_targets,
    backup_targets,
    client_targets,
    credential_targets,
    damage_targets,
    definition_targets,
    log_line_targets,
    masker_targets,
    request_targets,
    state_targets,
    time_targets,
)

TARGETS = {
    target.name: target
    for target in (
        *attempt_targets.TARGETS,
        *log_line_targets.TARGETS,
        *state_targets.TARGETS,
        *definition_targets.TARGETS,
        *time_targets.TARGETS,
        *request_targets.TARGETS,
        *credential_targets.TARGETS,
        *damage_targets.TARGETS,
        *client_targets.TARGETS,
        *masker_targets.TARGETS,
        *backup_targets.TARGETS,
    )
}
