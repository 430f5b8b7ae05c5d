"""Compares a configuration that was read again with the one in effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toband.config.declaration import ConfigProblem
from toband.config.keys import setting_of
from toband.config.settings import Config, config_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting whose value is no longer the one in effect. The values are as people read them."""

    key: str
    before: Any
    after: Any
    live: bool
    """It takes effect at once; otherwise after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """What reading the configuration again found. With problems, nothing changed."""

    changes: Sequence[SettingChange] = ()
    problems: Sequence[ConfigProblem] = ()
    warnings: Sequence[str] = ()


def changes(before: Config, after: Config) -> Sequence[SettingChange]:
    """What changed, by key. A changed password is a change, although it is not shown."""
    absent = object()
    keys = {**before.values, **after.values}
    changed = [key for key in keys if before.values.get(key, absent) != after.values.get(key, absent)]
    old, new = _shown(before), _shown(after)
    return [SettingChange(key=key, before=old.get(key), after=new.get(key), live=_is_live(key)) for key in changed]


def _shown(config: Config) -> Mapping[str, Any]:
    """By key; parts that are shown as settings of their own, such as providers, together."""
    found: dict[str, Any] = {key: {} for key in config.values}
    for each in config.shown():
        if each.key in config.values:
            found[each.key] = each.value
        else:
            table, _, name = each.key.rpartition(".")
            found[table][name] = each.value
    return found


def with_live_settings(before: Config, after: Config) -> Config:
    """What is in effect after a reload: settings that need a restart keep their values and origins."""
    live = {key for key in {**before.values, **after.values} if _is_live(key)}
    values = {key: value for key, value in before.values.items() if key not in live}
    values |= {key: value for key, value in after.values.items() if key in live}
    origins = {key: origin for key, origin in before.origins.items() if key not in live}
    unchanged = {key for key, value in before.values.items() if after.values.get(key) == value}
    origins |= {key: origin for key, origin in after.origins.items() if key in live or key in unchanged}
    return config_of(values, origins, file=after.file, warnings=after.warnings)


def _is_live(key: str) -> bool:
    setting = setting_of(key)
    return setting is not None and setting.live
