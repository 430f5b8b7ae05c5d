"""Texts become definitions: with the jobs that they use, as those are stored, and without a workflow inside itself."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban.definition import (
    DefinitionKind,
    Document,
    EventTrigger,
    JobType,
    Parsed,
    Problem,
    Workflow,
)
from toban.definition.checks.never_due import run_out
from toban.definition.timing.phrases.phrase import PhraseError
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.schedule_model import ScheduleEntry, entries_of
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.errors import InvalidDefinitionError, WorkflowRecursionError
from toband.engine.execution.step_locations import refused_locations
from toband.ports import Clock, Store, WorkflowText

_FILE = "<definition>"
_JOBS_LISTED = 1000
_SCHEDULES_LISTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A definition that holds, and what is worth knowing about it."""

    text: WorkflowText
    warnings: Sequence[Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A workflow that uses a job, made anew with it, and whether that makes it another."""

    text: WorkflowText
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """Sources by job, and the versions of those that are stored."""

    sources: Mapping[str, str]
    versions: Mapping[str, int]


_NO_JOBS = _Jobs(sources={}, versions={})


def _never(_: str) -> str:
    return ""


class Resolver:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        zone: str,
        parser: DefinitionParser,
        refusal: Callable[[str], str] = _never,
    ) -> None:
        """`zone` is that of schedules that name none. `refusal`: see `refused_locations`."""
        self._store = store
        self._parser = parser
        self._clock = clock
        self._zone = zone
        self._refusal = refusal

    async def problems(self, source: str, base_dir: str = "") -> Sequence[Problem]:
        """Everything that is wrong with it, warnings included."""
        parsed, _ = await self._parse(source)
        document = parsed.documents[0] if parsed.ok else None
        if document is None or document.workflow is None:
            return parsed.problems
        problems = (
            *parsed.problems,
            *run_out(document, _FILE, self._clock.now()),
            *self._misplaced(document.workflow, base_dir),
        )
        children = Children(self._store, {document.name: document.workflow.to_dict()})
        path = await children.circle(document.name)
        if path is not None:
            text = str(WorkflowRecursionError(path))
            return (*problems, _problem(text, path="steps"))
        return (*problems, *await children.missing(document.name))

    async def resolve(
        self,
        source: str,
        base_dir: str,
        kind: DefinitionKind,
        *,
        instead: Mapping[str, str] | None = None,
        likely: Iterable[str] = (),
    ) -> Resolved:
        """The only document of a text. Raises InvalidDefinitionError.

        `instead` gives sources of jobs that are to be taken in place of the stored ones; `likely` names jobs that it
        probably uses, so that it has to be read once only.
        """
        parsed, jobs = await self._parse(source, instead or {}, likely)
        if not parsed.ok:
            raise InvalidDefinitionError(parsed.problems)
        document = parsed.documents[0]
        if document.kind is not kind:
            message = f"found a {document.kind.value}, expected a {kind.value}"
            raise InvalidDefinitionError([_problem(message)])
        text = await self._whole(document, source, base_dir, jobs)
        over = run_out(document, _FILE, self._clock.now())
        return Resolved(text=text, warnings=(*parsed.warnings, *over))

    async def take(self, document: Document, base_dir: str) -> WorkflowText:
        """A document that holds and uses no jobs, as it was read. Raises InvalidDefinitionError."""
        assert not document.uses
        return await self._whole(document, document.source, base_dir, _NO_JOBS)

    async def _whole(self, document: Document, source: str, base_dir: str, jobs: _Jobs) -> WorkflowText:
        text = _text(document, source, base_dir, jobs)
        assert document.workflow is not None
        if misplaced := self._misplaced(document.workflow, base_dir):
            raise InvalidDefinitionError(misplaced)
        return replace(
            text,
            schedules=await self._schedules(document.workflow),
            triggers=_triggers(document.workflow),
            watches=_watches(document.workflow, base_dir),
        )

    def _misplaced(self, workflow: Workflow, base_dir: str) -> Sequence[Problem]:
        found = refused_locations(workflow, base_dir, self._refusal)
        return [_problem(f"no step can work there: {why}", path=path) for path, why in found]

    async def _schedules(self, workflow: Workflow) -> tuple[ScheduleEntry, ...]:
        """Raises InvalidDefinitionError for words that mean nothing now."""
        known: dict[tuple[str, str], Schedule] = {}
        if any(schedule.words for schedule in workflow.schedules):
            stored = await self._store.list_schedules(
                workflow=workflow.name,
                # Its own come first behind this.
                after=f"{workflow.name}/",
                limit=_SCHEDULES_LISTED,
                active_only=False,
            )
            # Those of subjects are no part of the definition, and may have had their time.
            known = {
                (entry.spec.words, entry.zone): entry.spec for entry in stored if entry.spec.words and not entry.subject
            }
        try:
            return entries_of(workflow, zone=self._zone, now=self._clock.now(), known=known)
        except PhraseError as error:
            raise InvalidDefinitionError([_problem(str(error), path="schedule")]) from None

    async def users(self, sources: Mapping[str, str], *, but: Collection[str] = ()) -> Sequence[User]:
        """What the workflows that use jobs become with other sources of them, in order; without those in `but`.

        Raises InvalidDefinitionError if one of them would no longer hold.
        """
        using = {job: await self._store.workflows_using(job) for job in sources}
        users: list[User] = []
        problems: list[Problem] = []
        for name in sorted({name for names in using.values() for name in names} - set(but)):
            user = await self._store.get_workflow(name)
            if user is None or user.definition is None:
                continue
            definition = user.definition
            try:
                made = await self.resolve(
                    definition.source,
                    definition.base_dir,
                    DefinitionKind.WORKFLOW,
                    instead=sources,
                    likely=jobs_of(definition.parsed),
                )
            except InvalidDefinitionError as error:
                job = next(job for job, names in using.items() if name in names)
                problems += [_of_user(each, name, job) for each in error.problems if not each.warning]
                continue
            # It replaces what was read and nothing newer; who owns it does not change.
            text = replace(made.text, expected_version=user.version, owner=user.owner)
            users.append(User(text=text, changed=text.parsed != definition.parsed))
        if problems:
            raise InvalidDefinitionError(problems)
        return users

    async def is_stored(self, text: WorkflowText) -> bool:
        """Whether what is stored is exactly this."""
        stored = await self._store.get_workflow(text.name)
        return (
            stored is not None
            and (definition := stored.definition) is not None
            and (definition.source, definition.base_dir) == (text.source, text.base_dir)
            and definition.parsed == text.parsed
        )

    async def check_children(self, texts: Sequence[WorkflowText]) -> Sequence[Problem]:
        """Warnings about the first of them. Raises WorkflowRecursionError if one would be a child of itself."""
        children = Children(self._store, {text.name: text.parsed for text in texts})
        for text in texts:
            path = await children.circle(text.name)
            if path is not None:
                raise WorkflowRecursionError(path)
        return await children.missing(texts[0].name)

    async def _parse(
        self, source: str, instead: Mapping[str, str] | None = None, likely: Iterable[str] = ()
    ) -> tuple[Parsed, _Jobs]:
        jobs = await self._jobs(likely, instead or {})
        parsed = await self._parser.parse(source, _FILE, jobs.sources)
        uses = {name for document in parsed.documents for name in document.uses}
        if not uses <= jobs.sources.keys():
            jobs = await self._jobs(uses, instead or {})
            if not uses <= jobs.sources.keys():
                jobs = await self._with_similar(jobs, uses)
            if jobs.sources:
                parsed = await self._parser.parse(source, _FILE, jobs.sources)
        return _one(parsed), jobs

    async def _jobs(self, names: Iterable[str], instead: Mapping[str, str]) -> _Jobs:
        sources = dict(instead)
        versions: dict[str, int] = {}
        for name in sorted(set(names) - instead.keys()):
            stored = await self._store.get_workflow(name)
            if stored is None or stored.definition is None or stored.kind is not DefinitionKind.JOB:
                continue
            sources[name] = stored.definition.source
            versions[name] = stored.version
        return _Jobs(sources=sources, versions=versions)

    async def _with_similar(self, jobs: _Jobs, uses: Iterable[str]) -> _Jobs:
        """With jobs whose names are like those that are wanting, so that one can be suggested."""
        listed = await self._store.list_workflows(kind=DefinitionKind.JOB, limit=_JOBS_LISTED)
        names = [job.name for job in listed]
        close = [name for use in uses for name in difflib.get_close_matches(use, names)]
        similar = await self._jobs(close, {})
        return _Jobs(sources={**similar.sources, **jobs.sources}, versions=jobs.versions)


class Children:
    """Which workflows a workflow starts as its children, in what is stored and in definitions about to be."""

    def __init__(self, store: Store, instead: Mapping[str, Mapping[str, Any]]) -> None:
        self._store = store
        self._targets: dict[str, Mapping[str, str] | None] = {
            name: _targets(parsed) for name, parsed in instead.items()
        }

    async def circle(self, name: str) -> Sequence[str] | None:
        """The shortest way from a workflow back to itself; None if there is none."""
        before: dict[str, str] = {}
        queue = [name]
        for parent in queue:
            for target in (await self._of(parent) or {}).values():
                if target == name:
                    path = [parent]
                    while path[0] != name:
                        path.insert(0, before[path[0]])
                    return (*path, name)
                if target not in before:
                    before[target] = parent
                    queue.append(target)
        return None

    async def missing(self, name: str) -> Sequence[Problem]:
        """A warning for each child that is not there: it may come later."""
        return [
            _problem(
                f"there is no workflow {target!r} yet; the step fails until there is",
                path=f"steps.{step}",
                warning=True,
            )
            for step, target in (await self._of(name) or {}).items()
            if await self._of(target) is None
        ]

    async def _of(self, name: str) -> Mapping[str, str] | None:
        """Children by step; None if there is no such workflow."""
        if name not in self._targets:
            stored = await self._store.get_workflow(name)
            definition = stored.definition if stored is not None else None
            self._targets[name] = _targets(definition.parsed) if definition is not None else None
        return self._targets[name]


def jobs_of(parsed: Mapping[str, Any]) -> frozenset[str]:
    """The jobs that a stored definition was made with."""
    steps = Workflow.from_dict(parsed).steps.values()
    checks = (step.completion_check for step in steps if step.completion_check is not None)
    return frozenset(step.job for step in (*steps, *checks) if step.job)


def _targets(parsed: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        step.id: step.target for step in Workflow.from_dict(parsed).steps.values() if step.job_type is JobType.WORKFLOW
    }


def _one(parsed: Parsed) -> Parsed:
    """A stored definition is one document."""
    if parsed.ok and len(parsed.documents) != 1:
        message = f"found {len(parsed.documents)} documents, expected one; send each by itself"
        return Parsed(documents=parsed.documents, problems=(*parsed.problems, _problem(message)))
    return parsed


def _text(document: Document, source: str, base_dir: str, jobs: _Jobs) -> WorkflowText:
    workflow = document.workflow
    assert workflow is not None
    versions = {name: jobs.versions[name] for name in document.uses if name in jobs.versions}
    return WorkflowText(
        name=workflow.name,
        kind=workflow.kind,
        title=workflow.title,
        description=workflow.description,
        labels=workflow.labels,
        enabled=workflow.enabled,
        source=source,
        parsed=workflow.to_dict(),
        base_dir=base_dir,
        uses=document.uses,
        job_versions=versions,
    )


def _triggers(workflow: Workflow) -> tuple[EventTrigger, ...]:
    """What it listens to; its own priority is that of triggers which have none."""
    return tuple(
        trigger if trigger.priority is not None else replace(trigger, priority=workflow.priority)
        for trigger in workflow.triggers
    )


def _watches(workflow: Workflow, base_dir: str) -> tuple[str, ...]:
    """The paths that it watches, absolute, each once. Raises InvalidDefinitionError if nobody can tell below what."""
    for path in workflow.watch:
        if not base_dir and not os.path.isabs(path):
            text = f"cannot tell where {path!r} is: the definition comes without a base directory"
            problem = _problem(f"{text}; give an absolute path", path="watch")
            raise InvalidDefinitionError([problem])
    paths = (os.path.abspath(os.path.join(base_dir, path)) for path in workflow.watch)
    return tuple(dict.fromkeys(paths))


def _of_user(found: Problem, workflow: str, job: str) -> Problem:
    """Said where the job is: the line is one of another text."""
    where = f"{found.path}: " if found.path else ""
    text = f"workflow {workflow!r}, which uses it, would not hold: {where}{found.message}"
    return _problem(text, path=f"jobs.{job}")


def _problem(message: str, *, path: str = "", warning: bool = False) -> Problem:
    return Problem(message=message, path=path, line=1, column=1, file=_FILE, warning=warning)
