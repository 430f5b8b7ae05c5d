"""Finds and reads unit files of systemd with their drop-ins."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from toban.importers.import_model import ImportProblem

SEARCH_PATH = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)

_UNITS = {
    "us": 1e-6,
    "usec": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "msec": 1e-3,
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
    "w": 604800.0,
    "week": 604800.0,
    "weeks": 604800.0,
    "M": 2629800.0,
    "month": 2629800.0,
    "months": 2629800.0,
    "y": 31557600.0,
    "year": 31557600.0,
    "years": 31557600.0,
}
_TRIGGERS = (
    "OnActiveSec",
    "OnBootSec",
    "OnStartupSec",
    "OnUnitActiveSec",
    "OnUnitInactiveSec",
    "OnCalendar",
)
_MOST_LINKS = 8
_NOTHING = "/dev/null"
_SPAN_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*")
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+)([KMGT]?)B?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The contents of a unit: the values of each directive in order, those of drop-ins last."""

    name: str
    file: str
    values: Mapping[tuple[str, str], Sequence[str]]

    def all(self, section: str, key: str) -> Sequence[str]:
        """All values of a directive that may be given several times."""
        return self.values.get((section, key), ())

    def last(self, section: str, key: str, default: str = "") -> str:
        """The value of a directive with one value: the last one given."""
        found = self.all(section, key)
        return found[-1] if found else default

    @property
    def of_a_user(self) -> bool:
        """Whether it is for a user's manager, not the system's."""
        return "/systemd/user/" in os.path.abspath(self.file).replace(os.sep, "/")

    def without(self, keys: Collection[str]) -> tuple[Unit, list[str]]:
        """The unit without these directives, and the removed ones as written."""
        left = {place: given for place, given in self.values.items() if place[1] not in keys}
        gone = [f"{key}={given[-1]}" for (_, key), given in self.values.items() if key in keys and given]
        return replace(self, values=left), gone

    def flag(self, section: str, key: str) -> bool:
        """A directive that is on or off; off by default."""
        return self.last(section, key).lower() in ("1", "yes", "y", "true", "t", "on")


def read_unit(name: str, *, root: str, beside: str = "") -> Unit:
    """Finds a unit by its name, or by another name that a link gives it, and reads it with its drop-ins.

    `root` is a prefix of the directories that systemd searches; `beside` is a directory that is searched first. The
    result has the unit's own name. Raises ImportProblem if there is none, or it cannot be read.
    """
    places = _Places(
        root=root or "/",
        directories=([beside] if beside else [])
        + [os.path.join(root or "/", path.lstrip("/")) for path in SEARCH_PATH],
    )
    own, file = _found(name, places)
    if places.is_masked(file):
        raise ImportProblem(f"{name} is masked")
    values: dict[tuple[str, str], list[str]] = {}
    for path in (file, *_drop_ins(own, places)):
        _read_into(values, path, places.chased(path))
    return Unit(name=own, file=file, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """The directories that are searched for units, and the prefix of absolute links in them."""

    root: str
    directories: Sequence[str]

    def is_masked(self, path: str) -> bool:
        """Whether it is a link to nothing: such a unit or drop-in is masked."""
        nothing = os.path.normpath(os.path.join(self.root, _NOTHING.lstrip("/")))
        return self.chased(path) in (_NOTHING, nothing)

    def chased(self, path: str) -> str:
        """The target of a link in the files of that system; another path as it is. Raises ImportProblem."""
        for _ in range(_MOST_LINKS):
            if not os.path.islink(path):
                return path
            path = self.pointed(path)
        raise ImportProblem(f"{path} is part of a cycle of links")

    def pointed(self, link: str) -> str:
        """The direct target of a link."""
        target = os.readlink(link)
        if os.path.isabs(target):
            return os.path.normpath(os.path.join(self.root, target.lstrip("/")))
        return os.path.normpath(os.path.join(os.path.dirname(link), target))

    def renamed(self, file: str) -> str:
        """The name of the unit for which a file is an alias; empty if it is no alias.

        A link to a file outside of the directories adds that file under the name of the link.
        """
        if not os.path.islink(file):
            return ""
        target = self.pointed(file)
        directory, name = os.path.split(target)
        if name == os.path.basename(file):
            return ""
        known = {os.path.realpath(each) for each in self.directories}
        return name if os.path.realpath(directory) in known else ""


def _found(name: str, places: _Places) -> tuple[str, str]:
    """The unit's own name and its file. Raises ImportProblem."""
    own = name
    for _ in range(_MOST_LINKS):
        file = next(
            (
                path
                for each in (own, _template_of(own))
                for directory in places.directories
                if each and os.path.lexists(path := os.path.join(directory, each))
            ),
            None,
        )
        if file is None:
            also = f", for which {name} stands," if own != name else ""
            raise ImportProblem(f"there is no unit {own}{also} in {', '.join(places.directories)}")
        meant = places.renamed(file)
        if not meant:
            return own, file
        if meant.rpartition(".")[2] != own.rpartition(".")[2]:
            raise ImportProblem(f"{file} is a link to {meant}, a unit of another type")
        own = _with_instance_of(own, meant)
    raise ImportProblem(f"{name} is part of a cycle of links")


def _template_of(name: str) -> str:
    """The template of an instance; empty if it is no instance."""
    prefix, at, rest = name.partition("@")
    return f"{prefix}@.{rest.rpartition('.')[2]}" if at else ""


def _with_instance_of(name: str, template: str) -> str:
    """Turns a template into the instance of the name; another name stays as it is."""
    prefix, _, kind = template.rpartition("@.")
    instance = name.rpartition(".")[0].partition("@")[2]
    return f"{prefix}@{instance}.{kind}" if prefix and instance else template


def _other_names(name: str, places: _Places) -> list[str]:
    """The names that links give the unit."""
    kind = name.rpartition(".")[2]
    links: dict[str, str] = {}
    for directory in places.directories:
        if os.path.isdir(directory):
            for each in os.listdir(directory):
                if each.endswith(f".{kind}"):
                    meant = places.renamed(os.path.join(directory, each))
                    links.setdefault(each, _with_instance_of(each, meant))
    found = [each for each in (name, _template_of(name)) if each]
    for own in found:
        found += [link for link, meant in sorted(links.items()) if meant == own and link not in found]
    instances = [_with_instance_of(name, each) for each in found]
    return [each for each in dict.fromkeys(instances) if each != name]


def _drop_ins(name: str, places: _Places) -> list[str]:
    """By file name; the first of each name counts, and those for the whole type come last."""
    names = (name, *_other_names(name, places))
    folders = [
        os.path.join(directory, f"{each}.d")
        for directory in places.directories
        for own in names
        for each in _dropped_in_as(own)
    ]
    folders += [os.path.join(directory, f"{name.rpartition('.')[2]}.d") for directory in places.directories]
    found: dict[str, str] = {}
    for folder in folders:
        if os.path.isdir(folder):
            for each in os.listdir(folder):
                if each.endswith(".conf"):
                    found.setdefault(each, os.path.join(folder, each))
    return [path for _, path in sorted(found.items()) if not places.is_masked(path)]


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
        yield from _dropped_in_as(f"{shorter}@{instance}.{kind}" if instance else f"{shorter}.{kind}")


def _read_into(values: dict[tuple[str, str], list[str]], path: str, content: str) -> None:
    """`content` is the file itself, if `path` is a link."""
    try:
        with open(content, encoding="utf-8") as opened:
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
        # An empty value resets the earlier ones; that of one trigger resets all triggers.
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
