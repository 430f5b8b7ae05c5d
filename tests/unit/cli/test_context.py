from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from doubles.daemon.fake_daemon import FakeDaemon
from toban.sdk.address import parse
from toban.sdk.contexts import contexts_file

from .conftest import Cli, OnTerminal


def test_from_the_first_to_the_last(bare: Cli) -> None:
    assert bare("context", "list").err == "no contexts\n"
    assert bare("context", "add", "prod", "--server", "127.0.0.1:7700").out == "added prod\n"
    assert bare("context", "add", "dev", "--server", "unix:///tmp/dev.sock", "--use").out == "added dev\n"
    socket = parse("unix:///tmp/dev.sock").text
    assert bare("context", "list").out.splitlines() == [
        f"   NAME  {'SERVER':{len(socket)}}  CREDENTIALS",
        "   prod  127.0.0.1:7700",
        f"*  dev   {socket}",
    ]
    assert bare("context", "list", "-o", "name").out == "prod\ndev\n"
    assert bare("context", "use", "prod").out == "using prod\n"
    prod = {"name": "prod", "server": "127.0.0.1:7700", "current": True, "credentials": []}
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
        (["context", "add", "x", "--server", "nowhere"], 2, "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
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


PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----\n"  # not a secret: no key
SECRET = "toban_0123456789abcdef_hidden"


def test_credentials_are_copied_and_never_shown(bare: Cli, tmp_path: Path) -> None:
    for name, content in (("ca", PEM), ("crt", PEM), ("key", KEY), ("token", SECRET)):
        (tmp_path / name).write_bytes(content.encode())
    files = [f"--{option}={tmp_path}/{name}" for option, name in (("ca", "ca"), ("token-file", "token"))]
    added = bare("context", "add", "prod", "--server", "tls://toban.example.org", *files, "--use")
    assert (added.out, added.err) == ("added prod\n", "")
    pair = [f"--certificate={tmp_path}/crt", f"--key={tmp_path}/key", "--token-file=-"]
    bare("context", "add", "ci", "--server", "tls://10.0.0.7:443", *pair, stdin=SECRET.encode() + b"\n")
    for name in ("ca", "crt", "key", "token"):
        (tmp_path / name).unlink()
    stored = json.loads(Path(contexts_file()).read_text())["contexts"]
    assert stored == {
        "prod": {"server": "tls://toban.example.org:7233", "ca": PEM, "token": SECRET},
        "ci": {"server": "tls://10.0.0.7:443", "certificate": PEM, "key": KEY, "token": SECRET},
    }
    shown = [bare("context", verb, *form) for verb in ("list", "show") for form in ((), ("-o", "json"), ("-v",))]
    assert all(each.code == 0 and "hidden" not in each.out + each.err for each in shown)
    assert shown[0].out.splitlines()[1:] == [
        "*  prod  tls://toban.example.org:7233  token, ca",
        "   ci    tls://10.0.0.7:443            token, certificate",
    ]
    assert shown[4].data["credentials"] == ["token", "ca"]
    assert "Credentials: token, ca" in shown[3].out
    gone = bare("context", "remove", "prod", "-o", "json")
    assert "hidden" not in gone.out
    assert gone.data["credentials"] == ["token", "ca"]


@pytest.mark.parametrize(
    ("options", "stdin", "message"),
    [
        (["tls://x", "--ca", "/nowhere"], b"", "cannot read the CA certificates in /nowhere: No such file"),
        (["tls://x", "--token-file", "-"], b"\n", "cannot use the token on standard input: it is empty"),
        (["tls://x", "--token-file", "-"], b"hidden hidden\n", "expected one line without blanks"),
        (["tls://x", "--key", "/dev/null"], b"", "its certificate is missing"),
        (["127.0.0.1:1", "--ca", "/dev/null"], b"", "certificates need an address of the form tls://HOST:PORT"),
        (["toban.example.org:1"], b"", "without TLS only a daemon on this machine may be reached; use tls://"),
    ],
)
def test_unusable_credentials_make_no_context(bare: Cli, options: list[str], stdin: bytes, message: str) -> None:
    result = bare("context", "add", "x", "--server", *options, stdin=stdin)
    assert result.code == 2
    assert result.err.startswith("toban: cannot ")
    assert message in result.err
    assert "hidden" not in result.err
    assert bare("context", "list").err == "no contexts\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_token_is_asked_for_on_a_terminal(bare: Cli, on_terminal: OnTerminal) -> None:
    terminal = on_terminal("context", "add", "prod", "--server", "tls://toban.example.org")
    terminal.wait_for("Token (empty for none): ")
    terminal.press(f"{SECRET}\n")
    assert terminal.end() == 0
    assert "hidden" not in terminal.text
    assert bare("context", "show", "prod", "-o", "json").data["credentials"] == ["token"]
