"""Stored definitions, of workflows and of jobs: nothing is stored that does not hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from toban.definition import DefinitionKind, Problem
from toband.domain.emitted_events import Cause
from toband.engine.caller import Origin, Origins
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.resolver import Resolver, User
from toband.engine.errors import (
    InvalidDefinitionError,
    JobNotFoundError,
    OwnedByFileError,
    VersionNotFoundError,
    WorkflowNotFoundError,
)
from toband.engine.health.admission import Admits, Always
from toband.ports import (
    BY_API,
    Clock,
    ConflictError,
    Request,
    Store,
    StoredWorkflow,
    WorkflowExistsError,
    WorkflowText,
)

_TRIES = 5
"""To store what was made of jobs and workflows that somebody else keeps changing."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """`users` are the workflows that got a new version because a job that they use did."""

    stored: StoredWorkflow
    changed: bool
    warnings: Sequence[Problem]
    users: Sequence[str] = ()


class Workflows:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        parser: DefinitionParser,
        admission: Admits | None = None,
        zone: str = "UTC",
        changed: Callable[[], None] = lambda: None,
        origins: Origins | None = None,
        refusal: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`zone` is that of schedules that name none. `changed` is called when schedules may have changed.

        `origins` knows the steps that changes come from, so that events about them have their place in a chain.
        `refusal` says for an absolute path why no step may work there.
        """
        self._store = store
        self._origins = origins
        self._clock = clock
        self._admission = admission or Always()
        self._resolver = Resolver(store, clock, zone, parser, refusal)
        self._changed = changed

    async def validate(self, source: str, base_dir: str = "") -> Sequence[Problem]:
        """Everything that is wrong with it, warnings included."""
        return await self._resolver.problems(source, base_dir)

    async def create(
        self,
        source: str,
        base_dir: str,
        request: Request | None,
        *,
        kind: DefinitionKind = DefinitionKind.WORKFLOW,
        origin: Origin | None = None,
    ) -> tuple[StoredWorkflow, Sequence[Problem]]:
        """The workflow, or job, and its warnings.

        Raises InvalidDefinitionError, WorkflowRecursionError, WorkflowExistsError, RefusedError, ConflictError.
        """

        cause = await self._cause(origin)

        async def create() -> tuple[StoredWorkflow, Sequence[Problem]]:
            made = await self._resolver.resolve(source, base_dir, kind)
            warnings = await self._resolver.check_children([made.text])
            self._admission.check(f"create a {kind.value}")
            stored = await self._store.create_workflow(made.text, at=self._clock.now(), request=request, cause=cause)
            self._changed()
            return stored, (*made.warnings, *warnings)

        return await until_undisturbed(create)

    async def update(
        self,
        name: str,
        source: str,
        base_dir: str,
        etag: str,
        request: Request | None,
        *,
        kind: DefinitionKind = DefinitionKind.WORKFLOW,
        force: bool = False,
        origin: Origin | None = None,
    ) -> Updated:
        """Stores another definition of it; of a job together with what becomes of every workflow that uses it.

        What a file owns is changed with `force` only, and stays the file's.

        Raises InvalidDefinitionError, also if one of those would no longer hold, WorkflowRecursionError,
        WorkflowNotFoundError or JobNotFoundError, OwnedByFileError, RefusedError, ConflictError.
        """

        cause = await self._cause(origin)

        async def update() -> Updated:
            owner = await self._check_owner(name, force=force)
            made = await self._resolver.resolve(source, base_dir, kind)
            _check_name(made.text, name)
            users: Sequence[User] = ()
            if kind is DefinitionKind.JOB and not await self._resolver.is_stored(made.text):
                users = await self._resolver.users({name: source})
            also = [user.text for user in users]
            warnings = await self._resolver.check_children([made.text, *also])
            self._admission.check(f"update a {kind.value}")
            try:
                updated = await self._store.update_workflow(
                    replace(made.text, owner=owner),
                    at=self._clock.now(),
                    etag=etag,
                    request=request,
                    also=also,
                    cause=cause,
                )
            except WorkflowExistsError:
                # It is of the other kind.
                updated = None
            if updated is None:
                raise _not_found(name, kind)
            stored, changed = updated
            self._changed()
            return Updated(
                stored=stored,
                changed=changed,
                warnings=(*made.warnings, *warnings),
                users=[user.text.name for user in users if changed and user.changed],
            )

        return await until_undisturbed(update)

    async def _check_owner(self, name: str, *, force: bool) -> str:
        """The owner that a change of it leaves it with. Raises OwnedByFileError."""
        stored = await self._store.get_workflow(name)
        if stored is None or not stored.file:
            return BY_API
        if not force:
            raise OwnedByFileError(name, stored.file)
        return stored.owner

    async def restore(
        self,
        name: str,
        version: int,
        etag: str,
        request: Request | None,
        *,
        force: bool = False,
        origin: Origin | None = None,
    ) -> Updated:
        """A new version with the text of an old one. Raises VersionNotFoundError, and as `update`."""
        stored = await self._store.get_workflow(name)
        if stored is None:
            raise WorkflowNotFoundError(name)
        old = await self._store.get_version(name, version)
        if old is None:
            raise VersionNotFoundError(name, version)
        return await self.update(
            name,
            old.source,
            old.base_dir,
            etag,
            request,
            kind=stored.kind,
            force=force,
            origin=origin,
        )

    async def get(self, name: str, *, kind: DefinitionKind = DefinitionKind.WORKFLOW) -> StoredWorkflow:
        """Raises WorkflowNotFoundError or JobNotFoundError."""
        stored = await self._store.get_workflow(name)
        if stored is None or stored.kind is not kind:
            raise _not_found(name, kind)
        return stored

    async def delete(
        self,
        name: str,
        etag: str,
        *,
        kind: DefinitionKind = DefinitionKind.WORKFLOW,
        force: bool = False,
        origin: Origin | None = None,
    ) -> None:
        """What a file owns is deleted with `force` only, and is back when the file is read again.

        Raises WorkflowNotFoundError or JobNotFoundError, OwnedByFileError, ActiveRunError, EtagMismatchError,
        JobInUseError.
        """
        await self._check_owner(name, force=force)
        cause = await self._cause(origin)
        if not await self._store.delete_workflow(name, at=self._clock.now(), etag=etag, kind=kind, cause=cause):
            raise _not_found(name, kind)
        self._changed()

    async def set_enabled(
        self,
        name: str,
        enabled: bool,
        *,
        kind: DefinitionKind = DefinitionKind.WORKFLOW,
        origin: Origin | None = None,
    ) -> StoredWorkflow:
        """Raises WorkflowNotFoundError or JobNotFoundError."""
        await self.get(name, kind=kind)
        cause = await self._cause(origin)
        stored = await self._store.set_enabled(name, enabled, at=self._clock.now(), cause=cause)
        if stored is None:
            raise _not_found(name, kind)
        self._changed()
        return stored

    async def _cause(self, origin: Origin | None) -> Cause | None:
        return await self._origins.cause(origin) if self._origins is not None else None


async def until_undisturbed(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Once more, from the start, if what it was decided on changed before it was stored. Raises ConflictError."""
    for _ in range(_TRIES - 1):
        try:
            return await work()
        except ConflictError:
            continue
    return await work()


def _check_name(text: WorkflowText, name: str) -> None:
    if text.name == name:
        return
    kind = text.kind.value
    message = f"the definition is of {text.name!r}, not of {name!r}; a {kind} keeps its name"
    problem = Problem(message=message, path="name", line=1, column=1, file="<definition>")
    raise InvalidDefinitionError([problem])


def _not_found(name: str, kind: DefinitionKind) -> Exception:
    return WorkflowNotFoundError(name) if kind is DefinitionKind.WORKFLOW else JobNotFoundError(name)
