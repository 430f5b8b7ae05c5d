"""`grants` of a workflow, and roles as approvers."""

from __future__ import annotations

import pytest

from toban.definition import Grant, GrantRole, Workflow, parse

HEAD = "name: w\ndescription: d\n"
STEPS = "steps: {only: {run: 'true'}}\n"


def workflow(text: str) -> Workflow:
    parsed = parse(text)
    assert not parsed.errors, parsed.errors
    (document,) = parsed.documents
    assert document.workflow is not None
    return document.workflow


def test_grants_are_read_and_stored() -> None:
    text = "grants:\n- {role: operator, workflows: ['deploy-*', x], labels: {team: 7}}\n- {role: viewer}\n"
    found = workflow(HEAD + text + STEPS)
    assert found.grants == (
        Grant(role=GrantRole.OPERATOR, workflows=("deploy-*", "x"), labels={"team": "7"}),
        Grant(role=GrantRole.VIEWER),
    )
    assert Workflow.from_dict(found.to_dict()) == found
    assert workflow(HEAD + STEPS).grants == ()
    assert "grants" not in workflow(HEAD + STEPS).to_dict()


@pytest.mark.parametrize(
    ("grants", "path", "message"),
    [
        ("[{role: root}]", "grants[0].role", "viewer"),
        ("[{workflows: [a]}]", "grants[0]", "role"),
        ("[{role: viewer, workflows: []}]", "grants[0].workflows", ""),
        ("[{role: viewer, workflows: ['a b']}]", "grants[0].workflows[0]", "is not a name or a pattern"),
        ("[{role: viewer, workflow: a}]", "grants[0].workflow", "workflows"),
        ("{role: viewer}", "grants", "list"),
    ],
)
def test_wrong_grants(grants: str, path: str, message: str) -> None:
    (problem,) = parse(f"{HEAD}grants: {grants}\n{STEPS}").errors
    assert problem.path == path
    assert message in problem.message


def test_roles_as_approvers() -> None:
    gate = "steps: {gate: {job_type: approval, approvers: [aiko, 'role:ROLE']}}\n"
    assert workflow(HEAD + gate.replace("ROLE", "admin")).steps["gate"].approvers == ("aiko", "role:admin")
    (problem,) = parse(HEAD + gate.replace("ROLE", "boss")).errors
    assert problem.path == "steps.gate.approvers[1]"
    assert problem.message == 'unknown role "boss" (known: viewer, operator, editor, admin)'
