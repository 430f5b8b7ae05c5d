"""Applies settings that can change while the daemon runs. `config.keys` declares which these are."""

from __future__ import annotations

from collections.abc import Callable

from toband import daemon_log
from toband.app.adapters import Adapters
from toband.app.engine_parts import EngineParts, retention_rules, row_limits
from toband.app.provider_choice import replace_providers
from toband.config import Config
from toband.config.comparison import changes
from toband.engine.health.admission import Admission


class LiveSettings:
    """Belongs to the event loop. What runs is not disturbed: changes are for whatever begins or waits."""

    def __init__(self, adapters: Adapters, engine: EngineParts, admission: Admission) -> None:
        self._adapters = adapters
        self._engine = engine
        self._admission = admission
        self._appliers: dict[str, Callable[[Config, Config], None]] = {
            "blackout": lambda _, new: engine.use_blackouts(new.blackout),
            "default_run_timeout": self._run_limits,
            "max_attempts_running": self._run_limits,
            "event_concurrency": self._run_limits,
            "locks": lambda _, new: engine.runs.lock_table.resize(new.locks),
            "disk_reserve": self._reserve,
            "steps": lambda _, new: engine.use_step_rules(new),
            "limits": self._limits,
            "retention": self._retention,
            "secrets": self._providers,
            "access": lambda _, new: engine.access.use_credentials(new),
            "log": lambda _, new: daemon_log.set_level(new.log_level),
            # Read when the daemon stops.
            "stop_policy": lambda _, new: None,
            "stop_deadline": lambda _, new: None,
        }

    def apply(self, before: Config, after: Config) -> None:
        tables = {change.key.partition(".")[0]: None for change in changes(before, after) if change.live}
        for applier in dict.fromkeys(self._appliers[table] for table in tables):
            applier(before, after)

    def _run_limits(self, _: Config, after: Config) -> None:
        self._engine.runs.use_limits(after)

    def _reserve(self, _: Config, after: Config) -> None:
        self._admission.reserve = self._engine.doctor.reserve = after.disk_reserve

    def _limits(self, before: Config, after: Config) -> None:
        self._adapters.use_artifact_limits(after)
        self._engine.use_step_rules(after)
        self._engine.access.use_limits(after.server_limits)
        self._run_limits(before, after)
        self._retention(before, after)

    def _retention(self, _: Config, after: Config) -> None:
        self._engine.retention.use(retention_rules(after))
        self._engine.row_retention.use(row_limits(after))
        self._engine.audit_log.use(age=after.keep_audit, most=after.keep_audit_entries)

    def _providers(self, before: Config, after: Config) -> None:
        replace_providers(self._adapters.secret_providers, before.secret_providers, after.secret_providers)
