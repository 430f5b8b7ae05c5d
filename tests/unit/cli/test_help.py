from __future__ import annotations

import subprocess
import sys

import pytest

from toban import __version__
from toban.cli.command_line import PROGRAM
from toban.cli.syntax import Command, Group
from toban.cli.syntax.declare import summary
from toban.cli.syntax.parameters import parameters

from .conftest import Cli

COMMANDS = [
    "init",
    "apply",
    "backfill",
    "validate",
    "import crontab",
    "import systemd",
    "workflows list",
    "workflows show",
    "workflows delete",
    "workflows enable",
    "workflows disable",
    "workflows versions",
    "workflows diff",
    "workflows restore",
    "workflows next",
    "jobs list",
    "jobs show",
    "jobs run",
    "jobs enable",
    "jobs disable",
    "jobs delete",
    "jobs versions",
    "jobs diff",
    "jobs restore",
    "status",
    "top",
    "backup",
    "restore",
    "system migrate-store",
    "run",
    "processes list",
    "processes show",
    "runs list",
    "runs show",
    "runs cancel",
    "runs processes",
    "runs watch",
    "runs retry",
    "runs pause",
    "runs resume",
    "runs approve",
    "runs artifacts",
    "runs delete",
    "runs pin",
    "runs unpin",
    "logs",
    "why",
    "emit",
    "events list",
    "events show",
    "events watch",
    "events resolve",
    "schedule",
    "schedules list",
    "schedules show",
    "schedules cancel",
    "dead-letters list",
    "dead-letters show",
    "dead-letters requeue",
    "dead-letters discard",
    "locks list",
    "locks release",
    "hooks create",
    "hooks list",
    "hooks show",
    "hooks delete",
    "secrets set",
    "secrets list",
    "secrets show",
    "secrets grant",
    "secrets revoke",
    "secrets delete",
    "secrets rotate-key",
    "web",
    "whoami",
    "access show",
    "access init",
    "access renew",
    "tokens create",
    "tokens list",
    "tokens revoke",
    "sessions create",
    "sessions list",
    "sessions revoke",
    "audit list",
    "audit show",
    "audit verify",
    "audit export",
    "service install",
    "service logs",
    "service restart",
    "service rollback",
    "service status",
    "service uninstall",
    "service upgrade",
    "system info",
    "system config",
    "system gc",
    "system doctor",
    "system drain",
    "system reload",
    "system resume",
    "dev",
    "context add",
    "context use",
    "context list",
    "context show",
    "context rename",
    "context remove",
    "completion",
    "man",
    "schema",
    "version",
]


GROUPS = sorted({command.split()[0] for command in COMMANDS if " " in command})


def _tree() -> dict[str, Command]:
    found: dict[str, Command] = {}
    for name, entry in PROGRAM.entries.items():
        if entry.words:
            continue
        match PROGRAM.load(name):
            case Group() as group:
                found |= {f"{name} {verb}": command for verb, command in group.commands.items()}
            case command:
                found[name] = command
    return found


def test_these_are_all_commands() -> None:
    assert sorted(_tree()) == sorted(COMMANDS)


def test_the_table_has_the_summaries_of_the_commands() -> None:
    for name, entry in PROGRAM.entries.items():
        if not entry.words:
            assert entry.summary == summary(PROGRAM.load(name).help), name


def test_short_forms_lead_to_commands(bare: Cli) -> None:
    forms = {name: entry.words for name, entry in PROGRAM.entries.items() if entry.words}
    assert {"ps", "show", "watch", "cancel", "retry", "approve", "next"} <= forms.keys()
    help_text = bare("--help").out
    for name, words in forms.items():
        assert " ".join(words[:2]) in COMMANDS
        assert bare(name, "--help").out == bare(*words[:2], "--help").out
        assert f"{name} = {' '.join(words)}" in help_text


def test_words_of_other_programs_lead_to_commands() -> None:
    short = [name for name, entry in PROGRAM.entries.items() if entry.words]
    assert set(PROGRAM.meant.values()) <= {*COMMANDS, *short}
    assert not set(PROGRAM.meant) & set(PROGRAM.entries)


# What a short option means in every command that has it.
MEANINGS = {
    "-S": "--step",
    "-W": "--wait",
    "-a": "--action",
    "-d": "--data",
    "-f": "--follow",
    "-j": "--job",
    "-l": "--label",
    "-m": "--note",
    "-O": "--to",
    "-o": "--output",
    "-p": "--param",
    "-q": "--quiet",
    "-r": "--run",
    "-s": "--state",
    "-t": "--timestamps",
    "-v": "--verbose",
    "-w": "--workflow",
    "-y": "--yes",
}
# How many: the word depends on what is counted.
COUNTS = {"--count", "--limit", "--tail"}


def test_a_short_option_has_one_meaning_over_all_commands() -> None:
    for path, command in _tree().items():
        for each in [*parameters(command.function), *PROGRAM.shared]:
            names = getattr(each.spec, "names", ())
            for short in (name for name in names if not name.startswith("--")):
                meant = COUNTS if short == "-n" else {MEANINGS[short]}
                assert meant & set(names), f"{path}: {short}"


