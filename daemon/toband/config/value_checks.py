"""Checks of single settings: each takes a value as written and returns the value used, or raises ValueError."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from toban.definition import parse_duration, parse_size
from toban.definition.scripts.shells import check_shell
from toban.definition.timing.blackouts import parse_blackout
from toban.definition.timing.business_days import default_calendar
from toband.domain.identity import Role

MOST = 2**31 - 1
T = TypeVar("T")
_LONGEST_SHOWN = 200
_NUMBER = re.compile("[0-9]{1,20}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}\$?")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NEVER_PASSED_ON = ("TOBAN_", "LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY")
_PASSWORD = re.compile("([?&]password=)[^&]*")


def shown(value: Any) -> str:
    """The value as an error shows it, shortened. Python refuses to print an integer of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        text = "a number with too many digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def unknown_key(key: str, known: Collection[str]) -> str:
    """The message for an unknown key of a table."""
    near = get_close_matches(key, known, n=1)
    return f"unknown key `{key}`" + (
        f": did you mean `{near[0]}`?" if near else f" (known: {', '.join(sorted(known))})"
    )


def check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"found {shown(value)}, expected text")
    return value


def check_path(value: Any) -> str:
    text = check_text(value)
    if "\0" in text:
        raise ValueError(f"found {shown(text)}, expected a path without a NUL character")
    return os.path.expanduser(text)


def check_directory(value: Any) -> str:
    path = check_path(value)
    if not path:
        raise ValueError("must name a directory")
    return path


def check_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"must be greater than zero, found {shown(value)}")
    return seconds


def check_size(value: Any) -> int:
    size = parse_size(value)
    if size <= 0:
        raise ValueError(f"must be greater than zero, found {shown(value)}")
    return size


def check_count(value: Any) -> int:
    number = value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise ValueError(f"found {shown(value)}, expected a whole number from 1 to {MOST}")
    return number


def or_none(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Accepts `none`, which turns the limit off."""
    return lambda value: None if value == "none" else check(value)


def check_reserve(value: Any) -> int | None:
    """Accepts 0, which means no reserve."""
    return None if value == "auto" else parse_size(value)


def one_of(choices: Sequence[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"found {shown(value)}, expected one of {', '.join(choices)}")
        return str(value)

    return check


def check_role(*, none: bool = False) -> Callable[[Any], Role | None]:
    """With `none`, that text is no role."""
    known = [each.label for each in Role] + ["none"] * none
    choose = one_of(known)
    return lambda value: None if choose(value) == "none" else Role[str(value).upper()]


def check_timezone(value: Any) -> str:
    text = check_text(value)
    if not is_zone(text):
        raise ValueError(f"found {shown(text)}, expected a name such as Asia/Tokyo or UTC")
    return text


def check_calendar(value: Any) -> str:
    text = check_text(value)
    default_calendar(text)
    return text


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        # A directory of the database raises OSError, a path that leaves it ValueError.
        return False
    return True


def check_blackout(value: Any) -> tuple[str, ...]:
    """A string is split at semicolons, because crontab expressions contain commas."""
    items = value.split(";") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(f'found {shown(value)}, expected windows such as ["0 2 * * sun/2h"]')
    return tuple(parse_blackout(check_text(item)).text for item in items)


def check_default_shell(value: Any) -> str:
    return check_shell(check_text(value))


def check_definitions(value: Any) -> tuple[str, ...]:
    """A string is split like PATH."""
    items = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(f'found {shown(value)}, expected paths such as ["/etc/toban/workflows"]')
    return tuple(check_directory(item) for item in items)


def check_user(value: Any) -> str:
    text = check_text(value)
    if text and not _USER.fullmatch(text):
        raise ValueError(f"found {shown(text)}, expected the name or the number of a user")
    return text


def check_flag(value: Any) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"found {shown(value)}, expected true or false")


def check_patterns(value: Any) -> tuple[str, ...]:
    """A string is split at commas."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError(f'found {shown(value)}, expected names or patterns such as ["www-*"]')
    return tuple(item.strip() for item in items)


def check_path_patterns(value: Any) -> tuple[str, ...]:
    found = check_patterns(value)
    for each in found:
        if not os.path.isabs(each) or ".." in each.split("/"):
            raise ValueError(f'found {shown(each)}, expected absolute paths or patterns such as "/srv/*"')
    return found


def check_inherited(value: Any) -> tuple[str, ...]:
    """Names of variables of the daemon's that steps get too."""
    found = check_patterns(value)
    for name in found:
        _check_variable(name)
        if name.startswith(_NEVER_PASSED_ON):
            raise ValueError(f"{name} belongs to the daemon: no step gets it")
    return found


def check_environment(value: Any) -> dict[str, str]:
    """In a variable of the environment: `NAME=VALUE`, separated by commas."""
    if isinstance(value, str):
        pairs = [item.partition("=") for item in value.split(",")]
        if not all(equals for _, equals, _ in pairs):
            raise ValueError(f"found {shown(value)}, expected NAME=VALUE, separated by commas")
        value = {name.strip(): text for name, _, text in pairs}
    if not isinstance(value, dict):
        raise ValueError(f'found {shown(value)}, expected variables such as {{TZ = "UTC"}}')
    for name, text in value.items():
        _check_variable(name)
        if name.startswith("TOBAN_"):
            raise ValueError(f"{name}: names that begin with TOBAN_ cannot be set")
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"{name}: found {shown(text)}, expected text")
    return dict(value)


def _check_variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"found {shown(name)}, expected the name of a variable")


def check_database(value: Any) -> str:
    text = check_text(value)
    scheme = urlsplit(text).scheme
    if scheme not in ("sqlite", "postgresql"):
        raise ValueError(f"found {shown(without_password(text))}, expected sqlite:///path or postgresql://…")
    return text


def without_password(url: str) -> str:
    password = urlsplit(url).password
    if password is not None:
        url = url.replace(f":{password}@", ":***@", 1)
    return _PASSWORD.sub(r"\1***", url)
