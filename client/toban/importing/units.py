"""Unit files of systemd: finding them, with their drop-ins, and reading what they say."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from toban.importing.model import ImportProblem

SEARCH_PATH = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)

_UNITS = {
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3,
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
    "M": 2629800.0, "month": 2629800.0, "months": 2629800.0,
    "y": 31557600.0, "year": 31557600.0, "years": 31557600.0,
}  # fmt: skip
_TRIGGERS = (
    "OnActiveSec",
    "OnBootSec",
    "OnStartupSec",
    "OnUnitActiveSec",
    "OnUnitInactiveSec",
    "OnCalendar",
)
_SPAN_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*")
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+)([KMGT]?)B?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a unit says: the values of each directive in order, those of drop-ins after them."""

    name: str
    file: str
    values: Mapping[tuple[str, str], Sequence[str]]

    def all(self, section: str, key: str) -> Sequence[str]:
        """All values of a directive that may be given several times."""
        return self.values.get((section, key), ())

    def last(self, section: str, key: str, default: str = "") -> str:
        """The value of a directive that has one: the last that was given."""
        found = self.all(section, key)
        return found[-1] if found else default

    @property
    def of_a_user(self) -> bool:
        """Whether it is for the manager of a user, not that of the system."""
        return "/systemd/user/" in os.path.abspath(self.file).replace(os.sep, "/")

    def without(self, keys: Collection[str]) -> tuple[Unit, list[str]]:
        """The unit without these directives, and those that it had, as they stood."""
        left = {place: given for place, given in self.values.items() if place[1] not in keys}
        gone = [
            f"{key}={given[-1]}" for (_, key), given in self.values.items() if key in keys and given
        ]
        return replace(self, values=left), gone

    def flag(self, section: str, key: str) -> bool:
        """A directive that is on or off; off by default."""
        return self.last(section, key).lower() in ("1", "yes", "y", "true", "t", "on")


def read_unit(name: str, *, root: str, beside: str = "") -> Unit:
    """Finds a unit by its name and reads it with its drop-ins.

    `root` stands before the places where systemd looks; `beside` is a directory that goes before them all. Raises
    ImportProblem if there is none, or it cannot be read.
    """
    directories = ([beside] if beside else []) + [
        os.path.join(root or "/", path.lstrip("/")) for path in SEARCH_PATH
    ]
    names = [name]
    prefix, at, rest = name.partition("@")
    if at:
        names.append(f"{prefix}@.{rest.rpartition('.')[2]}")
    file = next(
        (
            path
            for each in names
            for directory in directories
            if os.path.lexists(path := os.path.join(directory, each))
        ),
        None,
    )
    if file is None:
        raise ImportProblem(f"there is no unit {name} in {', '.join(directories)}")
    if os.path.realpath(file) == os.devnull:
        raise ImportProblem(f"{name} is masked")
    values: dict[tuple[str, str], list[str]] = {}
    for path in (file, *_drop_ins(name, directories)):
        _read_into(values, path)
    return Unit(name=name, file=file, values=values)


def _drop_ins(name: str, directories: Sequence[str]) -> list[str]:
    """By file name; of namesakes the first counts, and those for the whole type come last."""
    folders = [
        os.path.join(directory, f"{each}.d")
        for directory in directories
        for each in _dropped_in_as(name)
    ]
    folders += [
        os.path.join(directory, f"{name.rpartition('.')[2]}.d") for directory in directories
    ]
    found: dict[str, str] = {}
    for folder in folders:
        if os.path.isdir(folder):
            for each in os.listdir(folder):
                if each.endswith(".conf"):
                    found.setdefault(each, os.path.join(folder, each))
    return [path for _, path in sorted(found.items()) if os.path.realpath(path) != os.devnull]


def _dropped_in_as(name: str) -> Iterator[str]:
    """The names whose drop-ins a unit has, closest first: its own, its template's, and its prefixes' up to a dash."""
    yield name
    stem, _, kind = name.rpartition(".")
    prefix, _, instance = stem.partition("@")
    if instance:
        yield from _dropped_in_as(f"{prefix}@.{kind}")
    dash = prefix.removesuffix("-").rfind("-")
    if dash > 0:
        shorter = prefix[: dash + 1]
        yield from _dropped_in_as(
            f"{shorter}@{instance}.{kind}" if instance else f"{shorter}.{kind}"
        )


def _read_into(values: dict[tuple[str, str], list[str]], path: str) -> None:
    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ImportProblem(f"cannot read {path}: {error}") from None
    section = ""
    for number, line in _logical_lines(text):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        key, equals, value = line.partition("=")
        if not equals or not section:
            raise ImportProblem(f"{path}:{number}: expected [Section] or Name=value")
        key, value = key.strip(), value.strip()
        given = values.setdefault((section, key), [])
        if value:
            given.append(value)
            continue
        # An empty value takes back those before; that of one trigger those of all.
        for taken_back in _TRIGGERS if key in _TRIGGERS else (key,):
            values.get((section, taken_back), []).clear()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    held, began = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith(("#", ";")):
            continue
        began = began or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        whole = (held + line).strip()
        if whole:
            yield began, whole
        held, began = "", 0
    if held.strip():
        yield began, held.strip()


def parse_span(text: str) -> float | None:
    """Seconds of a time span such as `1h 30min`; None for `infinity`. Raises ImportProblem."""
    if text == "infinity":
        return None
    total, at = 0.0, 0
    while at < len(text):
        match = _SPAN_PART.match(text, at)
        if match is None or match[2] not in _UNITS:
            break
        total += float(match[1]) * _UNITS[match[2]]
        at = match.end()
    if not text or at < len(text):
        raise ImportProblem(f'cannot read the time span "{text}"')
    return total


def parse_bytes(text: str) -> int | None:
    """A size such as `512M`; None for `infinity`. Raises ImportProblem, also for a share of the machine's memory."""
    if text == "infinity":
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ImportProblem(f'the size "{text}" has no counterpart')
    return int(match[1]) * _SIZES[match[2]]