def test_every_other_command_has_an_output_option() -> None:
    without = {
        path for path, command in _tree().items() if all(each.name != "output" for each in parameters(command.function))
    }
    assert without == {"audit export", "completion", "dev", "man", "schema", "version", "web"}


def test_a_short_option_has_one_meaning_within_a_command() -> None:
    shared = {name for each in PROGRAM.shared for name in getattr(each.spec, "names", ())}
    for path, command in _tree().items():
        names = [name for each in parameters(command.function) for name in getattr(each.spec, "names", ())]
        assert len(names) == len(set(names)), path
        assert set(names) & shared <= {"-o", "--output", "--version"}, path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(bare: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = bare(*command.split(), "--help")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith(f"Usage: toban {command}")
    summary = lines[2].strip()
    assert summary.endswith(".")
    assert len(summary) <= 63, "it would be cut in the list of commands"
    heading = next(index for index, line in enumerate(lines) if line.strip() in ("Example:", "Examples:"))
    assert "toban" in lines[heading + 1]
    assert max(len(line) for line in lines) <= 80
    assert "\b" not in result.out


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_verb_shows_its_help(bare: Cli, group: str) -> None:
    loaded = PROGRAM.load(group)
    assert isinstance(loaded, Group)
    if default := loaded.default:
        assert f"{group} {default}" in COMMANDS
        return
    result = bare(group)
    assert result.code == 2
    assert result.err.startswith(f"Usage: toban {group}")
    assert "..." not in result.err.split("Commands:")[1]


def test_the_main_help_lists_the_verbs(bare: Cli) -> None:
    result = bare("--help")
    assert result.code == 0
    for verb in (
        "apply",
        "validate",
        "workflows",
        "jobs",
        "status",
        "top",
        "run",
        "runs",
        "logs",
        "dead-letters",
        "locks",
        "system",
        "dev",
        "version",
    ):
        assert f"\n  {verb} " in result.out
    assert "--install-completion" not in result.out
    assert result.out == bare("-h").out


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(bare: Cli, arguments: list[str]) -> None:
    assert bare(*arguments).out == f"toban {__version__}\n"
    # The short way, without loading the rest, says the same.
    done = subprocess.run([sys.executable, "-m", "toban.cli", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == f"toban {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["bogus"], "no such command 'bogus'", "`toban --help`"),
        (["nightly#3"], "no such command 'nightly#3'", "`toban show nightly#3` shows a run"),
        (["cancl", "x"], "Did you mean 'cancel'?", "`toban --help`"),
        (["runz"], "Did you mean 'run', 'runs'?", "`toban --help`"),
        (["stop", "x"], "no such command 'stop'. Did you mean 'cancel'?", "`toban --help`"),
        (["health"], "Did you mean 'system info'?", "`toban --help`"),
        (["runs", "rm", "x"], "Did you mean 'delete'?", "`toban runs --help`"),
        (["jobs", "start", "x"], "Did you mean 'run'?", "`toban jobs --help`"),
        (["tokens", "pause"], "no such command 'pause'", "`toban tokens --help`"),
        (["run"], "missing argument 'NAME'", "`toban run --help`"),
        (["run", "x", "--nonsense"], "no such option: --nonsense", "`toban run --help`"),
        (
            ["runs", "list", "--serve", "x"],
            "no such option: --serve; did you mean --server?",
            "`toban runs list --help`",
        ),
        (["-o", "xml", "version"], "'xml' is not one of 'table', 'json'", "`toban --help`"),
        (["runs", "list", "-o", "xml"], "'xml' is not one of", "`toban runs list --help`"),
        (["-o", "json", "version"], "toban version writes text in one format only", "`toban version --help`"),
        (["completion", "bash", "-o", "yaml"], "toban completion writes text in one format", "completion --help`"),
        (["man", "runs", "-o", "name"], "toban man writes text in one format only", "`toban man --help`"),
        (["schema", "runs", "list", "-o", "yaml"], "toban schema writes text in one format", "schema --help`"),
        (["dev", "-o", "json"], "toban dev writes text in one format only: leave out -o", "`toban dev --help`"),
        (["runs", "list", "--limit", "0"], "--limit", "`toban runs list --help`"),
        (["runs", "list", "--state", "odd"], "'odd' is not one of", "`toban runs list --help`"),
    ],
)
def test_wrong_usage(bare: Cli, arguments: list[str], message: str, hint: str) -> None:
    result = bare(*arguments)
    assert result.code == 2
    assert result.out == ""
    first, second = result.err.splitlines()
    assert first.startswith("toban: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], ["grpc", "rich", "toban.definition", "pydantic", "ruamel", "asyncio"]),
        (["runs", "--help"], ["grpc", "rich", "toban.definition", "pydantic", "ruamel", "asyncio"]),
        (["version"], ["grpc", "rich", "toban.definition", "pydantic", "asyncio"]),
        (["validate", "--schema"], ["grpc", "rich"]),
    ],
)
def test_start_up_loads_only_what_it_needs(arguments: list[str], unwanted: list[str]) -> None:
    code = (
        "import sys; from toban.cli import main; sys.argv[0] = 'toban'; main(); "
        f"print([name for name in {unwanted!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
