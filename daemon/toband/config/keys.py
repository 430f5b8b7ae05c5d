"""The keys of the configuration. Each is declared only here: its check, its default, whether a reload applies it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from toban.definition.scripts.shells import DEFAULT_SHELL
from toband.config.access_settings import check_certificates, check_issuers, check_tokens
from toband.config.declaration import Setting
from toband.config.listeners import check_client_certificates, check_listen
from toband.config.secret_providers import check_providers
from toband.config.server_limits import LIMIT_SETTINGS
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

GIB = 1024**3
DAY = 86400.0
LOCKS = "locks."
"""Before the name of a lock, in the keys of sizes."""

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "console", "json")
_REMOVED = ("disable", "delete")
_STOP_POLICIES = ("detach", "wait", "cancel")

SETTINGS: Mapping[str, Setting] = {
    "state_dir": Setting(check_directory, path=True),
    "listen": Setting(check_listen),
    "database": Setting(check_database),
    "timezone": Setting(check_timezone),
    "calendar": Setting(check_calendar, ""),
    "blackout": Setting(check_blackout, (), live=True),
    "shell": Setting(check_default_shell, DEFAULT_SHELL),
    "definitions": Setting(check_definitions, (), path=True),
    "definitions_removed": Setting(one_of(_REMOVED), "disable"),
    "stop_policy": Setting(one_of(_STOP_POLICIES), "detach", live=True),
    "stop_deadline": Setting(check_duration, 10.0, live=True),
    "default_run_timeout": Setting(or_none(check_duration), live=True),
    "max_attempts_running": Setting(check_count, 256, live=True),
    "event_concurrency": Setting(check_count, 10, live=True),
    "disk_reserve": Setting(check_reserve, live=True),
    "cgroup": Setting(one_of(("auto", "off")), "auto"),
    "step_user": Setting(check_user),
    "steps.users": Setting(check_patterns, live=True),
    "steps.shells": Setting(check_patterns, live=True),
    "steps.workspaces": Setting(check_path_patterns, live=True),
    "steps.environment_names": Setting(check_patterns, live=True),
    "steps.environment_denied": Setting(check_patterns, (), live=True),
    "steps.environment": Setting(check_environment, {}, live=True),
    "steps.inherit": Setting(check_inherited, (), live=True),
    "steps.sudo": Setting(check_flag, False, live=True),
    "limits.attempt_log": Setting(or_none(check_size), GIB, live=True),
    "limits.total_logs": Setting(or_none(check_size), live=True),
    "limits.artifact_bytes": Setting(check_size, 100 * GIB, live=True),
    "limits.artifact_files": Setting(check_count, 250_000, live=True),
    "limits.artifact_time": Setting(check_duration, 3600.0, live=True),
    "limits.artifact_rate": Setting(or_none(check_size), GIB, live=True),
    **LIMIT_SETTINGS,
    "retention.age": Setting(or_none(check_duration), 90 * DAY, live=True),
    "retention.runs": Setting(or_none(check_count), 10_000, live=True),
    "retention.bytes": Setting(or_none(check_size), live=True),
    "retention.total_runs": Setting(or_none(check_count), live=True),
    "retention.total_bytes": Setting(or_none(check_size), 20 * GIB, live=True),
    "retention.audit": Setting(or_none(check_duration), 400 * DAY, live=True),
    "retention.audit_entries": Setting(or_none(check_count), 5_000_000, live=True),
    "retention.requests": Setting(or_none(check_duration), 7 * DAY, live=True),
    "retention.ledger": Setting(or_none(check_duration), 90 * DAY, live=True),
    "retention.ledger_entries": Setting(or_none(check_count), 1000, live=True),
    "retention.events": Setting(or_none(check_duration), 30 * DAY, live=True),
    "retention.total_events": Setting(or_none(check_count), 100_000, live=True),
    "retention.tokens": Setting(or_none(check_duration), 90 * DAY, live=True),
    "retention.versions": Setting(or_none(check_count), 100, live=True),
    "retention.compress_after": Setting(or_none(check_duration), 600.0, live=True),
    "secrets.key_file": Setting(check_path, "", path=True),
    "secrets.providers": Setting(check_providers, {}, live=True),
    "tls.certificate": Setting(check_path, "", path=True),
    "tls.key": Setting(check_path, "", path=True),
    "tls.client_ca": Setting(check_path, "", path=True),
    "tls.client_certificates": Setting(check_client_certificates, "off"),
    "access.tokens": Setting(check_tokens, (), live=True, file_only=True),
    "access.certificates": Setting(check_certificates, (), live=True, file_only=True),
    "access.issuers": Setting(check_issuers, (), live=True, file_only=True),
    "log.level": Setting(one_of(_LEVELS), "info", live=True),
    "log.format": Setting(one_of(_FORMATS), "auto"),
    "log.file": Setting(check_path, "", path=True),
    "log.file_size": Setting(or_none(check_size), 64 * 1024 * 1024),
}
_LOCK = Setting(check_count, live=True)
FILE_ONLY = frozenset(key for key, each in SETTINGS.items() if each.file_only)
_TABLES = frozenset(key.partition(".")[0] for key in SETTINGS if "." in key) | {LOCKS.rstrip(".")}


def setting_of(key: str) -> Setting | None:
    """None for an unknown key. Locks have any name."""
    return _LOCK if key.startswith(LOCKS) else SETTINGS.get(key)


def declared_in(key: str) -> Setting:
    """The setting of a shown key, which may be inside of the value of another, such as `secrets.providers.NAME`."""
    found = setting_of(key) or SETTINGS.get(key.rpartition(".")[0])
    assert found is not None
    return found


def unknown_setting(key: str) -> str:
    """The message for an unknown key; it suggests a similar key, if one exists."""
    text = f"unknown key `{key}`"
    _, dot, name = key.rpartition(".")
    if key in _TABLES:
        return f"{text}: it is a table, as in [{key}]"
    if dot and name in SETTINGS:
        return f"{text}: `{name}` is in no table: write it before the first [table]"
    placed = [each for each in SETTINGS if each.rpartition(".")[2] == name and each != key]
    if len(placed) == 1:
        right, _, last = placed[0].rpartition(".")
        return f"{text}: did you mean `{placed[0]}`, that is `{last}` in [{right}]?"
    near = get_close_matches(key, SETTINGS, n=1, cutoff=0.7)
    return f"{text}: did you mean `{near[0]}`?" if near else text
