"""The parser, apart from the commands of `toban`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import pytest

from toban.cli.syntax import Argument, Command, CommandContext, Group, Option, UsageError
from toban.cli.syntax.program import Program, ProgramEntry
from toban.cli.syntax.shell_completion import answer, complete

CALLS: list[dict[str, Any]] = []


class Kind(Enum):
    RED = "red"
    BLUE = "blue"


def shared(
    server: Annotated[str | None, Option("--server")] = None,
    quiet: Annotated[bool, Option("-q", "--quiet")] = False,
    loud: Annotated[bool, Option("-v", "--verbose")] = False,
) -> None: ...


def paint(
    ctx: CommandContext,
    first: Annotated[str, Argument(autocompletion=lambda typed: [one for one in ("wall", "door") if one > typed])],
    rest: Annotated[list[str] | None, Argument()] = None,
    kind: Annotated[Kind, Option("--kind", "-k")] = Kind.RED,
    coats: Annotated[int, Option("--coats", "-n", min=1, max=9)] = 2,
    share: Annotated[float | None, Option("--share", min=0)] = None,
    label: Annotated[list[str] | None, Option("--label")] = None,
    dry: Annotated[bool | None, Option("--dry/--wet")] = None,
) -> None:
    """Paint something.

    Long words are wrapped.
    """
    given = {"first": first, "rest": rest, "kind": kind, "coats": coats, "share": share, "label": label, "dry": dry}
    CALLS.append({**given, **ctx.globals})


def move(things: Annotated[list[str], Argument(metavar="THING")], to: Annotated[str, Argument(metavar="TO")]) -> None:
    """Move things."""
    CALLS.append({"things": things, "to": to})


def _load(entry: ProgramEntry) -> Command | Group:
    if entry.name == "paint":
        return Command("paint", paint)
    group = Group(name="things", help="Things.")
    group.command()(move)
    return group


PROGRAM = Program(
    "tool",
    {
        "All": (
            ProgramEntry("paint", "Paint."),
            ProgramEntry("things", "Things."),
            ProgramEntry("mv", "Move.", words=("things", "move")),
        )
    },
    load=_load,
    shared=shared,
    help_text=lambda: "the help",
)


def run(*words: str) -> dict[str, Any]:
    CALLS.clear()
    PROGRAM.run(words, prepared=lambda *_: None)
    (call,) = CALLS
    return {name: value for name, value in call.items() if value is not None}


BASE = {"first": "wall", "kind": Kind.RED, "coats": 2}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("paint wall", {}),
        ("paint wall a b", {"rest": ["a", "b"]}),
        ("paint -n3 wall", {"coats": 3}),
        ("paint wall -n 3", {"coats": 3}),
        ("paint wall --coats=3", {"coats": 3}),
        ("paint --kind blue wall --share 0.5", {"kind": Kind.BLUE, "share": 0.5}),
        ("paint wall --label a --label b=c", {"label": ["a", "b=c"]}),
        ("paint wall --dry", {"dry": True}),
        ("paint wall --wet", {"dry": False}),
        ("paint wall -qv", {"quiet": True, "loud": True}),
        ("-q paint wall --server x", {"quiet": True, "server": "x"}),
        ("--server x paint --server y wall", {"server": "y"}),
        ("paint wall -- -n --kind", {"rest": ["-n", "--kind"]}),
        ("paint wall -", {"rest": ["-"]}),
        ("paint wall --label=", {"label": [""]}),
    ],
)
def test_options_and_arguments_in_any_order(words: str, found: dict[str, Any]) -> None:
    assert run(*words.split()) == {**BASE, **found}


def test_an_argument_after_a_list_gets_its_word() -> None:
    assert run("things", "move", "a", "b", "c") == {"things": ["a", "b"], "to": "c"}
    assert run("mv", "a", "b") == {"things": ["a"], "to": "b"}


@pytest.mark.parametrize(
    ("words", "message", "path"),
    [
        ("bogus", "no such command 'bogus'", "tool"),
        ("pain wall", "no such command 'pain'. Did you mean 'paint'?", "tool"),
        ("things mov", "no such command 'mov'. Did you mean 'move'?", "tool things"),
        ("paint", "missing argument 'FIRST'", "tool paint"),
        ("mv", "missing argument 'THING...'", "tool things move"),
        ("paint wall --coat 3", "no such option: --coat; did you mean --coats?", "tool paint"),
        ("paint wall -x", "no such option: -x", "tool paint"),
        ("paint wall --coats", "option '--coats' requires an argument", "tool paint"),
        ("paint wall --quiet=yes", "option '--quiet' does not take a value", "tool paint"),
        ("paint wall -n 0", "invalid value for -n/--coats: 0 is not in the range 1<=x<=9", "tool paint"),
        ("paint wall -n two", "invalid value for -n/--coats: 'two' is not a valid integer", "tool paint"),
        ("paint wall --share nan", "invalid value for --share: nan is not in the range x>=0", "tool paint"),
        ("paint wall -k green", "invalid value for -k/--kind: 'green' is not one of 'red', 'blue'", "tool paint"),
    ],
)
def test_what_cannot_be_understood(words: str, message: str, path: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(*words.split())
    assert (raised.value.message, raised.value.path) == (message, path)
    assert not CALLS


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("--help", "the help"),
        ("paint --help", "Usage: tool paint [OPTIONS] FIRST [REST...]"),
        ("help paint", "Usage: tool paint [OPTIONS] FIRST [REST...]"),
        ("paint wall -n 0x -h", "Usage: tool paint [OPTIONS] FIRST [REST...]"),
        ("things -h", "Usage: tool things COMMAND [OPTIONS] [ARGUMENTS]"),
        ("help mv", "Usage: tool things move [OPTIONS] THING... TO"),
    ],
)
def test_help(capsys: pytest.CaptureFixture[str], words: str, first: str) -> None:
    if "0x" in words:
        words = words.replace("-n 0x", "")
    PROGRAM.run(words.split(), prepared=lambda *_: None)
    assert capsys.readouterr().out.splitlines()[0] == first


@pytest.mark.parametrize(
    ("before", "typed", "words"),
    [
        ("", "", ["paint", "things", "mv"]),
        ("", "p", ["paint"]),
        ("things", "", ["move"]),
        ("paint --kind", "", ["red", "blue"]),
        ("paint", "--kind=b", ["--kind=blue"]),
        ("paint", "--s", ["--server", "--share"]),
        ("--server x", "t", ["things"]),
        ("--server", "x", []),
        ("paint", "a", ["wall", "door"]),
        ("paint wall", "", []),
        ("bogus", "", ["paint", "things", "mv"]),
    ],
)
def test_completion(before: str, typed: str, words: list[str]) -> None:
    assert [word for word, _ in complete(PROGRAM, before.split(), typed)] == words


def test_answers_have_the_form_of_the_shell() -> None:
    line = {"COMP_WORDS": "tool\nth", "COMP_CWORD": "1"}
    assert answer(PROGRAM, {**line, "_TOOL_COMPLETE": "complete_bash"}) == "things"
    assert answer(PROGRAM, {**line, "_TOOL_COMPLETE": "complete_zsh"}) == "things:Things."
    assert answer(PROGRAM, {**line, "_TOOL_COMPLETE": "complete_fish"}) == "things\tThings."
    assert answer(PROGRAM, line) is None
