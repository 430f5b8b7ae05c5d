"""Resolves parsed documents into definitions to store: with their jobs merged in and their schedules fixed."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from toban.definition import AuthorLimits, DefinitionKind, Document, EventTrigger, Parsed, Problem, Workflow
from toban.definition.checks.never_due import run_out
from toban.definition.scripts.shells import DEFAULT_SHELL
from toban.definition.timing.business_days import CalendarError
from toban.definition.timing.phrases.phrase import PhraseError
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.author_limits import author_limits
from toband.domain.schedule_model import ScheduleEntry, entries_of
from toband.engine.access.call_scope import visible
from toband.engine.definitions.default_shell import with_default_shell
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.execution.step_locations import refused_locations
from toband.engine.execution.step_rules import NO_RULES, StepRules
from toband.ports import Clock, Store, StoredWorkflow, WorkflowText

UNNAMED = "<definition>"
"""Stands for the file of a text that has none."""
_JOBS_LISTED = 1000
_SCHEDULES_LISTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedText:
    """What one text defines, parsed without the jobs of other texts. `file` names the text in problems."""

    file: str
    base_dir: str
    documents: Sequence[Document]
    problems: Sequence[Problem]

    @property
    def jobs(self) -> Mapping[str, str]:
        """Sources of its jobs, by name."""
        return {each.name: each.source for each in self.documents if each.kind is DefinitionKind.JOB and each.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDefinition:
    """One definition of a text, and its problems. `text` is None if one of them is an error."""

    file: str
    document: Document
    problems: Sequence[Problem]
    text: WorkflowText | None

    def with_problems(self, problems: Iterable[Problem]) -> ResolvedDefinition:
        return replace(self, problems=(*self.problems, *problems))

    def problem(self, message: str, *, path: str = "", warning: bool = False) -> Problem:
        """A problem of the whole definition, on its first line."""
        return _problem(self.file, self.document, message, path, warning=warning)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUser:
    """A stored workflow that uses a job, resolved with the job's new source. `changed`: its steps differ by that."""

    text: WorkflowText
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """Sources by job, and the versions of those that are stored."""

    sources: Mapping[str, str]
    versions: Mapping[str, int]


_NO_JOBS = _Jobs(sources={}, versions={})


def no_file(path: str) -> str:
    """Where calendars have no files."""
    raise FileNotFoundError(2, "files of calendars are not read here", path)


