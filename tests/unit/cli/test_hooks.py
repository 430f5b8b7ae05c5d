"""Hooks on the command line."""

from __future__ import annotations

from doubles.daemon.fake_daemon import FakeDaemon
from doubles.daemon.fake_hooks import SECRET
from toban.v1 import hook_pb2

from .conftest import Cli


def test_a_hook_is_created_with_its_secret_shown_once(cli: Cli, daemon: FakeDaemon) -> None:
    made = cli("hooks", "create", "deploy", "-w", "deploy", "-p", "ref=body.ref", "--if", "body.ref=refs/heads/main")
    assert (made.code, made.out) == (0, f"{SECRET}\n")
    hook = daemon.hooks["deploy"]
    assert (hook.workflow, hook.form, dict(hook.params), list(hook.conditions)) == (
        "deploy",
        hook_pb2.HOOK_FORM_GITHUB,
        {"ref": "body.ref"},
        ["body.ref=refs/heads/main"],
    )
    assert made.err.endswith("for POST /hooks/deploy of `toban web`; its secret is not shown again\n")
    again = cli("hooks", "create", "deploy", "--event", "X")
    assert (again.code, again.err) == (6, "toban: cannot create hook deploy: hook 'deploy' already exists\n")
    stored = cli("hooks", "create", "stored", "--event", "PAID", "--form", "hmac", "--secret", "key", "-o", "json").data
    assert (stored["hook"]["form"], stored["hook"]["secret"], stored["secret_value"]) == ("hmac", "key", "")
    shown = cli("hooks", "show", "deploy").out.splitlines()
    assert shown[:3] == ["hook:      deploy", "path:      /hooks/deploy", "workflow:  deploy"]
    assert "if:        body.ref=refs/heads/main" in shown
    assert [line.split()[:5] for line in cli("hooks", "list").out.splitlines()[1:]] == [
        ["deploy", "deploy", "HOOK_DELIVERED", "github", "its"],
        ["stored", "-", "PAID", "hmac", "key"],
    ]
    deleted = cli("hooks", "delete", "deploy", "absent")
    assert (deleted.code, deleted.out) == (5, "deleted deploy\n")
    assert list(daemon.hooks) == ["stored"]


def test_what_is_wrong_is_said_before_the_call(cli: Cli, daemon: FakeDaemon) -> None:
    for arguments in (("--workflow", "w", "--event", "E"), ()):
        both = cli("hooks", "create", "x", *arguments)
        assert (both.code, both.err) == (2, "toban: cannot create hook x: give either --workflow or --event\n")
    wrong = cli("hooks", "create", "x", "-w", "w", "-p", "ref")
    assert wrong.err == "toban: cannot create hook x: the parameter 'ref' is not NAME=PATH\n"
    assert daemon.hooks == {}
