"""Configuration: a TOML file, overridden by the environment, overridden by flags. All problems are reported at once."""

from __future__ import annotations

import errno
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo

from toban.definition import format_duration, format_size, parse_duration, parse_size
from toban.definition.scalars.names import check_name
from toban.definition.scripts.shells import DEFAULT_SHELL, check_shell
from toban.definition.timing.blackouts import parse_blackout
from toban.definition.timing.business_days import default_calendar

SOCKET_PATH_MOST = 107
GIB = 1024**3
DAY = 86400.0
T = TypeVar("T")
_LOCKS = "locks."
"""Before the name of a lock, in the keys of sizes."""
LARGEST_FILE = 1024 * 1024
MOST = 2**31 - 1
_LONGEST_SHOWN = 200
_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "console", "json")
_REMOVED = ("disable", "delete")
_STOP_POLICIES = ("detach", "wait", "cancel")
_PORT = re.compile("[0-9]{1,5}")
_NUMBER = re.compile("[0-9]{1,20}")
_PASSWORD = re.compile("([?&]password=)[^&]*")


class ConfigError(Exception):
    """The configuration is invalid; `problems` has a line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    state_dir: str
    listen: tuple[str, ...]
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
    attempt_log_limit: int | None
    total_log_limit: int | None
    artifact_bytes: int
    artifact_files: int
    artifact_time: float
    artifact_rate: int | None
    """Bytes per second read for one run."""
    keep_age: float | None
    keep_runs: int | None
    keep_total_runs: int | None
    keep_bytes: int | None
    keep_total_bytes: int | None
    compress_after: float | None
    log_level: str
    log_format: str
    log_file: str
    sources: Mapping[str, str]

    def shown(self) -> list[tuple[str, Any, str]]:
        """Key, value and source of every setting, with passwords hidden."""
        values: dict[str, Any] = {
            "state_dir": self.state_dir,
            "listen": list(self.listen),
            "database": _without_password(self.database),
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
            **{f"{_LOCKS}{name}": size for name, size in sorted(self.locks.items())},
            "limits.attempt_log": _shown_size(self.attempt_log_limit),
            "limits.total_logs": _shown_size(self.total_log_limit),
            "limits.artifact_bytes": format_size(self.artifact_bytes),
            "limits.artifact_files": self.artifact_files,
            "limits.artifact_time": format_duration(self.artifact_time),
            "limits.artifact_rate": _shown_size(self.artifact_rate),
            "retention.age": _shown_duration(self.keep_age),
            "retention.runs": _shown_count(self.keep_runs),
            "retention.bytes": _shown_size(self.keep_bytes),
            "retention.total_runs": _shown_count(self.keep_total_runs),
            "retention.total_bytes": _shown_size(self.keep_total_bytes),
            "retention.compress_after": _shown_duration(self.compress_after),
            "log.level": self.log_level,
            "log.format": self.log_format,
            "log.file": self.log_file,
        }
        return [(key, value, self.sources.get(key, "default")) for key, value in values.items()]


def _shown_duration(value: float | None) -> str | None:
    return "none" if value is None else format_duration(value)


def _shown_size(value: int | None) -> str | None:
    return "none" if value is None else format_size(value)


def _shown_count(value: int | None) -> int | str:
    return "none" if value is None else value


def _shown(value: Any) -> str:
    """The value as an error shows it, shortened. Python refuses to print an integer of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        text = "a number with too many digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"found {_shown(value)}, expected text")
    return value


def _path(value: Any) -> str:
    text = _text(value)
    if "\0" in text:
        raise ValueError(f"found {_shown(text)}, expected a path without a NUL character")
    return os.path.expanduser(text)


def _directory(value: Any) -> str:
    path = _path(value)
    if not path:
        raise ValueError("must name a directory")
    return path


def _duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"must be greater than zero, found {_shown(value)}")
    return seconds


def _size(value: Any) -> int:
    size = parse_size(value)
    if size <= 0:
        raise ValueError(f"must be greater than zero, found {_shown(value)}")
    return size


