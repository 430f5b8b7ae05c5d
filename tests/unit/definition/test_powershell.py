"""PowerShell scripts: rendering, and allowed positions of templates; run with pwsh if it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from toban.definition import Problem, Rendered, RenderError, Scope, Workflow, parse, render
from toban.definition.scripts.powershell_text import MAX_LENGTH

Read = Callable[[str], Workflow]
Error = Callable[[str | bytes], Problem]

HEAD = "name: a\ndescription: d\nparams: {x: {default: ''}, y: {default: ''}}\n"
PWSH = shutil.which("pwsh")
needs_pwsh = pytest.mark.skipif(PWSH is None, reason="pwsh is not installed")

NASTY = """'; $(throw 'hacked') `" "$env:PATH" @{ } # <# ’ ” ; | & \\ \n--% -x %PATH% 日本"""


def definition(script: str, args: list[Any] | None = None) -> str:
    step = {"job_type": "powershell", "target": script, "args": args or []}
    return f"{HEAD}steps: {{s: {json.dumps(step)}}}"


def rendered(read: Read, script: str, x: Any = "", args: list[Any] | None = None) -> Rendered:
    found = read(definition(script, args))
    scope = Scope(params={"x": x, "y": "why"}, run={}, env={}, steps={})
    return render(found, found.steps["s"], scope)


def script_of(found: Rendered) -> str:
    """The author's part of the script."""
    program, *options, text = found.argv
    assert program == "powershell.exe"
    assert options == ["-NoLogo", "-NoProfile", "-NonInteractive", "-Command"]
    script, ending = text.rsplit("\n\n", 1)
    assert ending.startswith("if ($?) { exit 0 } elseif (")
    assert ending.endswith("{ exit $LASTEXITCODE } else { exit 1 }")
    return script


V1, V2 = "${env:TOBAN_V1}", "${env:TOBAN_V2}"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("Write-Output {{ params.x }} {{ params.y }} {{params.x}}", f'Write-Output "{V1}" "{V2}" "{V1}"'),
        ('Write-Output "of {{ params.x }}.csv"', f'Write-Output "of {V1}.csv"'),
        ('"{{ params.x }}{{ params.y }}"', f'"{V1}{V2}"'),
        ("“of {{ params.x }}”", f"“of {V1}”"),
        (
            '"a ""b"" {{ params.x }} $(f {{ params.y }} ")" {{ params.x }}) `" {{ params.y }}"',
            f'"a ""b"" {V1} $(f "{V2}" ")" "{V1}") `" {V2}"',
        ),
        ("$a = {{ params.x }}; $b={{ params.x }}", f'$a = "{V1}"; $b="{V1}"'),
        ("if ({{ params.x }} -eq 'it''s') { f {{ params.x }} }", f"if (\"{V1}\" -eq 'it''s') {{ f \"{V1}\" }}"),
        ("@({{ params.x }},{{ params.y }})", f'@("{V1}","{V2}")'),
        ("& {{ params.x }} a | f {{ params.y }}|g", f'& "{V1}" a | f "{V2}"|g'),
        ("# it's {{ params.nope }}\nf {{ params.x }}", f'# it\'s {{{{ params.nope }}}}\nf "{V1}"'),
        ("f a#b 'c' {{ params.x }} # '", f"f a#b 'c' \"{V1}\" # '"),
        ("<# it's {{ params.nope }} #> f {{ params.x }}", f'<# it\'s {{{{ params.nope }}}} #> f "{V1}"'),
        (
            '@"\nsay "hi" to {{ params.x }}\n "@ {{ params.y }}\n"@ | f {{ params.x }}',
            f'@"\nsay "hi" to {V1}\n "@ {V2}\n"@ | f "{V1}"',
        ),
        ("@'\nit's $x\n'@ | f {{ params.x }}", f"@'\nit's $x\n'@ | f \"{V1}\""),
        ("f ${it's} {{ params.x }}", f'f ${{it\'s}} "{V1}"'),
        ("f `' {{ params.x }}", f'f `\' "{V1}"'),
        ("f --% a 'b\nf {{ params.x }}", f'f --% a \'b\nf "{V1}"'),
        ('docker ps --format {{ "{{.Names}}" }}', f'docker ps --format "{V1}"'),
        ("f '{{ raw(params.x) }}'", "f 'value'"),
        ("exit 3\n", "exit 3"),
    ],
)
def test_what_is_rendered(script: str, expected: str, workflow: Read) -> None:
    assert script_of(rendered(workflow, script, "value")) == expected


