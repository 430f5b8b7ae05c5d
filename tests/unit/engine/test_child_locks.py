"""The order of locks in workflows that start each other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from toban.definition import JobType, Step, Workflow
from toban.definition.model.lock_order import LockConflict, lock_conflict
from toband.engine.execution.child_locks import ChildLocks


class NothingStored:
    async def get_workflow(self, name: str) -> None:
        return None


def workflow(name: str, locks: str = "", **steps: str) -> Workflow:
    """Each step is `LOCKS`, or `LOCKS>CHILD`; a lock is one letter."""
    made = {}
    for step, what in steps.items():
        own, _, child = what.partition(">")
        kind = JobType.WORKFLOW if child else JobType.SHELL
        made[step] = Step(
            id=step, name=step, job_type=kind, target=child or "true", kwargs={}, env={}, locks=tuple(own)
        )
    return Workflow(name=name, title=name, labels={}, params={}, env={}, locks=tuple(locks), steps=made)


MIDDLE = workflow("middle", "", call=">child")


def locks_of(*workflows: Workflow, active: tuple[Workflow, ...] = ()) -> ChildLocks:
    def active_of(name: str) -> list[Workflow]:
        return [each for each in active if each.name == name]

    return ChildLocks(cast(Any, NothingStored()), {each.name: each.to_dict() for each in workflows}, active_of)


@pytest.mark.parametrize(
    ("held", "wanted", "conflict"),
    [
        ("", "ab", None),
        ("a", "b", None),
        ("a", "ab", None),
        ("b", "a", LockConflict(wanted="a", held="b")),
        ("ac", "abd", LockConflict(wanted="b", held="c")),
    ],
)
def test_a_holder_only_waits_for_later_locks(held: str, wanted: str, conflict: LockConflict | None) -> None:
    assert lock_conflict(held, wanted) == conflict


@pytest.mark.parametrize(
    "workflows",
    [
        pytest.param([workflow("top", "a", call=">child"), workflow("child", "a", own="")], id="same lock"),
        pytest.param([workflow("top", "a", call=">child"), workflow("child", "ab", own="a")], id="it and a later one"),
        pytest.param([workflow("top", "a", call=">child"), workflow("child", "", own="b")], id="a later one in a step"),
        pytest.param([workflow("top", "", call=">child"), workflow("child", "", own="a")], id="nothing is held"),
        pytest.param([workflow("top", "", call="b>child"), workflow("child", "a", own="b")], id="taken together"),
        pytest.param([workflow("top", "b", call=">gone")], id="no such child"),
        pytest.param(
            [
                workflow("top", "a", call=">middle"),
                workflow("middle", "b", call=">child"),
                workflow("child", "b", own="c"),
            ],
            id="three levels",
        ),
    ],
)
async def test_what_keeps_the_order_has_no_problem(workflows: list[Workflow]) -> None:
    assert await locks_of(*workflows).problem("top") is None


@pytest.mark.parametrize(
    ("workflows", "text"),
    [
        pytest.param(
            [workflow("top", "b", call=">child"), workflow("child", "a", own="")],
            'add "a" to the locks of the workflow that holds "b"',
            id="an earlier one of the child",
        ),
        pytest.param(
            [workflow("top", "b", call="a>child"), workflow("child", "", own="")],
            'add "a" to the locks of the workflow that holds "b"',
            id="an earlier one of the step",
        ),
        pytest.param(
            [workflow("top", "b", call=">child"), workflow("child", "", own="a")],
            'add "a" to the locks of workflow "child"',
            id="an earlier one inside",
        ),
        pytest.param(
            [workflow("top", "a", call=">child"), workflow("child", "", own="a")],
            'add "a" to the locks of workflow "child"',
            id="the same inside",
        ),
        pytest.param(
            [
                workflow("top", "a", call=">middle"),
                workflow("middle", "", call=">child"),
                workflow("child", "a", own=""),
            ],
            'add "a" to the locks of workflow "middle"',
            id="the same further down",
        ),
        pytest.param(
            [
                workflow("top", "", call="c>middle"),
                workflow("middle", "", call=">child"),
                workflow("child", "", own="b"),
            ],
            'add "b" to the locks of workflow "child"',
            id="held by the step",
        ),
    ],
)
async def test_what_could_deadlock_is_found_with_what_to_write(workflows: list[Workflow], text: str) -> None:
    found = await locks_of(*workflows).problem("top")
    assert found is not None
    assert found.step == "call"
    assert text in found.text


async def test_an_active_run_of_an_older_version_counts_too() -> None:
    top = workflow("top", "a", call=">child")
    old, new = workflow("child", "", own="a"), workflow("child", "a", own="")
    assert not await locks_of(top, new).problem_below(top, top.steps["call"], "a")
    found = await locks_of(top, new, active=(old,)).problem_below(top, top.steps["call"], "a")
    assert 'another run of that may wait for lock "a"' in found
