"""Command lines and assignments of systemd units: quotes, escapes, variables and separators."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from toban.importers.exec_lines import ExecCommand, read_commands, split_words
from toban.importers.import_model import ImportProblem

LINES = [
    (r"""--x="a b" --y='c' pre"fix" "a"b'c'd"e f" """, ["--x=a b", "--y=c", "prefix", "abcde f"]),
    (r"""--x="it's" '"' "" ''x""", ["--x=it's", '"', "", "x"]),
    (r"\101 \xc3\xa9 \u00e9 \U0001F600 a\sb", ["A", "é", "é", "😀", "a b"]),
    (r"""a\'b \"c 'd\'e' """, ["a'b", '"c', "d'e"]),
    (
        r"\q a\ b \400 \x4 \u00 \000 \12",
        [r"\q", r"a\ b", r"\400", r"\x4", r"\u00", r"\000", r"\12"],
    ),
    (r"""\; \\; ";" ';'; a; """, [";", r"\;", ";", ";;", "a;"]),
]


def arguments(line: str, **env: str) -> tuple[str, ...]:
    (command,) = commands(f"/bin/x {line}", **env)
    return command.arguments


def commands(line: str, **env: str) -> list[ExecCommand]:
    return read_commands(line, env=env, specifiers={"%": "%"})


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_words_are_those_of_systemd(line: str, expected: list[str]) -> None:
    assert arguments(line) == tuple(expected)


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_systemd_itself_reads_the_same_words(tmp_path: Path, line: str, expected: list[str]) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "a.service"
    unit.write_text(f"[Service]\nType=oneshot\nExecStart=/bin/echo {line}\n", encoding="utf-8")
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"SYSTEMD_LOG_LEVEL": "debug", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    shown = re.search(r"Command Line: /bin/echo (.*)", told.stdout + told.stderr)
    if shown is None:
        pytest.skip("this systemd-analyze does not show what it read")
    # It shows words as a shell would need them; the escapes are the same in our reading.
    assert arguments(shown[1]) == tuple(expected)


def test_prefixes_and_variables_that_are_left_alone() -> None:
    (command,) = commands(r"""-:/bin/x $X "$$" """)
    assert command.arguments == ("$X", "$$")
    assert command.may_fail


def test_a_semicolon_of_its_own_separates_commands() -> None:
    found = commands(r'/bin/a 1 ; "/bin/b" \; ; -"/bin/c"')
    assert [(each.program, each.arguments) for each in found] == [
        ("/bin/a", ("1",)),
        ("/bin/b", (";",)),
        ("/bin/c", ()),
    ]


def test_the_value_of_a_variable_is_split_as_its_quotes_say() -> None:
    assert arguments("$OPTS", OPTS="--name 'a b' c") == ("--name", "a b", "c")
    assert arguments("$ONE $TWO $THREE", ONE="one", TWO="'two two' too", THREE="") == (
        "one",
        "two two",
        "too",
    )
    assert arguments("${OPTS}", OPTS="--name 'a b' c") == ("--name 'a b' c",)
    assert arguments("$OPTS", OPTS=r"""a\ b "c d""") == ("a b", "c d")
    assert arguments("x$OPTS $$OPTS", OPTS="a") == ("x$OPTS", "$OPTS")


@pytest.mark.parametrize("word", ["$UNSET", "$UNSET/x", "${UNSET}", "$1"])
def test_a_variable_without_a_value_is_refused(word: str) -> None:
    with pytest.raises(ImportProblem, match="is not among Environment="):
        arguments(word)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (r"\xff", "not UTF-8"),
        (r"\ud800", "not UTF-8"),
        ('--x="open', "a quote is not closed"),
    ],
)
def test_words_that_no_definition_can_hold(line: str, reason: str) -> None:
    with pytest.raises(ImportProblem, match=reason):
        arguments(line)


def test_words_of_assignments() -> None:
    line = r"""FOO="ab" BAR='q' A="b c" "D=e f" 'G=\'h\'' I=\u00e9"""
    assert list(split_words(line)) == ["FOO=ab", "BAR=q", "A=b c", "D=e f", "G='h'", "I=é"]


def test_an_assignment_with_an_unknown_escape_is_refused() -> None:
    with pytest.raises(ImportProblem, match=r'the escape "\\q" is not known: A=\\q'):
        list(split_words(r"A=\q B=1"))
