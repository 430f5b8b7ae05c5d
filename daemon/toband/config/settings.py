"""The effective configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toban.definition import format_duration, format_size
from toband.config.declaration import SettingOrigin, ShownSetting
from toband.config.keys import LOCKS, declared_in
from toband.config.listeners import ListenAddress
from toband.config.secret_providers import ProviderSettings
from toband.config.server_limits import ServerLimits, server_limits
from toband.config.value_checks import without_password
from toband.domain.credential_rules import CertificateRule, ConfiguredToken, IssuerRules


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
    log_file_size: int | None
    file: str
    """The absolute path of the configuration file; empty: there is none."""
    warnings: Sequence[str]
    values: Mapping[str, Any] = field(repr=False)
    """The checked value of every key: with passwords, which `shown` hides."""
    origins: Mapping[str, SettingOrigin]

    def shown(self) -> list[ShownSetting]:
        """Every setting, with passwords hidden."""
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
            "log.file_size": _shown_size(self.log_file_size),
        }
        return [
            ShownSetting(key=key, value=value, origin=self._origin(key), live=declared_in(key).live)
            for key, value in values.items()
        ]

    def _origin(self, key: str) -> SettingOrigin:
        """That of a table for the keys in it."""
        return self.origins.get(key) or self.origins.get(key.rpartition(".")[0]) or SettingOrigin()


def config_of(
    values: Mapping[str, Any], origins: Mapping[str, SettingOrigin], *, file: str = "", warnings: Sequence[str] = ()
) -> Config:
    """From the checked values of all keys."""
    return Config(
        file=file,
        warnings=warnings,
        values=values,
        origins=origins,
        state_dir=values["state_dir"],
        listen=values["listen"],
        database=values["database"],
        timezone=values["timezone"],
        calendar=values["calendar"],
        blackout=values["blackout"],
        shell=values["shell"],
        definitions=values["definitions"],
        definitions_removed=values["definitions_removed"],
        stop_policy=values["stop_policy"],
        stop_deadline=values["stop_deadline"],
        default_run_timeout=values["default_run_timeout"],
        max_attempts_running=values["max_attempts_running"],
        event_concurrency=values["event_concurrency"],
        locks={key.removeprefix(LOCKS): size for key, size in values.items() if key.startswith(LOCKS)},
        disk_reserve=values["disk_reserve"],
        cgroup=values["cgroup"],
        step_user=values["step_user"],
        step_users=values["steps.users"],
        step_shells=values["steps.shells"],
        step_workspaces=values["steps.workspaces"],
        step_environment_names=values["steps.environment_names"],
        step_environment_denied=values["steps.environment_denied"],
        step_environment=values["steps.environment"],
        step_inherit=values["steps.inherit"],
        step_sudo=values["steps.sudo"],
        attempt_log_limit=values["limits.attempt_log"],
        total_log_limit=values["limits.total_logs"],
        artifact_bytes=values["limits.artifact_bytes"],
        artifact_files=values["limits.artifact_files"],
        artifact_time=values["limits.artifact_time"],
        artifact_rate=values["limits.artifact_rate"],
        server_limits=server_limits(values),
        keep_age=values["retention.age"],
        keep_runs=values["retention.runs"],
        keep_bytes=values["retention.bytes"],
        keep_total_runs=values["retention.total_runs"],
        keep_total_bytes=values["retention.total_bytes"],
        keep_audit=values["retention.audit"],
        keep_audit_entries=values["retention.audit_entries"],
        keep_requests=values["retention.requests"],
        keep_ledger=values["retention.ledger"],
        keep_ledger_entries=values["retention.ledger_entries"],
        keep_events=values["retention.events"],
        keep_total_events=values["retention.total_events"],
        keep_tokens=values["retention.tokens"],
        keep_versions=values["retention.versions"],
        compress_after=values["retention.compress_after"],
        secrets_key_file=values["secrets.key_file"],
        secret_providers=values["secrets.providers"],
        tls=TlsSettings(
            certificate=values["tls.certificate"],
            key=values["tls.key"],
            client_ca=values["tls.client_ca"],
            client_certificates=values["tls.client_certificates"],
        ),
        access_tokens=values["access.tokens"],
        access_certificates=values["access.certificates"],
        access_issuers=values["access.issuers"],
        log_level=values["log.level"],
        log_format=values["log.format"],
        log_file=values["log.file"],
        log_file_size=values["log.file_size"],
    )


def _shown_duration(value: float | None) -> str | None:
    return "none" if value is None else format_duration(value)


def _shown_size(value: int | None) -> str | None:
    return "none" if value is None else format_size(value)


def _shown_list(value: Sequence[str] | None) -> list[str] | None:
    return None if value is None else list(value)


def _shown_count(value: int | None) -> int | str:
    return "none" if value is None else value
