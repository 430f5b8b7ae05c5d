"""Configuration: a TOML file, overridden by the environment, overridden by flags. All problems are found at once."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from toban.definition import format_duration, parse_duration

SOCKET_PATH_MOST = 107
_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "console", "json")
_PORT = re.compile("[0-9]{1,5}")
_PASSWORD = re.compile("([?&]password=)[^&]*")


class ConfigError(Exception):
    """Says everything that is wrong with the configuration; `problems` holds a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    state_dir: str
    listen: tuple[str, ...]
    database: str
    stop_deadline: float
    default_run_timeout: float | None
    log_level: str
    log_format: str
    log_file: str
    sources: Mapping[str, str]

    def shown(self) -> list[tuple[str, Any, str]]:
        """Key, value and source of every setting, fit to be shown: passwords are hidden."""
        timeout = self.default_run_timeout
        values: dict[str, Any] = {
            "state_dir": self.state_dir,
            "listen": list(self.listen),
            "database": _without_password(self.database),
            "stop_deadline": format_duration(self.stop_deadline),
            "default_run_timeout": None if timeout is None else format_duration(timeout),
            "log.level": self.log_level,
            "log.format": self.log_format,
            "log.file": self.log_file,
        }
        return [(key, value, self.sources.get(key, "default")) for key, value in values.items()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"found {value!r}, expected text")
    return value


def _path(value: Any) -> str:
    text = _text(value)
    return os.path.abspath(os.path.expanduser(text)) if text else ""


def _directory(value: Any) -> str:
    path = _path(value)
    if not path:
        raise ValueError("found nothing, expected a directory")
    return path


def _duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"found {value!r}, expected more than nothing")
    return seconds


def _one_of(choices: Sequence[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"found {value!r}, expected one of {', '.join(choices)}")
        return str(value)

    return check


def _listen(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise ValueError(f"found {value!r}, expected addresses such as unix:///path or 127.0.0.1:0")
    return tuple(_address(_text(item).strip()) for item in items)


def _address(text: str) -> str:
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/"):
            raise ValueError(
                f"found {text!r}, expected an absolute path as in unix:///run/toban.sock"
            )
        if "," in path:
            raise ValueError(
                f"the socket path {path} has a comma, at which clients would cut it; choose another with `listen`"
            )
        if len(os.fsencode(path)) > SOCKET_PATH_MOST:
            raise ValueError(
                f"the socket path {path} has {len(os.fsencode(path))} bytes, the system takes at most "
                f"{SOCKET_PATH_MOST}; choose a shorter one with `listen`"
            )
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"found {text!r}, expected unix:///path or 127.0.0.1:PORT")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        raise ValueError(
            f"refusing to listen on {text!r}: without TLS only 127.0.0.1, localhost or [::1] are allowed"
        )
    return text


def _database(value: Any) -> str:
    text = _text(value)
    scheme = urlsplit(text).scheme
    if scheme not in ("sqlite", "postgresql"):
        raise ValueError(
            f"found {_without_password(text)!r}, expected sqlite:///path or postgresql://…"
        )
    return text


_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "state_dir": _directory,
    "listen": _listen,
    "database": _database,
    "stop_deadline": _duration,
    "default_run_timeout": _duration,
    "log.level": _one_of(_LEVELS),
    "log.format": _one_of(_FORMATS),
    "log.file": _path,
}


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
        for key, value in layer.items():
            if key not in _KEYS:
                problems.append(f"{origin}: unknown key `{key}`")
                continue
            try:
                values[key] = _KEYS[key](value)
                sources[key] = source
            except ValueError as error:
                problems.append(f"{_where(source, origin, key)}: {error}")
    state_dir = values.setdefault("state_dir", _default_state_dir(environment))
    if "listen" not in values:
        try:
            values["listen"] = _listen([f"unix://{state_dir}/toban.sock"])
        except ValueError as error:
            problems.append(f"listen (by default in the state directory): {error}")
    if problems:
        raise ConfigError(problems)
    return Config(
        state_dir=state_dir,
        listen=values["listen"],
        database=values.get("database", f"sqlite:///{quote(state_dir)}/toban.db"),
        stop_deadline=values.get("stop_deadline", 10.0),
        default_run_timeout=values.get("default_run_timeout"),
        log_level=values.get("log.level", "info"),
        log_format=values.get("log.format", "auto"),
        log_file=values.get("log.file", ""),
        sources=sources,
    )


def _where(source: str, origin: str, key: str) -> str:
    match source:
        case "file":
            return f"{origin}: {key}"
        case "environment":
            return _variable(key)
        case _:
            return f"--{key.replace('.', '-').replace('_', '-')}"


def _variable(key: str) -> str:
    return f"TOBAN_{key.replace('.', '_').upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {key: environment[_variable(key)] for key in _KEYS if environment.get(_variable(key))}


def _read(file: str, problems: list[str]) -> dict[str, Any]:
    try:
        with open(file, "rb") as opened:
            tables = tomllib.load(opened)
    except OSError as error:
        problems.append(f"cannot read the configuration {file}: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"cannot read the configuration {file}: it is not TOML: {error}")
        return {}
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": below for inner, below in value.items()}
        else:
            flat[key] = value
    return flat


def _default_state_dir(environment: Mapping[str, str]) -> str:
    if sys.platform == "win32":
        return os.path.join(environment.get("PROGRAMDATA", r"C:\ProgramData"), "Toban")
    if os.geteuid() == 0:
        return "/var/lib/toban"
    home = environment.get("HOME", os.path.expanduser("~"))
    return os.path.join(environment.get("XDG_STATE_HOME") or f"{home}/.local/state", "toban")


def _without_password(url: str) -> str:
    password = urlsplit(url).password
    if password is not None:
        url = url.replace(f":{password}@", ":***@", 1)
    return _PASSWORD.sub(r"\1***", url)
