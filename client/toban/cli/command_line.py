"""The command line: its commands, its global options, and the exit code of every error.

To start fast, only the commands that need gRPC, rich and the definition format import them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer

from toban import __version__
from toban.cli.commands import (
    apply,
    completion,
    dead_letters,
    dev,
    emit,
    events,
    import_,
    jobs,
    logs,
    run,
    runs,
    schedule,
    schedules,
    system,
    validate,
    why,
    workflows,
)
from toban.cli.error_report import Failure
from toban.cli.exits import INTERRUPTED, Exit
from toban.cli.human_text import one_line
from toban.cli.safe_streams import gates
from toban.cli.session import OutputFormat, Session, complain

app = typer.Typer(
    name="toban",
    help="""Define, run and watch workflows.

    \b
    Examples:
      toban dev                             start a daemon to try things out
      toban apply nightly.yaml              store a workflow
      toban run nightly-report --follow     run it and watch it
      toban logs nightly-report             show its output
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"toban {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="ADDRESS",
            help="Daemon to use: unix:///path or host:port; also TOBAN_SERVER (default: a local daemon).",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        OutputFormat,
        typer.Option(
            "-o",
            "--output",
            metavar="FORMAT",
            help="Output format: table, json, yaml or name; also after the command.",
            show_default=False,
        ),
    ] = OutputFormat.TABLE,
    no_color: Annotated[bool, typer.Option("--no-color", help="Disable colors; also NO_COLOR.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only results and errors.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print more details, and tracebacks of internal errors.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    ctx.obj = Session(server=server, output=output, no_color=no_color, quiet=quiet, verbose=verbose)


app.command()(apply.apply)
app.command()(validate.validate)
app.add_typer(import_.app)
app.add_typer(workflows.app)
app.add_typer(jobs.app)
app.command()(run.run)
app.add_typer(runs.app)
app.command()(logs.logs)
app.command()(why.why)
app.command()(emit.emit)
app.add_typer(events.app)
app.command()(schedule.schedule)
app.add_typer(schedules.app)
app.add_typer(dead_letters.app)
app.add_typer(system.app)
app.command()(dev.dev)
app.command()(completion.completion)


@app.command()
def version() -> None:
    """Show the version of this client.

    \b
    Example:
      toban version
    """
    print(f"toban {__version__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code. Never raises for errors that a user can cause."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    with gates():
        return _run(given)


def _run(given: Sequence[str]) -> int:
    try:
        asked = completion.answer_shell(app)
        code = _invoke(given) if asked is None else asked
        sys.stdout.flush()
    except Failure as failure:
        code = _report(failure.message, failure.code, lines=failure.lines, hint=failure.hint)
    except typer.TyperException as error:
        code = _usage(error)
    except (KeyboardInterrupt, typer.Abort):
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


@functools.cache
def _command() -> Any:
    return typer.main.get_command(app)


def _invoke(arguments: Sequence[str]) -> int:
    command = _command()
    try:
        with command.make_context("toban", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return Exit.DONE


def _report(message: str, code: int, *, lines: Sequence[str] = (), hint: str = "") -> int:
    _flush()
    complain(f"toban: {one_line(message)}")
    for line in lines:
        complain(f"  {one_line(line)}")
    if hint:
        complain(f"hint: {hint}")
    return code


def _usage(error: typer.TyperException) -> int:
    message = error.format_message().strip().replace("Value error, ", "")
    if message.startswith("Usage:"):
        # A group without a command: show its help.
        complain(message)
        return Exit.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "toban"
    hint = f"see `{path} --help`"
    word = getattr(error, "option_name", "").lstrip("-")
    if path != "toban" and word in ("server", "no-color", "q", "quiet", "v", "verbose"):
        hint = f"put global options before the command: toban {error.option_name} …"  # type: ignore[attr-defined]
    return _report(f"{message[:1].lower()}{message[1:].rstrip('.')}", Exit.USAGE, hint=hint)


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
