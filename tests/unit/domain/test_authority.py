"""What an identity may do, and whether that includes what it grants."""

from __future__ import annotations

import random
from fnmatch import fnmatchcase

import pytest

from toban.definition import Grant, GrantRole
from toband.domain.authority import Authority, authority_of, described, granted, visible_with
from toband.domain.identity import Narrowing, Role, token_identity, user_identity

NIGHTLY = Narrowing(workflows=("nightly-*", "deploy"))
OPS = Narrowing(labels=(("team", "ops"),))


def of(role: Role, *workflows: str, **labels: str) -> Authority:
    narrowing = Narrowing(workflows=workflows, labels=tuple(labels.items())) if workflows or labels else None
    return Authority(role=role, narrowing=narrowing)


@pytest.mark.parametrize(
    ("own", "other", "included"),
    [
        (of(Role.ADMIN), of(Role.ADMIN), True),
        (of(Role.EDITOR), of(Role.ADMIN), False),
        (of(Role.EDITOR), of(Role.OPERATOR, "deploy-*"), True),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR), False),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR, "deploy-*"), True),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR, "deploy-web-*"), True),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR, "deploy-web"), True),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR, "deploy-web", "other"), False),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR, "*"), False),
        (of(Role.EDITOR, "deploy-web-*"), of(Role.OPERATOR, "deploy-*"), False),
        (of(Role.EDITOR, "deploy-*"), of(Role.OPERATOR, "deploy-web", team="ops"), False),
        (of(Role.EDITOR, team="ops"), of(Role.OPERATOR, team="ops", tier="1"), True),
        (of(Role.EDITOR, team="ops", tier="1"), of(Role.OPERATOR, team="ops"), False),
        (of(Role.EDITOR, team="ops"), of(Role.OPERATOR, team="dev"), False),
        (of(Role.EDITOR, "a", team="ops"), of(Role.VIEWER, "a", team="ops"), True),
    ],
)
def test_what_includes_what(own: Authority, other: Authority, included: bool) -> None:
    assert own.includes(other) is included


def test_nothing_that_is_included_is_outside() -> None:
    choice = random.Random(3).choice
    names = ["a", "ab", "abc", "b", "ba-c", "c-ab", "b-"]
    for _ in range(3000):
        own, other = ("".join(choice("abc*?-[]") for _ in range(choice((1, 2, 3)))) for _ in range(2))
        if of(Role.EDITOR, own).includes(of(Role.EDITOR, other)):
            assert all(fnmatchcase(name, own) for name in names if fnmatchcase(name, other)), (own, other)


def test_where_authority_comes_from() -> None:
    token = token_identity("id", "ci", Role.OPERATOR, NIGHTLY, None)
    assert list(authority_of(token)) == [Authority(role=Role.OPERATOR, narrowing=NIGHTLY)]
    assert list(authority_of(user_identity(7, "x", None))) == []
    grants = [Grant(role=GrantRole.OPERATOR, workflows=("a",), labels={"k": "v"}), Grant(role=GrantRole.VIEWER)]
    assert granted(grants) == [of(Role.OPERATOR, "a", k="v"), of(Role.VIEWER)]


def test_what_is_visible() -> None:
    assert visible_with([]) == ()
    assert visible_with([of(Role.VIEWER, "a"), of(Role.ADMIN)]) is None
    assert visible_with([of(Role.VIEWER, "a"), of(Role.ADMIN, "b")]) == (
        Narrowing(workflows=("a",)),
        Narrowing(workflows=("b",)),
    )
    assert described(None) == "all workflows"
    assert described(NIGHTLY) == "nightly-*, deploy"
    assert described(OPS) == "those with team=ops"
