from __future__ import annotations

import pytest

from doubles.daemon.fake_daemon import FakeDaemon

from .conftest import Cli, OnTerminal


def source(command: str) -> str:
    return f"name: nightly\nsteps:\n  one:\n    run: {command}\n"


@pytest.fixture
def nightly(daemon: FakeDaemon) -> FakeDaemon:
    daemon.add_workflow("nightly", source("first"), base_dir="/srv")
    daemon.add_workflow("nightly", source("second"), base_dir="/srv")
    daemon.add_workflow("nightly", source("third"), base_dir="/opt")
    return daemon


def test_the_last_two_by_default(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("workflows", "diff", "nightly")
    assert result.out.splitlines() == [
        "base directory: /srv -> /opt",
        "--- nightly (version 2)",
        "+++ nightly (version 3)",
        "@@ -1,4 +1,4 @@",
        " name: nightly",
        " steps:",
        "   one:",
        "-    run: second",
        "+    run: third",
    ]


def test_any_two(cli: Cli, nightly: FakeDaemon) -> None:
    data = cli("workflows", "diff", "nightly", "1", "2", "-o", "json").data
    assert (data["from"], data["to"]) == (1, 2)
    assert "+    run: second" in data["diff"]
    with_newest = cli("workflows", "diff", "nightly", "1").out
    assert "-    run: first" in with_newest
    assert "+    run: third" in with_newest
    backwards = cli("workflows", "diff", "nightly", "3", "1").out
    assert "+    run: first" in backwards


def test_a_version_that_is_not_there(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("workflows", "diff", "nightly", "9")
    assert result.code == 5
    assert "nightly has no version 9" in result.err
    assert cli("workflows", "diff", "nightly", "0").code == 2


def test_only_one_version(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly")
    result = cli("workflows", "diff", "nightly")
    assert result.code == 6
    assert "there is only one version" in result.err


def test_a_version_that_only_a_job_made(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.add_workflow("nightly", source("x"), parsed_json='{"steps": [{"run": "a"}]}')
    daemon.add_workflow("nightly", source("x"), parsed_json='{"steps": [{"run": "b"}]}')
    result = cli("workflows", "diff", "nightly")
    assert result.out == ""
    assert result.err == ("versions 1 and 2 are the same as text, but a job changed: --parsed shows the difference\n")
    parsed = cli("workflows", "diff", "nightly", "--parsed").out
    assert '+      "run": "b"' in parsed
    same = cli("workflows", "diff", "nightly", "2", "2")
    assert (same.out, same.err) == ("", "versions 2 and 2 are the same\n")


@pytest.mark.parametrize("colours", [True, False])
def test_colours_on_a_terminal(on_terminal: OnTerminal, nightly: FakeDaemon, colours: bool) -> None:
    arguments = [] if colours else ["--no-color"]
    terminal = on_terminal(*arguments, "--server", nightly.address, "workflows", "diff", "nightly")
    assert terminal.end() == 0
    assert (b"\x1b[32m+    run: third\x1b[0m" in terminal.raw) is colours
    assert "-    run: second" in terminal.text


def test_restore(cli: Cli, nightly: FakeDaemon) -> None:
    result = cli("workflows", "restore", "nightly", "1")
    assert (result.code, result.out) == (
        0,
        "nightly restored: version 4 has the text of version 1\n",
    )
    stored = nightly.workflows["nightly"].definition
    assert (stored.source, stored.base_dir) == (source("first"), "/srv")
    again = cli("workflows", "restore", "nightly", "1")
    assert again.out == "nightly unchanged: version 4 has the text of version 1\n"
    assert cli("workflows", "restore", "nightly", "2", "-o", "name").out == "nightly:5\n"
    assert cli("workflows", "restore", "nightly", "99").code == 5
