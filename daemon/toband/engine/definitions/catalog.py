"""The stored workflows and jobs: creates, updates, restores, enables and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from toban.definition import DefinitionKind, Problem
from toban.limits import MAX_APPLIED
from toband.domain.emitted_events import Cause
from toband.engine.caller import CallOrigin, OriginLookup
from toband.engine.definitions.applier import Applier, ApplyPlan, retry_on_conflict
from toband.engine.definitions.resolver import UNNAMED, ParsedText, ResolvedDefinition
from toband.engine.errors import (
    InvalidDefinitionError,
    JobNotFoundError,
    OwnedByFileError,
    TooManyDefinitionsError,
    VersionNotFoundError,
    WorkflowNotFoundError,
)
from toband.ports import (
    BY_API,
    ConflictError,
    PutResult,
    Request,
    StoredWorkflow,
    WorkflowExistsError,
    WorkflowOwnedError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """`users` are the workflows that got a new version because a job that they use did."""

    stored: StoredWorkflow
    changed: bool
    warnings: Sequence[Problem]
    users: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionText:
    """A text with one or more definitions. `file` names it in problems."""

    file: str
    source: str
    base_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The definitions of several texts, and by name what applying them did; no results if they are invalid."""

    definitions: Sequence[ResolvedDefinition]
    results: Mapping[str, PutResult]


