"""Scripts with templates, judged by running them with a real shell."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.wait import DEADLINE
from toban.definition import Problem, Scope, Workflow, parse, render
from toban.definition.scripts.script import Form, assemble
from toban.definition.scripts.shell_reader import read_script
from toban.definition.scripts.shell_text import reference

Read = Callable[[str], Workflow]
Error = Callable[[str | bytes], Problem]

SHELLS = [("/bin/sh",)] + ([("bash", "--posix")] if shutil.which("bash") else [])
HEAD = "name: a\ndescription: d\nparams: {x: {default: ''}, n: {type: integer, default: 1}}\n"


def definition(script: str) -> str:
    indented = "".join(f"      {line}\n" for line in script.split("\n"))
    return f"{HEAD}steps:\n  s:\n    run: |\n{indented}"


def run(read: Read, script: str, x: str = "", n: int = 1, shell: tuple[str, ...] = ("/bin/sh",)) -> bytes:
    found = read(definition(script))
    scope = Scope(params={"x": x, "n": n}, run={}, env={}, steps={})
    rendered = render(found, found.steps["s"], scope)
    assert rendered.argv[:3] == ("/bin/sh", "-e", "-c")
    done = subprocess.run(
        [*shell, *rendered.argv[1:]],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **rendered.env},
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


EVERYWHERE = """\
printf '%s|' {{ params.x }}
V={{ params.x }}; printf '%s|' "$V"
printf '%s|' "$(printf '%s|' {{ params.x }})"
cat <<EOF
{{ params.x }}|
EOF
cat <<-EOF
\t{{ params.x }}|
\tEOF
case {{ params.x }} in {{ params.x }}) printf '%s|' same;; *) printf '%s|' other;; esac
set -- a{{ params.x }}b; printf '%s|' "$#" "$1" """

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NASTY = st.lists(
    st.sampled_from(["$(echo hacked)", "`echo hacked`", "'", '"', "\\", "\n", "EOF", "\nEOF\n", "${IFS}"])
    | st.sampled_from(["*", "?", "~", ";", "&", "|", "<", ">", "(", ")", "#", " ", "\t", "!", "あ", "\x81"]),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=50)
@given(x=TEXT | NASTY)
@example(x="'; touch hacked; '")
@example(x="$(touch hacked)\n`touch hacked`\nEOF\n\tEOF\n")
@example(x="-n")
@example(x="\\n\\")
@example(x="trailing newlines\n\n")
def test_any_value_arrives_byte_for_byte(shell: tuple[str, ...], x: str, workflow: Read) -> None:
    value = x.encode()
    in_substitution = value + b"|"  # the bar protects trailing newlines from $( )
    heredocs = value + b"|\n" + value + b"|\n"
    words = b"same|" + b"1|a" + value + b"b|"
    expected = value + b"|" + value + b"|" + in_substitution + b"|" + heredocs + words
    assert run(workflow, EVERYWHERE, x, shell=shell) == expected


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("n", [0, 5, -5, 2**62])
def test_integers_in_arithmetic(shell: tuple[str, ...], n: int, workflow: Read) -> None:
    script = 'echo $(( {{ params.n }} + 1 )) "$((2-{{ params.n }}))" $(( {{ params.n + 1 }} ))'
    assert run(workflow, script, n=n, shell=shell).split() == [
        *(str(value).encode() for value in (n + 1, 2 - n, n + 1))
    ]


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("# it's {{ params.nope }} \"\necho {{ params.x }}", "v\n"),
        ("echo a#{{ params.x }} # {{ params.nope", "a#v\n"),
        ("echo $# {{ params.x }}", "0 v\n"),
        ('echo "it\'s" {{ params.x }} \'say "hi"\'', 'it\'s v say "hi"\n'),
        ("echo \\\"{{ params.x }}\\'", "\"v'\n"),
        ("echo \\${{ params.x }}", "$v\n"),
        ("printf %s \\\\{{ params.x }}", "\\v"),
        ("echo a \\\n  # it's\necho {{ params.x }}", "a\nv\n"),
        ("echo {{ params.x }}{{ params.x }}", "vv\n"),
        ("echo ${Y:-it} {{ params.x }} ${Y:-'}'} {{ params.x }}", "it v } v\n"),
        ('echo "${Y:-"}"}" {{ params.x }}', "} v\n"),
        ("(echo {{ params.x }}; (echo {{ params.x }}))", "v\nv\n"),
        ('echo "$(case a in (a) echo {{ params.x }};; b) :;; esac)"', "v\n"),
        ('echo "$(case b in a) :;; b) echo {{ params.x }}; esac)" {{ params.x }}', "v v\n"),
        ("x=$(case a in esac) && echo {{ params.x }}", "v\n"),
        ("echo `echo 'a b'` {{ params.x }}", "a b v\n"),
        (
            "cat <<A; cat <<B\n{{ params.x }} '\nA\n\" {{ params.x }}\nB\necho {{ params.x }}",
            "v '\n\" v\nv\n",
        ),
        ("cat <<EOF\n$(echo {{ params.x }}) \\$ $(( {{ params.n }} ))\nEOF", "v $ 1\n"),
        ("cat <<EOF\na \\\nEOF\n{{ params.x }}\nEOF", "a EOF\nv\n"),
        ("cat <<'EOF'\nno $x '\nEOF\necho {{ params.x }}", "no $x '\nv\n"),
        ("(cat <<EOF)\n{{ params.x }}\nEOF\necho {{ params.x }}", "v\nv\n"),
        ('echo "$(cat <<EOF\n\'{{ params.x }}\nEOF\n)" {{ params.x }}', "'v v\n"),
        ('f() { echo "$1"; }\nif true; then f {{ params.x }}; fi', "v\n"),
        ("for i in {{ params.x }} b; do echo $i; done >&1", "v\nb\n"),
        ("echo {{ raw('a; echo b') }}", "a\nb\n"),
        ("echo '{{ raw(params.x) }} {{ raw('{{') }}'", "v {{\n"),
        ('echo {{ "{{.Names}}" }}', "{{.Names}}\n"),
    ],
)
def test_where_a_template_may_stand(script: str, output: str, workflow: Read) -> None:
    for shell in SHELLS:
        assert run(workflow, script, "v", shell=shell).decode() == output


@pytest.mark.parametrize(
    ("script", "offset", "message"),
    [
        (
            'echo "{{ params.x }}"',
            6,
            "inside double quotes: it is quoted by itself, write {{ params.x }}",
        ),
        ("echo 'a {{ params.x }}'", 8, "write 'a '{{ params.x }}"),
        ('echo "a {{ params.x }} b"', 8, 'write "a "{{ params.x }}" b"'),
        ('echo "\\" {{ params.x }}"', 9, 'write "\\" "{{ params.x }}'),
        ("docker ps --format '{{.Names}}'", 20, 'for literal braces write {{ "{{.Names}}" }}'),
        ("cat <<'EOF'\n{{ params.x }}\nEOF", 12, "remove the quotes around EOF"),
        ("cat <<\\EOF\n{{ params.x }}\nEOF", 11, "remove the quotes around EOF"),
        (
            "echo `cat {{ params.x }}`",
            10,
            "inside backquotes, where quoting is unclear: use $( … )",
        ),
        ("echo ${Y:-{{ params.x }}}", 10, "inside ${ … }, where quoting is unclear"),
        ('echo "${Y:-$(cat {{ params.x }})}"', 17, "inside ${ … }"),
        (
            "echo $(( {{ params.x }} + 1 ))",
            9,
            "only integers are safe, found a string: write int(…)",
        ),
        ("(( {{ params.n }} ))", 0, "(( is read differently by different shells"),
        ("[[ {{ params.x }} -eq 1 ]]", 3, "inside [[ … ]], which is not POSIX shell"),
        ("echo $[ {{ params.n }} ]", 8, "inside $[ … ], which shells read differently"),
        ("echo \\{{ params.x }}", 5, "backslash right before the template"),
        ("cat <<EOF\n\\{{ params.x }}\nEOF", 10, "backslash right before the template"),
        ("echo ${{ params.x }}", 5, "dollar sign right before the template"),
        ("cat <<{{ params.x }}", 6, "in the delimiter of a here-document"),
        ("echo $((a) ; echo {{ params.x }})", 5, "$(( is not closed by ))"),
        ("echo $(cat <<EOF)\n{{ params.x }}\nEOF", 16, "must be complete before the )"),
        ("echo $'it\\'s' {{ params.x }}", 5, "means different things to different shells"),
        ("$(" * 60 + "{{ params.x }}", 100, "nested too deeply"),
        ("echo {{ params.x", 5, '"{{" without "}}"'),
    ],
)
def test_where_it_may_not(script: str, offset: int, message: str, error: Error) -> None:
    found = error(definition(script))
    assert message in found.message
    before = script[:offset]
    assert found.path == "steps.s.run"
    assert (found.line - 7, found.column - 6) == (
        before.count("\n"),
        len(before) - before.rfind("\n"),
    )


def test_raw_is_a_warning() -> None:
    parsed = parse(definition("echo {{ raw(params.x) }}"))
    assert parsed.ok
    (warning,) = parsed.warnings
    assert (warning.line, warning.column, warning.path) == (7, 12, "steps.s.run")


FRAGMENTS = [
    *[
        "echo a",
        ' "dq" ',
        " 'sq' ",
        ' "it\'s" ',
        "\n",
        "; ",
        " # it's \"x\n",
        " $(echo ",
        " ) ",
        ")",
    ],
    *[" ( echo s ) ", " `echo bq` ", " \\' ", ' \\" ', "\\\n", " ${Y:-d} ", " ${Y:-'}'} ", " $# "],
    *[
        " $(( 1 + ",
        " )) ",
        "\ncat <<EOF\n",
        "\nEOF\n",
        "\ncat <<'EOF'\n",
        "\ncat <<-E2\n",
        "\tE2\n",
    ],
    *[
        "\ncase a in a) echo in;; esac\n",
        "\nif true; then echo t; fi\n",
        " && echo c",
        " | cat",
        " '",
    ],
    *[
        "' ",
        ' "',
        '" ',
        " \\\\ ",
        " $ ",
        "\nesac\n",
        " x=$(case b in b) echo y;; esac) ",
        ' ${Y:-"',
    ],
    *["\nf() { echo fn; }\nf\n", " > /dev/null ", " 2>&1 ", " a#b ", ' "$(echo ', ' )" ', "\u3000"],
]
TEMPLATE = "{{ params.n }}"


def test_random_scripts_mean_the_same_as_if_the_value_were_written_there() -> None:
    """For a harmless value, the reference must act exactly like the value typed by the author."""
    source = random.Random(20260201)
    compared = 0
    for _ in range(200):
        pieces = ["echo ", *source.choices(FRAGMENTS, k=source.randint(1, 8))]
        for _ in range(source.randint(1, 3)):
            pieces.insert(source.randint(1, len(pieces)), f" {TEMPLATE} ")
        text = "".join(pieces)
        script = read_script(text)
        if script.faults:
            continue
        assert all(slot.form is not Form.RAW for slot in script.slots)
        ours = assemble(script, lambda slot: reference(slot.form, "TOBAN_V1", "7"))
        typed, rendered = (
            subprocess.run(
                ["/bin/sh", "-c", candidate, "sh"],
                env={"PATH": os.environ["PATH"], "TOBAN_V1": "7"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DEADLINE,
                check=False,
            )
            for candidate in (text.replace(TEMPLATE, "7"), ours)
        )
        if b"yntax" not in typed.stderr and b"arithmetic" not in typed.stderr + typed.stdout:
            compared += 1
            assert (rendered.returncode, rendered.stdout) == (typed.returncode, typed.stdout), text
    assert compared > 30
