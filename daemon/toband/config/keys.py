"""The keys of the configuration, and the check of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toband.config.access_settings import check_certificates, check_issuers, check_tokens
from toband.config.listeners import check_client_certificates, check_listen
from toband.config.secret_providers import check_providers
from toband.config.server_limits import LIMIT_KEYS
from toband.config.value_checks import (
    check_blackout,
    check_calendar,
    check_count,
    check_database,
    check_default_shell,
    check_definitions,
    check_directory,
    check_duration,
    check_environment,
    check_flag,
    check_inherited,
    check_path,
    check_path_patterns,
    check_patterns,
    check_reserve,
    check_size,
    check_timezone,
    check_user,
    one_of,
    or_none,
)

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "console", "json")
_REMOVED = ("disable", "delete")
_STOP_POLICIES = ("detach", "wait", "cancel")

KEYS: Mapping[str, Callable[[Any], Any]] = {
    "state_dir": check_directory,
    "listen": check_listen,
    "database": check_database,
    "timezone": check_timezone,
    "calendar": check_calendar,
    "blackout": check_blackout,
    "shell": check_default_shell,
    "definitions": check_definitions,
    "definitions_removed": one_of(_REMOVED),
    "stop_policy": one_of(_STOP_POLICIES),
    "stop_deadline": check_duration,
    "default_run_timeout": or_none(check_duration),
    "max_attempts_running": check_count,
    "event_concurrency": check_count,
    "disk_reserve": check_reserve,
    "cgroup": one_of(("auto", "off")),
    "step_user": check_user,
    "steps.users": check_patterns,
    "steps.shells": check_patterns,
    "steps.workspaces": check_path_patterns,
    "steps.environment_names": check_patterns,
    "steps.environment_denied": check_patterns,
    "steps.environment": check_environment,
    "steps.inherit": check_inherited,
    "steps.sudo": check_flag,
    "limits.attempt_log": or_none(check_size),
    "limits.total_logs": or_none(check_size),
    "limits.artifact_bytes": check_size,
    "limits.artifact_files": check_count,
    "limits.artifact_time": check_duration,
    "limits.artifact_rate": or_none(check_size),
    **LIMIT_KEYS,
    "retention.age": or_none(check_duration),
    "retention.runs": or_none(check_count),
    "retention.bytes": or_none(check_size),
    "retention.total_runs": or_none(check_count),
    "retention.total_bytes": or_none(check_size),
    "retention.audit": or_none(check_duration),
    "retention.audit_entries": or_none(check_count),
    "retention.requests": or_none(check_duration),
    "retention.ledger": or_none(check_duration),
    "retention.ledger_entries": or_none(check_count),
    "retention.events": or_none(check_duration),
    "retention.total_events": or_none(check_count),
    "retention.tokens": or_none(check_duration),
    "retention.versions": or_none(check_count),
    "retention.compress_after": or_none(check_duration),
    "secrets.key_file": check_path,
    "secrets.providers": check_providers,
    "tls.certificate": check_path,
    "tls.key": check_path,
    "tls.client_ca": check_path,
    "tls.client_certificates": check_client_certificates,
    "access.tokens": check_tokens,
    "access.certificates": check_certificates,
    "access.issuers": check_issuers,
    "log.level": one_of(_LEVELS),
    "log.format": one_of(_FORMATS),
    "log.file": check_path,
}
FILE_ONLY = frozenset({"access.tokens", "access.certificates", "access.issuers"})
"""Keys with tables, which variables cannot hold."""
PATHS = frozenset(
    {"state_dir", "definitions", "secrets.key_file", "log.file", "tls.certificate", "tls.key", "tls.client_ca"}
)
"""Keys with paths, which may be relative to the configuration file."""
