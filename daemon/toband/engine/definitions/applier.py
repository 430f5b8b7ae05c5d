"""Applies definitions: resolves, checks and stores them together. The API and the definition files share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from toban.definition import DefinitionKind, Problem, Workflow, secret_references
from toban.definition.scripts.shells import DEFAULT_SHELL
from toband.engine.definitions.child_graph import ChildGraph
from toband.engine.definitions.definition_guard import DefinitionGuard
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.resolver import JobUser, ParsedText, ResolvedDefinition, Resolver, no_file
from toband.engine.errors import InvalidDefinitionError, WorkflowRecursionError
from toband.engine.execution.child_locks import ChildLocks, LockProblem
from toband.engine.execution.step_rules import NO_RULES, StepRules
from toband.engine.health.admission import Admits, Always
from toband.ports import Clock, ConflictError, SecretSource, Store, WorkflowText

_ATTEMPTS = 5
"""To store definitions whose jobs, users or children keep changing."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """Definitions to store together, with the workflows that get a new version because a job changes.

    `cycle` are the names of workflows that would start each other, if any would.
    """

    definitions: Sequence[ResolvedDefinition]
    users: Sequence[JobUser] = ()
    cycle: Sequence[str] = ()

    @property
    def texts(self) -> Sequence[WorkflowText]:
        return [each.text for each in self.definitions if each.text is not None]

    @property
    def also(self) -> Sequence[WorkflowText]:
        return [user.text for user in self.users]

    @property
    def problems(self) -> Sequence[Problem]:
        return [problem for each in self.definitions for problem in each.problems]

    @property
    def warnings(self) -> Sequence[Problem]:
        return [problem for problem in self.problems if problem.warning]

    @property
    def valid(self) -> bool:
        return not self.cycle and all(problem.warning for problem in self.problems)

    def with_cycle_problem(self) -> ApplyPlan:
        """The same, with a cycle as a problem of a definition in it."""
        if not self.cycle:
            return self
        index = next((i for i, each in enumerate(self.definitions) if each.document.name in self.cycle), 0)
        definitions = list(self.definitions)
        problem = definitions[index].problem(str(WorkflowRecursionError(self.cycle)), path="steps")
        definitions[index] = definitions[index].with_problems([problem])
        return replace(self, definitions=definitions)

    def check(self) -> None:
        """Raises InvalidDefinitionError, WorkflowRecursionError."""
        if any(not problem.warning for problem in self.problems):
            raise InvalidDefinitionError(self.problems)
        if self.cycle:
            raise WorkflowRecursionError(self.cycle)


class Applier:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        parser: DefinitionParser,
        admission: Admits | None = None,
        zone: str = "UTC",
        shell: str = DEFAULT_SHELL,
        calendar: Mapping[str, Any] | None = None,
        read_file: Callable[[str], str] = no_file,
        refusal: Callable[[str], str] = lambda _: "",
        rules: StepRules = NO_RULES,
        secrets: SecretSource | None = None,
    ) -> None:
        """`zone` and `calendar` are the defaults of schedules, `shell` the default shell.

        `refusal` gives the reason why no step may use a path, `rules` say what else steps may be given.
        """
        self.store = store
        self.clock = clock
        self._admission = admission or Always()
        self._secrets = secrets
        self._resolver = Resolver(store, clock, zone, parser, refusal, shell, calendar, read_file, rules)
        self._guard = DefinitionGuard(store)

    def use(self, rules: StepRules) -> None:
        """Replaces the rules, for definitions that are applied from now on."""
        self._resolver.rules = rules

    async def parse(self, source: str, base_dir: str, **file: str) -> ParsedText:
        return await self._resolver.parse(source, base_dir, **file)

    async def apply(
        self,
        action: str,
        texts: Sequence[ParsedText],
        save: Callable[[ApplyPlan], Awaitable[_Result]],
        *,
        children_may_follow: bool = False,
    ) -> _Result:
        """Plans and saves, and starts again if something that the plan depends on changes before it is stored.

        `action` completes "cannot ...".
        Raises InvalidDefinitionError, WorkflowRecursionError, NotPermittedError, RefusedError, ConflictError, and what
        `save` raises.
        """

        async def attempt() -> _Result:
            plan = await self.plan(texts, children_may_follow=children_may_follow)
            plan.check()
            self._admission.check(action)
            return await save(plan)

        return await retry_on_conflict(attempt)

    async def plan(
        self, texts: Sequence[ParsedText], *, children_may_follow: bool = False, storing: bool = True
    ) -> ApplyPlan:
        """Finds all problems. A missing child is a warning, unless it may follow later.

        Raises NotPermittedError if the author of the texts may not store them, or without `storing` may not see what
        they use.
        """
        await self._guard.check_names(texts)
        definitions = _with_duplicates(await self._resolver.resolve(texts))
        plan = ApplyPlan(definitions=definitions)
        if plan.valid:
            plan = await self._with_users(plan)
        if plan.valid:
            checked = await self._guard.check(plan.definitions, plan.also, storing=storing)
            plan = replace(plan, definitions=checked)
        if plan.valid:
            plan = await self._with_children(plan, warn=not children_may_follow)
        if plan.valid and self._secrets is not None:
            plan = await with_secret_warnings(plan, self._secrets)
        return plan

    async def _with_users(self, plan: ApplyPlan) -> ApplyPlan:
        jobs = [
            each
            for each in plan.definitions
            if each.document.kind is DefinitionKind.JOB
            and each.text is not None
            and not await self._resolver.is_stored(each.text)
        ]
        if not jobs:
            return plan
        names = [each.document.name for each in plan.definitions]
        users, checked = await self._resolver.users(jobs, but=names)
        by_name = {each.document.name: each for each in checked}
        return replace(
            plan, definitions=[by_name.get(each.document.name, each) for each in plan.definitions], users=users
        )

    async def _with_children(self, plan: ApplyPlan, *, warn: bool) -> ApplyPlan:
        texts = [*plan.texts, *plan.also]
        graph = ChildGraph(self.store, {text.name: text.parsed for text in texts})
        for text in texts:
            if cycle := await graph.cycle(text.name):
                return replace(plan, cycle=cycle)
        locks = ChildLocks(self.store, {text.name: text.parsed for text in texts})
        problems = {text.name: found for text in texts if (found := await locks.problem(text.name)) is not None}
        if problems:
            return replace(plan, definitions=[_with_lock_problem(each, problems) for each in plan.definitions])
        if not warn:
            return plan
        missing = [(each, await graph.missing(each.document.name)) for each in plan.definitions]
        return replace(plan, definitions=[each.with_problems(_missing(each, found)) for each, found in missing])


async def with_secret_warnings(plan: ApplyPlan, secrets: SecretSource) -> ApplyPlan:
    """With a warning for each secret that does not exist or is not granted: it may follow, and each run checks it."""
    definitions = []
    for each in plan.definitions:
        problems: list[Problem] = []
        if each.document.workflow is not None and (used := _secrets_of(each.document.workflow)):
            found = await secrets.check(each.document.name, used.keys())
            problems = [
                each.problem(f"{error}; its steps fail until then", path=used[error.name], warning=True)
                for error in found
            ]
        definitions.append(each.with_problems(problems) if problems else each)
    return replace(plan, definitions=definitions)


def _secrets_of(workflow: Workflow) -> dict[str, str]:
    """The secrets that it uses, each with the path of the first step that does."""
    found: dict[str, str] = {}
    for step in workflow.steps.values():
        for part in (step, step.completion_check):
            if part is not None:
                for name in secret_references(workflow, part).secrets:
                    found.setdefault(name, f"steps.{step.id}")
    return found


async def retry_on_conflict(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeats work whose basis changed before it was stored. Raises ConflictError if that keeps happening."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await work()
        except ConflictError:
            continue
    return await work()


def _missing(definition: ResolvedDefinition, children: Mapping[str, str]) -> Iterable[Problem]:
    for step, target in children.items():
        text = f"there is no workflow {target!r} yet; the step fails until there is"
        yield definition.problem(text, path=f"steps.{step}", warning=True)


def _with_lock_problem(definition: ResolvedDefinition, problems: Mapping[str, LockProblem]) -> ResolvedDefinition:
    """A problem of a workflow that uses a changed job is one of the job's definition."""
    document = definition.document
    if (found := problems.get(document.name)) is not None:
        return definition.with_problems([definition.problem(found.text, path=f"steps.{found.step}")])
    if document.kind is DefinitionKind.JOB:
        return definition.with_problems([definition.problem(found.text) for found in problems.values()])
    return definition


def _with_duplicates(definitions: Sequence[ResolvedDefinition]) -> Sequence[ResolvedDefinition]:
    """With a problem for each name that an earlier text has. Parsing finds those within one text."""
    first: dict[str, ResolvedDefinition] = {}
    found: list[ResolvedDefinition] = []
    for each in definitions:
        before = first.setdefault(each.document.name, each)
        if each.document.name and before.file != each.file:
            place = f"{before.file}:{before.document.line}"
            text = f"{each.document.name!r} is defined twice: also in {place}"
            each = each.with_problems([each.problem(text, path="name")])
        found.append(each)
    return found
