"""Reads the configuration again, and applies what can change while the daemon runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import structlog

from toband.config import Config, ConfigError
from toband.config.comparison import ReloadOutcome, changes, with_live_settings
from toband.ports import Conditions, HealthStatus

CONDITION = "configuration"
_SHOWN = 3

log = structlog.get_logger()


class ConfigReload:
    """Belongs to the event loop."""

    def __init__(
        self,
        config: Config,
        *,
        read: Callable[[], Config],
        apply: Callable[[Config, Config], None],
        conditions: Conditions,
        announcing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """`apply` is called with the configurations before and after. `announcing` tells systemd of each reload."""
        self.config = config
        """The one in effect."""
        self._read = read
        self._apply = apply
        self._conditions = conditions
        self._announcing = announcing
        self._busy = asyncio.Lock()

    async def reload(self) -> ReloadOutcome:
        """Changes nothing if the configuration is invalid. May be repeated."""
        async with self._busy:
            with self._announcing():
                return await self._reload()

    async def _reload(self) -> ReloadOutcome:
        try:
            # The file may be on a disk that does not answer, and the names of groups on a server.
            read = await asyncio.to_thread(self._read)
        except ConfigError as error:
            return self._refused(error)
        before = self.config
        found = changes(before, read)
        self.config = with_live_settings(before, read)
        self._apply(before, self.config)
        self._conditions.well(CONDITION)
        log.info(
            "reloaded the configuration",
            action="config_reloaded",
            applied=[each.key for each in found if each.live],
            needs_restart=[each.key for each in found if not each.live],
        )
        for warning in read.warnings:
            log.warning(warning, action="config_warning")
        return ReloadOutcome(changes=found, warnings=read.warnings)

    def _refused(self, error: ConfigError) -> ReloadOutcome:
        problems = [str(each) for each in error.problems]
        log.error("the changed configuration is invalid: nothing changed", action="config_refused", problems=problems)
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        self._conditions.trouble(
            CONDITION,
            HealthStatus.DEGRADED,
            f"the configuration was changed and is invalid, so the daemon uses the earlier one: "
            f"{'; '.join(problems[:_SHOWN])}{more}; correct it, and run `toban system reload`",
        )
        return ReloadOutcome(problems=error.problems)
