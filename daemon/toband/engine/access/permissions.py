"""Permissions: whether an identity may make a call, by its role and by the workflows that it is limited to.

A narrowed identity gets one answer for what is not its own and for what does not exist, so that it learns of neither.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from toband.domain.access_rule import AccessRule, CallTarget
from toband.domain.author_limits import StepRights
from toband.domain.authority import authority_of, described, visible_with
from toband.domain.identity import Identity, Narrowing, StepIdentity, Visible
from toband.engine.access.call_scope import enter_scope, seen_with
from toband.engine.access.call_targets import CallTargets
from toband.engine.access.step_scope import StepScope
from toband.engine.errors import NotPermittedError, PermissionReason
from toband.ports import Store, StoreError

LOOK_EVERY = 2.0
"""Seconds after which labels are read again for a stream."""


class Permissions:
    def __init__(self, store: Store, rights: Callable[[StepIdentity], Awaitable[StepRights]]) -> None:
        """`rights` returns what the definition of a step's workflow allows its steps."""
        self._store = store
        self._rights = rights
        self._targets = CallTargets(store)
        self._steps = StepScope(store, self._targets)

    async def check(self, identity: Identity, rule: AccessRule, request: Any) -> None:
        """Raises NotPermittedError. Reads nothing for an identity that is neither narrowed nor a step."""
        rights = StepRights() if identity.step is None else await self._rights(identity.step)
        authorities = authority_of(identity) if identity.step is None else rights.granted
        enough = [each for each in authorities if rule.role is None or each.role >= rule.role]
        visible = visible_with(enough)
        if identity.step is not None and await self._steps.covers(identity.step, rule, request, rights.startable):
            # Its own runs, and nothing that it does not name.
            enter_scope(authorities, rights.startable)
            return
        enter_scope(authorities, visible)
        if rule.role is None:
            return
        if not enough:
            raise _role_required(identity, rule)
        if visible is not None:
            await self._check_target(identity, rule, request, visible)

    def may_change(self, identity: Identity, rule: AccessRule) -> bool:
        """Whether the identity may lose the permission for a call while it lasts: labels of its target may change."""
        narrowing = identity.narrowing
        return narrowing is not None and narrowing.needs_labels and rule.target is not CallTarget.VISIBLE

    async def lost(self, identity: Identity, rule: AccessRule, request: Any) -> NotPermittedError:
        """Waits until the identity may not make the call any more."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            with contextlib.suppress(StoreError):
                try:
                    await self.check(identity, rule, request)
                except NotPermittedError as error:
                    return error

    async def _check_target(
        self, identity: Identity, rule: AccessRule, request: Any, visible: tuple[Narrowing, ...]
    ) -> None:
        if rule.target in (CallTarget.DAEMON, CallTarget.EVENT):
            limits = _limits(visible)
            raise NotPermittedError(
                f"{rule.method} is about the whole daemon, and {identity.name} is limited to {limits}",
                PermissionReason.WORKFLOW,
            )
        async for name, workflow in self._targets.of(rule, request):
            if not workflow or workflow not in await seen_with(visible, [workflow], self._store):
                raise NotPermittedError(
                    f"{identity.name} is limited to {_limits(visible)}, and {name!r} is not among them",
                    PermissionReason.WORKFLOW,
                )


def _role_required(identity: Identity, rule: AccessRule) -> NotPermittedError:
    needed = rule.role.label if rule.role is not None else ""
    if identity.step is not None:
        return NotPermittedError(
            f"{identity.name} may not call {rule.method}: a step may control only what its own run started; to allow "
            f"it, add `grants: [{{role: {needed}}}]` to the workflow {identity.step.workflow}",
            PermissionReason.STEP,
        )
    has = f"has the role {identity.role.label}" if identity.role is not None else "has no role"
    return NotPermittedError(
        f"{rule.method} needs the role {needed}, and {identity.name} {has}; an administrator can create a token with "
        f"it: toban tokens create NAME --role {needed}",
        PermissionReason.ROLE,
    )


def _limits(visible: Visible) -> str:
    return " and ".join(described(each) for each in visible or ())
