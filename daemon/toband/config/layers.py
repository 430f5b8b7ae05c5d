"""Reads the configuration: a TOML file, overridden by the environment, then by flags. Reports all problems at once."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from toban.definition import format_size
from toban.definition.scalars.names import check_name
from toban.definition.scripts.shells import DEFAULT_SHELL
from toband.config.defaults import default_listen, default_state_dir, default_step_user, host_timezone
from toband.config.keys import FILE_ONLY, KEYS, PATHS
from toband.config.listeners import check_listen
from toband.config.server_limits import server_limits
from toband.config.settings import LOCKS, Config, ConfigError, TlsSettings
from toband.config.value_checks import check_count

GIB = 1024**3
DAY = 86400.0
LARGEST_FILE = 1024 * 1024


def load(file: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The effective configuration. Raises ConfigError with every problem."""
    problems: list[str] = []
    file = file or environment.get("TOBAN_CONFIG") or None
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = [
        ("file", file or "", _read(file, problems) if file else {}),
        ("environment", "", _from_environment(environment)),
        ("flag", "", {key: value for key, value in flags.items() if value is not None}),
    ]
    for source, origin, layer in layers:
        base = os.path.dirname(origin)
        for key, value in layer.items():
            check = check_count if key.startswith(LOCKS) else KEYS.get(key)
            if check is None:
                problems.append(f"{origin}: unknown key `{key}`")
                continue
            try:
                if key.startswith(LOCKS):
                    check_name(key.removeprefix(LOCKS))
                read = check(value)
                values[key] = _below(base, read) if key in PATHS else read
                sources[key] = source
            except ValueError as error:
                problems.append(f"{_where(source, origin, key)}: {error}")
    state_dir = values.setdefault("state_dir", default_state_dir(environment))
    if "listen" not in values:
        try:
            values["listen"] = check_listen(default_listen(state_dir))
        except ValueError as error:
            problems.append(f"listen (by default in the state directory): {error}")
    if problems:
        raise ConfigError(problems)
    return Config(
        state_dir=state_dir,
        listen=values["listen"],
        database=values.get("database", f"sqlite:///{quote(state_dir)}/toban.db"),
        timezone=values["timezone"] if "timezone" in values else host_timezone(),
        calendar=values.get("calendar", ""),
        blackout=values.get("blackout", ()),
        shell=values.get("shell", DEFAULT_SHELL),
        definitions=values.get("definitions", ()),
        definitions_removed=values.get("definitions_removed", "disable"),
        stop_policy=values.get("stop_policy", "detach"),
        stop_deadline=values.get("stop_deadline", 10.0),
        default_run_timeout=values.get("default_run_timeout"),
        max_attempts_running=values.get("max_attempts_running", 256),
        event_concurrency=values.get("event_concurrency", 10),
        locks={key.removeprefix(LOCKS): size for key, size in values.items() if key.startswith(LOCKS)},
        disk_reserve=values.get("disk_reserve"),
        cgroup=values.get("cgroup", "auto"),
        step_user=values["step_user"] if "step_user" in values else default_step_user(state_dir),
        step_users=values.get("steps.users"),
        step_shells=values.get("steps.shells"),
        step_workspaces=values.get("steps.workspaces"),
        step_environment_names=values.get("steps.environment_names"),
        step_environment_denied=values.get("steps.environment_denied", ()),
        step_environment=values.get("steps.environment", {}),
        step_inherit=values.get("steps.inherit", ()),
        step_sudo=values.get("steps.sudo", False),
        attempt_log_limit=values.get("limits.attempt_log", GIB),
        total_log_limit=values.get("limits.total_logs"),
        artifact_bytes=values.get("limits.artifact_bytes", 100 * GIB),
        artifact_files=values.get("limits.artifact_files", 250_000),
        artifact_time=values.get("limits.artifact_time", 3600.0),
        artifact_rate=values.get("limits.artifact_rate", GIB),
        server_limits=server_limits(values),
        keep_age=values.get("retention.age", 90 * DAY),
        keep_runs=values.get("retention.runs", 10_000),
        keep_bytes=values.get("retention.bytes"),
        keep_total_runs=values.get("retention.total_runs"),
        keep_total_bytes=values.get("retention.total_bytes", 20 * GIB),
        keep_audit=values.get("retention.audit", 400 * DAY),
        keep_audit_entries=values.get("retention.audit_entries", 5_000_000),
        keep_requests=values.get("retention.requests", 7 * DAY),
        keep_ledger=values.get("retention.ledger", 90 * DAY),
        keep_ledger_entries=values.get("retention.ledger_entries", 1000),
        keep_events=values.get("retention.events", 30 * DAY),
        keep_total_events=values.get("retention.total_events", 100_000),
        keep_tokens=values.get("retention.tokens", 90 * DAY),
        keep_versions=values.get("retention.versions", 100),
        compress_after=values.get("retention.compress_after", 600.0),
        secrets_key_file=values.get("secrets.key_file", ""),
        secret_providers=values.get("secrets.providers", {}),
        tls=TlsSettings(
            certificate=values.get("tls.certificate", ""),
            key=values.get("tls.key", ""),
            client_ca=values.get("tls.client_ca", ""),
            client_certificates=values.get("tls.client_certificates", "off"),
        ),
        access_tokens=values.get("access.tokens", ()),
        access_certificates=values.get("access.certificates", ()),
        access_issuers=values.get("access.issuers", ()),
        log_level=values.get("log.level", "info"),
        log_format=values.get("log.format", "auto"),
        log_file=values.get("log.file", ""),
        sources=sources,
    )


def _below(base: str, path: Any) -> Any:
    """Absolute paths, without duplicates. Relative ones start at the directory of the configuration file."""
    if isinstance(path, tuple):
        return tuple(dict.fromkeys(_below(base, each) for each in path))
    return os.path.abspath(os.path.join(base, path)) if path else ""


def _where(source: str, origin: str, key: str) -> str:
    match source:
        case "file":
            return f"{origin}: {key}"
        case "environment":
            return _variable(key)
        case _:
            return f"--{key.replace('.', '-').replace('_', '-')}"


def _variable(key: str) -> str:
    key = "locks" if key.startswith(LOCKS) else key
    return f"TOBAN_{key.replace('.', '_').upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = [key for key in KEYS if key not in FILE_ONLY and environment.get(_variable(key))]
    found: dict[str, Any] = {key: environment[_variable(key)] for key in known}
    for each in filter(None, environment.get(_variable("locks"), "").split(",")):
        name, _, size = each.partition("=")
        found[f"{LOCKS}{name.strip()}"] = size.strip()
    return found


def _read(file: str, problems: list[str]) -> dict[str, Any]:
    try:
        with open(file, "rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"it is larger than {format_size(LARGEST_FILE)}")
        # A number with too many digits raises a ValueError that is not a TOMLDecodeError.
        tables = tomllib.loads(data.decode())
    except OSError as error:
        problems.append(f"cannot read the configuration {file}: {error.strerror}")
        return {}
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        problems.append(f"cannot read the configuration {file}: it is not TOML: {reason}")
        return {}
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": below for inner, below in value.items()}
        else:
            flat[key] = value
    return flat
