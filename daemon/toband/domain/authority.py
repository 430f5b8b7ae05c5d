"""Authority: a role, for all workflows or for some. Identities have it, and definitions grant it to their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from toban.definition import AuthorLimits, Grant
from toband.domain.identity import Identity, Narrowing, Role, Visible

_WILD = "*?["


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    role: Role
    narrowing: Narrowing | None = None
    """None: for all workflows and for the daemon itself."""

    def includes(self, other: Authority) -> bool:
        """Whether this allows everything that the other does. Says no if patterns cannot be compared."""
        if self.role < other.role:
            return False
        if self.narrowing is None or other.narrowing is None:
            return self.narrowing is None
        patterns, labels = self.narrowing.workflows, set(self.narrowing.labels)
        return all(_within(pattern, patterns) for pattern in other.narrowing.workflows) and (
            not other.narrowing.labels or (bool(labels) and labels <= set(other.narrowing.labels))
        )

    def __str__(self) -> str:
        return f"{self.role.label} of {described(self.narrowing)}"


def authority_of(identity: Identity) -> Sequence[Authority]:
    """That of the identity itself: a step has none."""
    return () if identity.role is None else (Authority(role=identity.role, narrowing=identity.narrowing),)


def granted(grants: Iterable[Grant]) -> Sequence[Authority]:
    """What a definition grants to its steps."""
    return [
        Authority(
            role=Role[each.role.upper()],
            narrowing=narrowing_of(each) if each.workflows or each.labels else None,
        )
        for each in grants
    ]


def narrowing_of(given: Grant | AuthorLimits) -> Narrowing:
    return Narrowing(workflows=given.workflows, labels=tuple(sorted(given.labels.items())))


def visible_with(authorities: Iterable[Authority]) -> Visible:
    """The workflows that at least one of them is for."""
    found = [each.narrowing for each in authorities]
    return None if None in found else tuple(each for each in found if each is not None)


def described(narrowing: Narrowing | None) -> str:
    """The workflows in words, for messages."""
    if narrowing is None:
        return "all workflows"
    parts = [f"{', '.join(narrowing.workflows)}"] if narrowing.workflows else []
    if narrowing.labels:
        parts.append(f"those with {', '.join(f'{label}={value}' for label, value in narrowing.labels)}")
    return " and ".join(parts) or "no workflow"


def _within(pattern: str, outer: Iterable[str]) -> bool:
    """Whether each name that the pattern matches is matched by one of the outer patterns."""
    plain = not any(letter in pattern for letter in _WILD)
    for each in outer:
        begin, star = each[:-1], each[-1:]
        prefix = star == "*" and not any(letter in begin for letter in _WILD)
        if each == pattern or (plain and fnmatchcase(pattern, each)) or (prefix and pattern.startswith(begin)):
            return True
    return False