class Workflows:
    def __init__(
        self, applier: Applier, *, changed: Callable[[], None] = lambda: None, origins: OriginLookup | None = None
    ) -> None:
        """`changed` is called when schedules may have changed. `origins` finds the steps that make changes, so that
        events about the changes continue their chain.
        """
        self._applier = applier
        self._store = applier.store
        self._clock = applier.clock
        self._origins = origins
        self._changed = changed

    async def validate(self, source: str, base_dir: str = "") -> Sequence[Problem]:
        """All problems of one definition, warnings included."""
        text = await self._single(source, base_dir)
        return (await self._applier.plan([text], storing=False)).with_cycle_problem().problems

    async def create(
        self,
        source: str,
        base_dir: str,
        request: Request | None,
        *,
        kind: DefinitionKind = DefinitionKind.WORKFLOW,
        origin: CallOrigin | None = None,
    ) -> tuple[StoredWorkflow, Sequence[Problem]]:
        """The workflow, or job, and its warnings.

        Raises InvalidDefinitionError, WorkflowRecursionError, WorkflowExistsError, RefusedError, ConflictError.
        """
        cause = await self._cause(origin)
        text = _of_kind(await self._single(source, base_dir), kind)

        async def save(plan: ApplyPlan) -> tuple[StoredWorkflow, Sequence[Problem]]:
            at = self._clock.now()
            stored = await self._store.create_workflow(plan.texts[0], at=at, request=request, cause=cause)
            return stored, plan.warnings

        created = await self._applier.apply(f"create a {kind.value}", [text], save)
        self._changed()
        return created

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
        origin: CallOrigin | None = None,
    ) -> Updated:
        """Replaces the definition; a job's together with those of the workflows that use it.

        A definition that a file owns is changed with `force` only, and the file still owns it.

        Raises InvalidDefinitionError, also if a workflow that uses the job would become invalid,
        WorkflowRecursionError, WorkflowNotFoundError or JobNotFoundError, OwnedByFileError, RefusedError,
        ConflictError.
        """
        cause = await self._cause(origin)
        text = _of_kind(await self._single(source, base_dir), kind, name)

        async def save(plan: ApplyPlan) -> Updated:
            owner = _owner_after(await self._store.get_workflow(name), force=force)
            try:
                updated = await self._store.update_workflow(
                    replace(plan.texts[0], owner=owner),
                    at=self._clock.now(),
                    etag=etag,
                    request=request,
                    also=plan.also,
                    cause=cause,
                )
            except WorkflowExistsError:
                # The name is that of the other kind.
                updated = None
            if updated is None:
                raise _not_found(name, kind)
            stored, changed = updated
            users = [user.text.name for user in plan.users if changed and user.changed]
            return Updated(stored=stored, changed=changed, warnings=plan.warnings, users=users)

        saved = await self._applier.apply(f"update a {kind.value}", [text], save)
        self._changed()
        return saved

    async def apply(
        self,
        sources: Sequence[DefinitionText],
        request: Request | None = None,
        *,
        etags: Mapping[str, str] | None = None,
        force: bool = False,
        validate_only: bool = False,
        origin: CallOrigin | None = None,
    ) -> Applied:
        """Creates or updates all definitions of the texts in one transaction, or none of them.

        With `validate_only` nothing is stored, and invalid definitions are no error.

        Raises InvalidDefinitionError, WorkflowRecursionError, TooManyDefinitionsError, WorkflowExistsError,
        OwnedByFileError, EtagMismatchError, RefusedError, ConflictError.
        """
        cause = await self._cause(origin)
        texts = await self._parse_all(sources)

        async def save(plan: ApplyPlan) -> Applied:
            owners, take_over = await self._owners(plan, force=force)
            try:
                results = await self._store.put_definitions(
                    [replace(text, owner=owners[text.name]) for text in plan.texts],
                    at=self._clock.now(),
                    also=plan.also,
                    take_over=take_over,
                    etags=etags,
                    request=None if validate_only else request,
                    cause=cause,
                    dry_run=validate_only,
                )
            except WorkflowOwnedError as error:
                raise ConflictError(error.args[0]) from None
            return Applied(definitions=plan.definitions, results=results)

        async def validate() -> Applied:
            plan = await self._applier.plan(texts)
            if plan.valid:
                return await save(plan)
            return Applied(definitions=plan.with_cycle_problem().definitions, results={})

        if validate_only:
            return await retry_on_conflict(validate)
        applied = await self._applier.apply("apply definitions", texts, save)
        self._changed()
        return applied

    async def _parse_all(self, sources: Sequence[DefinitionText]) -> Sequence[ParsedText]:
        """Raises TooManyDefinitionsError."""
        texts: list[ParsedText] = []
        found = 0
        for each in sources:
            texts.append(await self._applier.parse(each.source, each.base_dir, file=each.file))
            found += len(texts[-1].documents)
            if found > MAX_APPLIED:
                raise TooManyDefinitionsError(MAX_APPLIED)
        return texts

    async def _owners(self, plan: ApplyPlan, *, force: bool) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """By name, the owners after the change, and the owners before it. Raises OwnedByFileError."""
        after: dict[str, str] = {}
        before: dict[str, str] = {}
        for text in plan.texts:
            stored = await self._store.get_workflow(text.name)
            after[text.name] = _owner_after(stored, force=force)
            if stored is not None:
                before[text.name] = stored.owner
        return after, before

    async def restore(
        self,
        name: str,
        version: int,
        etag: str,
        request: Request | None,
        *,
        force: bool = False,
        origin: CallOrigin | None = None,
    ) -> Updated:
        """Stores the text of an old version as a new one. Raises VersionNotFoundError, and the errors of `update`."""
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
        origin: CallOrigin | None = None,
    ) -> None:
        """A definition that a file owns is deleted with `force` only, and returns when the file is read again.

        Raises WorkflowNotFoundError or JobNotFoundError, OwnedByFileError, ActiveRunError, EtagMismatchError,
        JobInUseError.
        """
        _owner_after(await self._store.get_workflow(name), force=force)
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
        origin: CallOrigin | None = None,
    ) -> StoredWorkflow:
        """Raises WorkflowNotFoundError or JobNotFoundError."""
        await self.get(name, kind=kind)
        cause = await self._cause(origin)
        stored = await self._store.set_enabled(name, enabled, at=self._clock.now(), cause=cause)
        if stored is None:
            raise _not_found(name, kind)
        self._changed()
        return stored

    async def _single(self, source: str, base_dir: str) -> ParsedText:
        """A text of one definition, which is stored as it was sent; with a problem if it has several."""
        text = await self._applier.parse(source, base_dir)
        if len(text.documents) > 1:
            message = f"found {len(text.documents)} documents, expected one; send each by itself"
            return replace(text, problems=(*text.problems, _problem(message)))
        return replace(text, documents=[replace(each, source=source, line=1) for each in text.documents])

    async def _cause(self, origin: CallOrigin | None) -> Cause | None:
        return await self._origins.cause(origin) if self._origins is not None else None


def _owner_after(stored: StoredWorkflow | None, *, force: bool) -> str:
    """The owner after a change over the API. Raises OwnedByFileError."""
    if stored is None or not stored.file:
        return BY_API
    if not force:
        raise OwnedByFileError(stored.name, stored.file)
    return stored.owner


def _of_kind(text: ParsedText, kind: DefinitionKind, name: str = "") -> ParsedText:
    """The text of one definition, of that kind and, if given, name. Raises InvalidDefinitionError."""
    if any(not each.warning for each in text.problems):
        return text
    (document,) = text.documents
    if document.kind is not kind:
        raise InvalidDefinitionError([_problem(f"found a {document.kind.value}, expected a {kind.value}")])
    if name and document.name != name:
        message = f"the definition is of {document.name!r}, not of {name!r}; a {kind.value} keeps its name"
        raise InvalidDefinitionError([_problem(message, path="name")])
    return text


def _problem(message: str, *, path: str = "") -> Problem:
    return Problem(message=message, path=path, line=1, column=1, file=UNNAMED)


def _not_found(name: str, kind: DefinitionKind) -> Exception:
    return WorkflowNotFoundError(name) if kind is DefinitionKind.WORKFLOW else JobNotFoundError(name)
