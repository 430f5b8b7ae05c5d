"""Reads the configuration: a TOML file, overridden by the environment, then by flags. Reports all problems at once."""

from __future__ import annotations

import errno
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

from toban.definition import format_size
from toban.definition.scalars.names import check_name
from toband.config.declaration import ConfigError, ConfigProblem, NestedError, SettingOrigin, Source
from toband.config.defaults import default_listen, default_state_dir, default_step_user, host_timezone
from toband.config.keys import LOCKS, SETTINGS, setting_of, unknown_setting
from toband.config.listeners import check_listen
from toband.config.settings import Config, config_of
from toband.config.toml_lines import Path, key_lines

LARGEST_FILE = 1024 * 1024
VARIABLE = "TOBAN_"
_PLACE = re.compile(r" \(at line (?P<line>\d+), column \d+\)$")
_SIMILAR = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    source: Source
    values: Mapping[str, Any]
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)

    def place(self, key: str) -> str:
        match self.source:
            case Source.FILE:
                return f"{self.file}:{self.line(key)}"
            case Source.ENVIRONMENT:
                return _variable(key)
            case _:
                return f"--{key.replace('.', '-').replace('_', '-')}"

    def line(self, key: str, path: Sequence[str | int] = ()) -> int:
        """That of a part of its value, or the nearest one around it."""
        full: Path = (*key.split("."), *path)
        known = (self.lines[full[:length]] for length in range(len(full), 0, -1) if full[:length] in self.lines)
        return next(known, 0)

    def problem(self, key: str, error: ValueError) -> ConfigProblem:
        if self.source is not Source.FILE:
            return ConfigProblem(message=f"{self.place(key)}: {error}")
        path = error.path if isinstance(error, NestedError) else ()
        return ConfigProblem(message=f"{key}: {error}", file=self.file, line=self.line(key, path))


def load(file: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The effective configuration. Raises ConfigError with every problem."""
    problems: list[ConfigProblem] = []
    file = os.path.abspath(named) if (named := file or environment.get("TOBAN_CONFIG")) else ""
    values: dict[str, Any] = {key: setting.default for key, setting in SETTINGS.items()}
    origins: dict[str, SettingOrigin] = {}
    layers = [
        _read(file, problems) if file else _Layer(source=Source.FILE, values={}),
        _Layer(source=Source.ENVIRONMENT, values=_from_environment(environment)),
        _Layer(source=Source.FLAG, values={key: value for key, value in flags.items() if value is not None}),
    ]
    for layer in layers:
        for key, value in layer.values.items():
            setting = setting_of(key)
            if setting is None:
                problems.append(ConfigProblem(message=unknown_setting(key), file=layer.file, line=layer.line(key)))
                continue
            try:
                if key.startswith(LOCKS):
                    check_name(key.removeprefix(LOCKS))
                read = setting.check(value)
            except ValueError as error:
                problems.append(layer.problem(key, error))
                continue
            values[key] = _below(os.path.dirname(layer.file), read) if setting.path else read
            before = origins.get(key)
            overridden = () if before is None else (replace(before, overridden=()), *before.overridden)
            origins[key] = SettingOrigin(source=layer.source, place=layer.place(key), overridden=overridden)
    # TOML has tables in any order; people read from the first line.
    problems.sort(key=lambda each: each.line or (0 if each.file else sys.maxsize))
    _fill_in(values, environment, problems)
    if problems:
        raise ConfigError(problems)
    return config_of(values, origins, file=file, warnings=_misspelled(environment))


def _fill_in(values: dict[str, Any], environment: Mapping[str, str], problems: list[ConfigProblem]) -> None:
    """The defaults that depend on the host, or on other settings."""
    state_dir = values["state_dir"] = values["state_dir"] or default_state_dir(environment)
    if values["listen"] is None:
        try:
            values["listen"] = check_listen(default_listen(state_dir))
        except ValueError as error:
            problems.append(ConfigProblem(message=f"listen (by default in the state directory): {error}"))
    if values["database"] is None:
        values["database"] = f"sqlite:///{quote(state_dir)}/toban.db"
    if values["timezone"] is None:
        values["timezone"] = host_timezone()
    if values["step_user"] is None:
        values["step_user"] = default_step_user(state_dir)


def _below(base: str, path: Any) -> Any:
    """Absolute paths, without duplicates. Relative ones start at the directory of the configuration file."""
    if isinstance(path, tuple):
        return tuple(dict.fromkeys(_below(base, each) for each in path))
    return os.path.abspath(os.path.join(base, path)) if path else ""


def _variable(key: str) -> str:
    key = LOCKS.rstrip(".") if key.startswith(LOCKS) else key
    return f"{VARIABLE}{key.replace('.', '_').upper()}"


_VARIABLES = {_variable(key): key for key, setting in SETTINGS.items() if not setting.file_only}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: environment[variable] for variable, key in _VARIABLES.items() if environment.get(variable)
    }
    for each in filter(None, environment.get(_variable(LOCKS), "").split(",")):
        name, _, size = each.partition("=")
        found[f"{LOCKS}{name.strip()}"] = size.strip()
    return found


def _misspelled(environment: Mapping[str, str]) -> list[str]:
    """Variables that are nearly those of settings. Others that begin with TOBAN_ belong to clients and steps."""
    found = []
    for name in sorted(environment):
        if name.startswith(VARIABLE) and name not in _VARIABLES and environment[name]:
            for near in get_close_matches(name, _VARIABLES, n=1, cutoff=_SIMILAR):
                found.append(f"the variable {name} is not a setting: did you mean {near}?")
    return found


def _read(file: str, problems: list[ConfigProblem]) -> _Layer:
    nothing = _Layer(source=Source.FILE, values={}, file=file)
    try:
        with open(file, "rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"it is larger than {format_size(LARGEST_FILE)}")
        # A number with too many digits raises a ValueError that is not a TOMLDecodeError.
        text = data.decode()
        tables = tomllib.loads(text)
        lines = key_lines(text)
    except OSError as error:
        problems.append(ConfigProblem(message=f"cannot read the configuration {file}: {error.strerror}"))
        return nothing
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        place = _PLACE.search(reason)
        line = int(place["line"]) if place is not None else 0
        problems.append(ConfigProblem(message=f"it is not TOML: {_PLACE.sub('', reason)}", file=file, line=line))
        return nothing
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": below for inner, below in value.items()}
        else:
            flat[key] = value
    return _Layer(source=Source.FILE, values=flat, file=file, lines=lines)
