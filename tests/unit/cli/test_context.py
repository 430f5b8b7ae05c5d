from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.sdk.address import parse

from .conftest import Cli


def test_from_the_first_to_the_last(bare: Cli) -> None:
    assert bare("context", "list").err == "no contexts\n"
    assert bare("context", "add", "prod", "--server", "127.0.0.1:7700").out == "added prod\n"
    assert bare("context", "add", "dev", "--server", "unix:///tmp/dev.sock", "--use").out == "added dev\n"
    socket = parse("unix:///tmp/dev.sock").text
    assert bare("context", "list").out.splitlines() == [
        "   NAME  SERVER",
        "   prod  127.0.0.1:7700",
        f"*  dev   {socket}",
    ]
    assert bare("context", "list", "-o", "name").out == "prod\ndev\n"
    assert bare("context", "use", "prod").out == "using prod\n"
    prod = {"name": "prod", "server": "127.0.0.1:7700", "current": True}
    assert bare("context", "show", "-o", "json").data == prod
    assert bare("context", "list", "-o", "json").data[0] == prod
    assert bare("context", "rename", "prod", "production").out == "renamed production\n"
    assert bare("context", "show").out.splitlines()[:3] == [
        "Name:    production",
        "Server:  127.0.0.1:7700",
        "Current: yes",
    ]
    removed = bare("context", "remove", "production")
    assert (removed.out, removed.err) == ("removed production\n", "no context is current now\n")
    assert bare("context", "use", "dev", "-o", "name").out == "dev\n"
    assert bare("context", "use", "--none").out == "using no context\n"
    none = bare("context", "show")
    assert (none.code, none.err.splitlines()[0]) == (5, "toban: cannot show the context: none is in use")


def test_a_context_leads_to_its_daemon(bare: Cli, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.add_workflow("nightly")
    bare("context", "add", "fake", "--server", daemon.address)
    assert bare("--context", "fake", "workflows", "list", "-o", "name").out == "nightly\n"
    assert bare("workflows", "list", "--context", "fake", "-o", "name").out == "nightly\n"
    bare("context", "use", "fake")
    assert bare("workflows", "list", "-o", "name").out == "nightly\n"
    monkeypatch.setenv("TOBAN_SERVER", "127.0.0.1:1")
    assert bare("workflows", "list").code == 3
    for option in (("--context", "fake"), ("--server", daemon.address)):
        for arguments in ((*option, "workflows", "list"), ("workflows", "list", *option)):
            result = bare(*arguments, "-o", "name")
            assert (result.out, result.err) == ("nightly\n", "")
    assert bare("context", "use", "fake").err == "toban: warning: this has no effect here until TOBAN_SERVER is unset\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["context", "use", "prd"], 5, "cannot use context prd: no context 'prd' in "),
        (["context", "use", "prd"], 5, "(did you mean prod?)"),
        (["--context", "prd", "runs", "list"], 5, "(did you mean prod?)"),
        (["context", "remove", "x"], 5, "cannot remove context x: no context 'x'"),
        (["context", "use"], 2, "give either a NAME or --none"),
        (["context", "use", "prod", "--none"], 2, "give either a NAME or --none"),
        (["context", "add", "x"], 2, "--server is missing"),
        (["context", "add", "a b", "--server", "127.0.0.1:1"], 2, "cannot name a context 'a b'"),
        (["context", "add", "x", "--server", "nowhere"], 2, "expected unix:///path or host:port"),
        (["context", "add", "prod", "--server", "127.0.0.1:1"], 6, "the context prod exists already"),
    ],
)
def test_mistakes(bare: Cli, arguments: list[str], code: int, message: str) -> None:
    bare("context", "add", "prod", "--server", "127.0.0.1:7700")
    result = bare(*arguments)
    assert result.code == code
    assert message in result.err
    assert bare("context", "list", "-o", "name").out == "prod\n"


def test_an_address_is_changed_only_when_asked(bare: Cli) -> None:
    bare("context", "add", "prod", "--server", "127.0.0.1:1")
    assert bare("context", "add", "prod", "--server", "127.0.0.1:2", "--replace").out == "changed prod\n"
    assert bare("context", "show", "prod", "-o", "json").data["server"] == "127.0.0.1:2"