class Resolver:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        zone: str,
        parser: DefinitionParser,
        refusal: Callable[[str], str] = lambda _: "",
        shell: str = DEFAULT_SHELL,
        calendar: Mapping[str, Any] | None = None,
        read_file: Callable[[str], str] = no_file,
        rules: StepRules = NO_RULES,
    ) -> None:
        """`zone` and `calendar` are the defaults of schedules, `shell` the default shell.

        `read_file` reads files of calendars.

        `refusal`: see `refused_locations`.
        """
        self._store = store
        self._parser = parser
        self._clock = clock
        self._zone = zone
        self._refusal = refusal
        self._shell = shell
        self._calendar = calendar
        self._read_file = read_file
        self.rules = rules

    async def parse(self, source: str, base_dir: str, file: str = UNNAMED) -> ParsedText:
        parsed = await self._parser.parse(source, file)
        return ParsedText(file=file, base_dir=base_dir, documents=parsed.documents, problems=parsed.problems)

    async def resolve(self, texts: Sequence[ParsedText]) -> Sequence[ResolvedDefinition]:
        """The definitions of all texts, in order. Each may use the jobs of all texts, and stored jobs.

        A text without a readable document gives one definition without a name, for its problems.
        """
        given = {name: source for text in texts for name, source in text.jobs.items()}
        wanted = {job for text in texts for document in text.documents for job in document.uses - text.jobs.keys()}
        jobs = await self._jobs(wanted, given, similar=True) if wanted else _NO_JOBS
        return [
            await self._definition(text, document, problems, jobs)
            for text in texts
            for document, problems in _by_document(text)
        ]

    async def _definition(
        self, text: ParsedText, document: Document, problems: Sequence[Problem], jobs: _Jobs
    ) -> ResolvedDefinition:
        if document.uses - text.jobs.keys():
            parsed = await self._parser.parse(document.source, text.file, jobs.sources)
            # The warnings of the first time were about jobs of other texts.
            errors = [each for each in problems if not each.warning]
            again = [replace(each, line=document.line + each.line - 1) for each in parsed.problems]
            problems = list(dict.fromkeys([*errors, *again]))
            document = _only(parsed, document)
        return await self._finish(document, problems, text.file, text.base_dir, jobs)

    async def _finish(
        self,
        document: Document,
        problems: Sequence[Problem],
        file: str,
        base_dir: str,
        jobs: _Jobs,
        before: Mapping[str, Any] | None = None,
    ) -> ResolvedDefinition:
        """`before` is the stored definition that changes only because a job does: the limits of its author stay."""
        problems = [*problems, *run_out(document, file, self._clock.now())]
        text: WorkflowText | None = None
        if document.workflow is not None and all(each.warning for each in problems):
            workflow = await self._of_its_edition(document.workflow, document.source)
            schedules, wrong = await self._schedules(workflow)
            if workflow.edition:
                workflow, unfit = with_default_shell(workflow, self._shell)
                wrong = [*unfit, *wrong]
            ruled_out = list(self.rules.problems(workflow, base_dir))
            wrong = [*_refused(workflow, base_dir, self._refusal), *ruled_out, *wrong]
            problems += await self._placed(file, document, wrong)
            if not wrong:
                workflow = await self._with_author_limits(workflow, document.source, base_dir, before)
                text = _text(document, workflow, base_dir, jobs, schedules)
        return ResolvedDefinition(file=file, document=document, problems=problems, text=text)

    async def _with_author_limits(
        self, workflow: Workflow, source: str, base_dir: str, before: Mapping[str, Any] | None
    ) -> Workflow:
        """With the limits of its author, or with those that it has if the author changes nothing."""
        if before is None and visible() is not None:
            stored = await self._store.get_workflow(workflow.name)
            definition = stored.definition if stored is not None else None
            if definition is not None and (definition.source, definition.base_dir) == (source, base_dir):
                same = replace(workflow, author_limits=_limits_in(definition.parsed))
                if same.to_dict() == definition.parsed:
                    return same
        return replace(workflow, author_limits=author_limits(visible(), _limits_in(before or {})))

    async def _placed(self, file: str, document: Document, wrong: Sequence[tuple[str, str]]) -> Sequence[Problem]:
        """Problems by path, where their fields stand in the text."""
        if not wrong:
            return ()
        places = await self._parser.positions(document.source, [path for path, _ in wrong])
        found = [_problem(file, document, message, path) for path, message in wrong]
        return [
            replace(problem, line=document.line + line - 1, column=column)
            for problem, (line, column) in zip(found, places, strict=True)
        ]

    async def _of_its_edition(self, workflow: Workflow, source: str) -> Workflow:
        """With the edition of the stored version, if that has the same text: a release does not change its meaning."""
        stored = await self._store.get_workflow(workflow.name)
        if stored is None or stored.definition is None or stored.definition.source != source:
            return workflow
        return replace(workflow, edition=stored.definition.parsed.get("edition", 0))

    async def _schedules(self, workflow: Workflow) -> tuple[tuple[ScheduleEntry, ...], Sequence[tuple[str, str]]]:
        """Its schedules, and problems by path: words may mean nothing now."""
        known: dict[tuple[str, str], Schedule] = {}
        if any(schedule.words for schedule in workflow.schedules):
            stored = await self._store.list_schedules(
                workflow=workflow.name,
                # Its own come first behind this.
                after=f"{workflow.name}/",
                limit=_SCHEDULES_LISTED,
                active_only=False,
            )
            # Those of subjects are no part of the definition, and may have passed.
            known = {
                (entry.spec.words, entry.zone): entry.spec for entry in stored if entry.spec.words and not entry.subject
            }
        try:
            make = partial(
                entries_of,
                workflow,
                zone=self._zone,
                now=self._clock.now(),
                known=known,
                calendar=self._calendar,
                read_file=self._read_file,
            )
            # A calendar may be a file, and loading its holidays takes a moment.
            return await asyncio.to_thread(make) if _needs_calendar(workflow) else make(), ()
        except (PhraseError, CalendarError) as error:
            return (), [("schedule", str(error))]

    async def is_stored(self, text: WorkflowText) -> bool:
        """Whether the stored definition is exactly this."""
        stored = await self._store.get_workflow(text.name)
        return (
            stored is not None
            and (definition := stored.definition) is not None
            and (definition.source, definition.base_dir) == (text.source, text.base_dir)
            and definition.parsed == text.parsed
        )

    async def users(
        self, jobs: Sequence[ResolvedDefinition], *, but: Collection[str]
    ) -> tuple[Sequence[JobUser], Sequence[ResolvedDefinition]]:
        """The stored workflows that use these jobs, resolved with them, by name; without those in `but`.

        Also the jobs again, with a problem for each error of a workflow that the change would make invalid.
        """
        sources = {job.document.name: job.document.source for job in jobs}
        using = {name: await self._store.workflows_using(name) for name in sources}
        users: list[JobUser] = []
        broken: dict[str, list[tuple[str, Problem]]] = {}
        for name in sorted({name for names in using.values() for name in names} - set(but)):
            stored = await self._store.get_workflow(name)
            if stored is None or stored.definition is None:
                continue
            user = await self._user(stored, sources)
            if user.text is None:
                job = next(job for job, names in using.items() if name in names)
                broken.setdefault(job, []).extend((name, each) for each in user.problems if not each.warning)
                continue
            # It replaces the version that was read and nothing newer, and its owner stays.
            text = replace(
                user.text, expected_version=stored.version, owner=stored.owner, owner_removed=stored.owner_removed
            )
            users.append(JobUser(text=text, changed=text.parsed != stored.definition.parsed))
        return users, [job.with_problems(_of_users(job, broken.get(job.document.name, ()))) for job in jobs]

    async def _user(self, stored: StoredWorkflow, sources: Mapping[str, str]) -> ResolvedDefinition:
        assert stored.definition is not None
        source, base_dir = stored.definition.source, stored.definition.base_dir
        jobs = await self._jobs(jobs_of(stored.definition.parsed), sources)
        parsed = await self._parser.parse(source, UNNAMED, jobs.sources)
        document = _only(parsed, Document(source=source, line=1, name=stored.name, workflow=None))
        return await self._finish(document, parsed.problems, UNNAMED, base_dir, jobs, stored.definition.parsed)

    async def _jobs(self, names: Iterable[str], given: Mapping[str, str], *, similar: bool = False) -> _Jobs:
        """Stored jobs by name, with `given` in place of those of the same names.

        With `similar`, also jobs with names like the missing ones, to suggest.
        """
        sources = dict(given)
        versions: dict[str, int] = {}
        for name in sorted(set(names) - given.keys()):
            stored = await self._store.get_workflow(name)
            if stored is None or stored.definition is None or stored.kind is not DefinitionKind.JOB:
                continue
            sources[name] = stored.definition.source
            versions[name] = stored.version
        missing = set(names) - sources.keys()
        if similar and missing:
            listed = await self._store.list_workflows(kind=DefinitionKind.JOB, limit=_JOBS_LISTED, visible=visible())
            stored_names = [job.name for job in listed]
            close = [name for each in missing for name in difflib.get_close_matches(each, stored_names)]
            sources = {**(await self._jobs(close, {})).sources, **sources}
        return _Jobs(sources=sources, versions=versions)


