"""Administration of hooks: creates, lists and deletes them, and reads their secrets."""

from __future__ import annotations

import re
import secrets as random_secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from toban.definition import Workflow, check_event_type
from toband.domain.hook_model import (
    HOOK_DELIVERED,
    HOOK_NAME,
    PATHS_MOST,
    Hook,
    HookForm,
    parse_condition,
    parse_path,
)
from toband.engine.errors import HookNotFoundError, WorkflowNotFoundError
from toband.engine.execution.sealed_params import check_public
from toband.ports import Clock, SecretNotFoundError, SecretSource, Store

SECRET_BYTES = 32
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class InvalidHookError(Exception):
    """A request for a hook that cannot be. `field` is the field of the request."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field, self.reason = field, reason


class HookAdmin:
    def __init__(self, *, store: Store, secrets: SecretSource, clock: Clock) -> None:
        self._store = store
        self._secrets = secrets
        self._clock = clock

    async def create(
        self,
        *,
        name: str,
        workflow: str,
        event_type: str,
        form: HookForm,
        secret: str,
        params: Mapping[str, str],
        conditions: Sequence[str],
        by: str,
    ) -> tuple[Hook, str]:
        """The hook, and the secret that was made for it; that is empty if it uses a stored one.

        Raises InvalidHookError, WorkflowNotFoundError, ParamError, HookExistsError, SecretNotFoundError,
        SecretNotGrantedError, SealError.
        """
        _check(name, workflow, event_type, params, conditions)
        if workflow:
            await self._check_workflow(workflow, params)
        if secret:
            await self._check_secret(secret, workflow)
        hook = Hook(
            name=name,
            workflow=workflow,
            event_type=event_type or HOOK_DELIVERED,
            form=form,
            secret=secret,
            params=dict(params),
            conditions=tuple(conditions),
            created_at=self._clock.now(),
            created_by=by,
        )
        made = "" if secret else random_secrets.token_hex(SECRET_BYTES)
        if made:
            hook = replace(hook, sealed=await self._secrets.seal(made, _place(name)))
        await self._store.create_hook(hook)
        return hook, made

    async def get(self, name: str) -> Hook:
        """Raises HookNotFoundError."""
        hook = await self._store.get_hook(name)
        if hook is None:
            raise HookNotFoundError(name)
        return hook

    async def list(self) -> Sequence[Hook]:
        return await self._store.list_hooks()

    async def delete(self, name: str) -> None:
        """Raises HookNotFoundError."""
        if not await self._store.delete_hook(name):
            raise HookNotFoundError(name)

    async def secret_of(self, hook: Hook) -> str:
        """The secret that signs its deliveries. Raises SecretError, SealError, StoreError."""
        if hook.sealed is not None:
            return await self._secrets.unseal(hook.sealed, _place(hook.name))
        if hook.workflow:
            return (await self._secrets.reveal(hook.workflow, [hook.secret]))[hook.secret]
        found = await self._secrets.known([hook.secret])
        if hook.secret not in found:
            raise SecretNotFoundError(hook.secret)
        return found[hook.secret]

    async def _check_workflow(self, name: str, params: Collection[str]) -> None:
        stored = await self._store.get_workflow(name)
        if stored is None or stored.definition is None:
            raise WorkflowNotFoundError(name)
        workflow = Workflow.from_dict(dict(stored.definition.parsed))
        declared = list(workflow.params)
        for param in params:
            if param not in declared:
                known = ", ".join(declared) or "none"
                raise InvalidHookError("params", f"workflow {name!r} has no parameter {param!r} (known: {known})")
        check_public(workflow, params)

    async def _check_secret(self, secret: str, workflow: str) -> None:
        """Raises SecretNotFoundError, SecretNotGrantedError."""
        if workflow:
            for problem in await self._secrets.check(workflow, [secret]):
                raise problem
        elif not await self._store.get_secrets([secret]):
            raise SecretNotFoundError(secret)


def _check(name: str, workflow: str, event_type: str, params: Mapping[str, str], conditions: Sequence[str]) -> None:
    """Raises InvalidHookError."""
    if not HOOK_NAME.fullmatch(name):
        raise InvalidHookError("name", "must be 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    if bool(workflow) == bool(event_type):
        raise InvalidHookError("workflow", "give either the workflow to start, or the type of the events to emit")
    if event_type:
        try:
            check_event_type(event_type)
        except ValueError as error:
            raise InvalidHookError("event_type", str(error)) from None
    for field, given in (("params", params), ("conditions", conditions)):
        if len(given) > PATHS_MOST:
            raise InvalidHookError(field, f"must be at most {PATHS_MOST}, found {len(given)}")
    for param, path in params.items():
        if not _FIELD.fullmatch(param):
            raise InvalidHookError("params", f"{param!r} is not the name of a parameter or a field")
        try:
            parse_path(path)
        except ValueError as error:
            raise InvalidHookError("params", f"{param}: {error}") from None
    for condition in conditions:
        try:
            parse_condition(condition)
        except ValueError as error:
            raise InvalidHookError("conditions", f"{condition!r}: {error}") from None


def _place(name: str) -> str:
    """The place that the secret of a hook belongs to."""
    return f"secret of hook {name}"
