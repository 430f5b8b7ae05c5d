"""Which definitions an author may store: within its limits, before and after, and granting no more than it has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from doubles.store import NOW, define
from toband.domain.authority import Authority, visible_with
from toband.domain.identity import Narrowing, Role
from toband.engine.access import call_scope
from toband.engine.definitions.applier import Applier
from toband.engine.definitions.catalog import DefinitionText, Workflows
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.errors import InvalidDefinitionError, NotPermittedError, PermissionReason
from toband.store import SqlStore


def workflow(name: str, *, labels: str = "", grants: str = "", step: str = "run: 'true'") -> str:
    extra = f"grants: {grants}\n" if grants else ""
    return f"name: {name}\ndescription: d\nlabels: {{{labels}}}\n{extra}steps: {{only: {{{step}}}}}\n"


def job(name: str, run: str = "true") -> str:
    return f"jobs: {{{name}: {{run: '{run}'}}}}\n"


@pytest.fixture
def catalog(store: SqlStore) -> Workflows:
    return Workflows(Applier(store=store, clock=Clock(NOW), parser=DefinitionParser(InlineSandbox())))


@pytest.fixture(autouse=True)
def no_scope() -> Iterator[None]:
    yield
    call_scope._AUTHORITIES.set(None)
    call_scope._VISIBLE.set(None)


def author(role: Role = Role.EDITOR, *names: str, **labels: str) -> None:
    """From now on the author has this authority."""
    narrowing = Narrowing(workflows=names, labels=tuple(labels.items())) if names or labels else None
    own = [Authority(role=role, narrowing=narrowing)]
    call_scope.enter_scope(own, visible_with(own))


async def refusal(call: Callable[[], Awaitable[Any]]) -> tuple[PermissionReason, str]:
    with pytest.raises(NotPermittedError) as caught:
        await call()
    return caught.value.reason, str(caught.value)


def apply(catalog: Workflows, *sources: str, **options: Any) -> Callable[[], Awaitable[Any]]:
    texts = [DefinitionText(file=f"f{number}", source=each, base_dir="") for number, each in enumerate(sources)]
    return lambda: catalog.apply(texts, **options)


async def test_names(catalog: Workflows, store: SqlStore) -> None:
    author(Role.EDITOR, "mine-*")
    await apply(catalog, workflow("mine-a"), job("mine-job"))()
    for call in (
        apply(catalog, workflow("mine-a"), workflow("other")),
        apply(catalog, workflow("other"), validate_only=True),
        lambda: catalog.create(workflow("other"), "", None),
        lambda: catalog.validate(workflow("other")),
    ):
        reason, text = await refusal(call)
        assert reason is PermissionReason.WORKFLOW
        assert text == "'other' is not among the workflows that the caller is limited to: mine-*"
    assert await store.get_workflow("other") is None


async def test_labels_before_and_after(catalog: Workflows, store: SqlStore) -> None:
    await define(store, workflow("foreign", labels="team: dev"))
    author(Role.EDITOR, team="ops")
    await apply(catalog, workflow("a", labels="team: ops"))()
    into, out = workflow("foreign", labels="team: ops"), workflow("a", labels="team: dev")
    for source, name in ((into, "foreign"), (out, "a"), (workflow("new"), "new")):
        reason, text = await refusal(apply(catalog, source, force=True))
        assert (reason, text.split()[0]) == (PermissionReason.WORKFLOW, f"'{name}'")
    await catalog.update("a", workflow("a", labels="team: ops, more: x"), "", "", None)


async def test_a_change_by_another_meanwhile_is_checked_too(catalog: Workflows, store: SqlStore) -> None:
    await define(store, workflow("a", labels="team: ops"))
    author(Role.EDITOR, team="ops")
    put, changes = store.put_definitions, [workflow("a", labels="team: dev")]

    async def put_later(*args: Any, **kwargs: Any) -> Any:
        if changes:
            scope = call_scope.authorities(), call_scope.visible()
            call_scope.enter_scope([Authority(role=Role.ADMIN)], None)
            await catalog.update("a", changes.pop(), "", "", None)
            call_scope.enter_scope(scope[0] or (), scope[1])
        return await put(*args, **kwargs)

    store.put_definitions = put_later  # type: ignore[method-assign]
    reason, _ = await refusal(apply(catalog, workflow("a", labels="team: ops", step="run: 'false'")))
    assert reason is PermissionReason.WORKFLOW


async def test_jobs_and_children_that_a_definition_uses(catalog: Workflows, store: SqlStore) -> None:
    await define(store, workflow("other"))
    await apply(catalog, job("foreign-job"))()
    author(Role.EDITOR, "mine*")
    _, text = await refusal(apply(catalog, workflow("mine", step="job: foreign-job")))
    assert text.startswith("the definition uses 'foreign-job', which is not among ")
    for name in ("other", "absent"):
        _, text = await refusal(apply(catalog, workflow("mine", step=f"job_type: workflow, target: {name}")))
        assert text.startswith(f"the definition starts '{name}', which is not among ")
    await apply(catalog, job("mine-job"), workflow("mine", step="job: mine-job"))()
    with pytest.raises(InvalidDefinitionError) as caught:
        await apply(catalog, workflow("mine", step="job: mine-jo"))()
    assert "foreign" not in str(caught.value.problems)


async def test_a_job_that_a_foreign_workflow_uses(catalog: Workflows) -> None:
    await apply(catalog, job("mine-job"), workflow("other", step="job: mine-job"))()
    author(Role.EDITOR, "mine*")
    await apply(catalog, job("mine-job"))()
    reason, text = await refusal(apply(catalog, job("mine-job", "false")))
    assert reason is PermissionReason.WORKFLOW
    assert "other" not in text


async def test_grants_are_no_more_than_the_author_has(catalog: Workflows, store: SqlStore) -> None:
    admin = workflow("w", grants="[{role: admin}]")
    author(Role.EDITOR)
    reason, text = await refusal(apply(catalog, admin))
    assert reason is PermissionReason.ROLE
    assert text == (
        "'w' grants its steps admin of all workflows, and its author has only editor of all workflows: an author can "
        "grant no more than that"
    )
    await apply(catalog, workflow("w", grants="[{role: editor}, {role: operator, workflows: ['x-*']}]"))()
    await catalog.validate(admin)
    author(Role.EDITOR, "w", "x-*")
    reason, _ = await refusal(apply(catalog, workflow("w", grants="[{role: operator}]")))
    assert reason is PermissionReason.WORKFLOW
    await apply(catalog, workflow("w", grants="[{role: operator, workflows: ['x-1', 'x-y*']}]"))()
    author(Role.ADMIN)
    await apply(catalog, admin)()
    await apply(catalog, workflow("w", step="run: 'false'"))()
    author(Role.EDITOR)
    assert (await refusal(lambda: catalog.restore("w", 3, "", None)))[0] is PermissionReason.ROLE
    author(Role.ADMIN)
    await catalog.restore("w", 3, "", None)
    author(Role.EDITOR)
    await apply(catalog, admin, workflow("beside"))()
    for call in (
        apply(catalog, workflow("w", grants="[{role: admin}]", step="run: 'false'")),
        lambda: catalog.update("w", workflow("w", grants="[{role: admin}]", step="run: 'false'"), "", "", None),
        lambda: catalog.create(workflow("w2", grants="[{role: admin}]"), "", None),
    ):
        assert (await refusal(call))[0] is PermissionReason.ROLE


async def test_a_job_of_a_workflow_with_grants(catalog: Workflows) -> None:
    await apply(catalog, job("j"), workflow("w", grants="[{role: admin}]", step="job: j"))()
    author(Role.EDITOR)
    assert (await refusal(apply(catalog, job("j", "id"))))[0] is PermissionReason.ROLE


async def limits(store: SqlStore, name: str) -> object:
    stored = await store.get_workflow(name)
    assert stored is not None
    assert stored.definition is not None
    return stored.definition.parsed.get("author_limits")


async def test_the_limits_of_the_author_are_those_of_the_steps(catalog: Workflows, store: SqlStore) -> None:
    await apply(catalog, job("mine-job"), workflow("mine-free", step="job: mine-job"))()
    author(Role.EDITOR, "mine*")
    await apply(catalog, workflow("mine-a"), workflow("mine-b", step="job: mine-job"))()
    mine = [{"workflows": ["mine*"], "labels": {}}]
    assert await limits(store, "mine-a") == mine
    assert await limits(store, "mine-free") is None
    await apply(catalog, job("mine-job", "id"))()
    assert await limits(store, "mine-free") == mine
    author(Role.EDITOR, "mine-*")
    await apply(catalog, job("mine-job", "id -u"))()
    assert await limits(store, "mine-b") == [{"workflows": [], "labels": {}}], "what both may see is not known"
    author(Role.ADMIN)
    await apply(catalog, job("mine-job", "id -g"))()
    assert await limits(store, "mine-b") == [{"workflows": [], "labels": {}}]
    await apply(catalog, workflow("mine-a"), workflow("mine-b"))()
    assert (await limits(store, "mine-a"), await limits(store, "mine-b")) == (None, None)


async def test_the_name_of_a_deleted_definition_stays_with_its_labels(catalog: Workflows, store: SqlStore) -> None:
    author()
    await apply(catalog, workflow("gone", labels="team: other"), workflow("own", labels="team: mine"))()
    for name in ("gone", "own"):
        await catalog.delete(name, "", force=True)
    author(Role.EDITOR, team="mine")
    for source in (workflow("gone", labels="team: mine"), job("gone")):
        reason, text = await refusal(apply(catalog, source))
        assert (reason, text.partition(" which")[0]) == (
            PermissionReason.WORKFLOW,
            "'gone' is not among the workflows that the caller is limited to: those with team=mine",
        )
    await apply(catalog, workflow("own", labels="team: mine"), workflow("new", labels="team: mine"))()
    author(Role.EDITOR, "go*", team="mine")
    await apply(catalog, workflow("gone"))()
