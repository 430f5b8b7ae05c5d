"""Storing definitions: their dependencies, and concurrent changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from doubles.clock import SystemClock
from doubles.sandbox import InlineSandbox
from toban.definition import DefinitionKind
from toband.engine.definitions.applier import Applier
from toband.engine.definitions.catalog import Workflows
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.errors import (
    InvalidDefinitionError,
    JobNotFoundError,
    VersionNotFoundError,
    WorkflowNotFoundError,
    WorkflowRecursionError,
)
from toband.ports import ConflictError, JobInUseError, WorkflowExistsError
from toband.store import SqlStore

JOB = DefinitionKind.JOB


class CountedStore(SqlStore):
    """Lets a test do something else just before a definition is stored."""

    before: Callable[[], Awaitable[None]] | None = None
    updates = 0

    async def update_workflow(self, *args: Any, **kwargs: Any) -> Any:
        self.updates += 1
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().update_workflow(*args, **kwargs)


@pytest.fixture
async def store(store_template: Path, tmp_path: Path) -> AsyncIterator[CountedStore]:
    shutil.copy(store_template, tmp_path)
    store = CountedStore(f"sqlite:///{tmp_path}/toban.db")
    await store.open()
    yield store
    await store.close()


def workflows_of(store: CountedStore) -> Workflows:
    return Workflows(Applier(store=store, clock=SystemClock(), parser=DefinitionParser(InlineSandbox())))


@pytest.fixture
def workflows(store: CountedStore) -> Workflows:
    return workflows_of(store)


def job(name: str, run: str = "true", **fields: object) -> str:
    return json.dumps({"jobs": {name: {"run": run, **fields}}})


def workflow(name: str, **steps: object) -> str:
    return json.dumps({"name": name, "description": "for a test", "steps": steps})


async def step_of(workflows: Workflows, name: str, step: str) -> dict[str, Any]:
    stored = await workflows.get(name)
    assert stored.definition is not None
    (found,) = (each for each in stored.definition.parsed["steps"] if each["id"] == step)
    return dict(found)


async def apply(workflows: Workflows, text: str, kind: DefinitionKind = DefinitionKind.WORKFLOW) -> None:
    await workflows.create(text, "", None, kind=kind)


async def test_a_workflow_is_stored_with_its_jobs_merged_in(workflows: Workflows) -> None:
    await apply(workflows, job("build", "make", timeout="5s", env={"A": "1", "B": "1"}), JOB)
    await apply(workflows, workflow("deploy", b={"job": "build", "env": {"B": "2"}}))
    step = await step_of(workflows, "deploy", "b")
    assert (step["job"], step["target"], step["timeout"]) == ("build", "make", 5.0)
    assert step["env"] == {"A": "1", "B": "2"}


async def test_a_changed_job_makes_new_versions_of_those_who_use_it_and_of_no_others(
    workflows: Workflows,
) -> None:
    await apply(workflows, job("build", "make"), JOB)
    await apply(workflows, job("other", "true"), JOB)
    await apply(workflows, workflow("one", a={"job": "build"}, b={"job": "other"}))
    await apply(workflows, workflow("two", a={"job": "build", "run": "own"}))
    await apply(workflows, workflow("three", a={"job": "other"}))
    updated = await workflows.update("build", job("build", "make all"), "", "", None, kind=JOB)
    assert (updated.changed, updated.stored.version) == (True, 2)
    # Nothing of the job that has changed is left in the second.
    assert updated.users == ["one"]
    assert (await step_of(workflows, "one", "a"))["target"] == "make all"
    versions = {name: (await workflows.get(name)).version for name in ("one", "two", "three")}
    assert versions == {"one": 2, "two": 1, "three": 1}


async def test_the_same_job_again_changes_nothing(workflows: Workflows, store: CountedStore) -> None:
    await apply(workflows, job("build", "make"), JOB)
    await apply(workflows, workflow("one", a={"job": "build"}))
    updated = await workflows.update("build", job("build", "make"), "", "", None, kind=JOB)
    assert (updated.changed, updated.users, store.updates) == (False, [], 1)
    assert (await workflows.get("one")).version == 1


async def test_a_job_that_its_users_could_not_bear_is_refused_and_names_them(
    workflows: Workflows,
) -> None:
    await apply(workflows, job("build", "make"), JOB)
    for name in ("one", "two"):
        await apply(workflows, workflow(name, a={"job": "build", "success_codes": [0, 1]}))
    approval = json.dumps({"jobs": {"build": {"job_type": "approval"}}})
    with pytest.raises(InvalidDefinitionError) as caught:
        await workflows.update("build", approval, "", "", None, kind=JOB)
    texts = [problem.message for problem in caught.value.problems]
    assert all(problem.path == "jobs.build" for problem in caught.value.problems)
    assert any("'one'" in text for text in texts)
    assert any("'two'" in text for text in texts)
    assert (await workflows.get("build", kind=JOB)).version == 1


async def test_a_user_that_is_changed_meanwhile_is_read_again(workflows: Workflows, store: CountedStore) -> None:
    await apply(workflows, job("build", "make"), JOB)
    await apply(workflows, workflow("one", a={"job": "build"}))

    async def meanwhile() -> None:
        text = workflow("one", a={"job": "build", "timeout": "9s"})
        await workflows_of(store).update("one", text, "", "", None)

    store.before = meanwhile
    await workflows.update("build", job("build", "make all"), "", "", None, kind=JOB)
    step = await step_of(workflows, "one", "a")
    assert (step["target"], step["timeout"]) == ("make all", 9.0)
    assert (await workflows.get("one")).version == 3


async def test_a_job_that_changes_while_a_workflow_is_read_does_not_get_lost(
    workflows: Workflows, store: CountedStore
) -> None:
    await apply(workflows, job("build", "make"), JOB)
    await apply(workflows, workflow("one", a={"run": "true"}))

    async def meanwhile() -> None:
        text = job("build", "make all")
        await workflows_of(store).update("build", text, "", "", None, kind=JOB)

    store.before = meanwhile
    await workflows.update("one", workflow("one", a={"job": "build"}), "", "", None)
    assert (await step_of(workflows, "one", "a"))["target"] == "make all"


async def test_who_never_gets_to_store_is_told_so(workflows: Workflows, store: CountedStore) -> None:
    await apply(workflows, job("build", "make"), JOB)
    await apply(workflows, workflow("one", a={"run": "true"}))

    async def meanwhile() -> None:
        text = job("build", f"make {store.updates}")
        store.before = None
        await workflows_of(store).update("build", text, "", "", None, kind=JOB)
        store.before = meanwhile

    store.before = meanwhile
    with pytest.raises(ConflictError):
        await workflows.update("one", workflow("one", a={"job": "build"}), "", "", None)
    assert (await workflows.get("one")).version == 1


async def test_an_unknown_job_is_a_problem_with_a_suggestion(workflows: Workflows) -> None:
    await apply(workflows, job("build", "make"), JOB)
    with pytest.raises(InvalidDefinitionError) as caught:
        await apply(workflows, workflow("one", a={"job": "biuld"}))
    (problem,) = caught.value.problems
    assert problem.path == "steps.a.job"
    assert '"biuld"' in problem.message
    assert '"build"' in problem.message


async def test_names_are_shared_and_kinds_are_kept_apart(workflows: Workflows) -> None:
    await apply(workflows, job("same"), JOB)
    await apply(workflows, workflow("flow", a={"run": "true"}))
    with pytest.raises(WorkflowExistsError) as taken:
        await apply(workflows, workflow("same", a={"run": "true"}))
    assert taken.value.kind is JOB
    with pytest.raises(WorkflowExistsError) as taken:
        await apply(workflows, job("flow"), JOB)
    assert taken.value.kind is DefinitionKind.WORKFLOW
    for missing in (
        workflows.get("same"),
        workflows.update("same", workflow("same", a={"run": "true"}), "", "", None),
        workflows.delete("same", ""),
        workflows.set_enabled("same", False),
    ):
        with pytest.raises(WorkflowNotFoundError):
            await missing
    for missing_job in (
        workflows.get("flow", kind=JOB),
        workflows.update("flow", job("flow"), "", "", None, kind=JOB),
        workflows.delete("flow", "", kind=JOB),
    ):
        with pytest.raises(JobNotFoundError):
            await missing_job


async def test_a_text_of_the_other_kind_or_name_is_refused(workflows: Workflows) -> None:
    await apply(workflows, job("build"), JOB)
    for text in (workflow("build", a={"run": "true"}), job("other")):
        with pytest.raises(InvalidDefinitionError):
            await workflows.update("build", text, "", "", None, kind=JOB)
    with pytest.raises(InvalidDefinitionError, match="1 problem"):
        await apply(workflows, job("other"))


async def test_a_job_in_use_is_not_deleted(workflows: Workflows) -> None:
    await apply(workflows, job("build"), JOB)
    await apply(workflows, workflow("one", a={"job": "build"}))
    with pytest.raises(JobInUseError) as caught:
        await workflows.delete("build", "", kind=JOB)
    assert caught.value.args[0] == ("one",)
    await workflows.update("one", workflow("one", a={"run": "true"}), "", "", None)
    await workflows.delete("build", "", kind=JOB)


async def test_an_old_version_comes_back_with_the_jobs_of_today(workflows: Workflows) -> None:
    await apply(workflows, job("build", "make"), JOB)
    first = workflow("one", a={"job": "build"})
    await workflows.create(first, "/srv", None)
    await workflows.update("one", workflow("one", a={"run": "true"}), "", "", None)
    await workflows.update("build", job("build", "make all"), "", "", None, kind=JOB)
    restored = await workflows.restore("one", 1, "", None)
    assert (restored.changed, restored.stored.version) == (True, 3)
    assert restored.stored.definition is not None
    assert (restored.stored.definition.source, restored.stored.definition.base_dir) == (
        first,
        "/srv",
    )
    assert (await step_of(workflows, "one", "a"))["target"] == "make all"
    assert not (await workflows.restore("one", 3, "", None)).changed


async def test_a_job_is_restored_with_its_users(workflows: Workflows) -> None:
    await apply(workflows, job("build", "make"), JOB)
    await workflows.update("build", job("build", "make all"), "", "", None, kind=JOB)
    await apply(workflows, workflow("one", a={"job": "build"}))
    restored = await workflows.restore("build", 1, "", None)
    assert (restored.stored.version, restored.users) == (3, ["one"])
    assert (await step_of(workflows, "one", "a"))["target"] == "make"


async def test_what_cannot_be_restored(workflows: Workflows) -> None:
    await apply(workflows, workflow("one", a={"run": "true"}))
    with pytest.raises(VersionNotFoundError):
        await workflows.restore("one", 2, "", None)
    with pytest.raises(WorkflowNotFoundError):
        await workflows.restore("none", 1, "", None)


def child(name: str) -> dict[str, str]:
    return {"job_type": "workflow", "target": name}


async def test_a_workflow_that_leads_back_to_itself_is_refused(workflows: Workflows) -> None:
    await apply(workflows, workflow("a", s={"run": "true"}))
    await apply(workflows, workflow("b", s=child("a")))
    await apply(workflows, workflow("c", s={"run": "true"}, t=child("b")))
    with pytest.raises(WorkflowRecursionError) as caught:
        await workflows.update("a", workflow("a", s=child("c")), "", "", None)
    assert caught.value.path == ("a", "c", "b", "a")
    assert (await workflows.get("a")).version == 1
    problems = await workflows.validate(workflow("a", s=child("c")))
    assert [(problem.path, problem.warning) for problem in problems] == [("steps", False)]


async def test_a_child_may_come_later(workflows: Workflows) -> None:
    text = workflow("parent", s=child("later"))
    _, warnings = await workflows.create(text, "", None)
    assert [(each.path, each.warning) for each in warnings] == [("steps.s", True)]
    await apply(workflows, workflow("later", s={"run": "true"}))
    assert list(await workflows.validate(text)) == []
    with pytest.raises(WorkflowRecursionError):
        await workflows.update("later", workflow("later", s=child("parent")), "", "", None)


async def test_a_job_cannot_lead_its_users_in_a_circle(workflows: Workflows) -> None:
    await apply(workflows, job("call", "true"), JOB)
    await apply(workflows, workflow("inner", s={"job": "call"}))
    await apply(workflows, workflow("outer", s=child("inner")))
    text = json.dumps({"jobs": {"call": child("outer")}})
    with pytest.raises(WorkflowRecursionError) as caught:
        await workflows.update("call", text, "", "", None, kind=JOB)
    assert caught.value.path == ("inner", "outer", "inner")
