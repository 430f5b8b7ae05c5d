"""Identities: who makes a call, and what that identity may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from typing import TypeAlias


class Role(IntEnum):
    """Each role includes those before it. The numbers are those of the contract."""

    VIEWER = 1
    OPERATOR = 2
    EDITOR = 3
    ADMIN = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class IdentityKind(StrEnum):
    """How an identity was established."""

    SOCKET = "SOCKET"
    """By nothing but access to a socket."""
    USER = "USER"
    """A user of this machine, by the credentials of a socket's peer."""
    TOKEN = "TOKEN"  # noqa: S105 - a kind, not a token
    CERTIFICATE = "CERTIFICATE"
    ISSUER = "ISSUER"
    """A signed token of a configured issuer."""
    STEP = "STEP"
    """A process of a step, by the token of its attempt."""
    HOOK = "HOOK"
    """The sender of a delivery to a hook, by its signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """The workflows and jobs to which a grant is limited: those with one of the names, or with all of the labels."""

    workflows: tuple[str, ...] = ()
    """Names or patterns such as `nightly-*`."""
    labels: tuple[tuple[str, str], ...] = ()

    def covers(self, name: str, labels: Mapping[str, str]) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in self.workflows):
            return True
        return bool(self.labels) and all(labels.get(key) == value for key, value in self.labels)

    @property
    def needs_labels(self) -> bool:
        return bool(self.labels)


Visible: TypeAlias = "tuple[Narrowing, ...] | None"
"""The workflows and jobs that a call may see: those that one of these covers. None: all."""


def sees(visible: Visible, name: str, labels: Mapping[str, str]) -> bool:
    return visible is None or any(each.covers(name, labels) for each in visible)


def needs_labels(visible: Visible) -> bool:
    """Whether names alone do not tell what is visible."""
    return visible is not None and any(each.needs_labels for each in visible)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepIdentity:
    """The attempt whose token a step presented."""

    run_id: str
    token: str
    workflow: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    name: str
    """As records and the audit log show it, such as `uid:1000 (aiko)` or `token:ci`."""
    kind: IdentityKind
    role: Role | None = None
    """None: only what every identity may do, or a step."""
    narrowing: Narrowing | None = None
    aliases: frozenset[str] = frozenset()
    """Further names by which `approvers` may mean it, see `engine/runs/approvals.py`."""
    credential: str = ""
    """What its open streams end with: the id of a token, or the token or rule of the configuration; else empty."""
    expires_at: datetime | None = None
    step: StepIdentity | None = None
    session: str = ""
    """The id of the session that the call was made with; empty: none."""

    def has(self, role: Role | None) -> bool:
        return role is None or (self.role is not None and self.role >= role)


def user_identity(uid: int, user: str, role: Role | None) -> Identity:
    """A user of this machine."""
    aliases = {f"uid:{uid}", user} if user else {f"uid:{uid}"}
    name = f"uid:{uid} ({user})" if user else f"uid:{uid}"
    return Identity(name=name, kind=IdentityKind.USER, role=role, aliases=frozenset(aliases))


def token_identity(
    credential: str, name: str, role: Role, narrowing: Narrowing | None, expires_at: datetime | None
) -> Identity:
    return Identity(
        name=f"token:{name}",
        kind=IdentityKind.TOKEN,
        role=role,
        narrowing=narrowing,
        aliases=frozenset({name}),
        credential=credential,
        expires_at=expires_at,
    )


UNVERIFIED_DELIVERY = Identity(name="delivery", kind=IdentityKind.HOOK)
"""The sender of a delivery whose signature is not checked yet: it has no right."""


def hook_identity(name: str) -> Identity:
    """The sender of a signed delivery. It may do nothing else."""
    return Identity(name=f"hook:{name}", kind=IdentityKind.HOOK)