def test_values_are_variables_and_never_text(workflow: Read) -> None:
    found = rendered(workflow, 'f {{ params.x }} "{{ params.x }}"', NASTY, [NASTY, 7, ["a"]])
    args = " ".join(f'"${{env:TOBAN_A{number}}}"' for number in (1, 2, 3))
    assert script_of(found) == f'f "{V1}" "{V1}" {args}'
    assert found.env == {
        "TOBAN_V1": NASTY,
        "TOBAN_A1": NASTY,
        "TOBAN_A2": "7",
        "TOBAN_A3": '["a"]',
    }


@pytest.mark.parametrize(
    ("script", "offset", "message"),
    [
        ("f '{{ params.x }}'", 3, 'nothing is expanded there, write "{{ params.x }}"'),
        ("f 'it''s {{ params.x }}'", 9, 'inside single quotes: nothing is expanded there, write "…"'),
        ("f ‘of {{ params.x }}’", 6, 'write "of {{ params.x }}"'),
        ("docker ps --format '{{.Names}}'", 20, 'for literal braces write {{ "{{.Names}}" }}'),
        ("@'\n{{ params.x }}\n'@", 3, "in a here-string with single quotes"),
        ("f report-{{ params.x }}.csv", 9, 'double quotes, "report-{{ params.x }}.csv"'),
        ("f {{ params.x }}.csv", 2, '"{{ params.x }}.csv"'),
        ("f --out={{ params.x }}", 8, '"--out={{ params.x }}"'),
        ("f -Path:{{ params.x }}", 8, "next to other text"),
        ("$env:{{ params.x }}", 5, "next to other text"),
        ('f "a"{{ params.x }}', 5, "next to other text"),
        ("f ${{ params.x }}", 2, "dollar sign right before the template"),
        ('f "${{ params.x }}"', 3, "dollar sign right before the template"),
        ("f `{{ params.x }}", 2, "backtick right before the template"),
        ("f ${a{{ params.x }}}", 5, "inside ${ … }"),
        ("f --% {{ params.x }}", 6, "after --%, where nothing is expanded"),
        ('"$(' * 60 + "{{ params.x }}", 150, "nested too deeply"),
        ("f {{ params.x", 2, '"{{" without "}}"'),
        ("f {{ params.nope }}", 5, 'unknown parameter "nope"'),
        ('f "{{ params.nope }}"', 6, 'unknown parameter "nope"'),
    ],
)
def test_where_a_template_may_not_stand(
    script: str, offset: int, message: str, errors: Callable[[str | bytes], list[Problem]]
) -> None:
    indented = "".join(f"      {row}\n" for row in script.split("\n"))
    found = errors(f"{HEAD}steps:\n  s:\n    job_type: powershell\n    target: |\n{indented}")[0]
    assert message in found.message
    assert found.path == "steps.s.target"
    before = script[:offset]
    assert (found.line - 8, found.column - 6) == (
        before.count("\n"),
        len(before) - before.rfind("\n"),
    )


def test_raw_is_a_warning() -> None:
    parsed = parse(definition("f {{ raw(params.x) }}"))
    assert parsed.ok
    (warning,) = parsed.warnings
    assert "raw( ) inserts the value as code" in warning.message


def test_long_scripts_belong_in_files(workflow: Read, error: Error) -> None:
    assert "use a script file" in error(definition("f " + "x" * MAX_LENGTH)).message
    with pytest.raises(RenderError, match=r"at most 32,000 are allowed: use a script file"):
        rendered(workflow, "f {{ raw(params.x) }}", '"' * (MAX_LENGTH // 2))


# Judged by PowerShell itself.


def run(found: Rendered) -> subprocess.CompletedProcess[bytes]:
    assert PWSH is not None
    return subprocess.run(
        [PWSH, *found.argv[1:]],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **found.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


@needs_pwsh
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 3", 3),
        ("'fine'", 0),
        ("sh -c 'exit 7'", 7),
        ("sh -c 'exit 7'; 'went on'", 0),
        ("sh -c 'exit 0'; Get-Item /does/not/exist", 1),
        ("Get-Item /does/not/exist; 'went on'", 0),
        ("throw 'up'", 1),
        ("if (", 1),
        ("Set-StrictMode -Version Latest; Write-Error no", 1),
        ("sh -c 'exit 7' `\n", 7),
    ],
)
def test_the_exit_code_is_the_scripts(script: str, code: int, workflow: Read) -> None:
    assert run(rendered(workflow, script)).returncode == code


@needs_pwsh
def test_any_value_arrives_as_it_is(workflow: Read) -> None:
    script = (
        'foreach ($x in {{ params.x }}, "{{ params.x }}", "$({{ params.x }})", '
        "$(Write-Output {{ params.x }})) { [Console]::Out.Write($x + [char]1) }"
    )
    done = run(rendered(workflow, script, NASTY))
    assert done.stdout == (NASTY.encode() + b"\1") * 4, done.stderr.decode()
