"""The effective configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban.definition import format_duration, format_size
from toband.config.listeners import ListenAddress
from toband.config.secret_providers import ProviderSettings
from toband.config.server_limits import ServerLimits
from toband.config.value_checks import without_password
from toband.domain.credential_rules import CertificateRule, ConfiguredToken, IssuerRules

LOCKS = "locks."
"""Before the name of a lock, in the keys of sizes."""


class ConfigError(Exception):
    """The configuration is invalid; `problems` has a line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Paths of files in PEM."""

    certificate: str = ""
    """The certificate of the daemon, then those of the authorities between it and a root."""
    key: str = ""
    client_ca: str = ""
    client_certificates: str = "off"
    """Of addresses that do not say it themselves: `off` or `required`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    state_dir: str
    listen: tuple[ListenAddress, ...]
    database: str
    timezone: str
    """The IANA name of the default time zone of schedules, and of `blackout`."""
    calendar: str
    """The default calendar of schedules: a country, or the absolute path of a file; empty: none."""
    blackout: tuple[str, ...]
    """Windows in which schedules start no runs, in the syntax of `parse_blackout`."""
    shell: str
    """The shell of `shell` steps without one: `sh`, `bash` or a path."""
    definitions: tuple[str, ...]
    """Absolute paths of the files and directories with definitions."""
    definitions_removed: str
    """What to do with a definition whose file is gone: `disable` or `delete`."""
    stop_policy: str
    stop_deadline: float
    default_run_timeout: float | None
    max_attempts_running: int
    event_concurrency: int
    locks: Mapping[str, int]
    """Sizes of locks: how many users may hold each at once."""
    disk_reserve: int | None
    """Bytes; None means derived from the size of the disk."""
    cgroup: str
    step_user: str
    """The user of steps that name none; empty: the daemon's own."""
    step_users: tuple[str, ...] | None
    """Patterns of users that steps may name. None: only `step_user`, or any if there is none."""
    step_shells: tuple[str, ...] | None
    step_workspaces: tuple[str, ...] | None
    step_environment_names: tuple[str, ...] | None
    step_environment_denied: tuple[str, ...]
    step_environment: Mapping[str, str]
    step_inherit: tuple[str, ...]
    """Variables of the daemon's environment that steps get too."""
    step_sudo: bool
    """Whether steps of other users may use setuid programs."""
    attempt_log_limit: int | None
    total_log_limit: int | None
    artifact_bytes: int
    artifact_files: int
    artifact_time: float
    artifact_rate: int | None
    """Bytes per second read for one run."""
    server_limits: ServerLimits
    keep_age: float | None
    keep_runs: int | None
    keep_total_runs: int | None
    keep_bytes: int | None
    keep_total_bytes: int | None
    keep_audit: float | None
    """Seconds."""
    keep_audit_entries: int | None
    keep_requests: float | None
    """Seconds, as the other ages."""
    keep_ledger: float | None
    keep_ledger_entries: int | None
    keep_events: float | None
    keep_total_events: int | None
    keep_tokens: float | None
    keep_versions: int | None
    compress_after: float | None
    secrets_key_file: str
    """Empty: a credential of the systemd unit, or a file in the state directory."""
    secret_providers: Mapping[str, ProviderSettings]
    tls: TlsSettings
    access_tokens: tuple[ConfiguredToken, ...]
    access_certificates: tuple[CertificateRule, ...]
    access_issuers: tuple[IssuerRules, ...]
    log_level: str
    log_format: str
    log_file: str
    sources: Mapping[str, str]

    def shown(self) -> list[tuple[str, Any, str]]:
        """Key, value and source of every setting, with passwords hidden."""
        values: dict[str, Any] = {
            "state_dir": self.state_dir,
            "listen": [each.shown() for each in self.listen],
            "database": without_password(self.database),
            "timezone": self.timezone,
            "calendar": self.calendar,
            "blackout": list(self.blackout),
            "shell": self.shell,
            "definitions": list(self.definitions),
            "definitions_removed": self.definitions_removed,
            "stop_policy": self.stop_policy,
            "stop_deadline": format_duration(self.stop_deadline),
            "default_run_timeout": _shown_duration(self.default_run_timeout),
            "max_attempts_running": self.max_attempts_running,
            "event_concurrency": self.event_concurrency,
            "disk_reserve": "auto" if self.disk_reserve is None else format_size(self.disk_reserve),
            "cgroup": self.cgroup,
            "step_user": self.step_user,
            "steps.users": _shown_list(self.step_users),
            "steps.shells": _shown_list(self.step_shells),
            "steps.workspaces": _shown_list(self.step_workspaces),
            "steps.environment_names": _shown_list(self.step_environment_names),
            "steps.environment_denied": list(self.step_environment_denied),
            "steps.environment": dict(self.step_environment),
            "steps.inherit": list(self.step_inherit),
            "steps.sudo": self.step_sudo,
            **{f"{LOCKS}{name}": size for name, size in sorted(self.locks.items())},
            "limits.attempt_log": _shown_size(self.attempt_log_limit),
            "limits.total_logs": _shown_size(self.total_log_limit),
            "limits.artifact_bytes": format_size(self.artifact_bytes),
            "limits.artifact_files": self.artifact_files,
            "limits.artifact_time": format_duration(self.artifact_time),
            "limits.artifact_rate": _shown_size(self.artifact_rate),
            **self.server_limits.shown(),
            "retention.age": _shown_duration(self.keep_age),
            "retention.runs": _shown_count(self.keep_runs),
            "retention.bytes": _shown_size(self.keep_bytes),
            "retention.total_runs": _shown_count(self.keep_total_runs),
            "retention.total_bytes": _shown_size(self.keep_total_bytes),
            "retention.audit": _shown_duration(self.keep_audit),
            "retention.audit_entries": _shown_count(self.keep_audit_entries),
            "retention.requests": _shown_duration(self.keep_requests),
            "retention.ledger": _shown_duration(self.keep_ledger),
            "retention.ledger_entries": _shown_count(self.keep_ledger_entries),
            "retention.events": _shown_duration(self.keep_events),
            "retention.total_events": _shown_count(self.keep_total_events),
            "retention.tokens": _shown_duration(self.keep_tokens),
            "retention.versions": _shown_count(self.keep_versions),
            "retention.compress_after": _shown_duration(self.compress_after),
            "secrets.key_file": self.secrets_key_file,
            **{f"secrets.providers.{name}": each.shown for name, each in sorted(self.secret_providers.items())},
            "tls.certificate": self.tls.certificate,
            "tls.key": self.tls.key,
            "tls.client_ca": self.tls.client_ca,
            "tls.client_certificates": self.tls.client_certificates,
            "access.tokens": [f"{each.name} ({each.grant.role.label})" for each in self.access_tokens],
            "access.certificates": [
                f"{each.subject_cn or each.san} ({each.grant.role.label})" for each in self.access_certificates
            ],
            "access.issuers": [f"{each.label}: {each.issuer}" for each in self.access_issuers],
            "log.level": self.log_level,
            "log.format": self.log_format,
            "log.file": self.log_file,
        }
        return [(key, value, self._source(key)) for key, value in values.items()]

    def _source(self, key: str) -> str:
        """That of a table for the keys in it."""
        return self.sources.get(key) or self.sources.get(key.rpartition(".")[0], "default")


def _shown_duration(value: float | None) -> str | None:
    return "none" if value is None else format_duration(value)


def _shown_size(value: int | None) -> str | None:
    return "none" if value is None else format_size(value)


def _shown_list(value: Sequence[str] | None) -> list[str] | None:
    return None if value is None else list(value)


def _shown_count(value: int | None) -> int | str:
    return "none" if value is None else value
