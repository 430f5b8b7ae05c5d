"""`toban web`: what it refuses before it serves anything."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from .conftest import Cli


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--listen", "7280"], "expected HOST:PORT"),
        (["--listen", "127.0.0.1:x"], "expected HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "expected HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "without TLS only 127.0.0.1 and ::1 are allowed"),
        (["--listen", "0.0.0.0:0", "--tls-certificate", "a", "--tls-key", "b"], "people reach it by a name"),
        (["--issuer", "https://id.example"], "it takes both --issuer and --client-id"),
        (["--issuer", "http://id.example", "--client-id", "x"], "must be reached over https"),
        (["--tls-certificate", "a"], "it takes both --tls-certificate and --tls-key"),
        (["--public-url", "http://toban.example.org"], "expected https://HOST"),
        (["--public-url", "https://toban.example.org/here"], "expected https://HOST"),
        (["--tls-certificate", "missing", "--tls-key", "missing", "--no-build"], "No such file"),
    ],
)
def test_a_dangerous_or_useless_address_is_refused(bare: Cli, words: list[str], told: str) -> None:
    result = bare("--server", "unix:///nowhere", "web", *words)
    assert result.code == 2
    assert told in result.err.splitlines()[-1 if "hint" not in result.err else -2]
    assert "Traceback" not in result.err


def test_without_the_extra_it_says_what_to_install(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find(name: str, *rest: Any) -> Any:
        return None if name == "starlette" else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    result = bare("web")
    assert result.code == 2
    assert result.err.splitlines() == [
        "toban: cannot serve the console: starlette is not installed",
        "hint: pip install 'toban[web]'",
    ]