def _refused(workflow: Workflow, base_dir: str, refusal: Callable[[str], str]) -> Sequence[tuple[str, str]]:
    """Problems by path: steps in locations that the daemon refuses, and watched paths without a base directory."""
    problems = [
        (path, f"no step can work there: {why}") for path, why in refused_locations(workflow, base_dir, refusal)
    ]
    relative = [watch.path for watch in workflow.watch if not os.path.isabs(watch.path)]
    if relative and not base_dir:
        text = f"cannot tell where {relative[0]!r} is: the definition comes without a base directory"
        problems.append(("watch", f"{text}; give an absolute path"))
    return problems


def _limits_in(parsed: Mapping[str, Any]) -> tuple[AuthorLimits, ...]:
    return tuple(map(AuthorLimits.from_dict, parsed.get("author_limits", ())))


def jobs_of(parsed: Mapping[str, Any]) -> frozenset[str]:
    """The jobs that a stored definition was resolved with."""
    steps = Workflow.from_dict(parsed).steps.values()
    checks = (step.completion_check for step in steps if step.completion_check is not None)
    return frozenset(step.job for step in (*steps, *checks) if step.job)


def _by_document(text: ParsedText) -> Sequence[tuple[Document, Sequence[Problem]]]:
    """Each document with its problems: those of a job by their path, the others by their line."""
    documents = text.documents or (Document(source="", line=1, workflow=None),)
    found: list[tuple[Document, list[Problem]]] = [(document, []) for document in documents]
    jobs = {each.name: index for index, each in enumerate(documents) if each.kind is DefinitionKind.JOB}
    for problem in text.problems:
        first, _, rest = problem.path.partition(".")
        above = [index for index, each in enumerate(documents) if each.line <= problem.line]
        index = jobs.get(rest.partition(".")[0]) if first == "jobs" else None
        found[index if index is not None else (above or [0])[-1]][1].append(problem)
    return found


