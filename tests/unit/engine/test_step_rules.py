"""What the configuration lets definitions choose for their steps."""

from __future__ import annotations

import os
import sys

import pytest

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from toban.definition import Workflow, parse
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.resolver import Resolver
from toband.engine.execution.step_rules import NO_RULES, StepRules
from toband.store import SqlStore

OWN = frozenset({"toban", "999"})
TEXT = """\
name: w
description: d
env: {{A: b}}
steps:
  - name: build
    run: x
    {field}
"""


def workflow(field: str) -> Workflow:
    found = parse(TEXT.format(field=field)).documents[0].workflow
    assert found is not None
    return found


def problems(rules: StepRules, field: str, base_dir: str = "") -> list[tuple[str, str]]:
    return list(rules.problems(workflow(field), base_dir))


def test_without_rules_everything_is_allowed() -> None:
    for field in ("user: root", "shell: /bin/zsh", "workspace: /srv", "env: {LD_PRELOAD: x}"):
        assert problems(NO_RULES, field) == []


@pytest.mark.parametrize(
    ("rules", "user", "allowed"),
    [
        (StepRules(step_user="steps", own_users=OWN), "steps", True),
        (StepRules(step_user="steps", own_users=OWN), "other", False),
        (StepRules(step_user="steps", own_users=OWN), "toban", False),
        (StepRules(step_user="steps", own_users=OWN), "root", False),
        (StepRules(step_user="steps", own_users=OWN, users=("www-*",)), "www-7", True),
        (StepRules(step_user="steps", own_users=OWN, users=("www-*",)), "steps", True),
        (StepRules(step_user="steps", own_users=OWN, users=("*",)), "anybody", True),
        (StepRules(step_user="steps", own_users=OWN, users=("*",)), "toban", False),
        (StepRules(step_user="steps", own_users=OWN, users=("toban",)), "999", False),
        (StepRules(users=("*",)), "root", False),
        (StepRules(users=("*",)), "0", False),
        (StepRules(users=("r*",)), "root", False),
        (StepRules(users=("root",)), "root", True),
        (StepRules(users=("ada",)), "bob", False),
        (StepRules(own_users=OWN), "toban", True),
    ],
)
def test_users(rules: StepRules, user: str, allowed: bool) -> None:
    found = problems(rules, f"user: {user}")
    assert [path for path, _ in found] == ([] if allowed else ["steps.build.user"])
    refused = rules.launch_refusal(workflow(f"user: {user}").steps["build"], {}, True, "")
    assert bool(refused) is not allowed


@pytest.mark.skipif(sys.platform == "win32", reason="numbers are those of POSIX users")
def test_a_number_is_the_same_user() -> None:
    assert problems(StepRules(users=("root",)), "user: 0") == []
    assert problems(StepRules(users=("0",)), "user: root") == []


def test_shells() -> None:
    rules = StepRules(shells=("bash", "/opt/*"))
    assert problems(rules, "shell: bash") == problems(rules, "shell: /opt/zsh") == problems(rules, "timeout: 1m") == []
    ((path, message),) = problems(rules, "shell: /bin/zsh")
    assert path == "steps.build.shell"
    assert message == (
        "the shell /bin/zsh is not allowed; an administrator can add it to `steps.shells` in the daemon's configuration"
    )


@pytest.mark.parametrize(
    ("field", "base", "allowed"),
    [
        ("workspace: /srv/app", "", True),
        ("workspace: /srv/app/../../etc", "", False),
        ("workspace: /etc", "", False),
        ("workspace: inner", "", True),
        ("workspace: inner", "/srv/app", True),
        ("workspace: inner", "/home/ada", False),
        ("timeout: 1m", "/home/ada", False),
        ("timeout: 1m", "", True),
        ("workspace: '{{ run.dir }}'", "/home/ada", True),
    ],
)
def test_workspaces(field: str, base: str, allowed: bool) -> None:
    rules = StepRules(workspaces=("/srv/*",))
    found = problems(rules, field, base)
    assert [path for path, _ in found] == ([] if allowed else ["steps.build.workspace"])


def test_a_workspace_is_checked_again_when_it_is_known() -> None:
    rules, step = StepRules(workspaces=("/srv/*",)), workflow("timeout: 1m").steps["build"]
    assert rules.launch_refusal(step, {}, False, "/srv/a") == ""
    assert rules.launch_refusal(step, {}, True, "/var/lib/toban/runs/1/work") == ""
    assert "no step may work in /etc" in rules.launch_refusal(step, {}, False, "/etc")


def test_artifacts_are_not_kept_where_only_the_daemon_may_write() -> None:
    """Steps of another user could otherwise have the daemon write to directories of its own, or of root's."""
    separate = StepRules(step_user="steps", own_users=OWN)
    ((path, message),) = problems(separate, "timeout: 1m\ncontext_dir: /var/lib")
    assert path == "context_dir"
    assert "an administrator can add it to `steps.workspaces`" in message
    assert problems(separate, "timeout: 1m\ncontext_dir: artifacts") == []
    assert [path for path, _ in problems(separate, "timeout: 1m\ncontext_dir: artifacts", "/srv")][:1] == [
        "context_dir"
    ]
    listed = StepRules(step_user="steps", own_users=OWN, workspaces=("/srv/*",))
    assert problems(listed, "timeout: 1m\ncontext_dir: /srv/kept") == []
    assert [path for path, _ in problems(listed, "timeout: 1m\ncontext_dir: /var/lib")] == ["context_dir"]
    assert problems(NO_RULES, "timeout: 1m\ncontext_dir: /srv/kept") == []


def test_names_of_variables() -> None:
    rules = StepRules(environment_names=("A", "APP_*"), environment_denied=("APP_SECRET",))
    assert problems(rules, "env: {APP_X: 1}") == []
    assert [path for path, _ in problems(rules, "env: {APP_SECRET: 1, B: 2}")] == [
        "steps.build.env.APP_SECRET",
        "steps.build.env.B",
    ]
    denied = StepRules(environment_denied=("A",))
    ((path, message),) = problems(denied, "timeout: 1m")
    assert path == "env.A"
    assert "`steps.environment_denied`" in message
    assert "variable LD_X" in StepRules(environment_denied=("LD_*",)).launch_refusal(
        workflow("timeout: 1m").steps["build"], {"LD_X": "1"}, True, os.sep
    )


async def test_a_refused_definition_says_where(store: SqlStore) -> None:
    rules = StepRules(step_user="steps", own_users=OWN)
    parser = DefinitionParser(InlineSandbox())
    resolver = Resolver(store, Clock(), "UTC", parser, rules=rules)
    for text, line in ((TEXT.format(field="user: root"), 7), (TEXT.format(field="") + "defaults: {user: root}", 8)):
        (found,) = await resolver.resolve([await resolver.parse(text, "")])
        assert found.text is None
        (problem,) = found.problems
        assert (problem.path, problem.line) == ("steps.build.user", line)
        assert problem.message.startswith("steps may not run as root; an administrator can add it to `steps.users`")
    parser.close()
