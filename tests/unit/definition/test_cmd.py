"""Command lines of cmd: rendering, and refused values and positions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.definition import Problem, Rendered, RenderError, Scope, Workflow, parse, render
from toban.definition.scripts.cmd_text import MAX_LINE

Read = Callable[[str], Workflow]
Error = Callable[[str | bytes], Problem]

HEAD = "name: a\ndescription: d\nparams: {x: {default: ''}, y: {default: ''}, l: {type: list}}\n"


def definition(line: str, args: list[Any] | None = None) -> str:
    step = {"job_type": "cmd", "target": line, "args": args or []}
    return f"{HEAD}steps: {{s: {json.dumps(step)}}}"


def rendered(read: Read, line: str, x: Any = "", args: list[Any] | None = None) -> Rendered:
    found = read(definition(line, args))
    scope = Scope(params={"x": x, "y": "why", "l": [1]}, run={}, env={}, steps={})
    return render(found, found.steps["s"], scope)


def seen_by_cmd(found: Rendered) -> str:
    """The line after cmd has replaced its variables, which it does first."""
    assert found.argv[:-1] == ("cmd.exe", "/d", "/s", "/c")
    return re.sub(r"%(TOBAN_V\d+)%", lambda match: found.env[match[1]], found.argv[-1])


@pytest.mark.parametrize(
    ("line", "text", "line_of_cmd"),
    [
        ("echo {{ params.x }}", "echo %TOBAN_V1%", "echo a b"),
        (
            "echo {{ params.x }}-{{ params.y }}.{{ params.x }}",
            "echo %TOBAN_V1%-%TOBAN_V2%.%TOBAN_V1%",
            None,
        ),
        ('copy "{{ params.x }}" {{ params.y }}', 'copy "%TOBAN_V1%" %TOBAN_V2%', 'copy "a b" why'),
        ('"{{ params.x }}" /q', '"%TOBAN_V1%" /q', '"a b" /q'),
        ('if "{{ params.x }}"=="1" del c', 'if "%TOBAN_V1%"=="1" del c', None),
        ('for %i in ("{{ params.x }}") do echo %i', 'for %i in ("%TOBAN_V1%") do echo %i', None),
        ("echo what if {{ params.x }}", "echo what if %TOBAN_V1%", None),
        ("format {{ params.x }}", "format %TOBAN_V1%", None),
        ("\n  dir {{ params.x }} \n\n", "dir %TOBAN_V1%", None),
        ('echo ^" {{ params.x }}', 'echo ^" %TOBAN_V1%', None),
        ("type {{ params.x }} > out.txt", "type %TOBAN_V1% > out.txt", None),
        ("echo {{ raw('a & echo b') }}", "echo a & echo b", None),
        ("dir", "dir", "dir"),
    ],
)
def test_what_is_rendered(line: str, text: str, line_of_cmd: str | None, workflow: Read) -> None:
    found = rendered(workflow, line, "a b")
    assert found.argv == ("cmd.exe", "/d", "/s", "/c", text)
    if line_of_cmd is not None:
        assert seen_by_cmd(found) == line_of_cmd


def test_an_empty_value_leaves_nothing(workflow: Read) -> None:
    assert rendered(workflow, "echo [{{ params.x }}]").argv[-1] == "echo []"


@pytest.mark.parametrize("value", [*'%!"^&|<>', "\r", "\n", "\x1a", "\0", "\x7f"])
@pytest.mark.parametrize("line", ["echo {{ params.x }}", 'echo "{{ params.x }}"'])
def test_values_that_cmd_would_act_on_are_refused(line: str, value: str, workflow: Read) -> None:
    with pytest.raises(RenderError, match=r"cannot render target of step s: ") as caught:
        rendered(workflow, line, f"a{value}b")
    assert "contains" in str(caught.value)


@pytest.mark.parametrize("value", ["x) else (del y", "(", ")"])
def test_parentheses_need_quotes(value: str, workflow: Read) -> None:
    with pytest.raises(RenderError, match="put the template in double quotes"):
        rendered(workflow, "echo {{ params.x }}", value)
    assert seen_by_cmd(rendered(workflow, 'echo "{{ params.x }}"', value)) == f'echo "{value}"'


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_whatever_is_let_through_has_no_meaning_for_cmd(workflow: Read, value: str) -> None:
    try:
        line = seen_by_cmd(rendered(workflow, 'prog "{{ params.x }}" {{ params.x }} end', value))
    except RenderError:
        assert set(value) & set('%!"^&|<>()\x7f') or any(ord(c) < 32 and c != "\t" for c in value)
    else:
        assert line == f'prog "{value}" {value} end'
        assert line.count('"') == 2
        assert not set(line) & set("%!^&|<>()\r\n")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["a", 1, True, "C:\\dir\\f.txt", "日本"], "dir a 1 true C:\\dir\\f.txt 日本"),
        (["a b", "", "x=y", "(x86)"], 'dir "a b" "" "x=y" "(x86)"'),
        (["C:\\my dir\\"], 'dir "C:\\my dir\\\\"'),
        (["<{{ params.y }}>".strip("<>"), "{{ params.x }}/f"], 'dir why "a b/f"'),
    ],
)
def test_arguments_are_quoted(args: list[Any], text: str, workflow: Read) -> None:
    assert rendered(workflow, "dir", "a b", args).argv[-1] == text


@pytest.mark.parametrize("value", ["a&b", "%PATH%", 'say "hi"', "x\ny", ["a", 1]])
def test_arguments_that_cmd_would_act_on_are_refused(value: Any, workflow: Read) -> None:
    with pytest.raises(RenderError, match=r"cannot render args\[1\] of step s: the value contains"):
        rendered(workflow, "dir", value, ["a", "{{ params.x }}"])


def test_wrong_arguments_are_found_early(errors: Callable[[str | bytes], list[Problem]]) -> None:
    step = "{job_type: cmd, target: dir, args: [ok, a&b, {k: 1}, '{{ params.x }}|{{ params.y }}']}"
    found = errors(f"{HEAD}steps:\n  s: {step}\n")
    assert [(problem.line, problem.column) for problem in found] == [(5, 46), (5, 51), (5, 59)]
    assert [problem.path for problem in found] == [f"steps.s.args[{index}]" for index in (1, 2, 3)]
    assert "the value contains &" in found[0].message
    assert "a list or a mapping cannot be an argument" in found[1].message
    assert "the value contains |" in found[2].message


@pytest.mark.parametrize(
    ("line", "offset", "message"),
    [
        ("{{ params.x }} /q", 0, "where a command begins"),
        ("dir & {{ params.x }}", 6, "where a command begins"),
        ("dir && ({{ params.x }})", 8, "where a command begins"),
        ("@{{ params.x }}", 1, "where a command begins"),
        ("if {{ params.x }}==1 del a", 3, "put it in double quotes"),
        ("if exist a echo {{ params.x }}", 16, "put it in double quotes"),
        ("dir & IF EXIST {{ params.x }} del a", 15, "put it in double quotes"),
        ("for /f %i in ({{ params.x }}) do echo %i", 14, ""),
        ("echo {{ params.x }}>out.txt", 5, "add a space"),
        ("echo ^{{ params.x }}", 5, "caret right before the template"),
        ("echo {{ params.x", 5, '"{{" without "}}"'),
        ("echo {{ params.nope }}", 8, 'unknown parameter "nope"'),
        ("echo {{ params.x + 1 }}", 17, ""),
    ],
)
def test_where_a_template_may_not_stand(line: str, offset: int, message: str, error: Error) -> None:
    indented = "".join(f"      {row}\n" for row in line.split("\n"))
    found = error(f"{HEAD}steps:\n  s:\n    job_type: cmd\n    target: |\n{indented}")
    assert message in found.message
    assert found.path == "steps.s.target"
    assert (found.line, found.column) == (8, 7 + offset)


@pytest.mark.parametrize("first", ["dir", "dir {{ params.x }}", "if a==a ("])
def test_a_second_line_is_an_error(first: str, error: Error) -> None:
    found = error(f"{HEAD}steps:\n  s:\n    job_type: cmd\n    target: |\n      {first}\n      echo b\n")
    assert (found.line, found.column, found.path) == (9, 7, "steps.s.target")
    assert "cmd reads one line only: join commands with & or &&" in found.message


def test_raw_is_a_warning() -> None:
    parsed = parse(definition("echo {{ raw(params.x) }}"))
    assert parsed.ok
    warning = parsed.warnings[-1]
    assert "raw( ) inserts the value as code" in warning.message


def test_a_machine_that_has_no_cmd_is_a_warning() -> None:
    parsed = parse(definition("echo x"))
    found = [warning for warning in parsed.warnings if "run on Windows only" in warning.message]
    assert len(found) == (0 if sys.platform == "win32" else 1)


def test_raw_text_is_one_line_too(workflow: Read) -> None:
    with pytest.raises(RenderError, match="cmd reads one line only"):
        rendered(workflow, "echo {{ raw(params.x) }}", "a\nb")


def test_the_line_is_measured_as_cmd_reads_it(workflow: Read, error: Error) -> None:
    fits = "x" * (MAX_LINE - len("echo "))
    assert rendered(workflow, "echo {{ params.x }}", fits).env["TOBAN_V1"] == fits
    with pytest.raises(RenderError, match="the line has 8,192 characters: cmd reads at most 8,191"):
        rendered(workflow, "echo {{ params.x }}", fits + "x")
    with pytest.raises(RenderError, match="characters: cmd reads at most"):
        rendered(workflow, "echo {{ params.x }}", "😀" * 4100)
    assert "cmd reads at most 8,191" in error(definition(f"echo {fits}xx")).message


@pytest.mark.skipif(sys.platform != "win32", reason="there is no cmd.exe")
@pytest.mark.parametrize("value", ["a b", "a (b) ; , = ' ~", "C:\\dir", "/?"])
def test_cmd_sees_the_value_and_nothing_else(value: str, workflow: Read) -> None:
    found = rendered(workflow, f'if "{{{{ params.x }}}}"=="{value}" (exit 5) else (exit 6)', value)
    done = subprocess.run(f'cmd.exe /d /s /c "{found.argv[-1]}"', env={**os.environ, **found.env}, timeout=120)
    assert done.returncode == 5
