"""`toban context`: names for daemons, and which of them is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import context_names
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.render.output import Column, emit_data, fields, report_done, table
from toban.cli.session import OutputFormat, OutputOption, Session, quiet_grpc, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option

if TYPE_CHECKING:
    from toban.sdk.contexts import Contexts

app = Group(
    name="context",
    help="""Name daemons, and choose the one to use.

    --server and --context win over TOBAN_SERVER, which wins over TOBAN_CONTEXT, which wins over the current context.
    Without any of them a local daemon is used.

    \b
    Examples:
      toban context add prod --server 127.0.0.1:7700
      toban context use prod
      toban --context prod runs list
    """,
)

ContextName = Annotated[
    str, Argument(metavar="NAME", help="Name of the context.", show_default=False, autocompletion=context_names)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDaemon:
    """A context as it is shown."""

    name: str
    server: str
    current: bool


@app.command()
def add(
    ctx: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Name for the daemon.", show_default=False)],
    use_it: Annotated[bool, Option("--use", help="Use it from now on.")] = False,
    replace: Annotated[bool, Option("--replace", help="Change the address if the context exists.")] = False,
    output: OutputOption = None,
) -> None:
    """Give a daemon a name.

    Its address is that of --server.

    \b
    Examples:
      toban context add prod --server 127.0.0.1:7700
      toban context add dev --server unix:///tmp/toban-dev/toban.sock --use
    """
    here = session(ctx, output)
    if not here.server:
        raise Failure(
            "cannot add a context: --server is missing", Exit.USAGE, hint="--server unix:///path or host:port"
        )
    with _changing(f"add context {shown(name)}") as contexts:
        from toban.sdk.address import parse

        server = parse(here.server).text
        known = name in contexts.servers
        if known and replace:
            contexts.set_server(name, server)
        else:
            contexts.add(name, server)
        if use_it:
            contexts.use(name)
    _report(here, contexts, name, "changed" if known else "added")


@app.command()
def use(
    ctx: CommandContext,
    name: Annotated[
        str, Argument(metavar="NAME", help="Name of the context.", show_default=False, autocompletion=context_names)
    ] = "",
    none: Annotated[bool, Option("--none", help="Use no context: the local daemon again.")] = False,
    output: OutputOption = None,
) -> None:
    """Make a context the current one.

    \b
    Examples:
      toban context use prod
      toban context use --none
    """
    here = session(ctx, output)
    if bool(name) == none:
        raise Failure("cannot choose a context: give either a NAME or --none", Exit.USAGE)
    with _changing(f"use context {shown(name)}" if name else "use no context") as contexts:
        contexts.use(name)
    if name:
        _report(here, contexts, name, "using")
    elif here.output is OutputFormat.TABLE:
        print("using no context")
    elif here.output is not OutputFormat.NAME:
        emit_data(here, None)
    variable = next((each for each in ("TOBAN_SERVER", "TOBAN_CONTEXT") if os.environ.get(each)), "")
    if variable:
        here.warn(f"this has no effect here until {variable} is unset")


@app.command("list")
def list_(ctx: CommandContext, output: OutputOption = None) -> None:
    """List the contexts; * marks the current one.

    \b
    Examples:
      toban context list
      toban context list -o json
    """
    here = session(ctx, output)
    contexts = _load("list the contexts")
    found = [_named(contexts, name) for name in contexts.servers]
    if here.output is OutputFormat.NAME:
        for each in found:
            print(each.name)
    elif here.output is not OutputFormat.TABLE:
        emit_data(here, [asdict(each) for each in found])
    elif found:
        columns: list[Column[NamedDaemon]] = [
            Column("", lambda each: "*" if each.current else ""),
            Column("NAME", lambda each: each.name, lambda _: "bold"),
            Column("SERVER", lambda each: each.server, folds=True),
        ]
        table(here, found, columns)
    else:
        here.note("no contexts")


@app.command()
def show(
    ctx: CommandContext,
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="Name of the context (default: the one in use).",
            show_default=False,
            autocompletion=context_names,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Show a context, by default the one in use.

    \b
    Examples:
      toban context show
      toban context show prod
    """
    here = session(ctx, output)
    contexts = _load("show the context")
    chosen = name or here.context or os.environ.get("TOBAN_CONTEXT") or contexts.current
    if not chosen:
        raise Failure(
            "cannot show the context: none is in use", Exit.NOT_FOUND, hint="`toban context use NAME` sets one"
        )
    with doing("show the context"):
        contexts.server(chosen)
    if here.output is OutputFormat.TABLE:
        found = _named(contexts, chosen)
        pairs = (("Name", found.name), ("Server", found.server), ("Current", "yes" if found.current else "no"))
        fields(here, [*pairs, ("File", contexts.path)])
    else:
        _report(here, contexts, chosen, "")


@app.command()
def rename(
    ctx: CommandContext,
    name: ContextName,
    new: Annotated[str, Argument(metavar="NEW", help="Its new name.", show_default=False)],
    output: OutputOption = None,
) -> None:
    """Change the name of a context.

    \b
    Example:
      toban context rename prod production
    """
    here = session(ctx, output)
    with _changing(f"rename context {shown(name)}") as contexts:
        contexts.rename(name, new)
    _report(here, contexts, new, "renamed")


@app.command()
def remove(ctx: CommandContext, name: ContextName, output: OutputOption = None) -> None:
    """Forget the name of a daemon; the daemon itself is not affected.

    \b
    Example:
      toban context remove prod
    """
    here = session(ctx, output)
    with _changing(f"remove context {shown(name)}") as contexts:
        contexts.server(name)
        removed = _named(contexts, name)
        contexts.remove(name)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, asdict(removed))
    else:
        report_done(here, name, "removed")
    if removed.current:
        here.note("no context is current now")


@contextmanager
def _changing(what: str) -> Iterator[Contexts]:
    quiet_grpc()
    from toban.sdk.contexts import changing

    with doing(what), changing() as contexts:
        yield contexts


def _load(what: str) -> Contexts:
    quiet_grpc()
    from toban.sdk.contexts import load

    with doing(what):
        return load()


def _named(contexts: Contexts, name: str) -> NamedDaemon:
    return NamedDaemon(name=name, server=contexts.servers[name], current=name == contexts.current)


def _report(here: Session, contexts: Contexts, name: str, done: str) -> None:
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, asdict(_named(contexts, name)))
    else:
        report_done(here, name, done)
