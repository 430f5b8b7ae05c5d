"""What a workflow grants to its steps: a role, for all workflows or for some; and the limits of its author."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ROLE_PREFIX = "role:"
"""In `approvers`: everyone who has the role."""


class GrantRole(StrEnum):
    """Each role includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """For the workflows and jobs with one of the names or patterns, and those with all of the labels.

    Without either it is for all of them and for the daemon itself.
    """

    role: GrantRole
    workflows: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"role": self.role.value, "workflows": list(self.workflows), "labels": dict(self.labels)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Grant:
        return Grant(
            role=GrantRole(data["role"]),
            workflows=tuple(data.get("workflows") or ()),
            labels=data.get("labels") or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorLimits:
    """Workflows and jobs: those with one of the names or patterns, and those with all of the labels."""

    workflows: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"workflows": list(self.workflows), "labels": dict(self.labels)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> AuthorLimits:
        return AuthorLimits(workflows=tuple(data["workflows"]), labels=data["labels"])
