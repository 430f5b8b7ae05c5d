from __future__ import annotations

import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from toban.sdk import Client, Conflict, InvalidArgument, NotFound, contexts
from toban.sdk.contexts import changing, contexts_file, load
from toban.sdk.credentials import ClientCredentials
from toban.sdk.endpoint import resolve

PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path), "TOBAN_STATE_DIR": str(tmp_path)}


def add(environ: dict[str, str], name: str, server: str = "127.0.0.1:7700") -> None:
    with changing(environ) as known:
        known.add(name, server)


def test_each_source_of_an_address_wins_over_the_next(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "toban.sock").touch()
    assert resolve(environ=environ).address.path == str(tmp_path / "toban.sock")
    for number, name in enumerate(("current", "variable", "option"), 1):
        add(environ, name, f"127.0.0.1:{number}")
    assert resolve(environ=environ).address.path
    with changing(environ) as known:
        known.use("current")
    assert resolve(environ=environ).address.text == "127.0.0.1:1"
    environ["TOBAN_CONTEXT"] = "variable"
    assert resolve(environ=environ).address.text == "127.0.0.1:2"
    environ["TOBAN_SERVER"] = "127.0.0.1:4"
    assert resolve(environ=environ).address.text == "127.0.0.1:4"
    assert resolve(None, "option", environ).address.text == "127.0.0.1:3"
    assert resolve("127.0.0.1:5", "option", environ).address.text == "127.0.0.1:5"


def test_credentials_stay_with_their_daemon(environ: dict[str, str]) -> None:
    with changing(environ) as known:
        known.add("prod", "tls://prod:1", {"ca": PEM, "token": "of-prod"})
        known.add("bare", "tls://bare:1")
        known.use("prod")
    environ |= {"TOBAN_TOKEN": "of-environment"}
    own = ClientCredentials(ca=PEM.encode(), token="of-prod")
    assert resolve(environ=environ).credentials == resolve(None, "prod", environ).credentials == own
    assert resolve(environ=environ).tls.ca == PEM.encode()
    # A context gets nothing from the environment, and another address nothing from the context.
    assert resolve(None, "bare", environ).credentials == ClientCredentials()
    assert resolve("tls://other:1", None, environ).credentials == ClientCredentials(token="of-environment")
    assert resolve(environ=environ | {"TOBAN_SERVER": "tls://other:1"}).credentials.token == "of-environment"
    # Options win, one by one.
    given = resolve(None, "prod", environ, given=ClientCredentials(token_file="mine")).credentials
    assert given == ClientCredentials(ca=PEM.encode(), token_file="mine")
    # A changed token keeps the CA; another server gets neither.
    with changing(environ) as known:
        known.replace("prod", "tls://prod:1", {"token": "newer"})
    assert resolve(environ=environ).credentials == ClientCredentials(ca=PEM.encode(), token="newer")
    with changing(environ) as known:
        known.replace("prod", "tls://elsewhere:1")
    assert resolve(environ=environ).credentials == ClientCredentials()


async def test_a_client_uses_a_context_by_name(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_SERVER", raising=False)
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    add(environ, "prod")
    async with Client(context="prod") as client:
        assert client.address.text == "127.0.0.1:7700"
    with pytest.raises(NotFound, match=r"no context 'prd' in .* \(did you mean prod\?\)"):
        Client(context="prd")


@pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing")
def test_the_file_is_private(environ: dict[str, str]) -> None:
    add(environ, "prod")
    path = contexts_file(environ)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    os.chmod(path, 0o644)
    add(environ, "other")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="directories of XDG")
def test_a_relative_config_home_is_ignored() -> None:
    home = os.path.expanduser("~")
    assert contexts_file({"XDG_CONFIG_HOME": "here"}) == f"{home}/.config/toban/contexts.json"


def test_what_a_newer_version_wrote_stays(environ: dict[str, str]) -> None:
    path = Path(contexts_file(environ))
    path.parent.mkdir()
    path.write_text('{"newer": 1, "contexts": {"prod": {"server": "127.0.0.1:1", "ca_file": "/ca.pem"}}}')
    with changing(environ) as known:
        known.replace("prod", "127.0.0.1:2")
        known.rename("prod", "production")
        known.use("production")
    assert json.loads(path.read_text()) == {
        "newer": 1,
        "contexts": {"production": {"server": "127.0.0.1:2", "ca_file": "/ca.pem"}},
        "current": "production",
    }


def test_removing_and_renaming_the_current_one(environ: dict[str, str]) -> None:
    add(environ, "a")
    add(environ, "b")
    with changing(environ) as known:
        known.use("a")
        known.rename("a", "c")
    assert (load(environ).current, list(load(environ).servers)) == ("c", ["c", "b"])
    with changing(environ) as known:
        known.remove("c")
    assert (load(environ).current, list(load(environ).servers)) == ("", ["b"])


def test_wrong_names_change_nothing(environ: dict[str, str]) -> None:
    add(environ, "prod")
    with pytest.raises(Conflict, match="the context prod exists already"):
        add(environ, "prod")
    for name in ("", "-x", ".x", "a b", "a/b", "a\n", "x" * 65):
        with pytest.raises(InvalidArgument, match="cannot name a context"):
            add(environ, name)
    add(environ, "other")
    with pytest.raises(Conflict), changing(environ) as known:
        known.rename("other", "prod")
    assert list(load(environ).servers) == ["prod", "other"]
    assert os.listdir(os.path.dirname(contexts_file(environ))) == ["contexts.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"contexts": []}',
        '{"contexts": {"a": {}}}',
        '{"contexts": {"a": {"server": 1}}}',
        '{"current": 1}',
    ],
)
def test_a_broken_file_is_reported_and_kept(environ: dict[str, str], text: str) -> None:
    path = Path(contexts_file(environ))
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=r"contexts in .*contexts\.json"):
        resolve(environ=environ)
    with pytest.raises(InvalidArgument, match=r"contexts in .*contexts\.json"):
        add(environ, "prod")
    assert path.read_text() == text


def test_changes_at_once_lose_nothing(environ: dict[str, str]) -> None:
    threads = [threading.Thread(target=add, args=(environ, f"c{number}")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(load(environ).servers) == [f"c{number}" for number in range(8)]


def test_a_change_that_was_killed_is_reported(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "_LOCK_WAIT", 0.0)
    add(environ, "prod")
    left = Path(f"{contexts_file(environ)}.new")
    left.touch()
    with pytest.raises(Conflict, match=r"delete .*contexts\.json\.new"):
        add(environ, "other")
    left.unlink()
    add(environ, "other")


def test_a_file_that_cannot_be_written(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ("Toban" if sys.platform == "win32" else "toban")).touch()
    with pytest.raises(InvalidArgument, match="cannot write the contexts"):
        add(environ, "prod")