def _needs_calendar(workflow: Workflow) -> bool:
    return any(schedule.business_day != "" or schedule.words for schedule in workflow.schedules)


def _only(parsed: Parsed, before: Document) -> Document:
    """The document of a text that was parsed alone, at its line in the file."""
    if len(parsed.documents) != 1:
        return replace(before, workflow=None)
    return replace(parsed.documents[0], source=before.source, line=before.line)


def _text(
    document: Document, workflow: Workflow, base_dir: str, jobs: _Jobs, schedules: tuple[ScheduleEntry, ...]
) -> WorkflowText:
    watches: dict[str, float] = {}
    for watch in workflow.watch:
        watches.setdefault(os.path.abspath(os.path.join(base_dir, watch.path)), watch.settle)
    return WorkflowText(
        name=workflow.name,
        kind=workflow.kind,
        title=workflow.title,
        description=workflow.description,
        labels=workflow.labels,
        enabled=workflow.enabled,
        source=document.source,
        parsed=workflow.to_dict(),
        base_dir=base_dir,
        uses=document.uses,
        job_versions={name: jobs.versions[name] for name in document.uses if name in jobs.versions},
        schedules=schedules,
        triggers=_triggers(workflow),
        watches=watches,
    )


def _triggers(workflow: Workflow) -> tuple[EventTrigger, ...]:
    """Triggers without a priority get the workflow's."""
    return tuple(
        trigger if trigger.priority is not None else replace(trigger, priority=workflow.priority)
        for trigger in workflow.triggers
    )


def _of_users(job: ResolvedDefinition, broken: Sequence[tuple[str, Problem]]) -> Iterable[Problem]:
    """Problems of workflows that use the job, at the job: their own lines are those of another text."""
    for workflow, found in broken:
        where = f"{found.path}: " if found.path else ""
        text = f"workflow {workflow!r}, which uses it, would be invalid: {where}{found.message}"
        yield job.problem(text, path=f"jobs.{job.document.name}")


def _problem(file: str, document: Document, message: str, path: str, *, warning: bool = False) -> Problem:
    return Problem(message=message, path=path, line=document.line, column=1, file=file, warning=warning)
