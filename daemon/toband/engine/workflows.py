"""Stored definitions: nothing is stored that does not hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toban.definition import Parsed, Problem, parse
from toband.engine.admission import Admits, Always
from toband.engine.errors import InvalidDefinitionError, WorkflowNotFoundError
from toband.ports import Clock, Request, Store, StoredWorkflow, WorkflowText


class Workflows:
    def __init__(self, *, store: Store, clock: Clock, admission: Admits | None = None) -> None:
        self._store = store
        self._clock = clock
        self._admission = admission or Always()

    async def validate(self, source: str) -> Sequence[Problem]:
        """Everything that is wrong with it, warnings included."""
        return _one(await asyncio.to_thread(parse, source)).problems

    async def create(
        self, source: str, base_dir: str, request: Request | None
    ) -> tuple[StoredWorkflow, Sequence[Problem]]:
        """The workflow and its warnings. Raises InvalidDefinitionError, WorkflowExistsError, RefusedError."""
        text, warnings = await asyncio.to_thread(_text, source, base_dir)
        self._admission.check("create a workflow")
        stored = await self._store.create_workflow(text, at=self._clock.now(), request=request)
        return stored, warnings

    async def update(
        self, name: str, source: str, base_dir: str, etag: str, request: Request | None
    ) -> tuple[StoredWorkflow, bool, Sequence[Problem]]:
        """The workflow, whether it changed, its warnings.

        Raises InvalidDefinitionError, WorkflowNotFoundError, RefusedError.
        """
        text, warnings = await asyncio.to_thread(_text, source, base_dir)
        if text.name != name:
            message = (
                f"the definition is of {text.name!r}, not of {name!r}; a workflow keeps its name"
            )
            problem = Problem(message=message, path="name", line=1, column=1, file="<definition>")
            raise InvalidDefinitionError([problem])
        self._admission.check("update a workflow")
        updated = await self._store.update_workflow(
            text, at=self._clock.now(), etag=etag, request=request
        )
        if updated is None:
            raise WorkflowNotFoundError(name)
        return updated[0], updated[1], warnings

    async def set_enabled(self, name: str, enabled: bool) -> StoredWorkflow:
        """Raises WorkflowNotFoundError."""
        stored = await self._store.set_enabled(name, enabled, at=self._clock.now())
        if stored is None:
            raise WorkflowNotFoundError(name)
        return stored


def _one(parsed: Parsed) -> Parsed:
    """A stored definition is one document."""
    if parsed.ok and len(parsed.documents) != 1:
        message = f"found {len(parsed.documents)} documents, expected one; send each by itself"
        problem = Problem(message=message, path="", line=1, column=1, file="<definition>")
        return Parsed(documents=parsed.documents, problems=(*parsed.problems, problem))
    return parsed


def _text(source: str, base_dir: str) -> tuple[WorkflowText, Sequence[Problem]]:
    parsed = _one(parse(source))
    if not parsed.ok:
        raise InvalidDefinitionError(parsed.problems)
    workflow = parsed.documents[0].workflow
    assert workflow is not None
    text = WorkflowText(
        name=workflow.name,
        title=workflow.title,
        description=workflow.description,
        labels=workflow.labels,
        enabled=workflow.enabled,
        source=source,
        parsed=workflow.to_dict(),
        base_dir=base_dir,
    )
    return text, parsed.warnings
