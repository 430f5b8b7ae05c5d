"""The command line: its commands, its global options, and the exit code of every error.

To start fast, a command is loaded only when it is called.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final, TextIO

from toban import __version__
from toban.cli.command_table import MEANT, SECTIONS
from toban.cli.error_report import Failure
from toban.cli.exits import INTERRUPTED, Exit
from toban.cli.human_text import one_line
from toban.cli.safe_streams import gates
from toban.cli.session import OutputFormat, complain
from toban.cli.syntax import Command, CommandContext, ExitCommand, Group, Option, UsageError
from toban.cli.syntax.parameters import parameters
from toban.cli.syntax.program import Program, ProgramEntry


def _contexts(incomplete: str) -> list[str]:
    from toban.cli.args.completers import context_names

    return context_names(incomplete)


def options(
    server: Annotated[
        str | None,
        Option(
            "--server",
            metavar="ADDRESS",
            help="Daemon to use: unix:///path or tls://host:port; also TOBAN_SERVER (default: a local daemon).",
        ),
    ] = None,
    context: Annotated[
        str | None,
        Option(
            "--context",
            metavar="NAME",
            help="Daemon to use, by the name that `toban context add` gave it; also TOBAN_CONTEXT.",
            autocompletion=_contexts,
        ),
    ] = None,
    token_file: Annotated[
        str | None, Option("--token-file", metavar="FILE", help="File with your token; also TOBAN_TOKEN_FILE.")
    ] = None,
    ca: Annotated[
        str | None,
        Option("--ca", metavar="FILE", help="Certificates to trust for tls://; also TOBAN_CA (default: the system's)."),
    ] = None,
    certificate: Annotated[
        str | None, Option("--certificate", metavar="FILE", help="Your client certificate; also TOBAN_CERT.")
    ] = None,
    key: Annotated[str | None, Option("--key", metavar="FILE", help="Its key; also TOBAN_KEY.")] = None,
    output: Annotated[
        OutputFormat,
        Option(
            "-o", "--output", metavar="FORMAT", help="Output format: table, json, yaml or name.", show_default=False
        ),
    ] = OutputFormat.TABLE,
    no_color: Annotated[bool, Option("--no-color", help="Disable colors; also NO_COLOR.")] = False,
    quiet: Annotated[bool, Option("-q", "--quiet", help="Print only results and errors.")] = False,
    verbose: Annotated[
        bool, Option("-v", "--verbose", help="Print more details, and tracebacks of internal errors.")
    ] = False,
    version: Annotated[bool, Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """The options of every command."""


def _load(entry: ProgramEntry) -> Command | Group:
    module = import_module(f"toban.cli.commands.{entry.module}")
    group: Group | None = getattr(module, "app", None)
    return group or Command(entry.name, getattr(module, entry.name))


def _help() -> str:
    from toban.cli.syntax.help_text import help_row, option_section

    parts = [
        "Usage: toban COMMAND [OPTIONS] [ARGUMENTS]",
        "  Define, run and watch workflows.",
        _EXAMPLES,
        *(_section(heading, entries) for heading, entries in SECTIONS.items()),
        option_section(PROGRAM.shared, [help_row()]),
        "Options may stand before or after the command. `toban COMMAND --help` explains a command.",
    ]
    return "\n\n".join(parts)


def _section(heading: str, entries: Sequence[ProgramEntry]) -> str:
    from toban.cli.syntax.help_text import section, width, wrap

    if not entries[0].words:
        return section(heading, [(each.name, each.summary) for each in entries])
    text = ", ".join(f"{each.name} = {'_'.join(each.words)}".replace(" ", "_") for each in entries)
    return "\n".join([f"{heading}:", *(f"  {line}" for line in wrap(text, width() - 2))]).replace("_", " ")


_EXAMPLES: Final = """\
  Examples:
    toban dev                             start a daemon to try things out
    toban apply nightly.yaml              store a workflow
    toban run nightly-report --follow     run it and watch it
    toban logs nightly-report             show its output"""

# What is probably the name or the id of a run.
_RUN: Final = re.compile(r"[^\s#']+#\d+|(?=.*\d)[0-9a-f-]{8,36}", re.ASCII)

PROGRAM: Final = Program(
    "toban", SECTIONS, load=_load, shared=options, help_text=_help, examples=_EXAMPLES, meant=MEANT
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code. Never raises for errors that a user can cause."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    with gates():
        return _run(given)


def _run(given: Sequence[str]) -> int:
    try:
        code = _complete() if "_TOBAN_COMPLETE" in os.environ else _invoke(given)
        sys.stdout.flush()
    except Failure as failure:
        code = _report(failure.message, failure.code, lines=failure.lines, hint=failure.hint)
    except UsageError as error:
        code = _usage(error)
    except KeyboardInterrupt:
        complain("toban: interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        # `toban logs … | head`: the reader has all it wants.
        _close_stdout()
        code = Exit.DONE
    except UnicodeEncodeError:
        code = _report(
            "cannot read the command line: an argument is not UTF-8",
            Exit.USAGE,
            hint="names and paths for the daemon must be UTF-8",
        )
    except Exception as error:
        code = _internal(error, verbose=not {"-v", "--verbose"}.isdisjoint(given))
    _flush()
    return code


def _complete() -> int:
    from toban.cli.syntax.shell_completion import answer

    found = answer(PROGRAM, os.environ)
    if found:
        print(found)
    return Exit.DONE


def _invoke(arguments: Sequence[str]) -> int:
    try:
        PROGRAM.run(arguments, prepared=_prepared)
    except ExitCommand as ended:
        return ended.code
    return Exit.DONE


def _prepared(context: CommandContext, command: Command | None) -> None:
    """Answers --version; refuses -o for a command that has only one format."""
    if context.globals.get("version"):
        print(f"toban {__version__}")
        raise ExitCommand
    if command is None or context.globals.get("output", OutputFormat.TABLE) is OutputFormat.TABLE:
        return
    if all(parameter.name != "output" for parameter in parameters(command.function)):
        raise UsageError(f"{context.path} writes text in one format only: leave out -o", context.path)


def _report(message: str, code: int, *, lines: Sequence[str] = (), hint: str = "") -> int:
    _flush()
    complain(f"toban: {one_line(message)}")
    for line in lines:
        complain(f"  {one_line(line)}")
    if hint:
        complain(f"hint: {hint}")
    return code


def _usage(error: UsageError) -> int:
    if error.message.startswith("Usage:"):
        # A line without a command: show the help.
        _flush()
        complain(error.message)
        return Exit.USAGE
    hint = f"see `{error.path} --help`"
    if error.command and _RUN.fullmatch(error.command):
        hint = f"`toban show {error.command}` shows a run, `toban logs {error.command}` its output"
    return _report(error.message, Exit.USAGE, hint=hint)


def _internal(error: Exception, *, verbose: bool) -> int:
    if verbose:
        import traceback

        _flush()
        traceback.print_exception(error)
    text = str(error).strip()
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    hint = "" if verbose else "please report this, with the output of toban -v …"
    return _report(f"internal error: {what}", Exit.INTERNAL, hint=hint)


def _prepare_streams() -> None:
    """Makes missing standard streams and limited encodings harmless."""
    if sys.stdout is None:
        sys.stdout = _null()
    if sys.stderr is None:
        sys.stderr = _null()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _close_stdout()


def _close_stdout() -> None:
    """Discards the rest of the output, also what the interpreter flushes at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        sys.stdout = _null()


def _null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
