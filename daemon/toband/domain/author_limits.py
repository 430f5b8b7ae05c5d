"""The limits of the author of a definition: which workflows its steps may start, besides what it grants to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban.definition import AuthorLimits, Workflow
from toband.domain.authority import Authority, granted, narrowing_of
from toband.domain.identity import Role, Visible


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRights:
    """What a definition allows its steps: what it grants, and which workflows they may start, None for all."""

    granted: Sequence[Authority] = ()
    startable: Visible = None


def rights_of(workflow: Workflow) -> StepRights:
    limits = tuple(narrowing_of(each) for each in workflow.author_limits)
    return StepRights(granted=granted(workflow.grants), startable=limits or None)


def author_limits(visible: Visible, before: Sequence[AuthorLimits] = ()) -> tuple[AuthorLimits, ...]:
    """The limits of a definition whose author sees these workflows; `before` are those that it has to keep."""
    if visible is None:
        return tuple(before)
    own = [Authority(role=Role.VIEWER, narrowing=each) for each in visible]
    found = [AuthorLimits(workflows=each.workflows, labels=dict(each.labels)) for each in visible]
    if before:
        found = [
            limits
            for limits in before
            if any(each.includes(Authority(role=Role.VIEWER, narrowing=narrowing_of(limits))) for each in own)
        ]
    return tuple(found) or (AuthorLimits(),)
