"""Hooks: what a delivery of another system starts, and which parts of it become parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

HOOK_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
HOOK_DELIVERED: Final = "HOOK_DELIVERED"
"""The type of the event of a delivery to a hook that starts a workflow."""
PATHS_MOST: Final = 100
"""Parameters, and conditions, of a hook."""
_LONGEST_PATH = 500
_PART = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[\s*(?:(0|[1-9][0-9]{0,5})|\"([^\"\\\]]*)\")\s*\]")
_ROOT = re.compile(r"body|headers")
_CONDITION = re.compile(r"((?:[^=\"]|\"[^\"]*\")+)=(.*)", re.DOTALL)
_UNSET: Final = object()

Path = Sequence[str | int]


class HookForm(StrEnum):
    """How deliveries are signed. The names are those of the contract."""

    GITHUB = "GITHUB"
    HMAC = "HMAC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Starts `workflow`, or without one emits `event_type`.

    `secret` is one of the stored secrets; without it `sealed` is a secret of this hook alone, encrypted.
    """

    name: str
    workflow: str = ""
    event_type: str
    form: HookForm
    secret: str = ""
    sealed: bytes | None = field(default=None, repr=False)
    params: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    created_at: datetime
    created_by: str


def parse_path(text: str) -> Path:
    """The parts of a path such as `body.commits[0].id` or `headers["x-github-event"]`. Raises ValueError."""
    begin = _ROOT.match(text) if len(text) <= _LONGEST_PATH else None
    if begin is None:
        raise ValueError("a path begins with `body` or `headers`, as in body.pull_request.number")
    parts: list[str | int] = [begin[0]]
    position = begin.end()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f'cannot read it at {text[position:][:20]!r}: write .name, ["a name"] or [0]')
        name, number, quoted = part.groups()
        parts.append(int(number) if number is not None else name or quoted)
        position = part.end()
    return parts


def parse_condition(text: str) -> tuple[Path, str]:
    """The path and the value of a condition such as `body.ref=refs/heads/main`. Raises ValueError."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError("a condition is PATH=VALUE, as in body.ref=refs/heads/main")
    return parse_path(match[1].strip()), match[2]


def found_at(path: Path, delivery: Mapping[str, Any]) -> Any:
    """The value at a path; `is_missing` says whether there is one."""
    found: Any = delivery
    for part in path:
        if not isinstance(found, list | Mapping) or isinstance(part, int) is isinstance(found, Mapping):
            return _UNSET
        held: Any = found
        try:
            found = held[part]
        except LookupError:
            return _UNSET
    return found


def is_missing(found: Any) -> bool:
    return found is _UNSET


def mapped(params: Mapping[str, str], delivery: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with their values; those whose path leads nowhere are left out."""
    values = {name: found_at(parse_path(path), delivery) for name, path in params.items()}
    return {name: value for name, value in values.items() if not is_missing(value)}


def unmet(conditions: Sequence[str], delivery: Mapping[str, Any]) -> str:
    """The first condition that is not true; empty if all are."""
    for condition in conditions:
        path, wanted = parse_condition(condition)
        found = found_at(path, delivery)
        if is_missing(found) or wanted != (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)):
            return condition
    return ""
