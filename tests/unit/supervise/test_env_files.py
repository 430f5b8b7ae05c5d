"""Environment files: the exact format, who may be led where, and that errors do not show what a file contains."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toband.supervise.shim import env_files
from toband.supervise.shim.env_files import LONGEST_VARIABLE, MOST_BYTES, EnvFileError, environment, parse

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links and owners of POSIX")
as_root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs files of other users")
OTHER = 65534


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A=1", {"A": "1"}),
        ("\ufeffA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("# comment\n\n  # another\n A = x y  \n", {"A": "x y"}),
        ("export A=1\nexport\tB=2", {"A": "1", "B": "2"}),
        ("export=1", {"export": "1"}),
        ("A=\nB= \nC=''\nD=\"\"", {"A": "", "B": "", "C": "", "D": ""}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=x # comment\nB=x#y\nC=# nothing\nD=a  #b #c", {"A": "x", "B": "x#y", "C": "", "D": "a"}),
        # Nothing is expanded.
        ("A=$HOME ${B} $(id) `id` ~\nB=a\\nb", {"A": "$HOME ${B} $(id) `id` ~", "B": "a\\nb"}),
        ("A='a # b\\n$X\"' # c", {"A": 'a # b\\n$X"'}),
        ('A="a # b\\n\\t\\"\\\\\\$X\\q$Y\'"', {"A": "a # b\n\t\"\\$X\\q$Y'"}),
        ("A='one\n two \n\nthree'\nB=2", {"A": "one\n two \n\nthree", "B": "2"}),
        ('A="one\r\ntwo\\"\n"#c', {"A": 'one\ntwo"\n'}),
        ('A=it\'s\nB=a"b"', {"A": "it's", "B": 'a"b"'}),
        ("URL=https://u:p@h/?a=b&c=d", {"URL": "https://u:p@h/?a=b&c=d"}),
        ("日本=1".replace("日本", "J"), {"J": "1"}),
        ("A=日本 \u3000", {"A": "日本 \u3000"}),
        ("_a1=x\fy", {"_a1": "x\fy"}),
    ],
)
def test_what_a_file_may_say(text: str, expected: dict[str, str]) -> None:
    assert parse(text.encode(), "f") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\nsecret", "line 2: expected NAME=VALUE"),
        ("1A=secret", "line 1: expected NAME=VALUE"),
        ("A-B=secret", "line 1: expected NAME=VALUE"),
        ("A: secret", "line 1: expected NAME=VALUE"),
        ("export A", "line 1: expected NAME=VALUE"),
        ("=secret", "line 1: expected NAME=VALUE"),
        ("\n\nTOBAN_SERVER=secret", "line 3: names that begin with TOBAN_ cannot be set"),
        ("toban_x=secret", "line 1: names that begin with TOBAN_"),
        ("A='secret\nB=2", "line 1: the closing quote is missing"),
        ('A=1\nB="secret\\"', "line 2: the closing quote is missing"),
        ("A='secret'secret", "line 1: after the closing quote only a comment may follow"),
        ('A="secret\n" secret', "line 2: after the closing quote only a comment may follow"),
        ("A=secret\0", "contains a NUL character"),
        (f"A={'secret' * 30_000}", f"line 1: A has more than {LONGEST_VARIABLE:,} bytes"),
    ],
)
def test_what_is_wrong_is_found_and_not_shown(text: str, message: str) -> None:
    with pytest.raises(EnvFileError) as caught:
        parse(text.encode(), "/srv/.env")
    assert message in str(caught.value)
    assert str(caught.value).startswith("the env_file /srv/.env")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_text() -> None:
    with pytest.raises(EnvFileError, match="is not UTF-8"):
        parse(b"A=\xff", "f")


@given(st.dictionaries(st.from_regex("[A-Z_][A-Z0-9_]*", fullmatch=True), st.text(st.characters(codec="utf-8"))))
def test_any_value_can_be_written_in_quotes(values: dict[str, str]) -> None:
    values = {name: value.replace("\0", "").replace("\r", "") for name, value in values.items()}
    values = {name: value for name, value in values.items() if not name.startswith("TOBAN_")}
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in values.items()}
    assert parse("".join(f'{name}="{value}"\n' for name, value in escaped.items()).encode(), "f") == values


def of(env: dict[str, str], *files: tuple[Path, bool], replaced: list[str] | None = None) -> dict[str, Any]:
    return {
        "env": env,
        "env_files": {"files": [[str(p), optional] for p, optional in files], "replaced": replaced or []},
    }


def test_which_value_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("A=one\nB=one\nPATH=/one\nHOME=/one")
    two.write_text("B=two\nC=two")
    boot = of({"A": "own", "PATH": "/bin", "HOME": "/root"}, (one, False), (two, True), replaced=["PATH"])
    assert environment(boot, guarded=False) == {
        "A": "own",
        "B": "two",
        "C": "two",
        "PATH": "/one",
        "HOME": "/root",
    }
    assert environment({"env": {"A": "1"}, "env_files": None}, guarded=True) == {"A": "1"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none" / ".env"
    with pytest.raises(
        EnvFileError, match=rf"there is no env_file {re.escape(str(missing))}; create it, or mark it as optional"
    ):
        environment(of({}, (missing, False)), guarded=True)
    assert environment(of({}, (missing, True)), guarded=True) == {}
    # Windows refuses to open a directory.
    with pytest.raises(EnvFileError, match="Permission denied" if sys.platform == "win32" else "is not a file"):
        environment(of({}, (tmp_path, True)), guarded=True)
    large = tmp_path / "large"
    large.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(EnvFileError, match="has more than 256 KiB"):
        environment(of({}, (large, True)), guarded=True)


@POSIX
def test_what_would_wait_or_belongs_to_the_system_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EnvFileError, match="is not a file"):
        environment(of({}, (tmp_path / "pipe", False)), guarded=True)
    with pytest.raises(EnvFileError, match="belongs to the system"):
        environment(of({}, (Path("/proc/self/environ"), False)), guarded=True)


@POSIX
@as_root
def test_a_link_of_another_user_leads_nowhere(tmp_path: Path) -> None:
    secret, theirs = tmp_path / "secret", tmp_path / "theirs"
    secret.write_text("KEY=secret")
    theirs.mkdir()
    (theirs / ".env").symlink_to(secret)
    # Root's own link is followed, until another user could have made it.
    assert environment(of({}, (theirs / ".env", False)), guarded=True) == {"KEY": "secret"}
    os.chown(theirs, OTHER, OTHER)
    with pytest.raises(EnvFileError, match=r"is a link in a directory that other users can write; name the file"):
        environment(of({}, (theirs / ".env", False)), guarded=True)
    assert environment(of({}, (theirs / ".env", False)), guarded=False) == {"KEY": "secret"}


def test_a_shortage_is_not_the_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(path: str, *, guarded: bool) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(env_files, "_open", short)
    with pytest.raises(OSError, match="Too many open files"):
        environment(of({}, (tmp_path / "x", True)), guarded=False)


def test_names_that_the_configuration_does_not_allow(tmp_path: Path) -> None:
    """A file is no way around what definitions may set."""
    file = tmp_path / "env"
    file.write_text("APP_A=1\nLD_PRELOAD=x\n")
    boot: dict[str, Any] = {"env": {"PATH": "/bin"}}

    def read(**rules: Any) -> dict[str, str]:
        return environment(
            boot | {"env_files": {"files": [[str(file), False]], "replaced": [], **rules}}, guarded=False
        )

    assert read()["LD_PRELOAD"] == read(allowed=None, denied=["X*"])["LD_PRELOAD"] == "x"
    with pytest.raises(EnvFileError, match=r"may not set LD_PRELOAD: `steps.environment_denied`"):
        read(allowed=None, denied=["LD_*"])
    with pytest.raises(EnvFileError, match=r"may not set LD_PRELOAD: `steps.environment_names`"):
        read(allowed=["APP_*"], denied=[])
    assert read(allowed=["APP_*", "LD_*"], denied=[])["APP_A"] == "1"
