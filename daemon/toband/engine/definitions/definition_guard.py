"""Definition guard: whether the author of definitions may store them.

A definition file has no author: users who may write it are trusted as administrators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toban.definition import Grant, JobType, Workflow
from toband.domain.authority import Authority, described, granted
from toband.domain.identity import Role, Visible, sees
from toband.engine.access.call_scope import authorities, visible
from toband.engine.definitions.resolver import ParsedText, ResolvedDefinition
from toband.engine.errors import NotPermittedError, PermissionReason
from toband.ports import DefinitionStore, StoredWorkflow, WorkflowText


class DefinitionGuard:
    def __init__(self, store: DefinitionStore) -> None:
        self._store = store

    async def check_names(self, texts: Sequence[ParsedText]) -> None:
        """Checks the definitions and the jobs that they use before anything stored is looked at for them.

        Raises NotPermittedError.
        """
        limits = visible()
        if limits is None:
            return
        documents = [document for text in texts for document in text.documents]
        given = {document.name for document in documents}
        stored = await self._labels(given.union(*(document.uses for document in documents)))
        for document in documents:
            labels = stored.get(document.name)
            if labels is None and any(each.labels for each in limits):
                labels = await self._last_labels(document.name)
                if labels is None:
                    continue  # the labels of a new one are known when it is resolved
            if document.name and not sees(limits, document.name, labels or {}):
                raise _outside(document.name, limits)
        for job in sorted({job for document in documents for job in document.uses} - given):
            if not sees(limits, job, stored.get(job, {})):
                raise _outside(job, limits, "uses")

    async def check(
        self, definitions: Sequence[ResolvedDefinition], users: Sequence[WorkflowText], *, storing: bool
    ) -> Sequence[ResolvedDefinition]:
        """The definitions, to be stored only if what was checked here has not changed.

        Raises NotPermittedError for one outside of the author's limits before or after the change, for a child or a
        user of a job outside of them and, if they are to be stored, for grants that the author does not have.
        """
        author, limits = authorities(), visible()
        if author is None:
            return definitions
        texts = [each.text for each in definitions if each.text is not None]
        if storing:
            await self._check_grants([*texts, *users], author)
        if limits is None:
            return definitions
        stored = {text.name: await self._store.get_workflow(text.name) for text in texts}
        for text in texts:
            before = stored[text.name]
            if not sees(limits, text.name, text.labels) or (before and not sees(limits, text.name, before.labels)):
                raise _outside(text.name, limits)
        await self._check_others(texts, users, limits)
        return [
            each if each.text is None else replace(each, text=_expecting(each.text, stored[each.text.name]))
            for each in definitions
        ]

    async def _check_others(
        self, texts: Sequence[WorkflowText], users: Sequence[WorkflowText], limits: Visible
    ) -> None:
        """Checks the children, and the workflows that use a job. Raises NotPermittedError."""
        children = {child for text in (*texts, *users) for child in _children(text.parsed)}
        children -= {text.name for text in texts}
        labels = await self._labels(children | {user.name for user in users})
        for name in sorted(children):
            if not sees(limits, name, labels.get(name, {})):
                raise _outside(name, limits, "starts")
        if any(not sees(limits, user.name, labels.get(user.name, {})) for user in users):
            raise NotPermittedError(
                f"a workflow that uses a job of the request would change with it, and is not among {_shown(limits)}",
                PermissionReason.WORKFLOW,
            )

    async def _check_grants(self, texts: Iterable[WorkflowText], author: Sequence[Authority]) -> None:
        """Raises NotPermittedError for a workflow that grants more than its author may do, unless it is unchanged."""
        for text in texts:
            for each in granted(map(Grant.from_dict, text.parsed.get("grants", ()))):
                if any(own.includes(each) for own in author) or await self._is_stored(text):
                    continue
                has = "; ".join(map(str, author)) or "nothing"
                raise NotPermittedError(
                    f"{text.name!r} grants its steps {each}, and its author has only {has}: an author can grant no "
                    "more than that",
                    PermissionReason.ROLE if _lacks_role(each.role, author) else PermissionReason.WORKFLOW,
                )

    async def _is_stored(self, text: WorkflowText) -> bool:
        stored = await self._store.get_workflow(text.name)
        found = stored.definition if stored is not None else None
        return found is not None and (found.source, found.parsed) == (text.source, text.parsed)

    async def _last_labels(self, name: str) -> Mapping[str, str] | None:
        """Of a deleted definition: the author who takes its name gets its runs, and the secrets that it was granted.

        None if there never was one.
        """
        versions = await self._store.list_versions(name, limit=1) if name else ()
        last = await self._store.get_version(name, versions[0].version) if versions else None
        return None if last is None else last.parsed.get("labels", {})

    async def _labels(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return await self._store.labels_of(names) if names else {}


def _expecting(text: WorkflowText, checked: StoredWorkflow | None) -> WorkflowText:
    """To be stored only over the version whose labels were checked, or over none."""
    return replace(text, expected_version=checked.version if checked is not None else 0)


def _children(parsed: Mapping[str, Any]) -> Iterable[str]:
    steps = Workflow.from_dict(parsed).steps.values()
    return {step.target for step in steps if step.job_type is JobType.WORKFLOW}


def _lacks_role(role: Role, author: Sequence[Authority]) -> bool:
    return all(own.role < role for own in author)


def _outside(name: str, limits: Visible, verb: str = "") -> NotPermittedError:
    what = f"the definition {verb} {name!r}, which" if verb else f"{name!r}"
    return NotPermittedError(f"{what} is not among {_shown(limits)}", PermissionReason.WORKFLOW)


def _shown(limits: Visible) -> str:
    return "the workflows that the caller is limited to: " + " and ".join(described(each) for each in limits or ())
