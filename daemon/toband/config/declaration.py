"""How a key of the configuration is declared, and where its value came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: the check of its value, its default, and whether a reload applies a change."""

    check: Callable[[Any], Any]
    default: Any = None
    """None also for a default that depends on the host."""
    _: KW_ONLY
    live: bool = False
    """A reload applies a changed value; otherwise a restart does."""
    path: bool = False
    """It has paths, which may be relative to the configuration file."""
    file_only: bool = False
    """It has tables, which a variable cannot hold."""


class Source(StrEnum):
    """In the order in which later ones override earlier ones."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOrigin:
    """Where a value came from."""

    source: Source = Source.DEFAULT
    place: str = ""
    """`FILE:LINE`, the name of the variable, or the flag; empty for a default."""
    overridden: Sequence[SettingOrigin] = ()
    """Other places that set the key, and whose values are not used; the strongest first."""

    def __str__(self) -> str:
        text = f"{self.source} {self.place}".rstrip()
        over = ", ".join(each.place for each in self.overridden)
        return f"{text}, overrides {over}" if over else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """A setting as people read it: without passwords."""

    key: str
    value: Any
    origin: SettingOrigin
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """A mistake in the configuration."""

    message: str
    """Names the key, the variable or the flag."""
    file: str = ""
    line: int = 0
    """0: not known."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}" if place else self.message


class ConfigError(Exception):
    """The configuration is invalid; `problems` has each mistake."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class NestedError(ValueError):
    """A mistake inside of a value, at a path of keys and indexes in it."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


def at(place: str, *path: str | int) -> Callable[..., Any]:
    """Runs a check, whose errors then begin with the place, and are at that path."""

    def run(check: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except ValueError as error:
            below = error.path if isinstance(error, NestedError) else ()
            raise NestedError(f"{place}: {error}", *path, *below) from None

    return run