def _count(value: Any) -> int:
    number = value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise ValueError(f"found {_shown(value)}, expected a whole number from 1 to {MOST}")
    return number


def _or_none(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Accepts `none`, which turns the limit off."""
    return lambda value: None if value == "none" else check(value)


def _reserve(value: Any) -> int | None:
    """Accepts 0, which means no reserve."""
    return None if value == "auto" else parse_size(value)


def _one_of(choices: Sequence[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"found {_shown(value)}, expected one of {', '.join(choices)}")
        return str(value)

    return check


def _listen(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise ValueError(f"found {_shown(value)}, expected addresses such as unix:///path or 127.0.0.1:0")
    return tuple(_address(_text(item).strip()) for item in items)


def _address(text: str) -> str:
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/"):
            raise ValueError(f"found {_shown(text)}, expected an absolute path as in unix:///run/toban.sock")
        if "," in path:
            raise ValueError(
                f"the socket path {path} contains a comma, which separates addresses; choose another with `listen`"
            )
        if len(os.fsencode(path)) > SOCKET_PATH_MOST:
            raise ValueError(
                f"the socket path {path} is {len(os.fsencode(path))} bytes long, the system allows at most "
                f"{SOCKET_PATH_MOST}; choose a shorter one with `listen`"
            )
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"found {_shown(text)}, expected unix:///path or 127.0.0.1:PORT")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        raise ValueError(f"refusing to listen on {text!r}: without TLS only 127.0.0.1, localhost or [::1] are allowed")
    return text


def _timezone(value: Any) -> str:
    text = _text(value)
    if not _is_zone(text):
        raise ValueError(f"found {_shown(text)}, expected a name such as Asia/Tokyo or UTC")
    return text


def _calendar(value: Any) -> str:
    text = _text(value)
    default_calendar(text)
    return text


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        # A directory of the database raises OSError, a path that leaves it ValueError.
        return False
    return True


def _blackout(value: Any) -> tuple[str, ...]:
    """A string is split at semicolons, because crontab expressions contain commas."""
    items = value.split(";") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(f'found {_shown(value)}, expected windows such as ["0 2 * * sun/2h"]')
    return tuple(parse_blackout(_text(item)).text for item in items)


def _shell(value: Any) -> str:
    return check_shell(_text(value))


def _definitions(value: Any) -> tuple[str, ...]:
    """A string is split like PATH."""
    items = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(f'found {_shown(value)}, expected paths such as ["/etc/toban/workflows"]')
    return tuple(_directory(item) for item in items)


def _database(value: Any) -> str:
    text = _text(value)
    scheme = urlsplit(text).scheme
    if scheme not in ("sqlite", "postgresql"):
        raise ValueError(f"found {_shown(_without_password(text))}, expected sqlite:///path or postgresql://…")
    return text


_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "state_dir": _directory,
    "listen": _listen,
    "database": _database,
    "timezone": _timezone,
    "calendar": _calendar,
    "blackout": _blackout,
    "shell": _shell,
    "definitions": _definitions,
    "definitions_removed": _one_of(_REMOVED),
    "stop_policy": _one_of(_STOP_POLICIES),
    "stop_deadline": _duration,
    "default_run_timeout": _or_none(_duration),
    "max_attempts_running": _count,
    "event_concurrency": _count,
    "disk_reserve": _reserve,
    "cgroup": _one_of(("auto", "off")),
    "limits.attempt_log": _or_none(_size),
    "limits.total_logs": _or_none(_size),
    "limits.artifact_bytes": _size,
    "limits.artifact_files": _count,
    "limits.artifact_time": _duration,
    "limits.artifact_rate": _or_none(_size),
    "retention.age": _or_none(_duration),
    "retention.runs": _or_none(_count),
    "retention.bytes": _or_none(_size),
    "retention.total_runs": _or_none(_count),
    "retention.total_bytes": _or_none(_size),
    "retention.compress_after": _or_none(_duration),
    "log.level": _one_of(_LEVELS),
    "log.format": _one_of(_FORMATS),
    "log.file": _path,
}
_PATHS = frozenset({"state_dir", "definitions", "log.file"})


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
            check = _count if key.startswith(_LOCKS) else _KEYS.get(key)
            if check is None:
                problems.append(f"{origin}: unknown key `{key}`")
                continue
            try:
                if key.startswith(_LOCKS):
                    check_name(key.removeprefix(_LOCKS))
                read = check(value)
                values[key] = _below(base, read) if key in _PATHS else read
                sources[key] = source
            except ValueError as error:
                problems.append(f"{_where(source, origin, key)}: {error}")
    state_dir = values.setdefault("state_dir", _default_state_dir(environment))
    if "listen" not in values:
        try:
            values["listen"] = _listen([_default_listen(state_dir)])
        except ValueError as error:
            problems.append(f"listen (by default in the state directory): {error}")
    if problems:
        raise ConfigError(problems)
    return Config(
        state_dir=state_dir,
        listen=values["listen"],
        database=values.get("database", f"sqlite:///{quote(state_dir)}/toban.db"),
        timezone=values["timezone"] if "timezone" in values else _host_timezone(),
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
        locks={key.removeprefix(_LOCKS): size for key, size in values.items() if key.startswith(_LOCKS)},
        disk_reserve=values.get("disk_reserve"),
        cgroup=values.get("cgroup", "auto"),
        attempt_log_limit=values.get("limits.attempt_log", GIB),
        total_log_limit=values.get("limits.total_logs"),
        artifact_bytes=values.get("limits.artifact_bytes", 100 * GIB),
        artifact_files=values.get("limits.artifact_files", 250_000),
        artifact_time=values.get("limits.artifact_time", 3600.0),
        artifact_rate=values.get("limits.artifact_rate", GIB),
        keep_age=values.get("retention.age", 90 * DAY),
        keep_runs=values.get("retention.runs", 10_000),
        keep_bytes=values.get("retention.bytes"),
        keep_total_runs=values.get("retention.total_runs"),
        keep_total_bytes=values.get("retention.total_bytes", 20 * GIB),
        compress_after=values.get("retention.compress_after", 600.0),
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
    key = "locks" if key.startswith(_LOCKS) else key
    return f"TOBAN_{key.replace('.', '_').upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {key: environment[_variable(key)] for key in _KEYS if environment.get(_variable(key))}
    for each in filter(None, environment.get(_variable("locks"), "").split(",")):
        name, _, size = each.partition("=")
        found[f"{_LOCKS}{name.strip()}"] = size.strip()
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


def _default_state_dir(environment: Mapping[str, str]) -> str:
    if sys.platform == "win32":
        return os.path.join(environment.get("PROGRAMDATA", r"C:\ProgramData"), "Toban")
    if os.geteuid() == 0:
        return "/var/lib/toban"
    home = environment.get("HOME", os.path.expanduser("~"))
    return os.path.join(environment.get("XDG_STATE_HOME") or f"{home}/.local/state", "toban")


def _host_timezone() -> str:
    """The host's time zone; UTC if it has no IANA name."""
    try:
        import tzlocal

        name = tzlocal.get_localzone_name()
    except (ImportError, ValueError, LookupError, OSError):
        # tzlocal is missing where only the client is installed; the client needs no default zone.
        return "UTC"
    return name if name and _is_zone(name) else "UTC"


def _default_listen(state_dir: str) -> str:
    """A Unix socket protected by file permissions; on Windows, where gRPC has none, a free port."""
    return "127.0.0.1:0" if sys.platform == "win32" else f"unix://{state_dir}/toban.sock"


def _without_password(url: str) -> str:
    password = urlsplit(url).password
    if password is not None:
        url = url.replace(f":{password}@", ":***@", 1)
    return _PASSWORD.sub(r"\1***", url)
