"""`toban context`: names for daemons with the credentials for them, and which of them is used."""

from __future__ import annotations

import os
import sys
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
    Without any of them a local daemon is used. The credentials of a context are sent to its daemon only.

    \b
    Examples:
      toban context add prod --server tls://toban.example.org --ca ca.crt --token-file token
      toban context use prod
      toban --context prod runs list
    """,
)

# Characters of standard input that are read for a token.
_LONGEST_TOKEN = 65536

ContextName = Annotated[
    str, Argument(metavar="NAME", help="Name of the context.", show_default=False, autocompletion=context_names)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDaemon:
    """A context as it is shown."""

    name: str
    server: str
    current: bool
    credentials: list[str]
    """Their kinds: token, ca, certificate."""


@app.command()
def add(
    ctx: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Name for the daemon.", show_default=False)],
    use_it: Annotated[bool, Option("--use", help="Use it from now on.")] = False,
    replace: Annotated[
        bool, Option("--replace", help="Change the address and the credentials if the context exists.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Give a daemon a name, and store the credentials for it.

    Its address is that of --server. The contents of the files of --ca, --certificate, --key and --token-file are copied
    into the context, which only you can read. --token-file - reads the token from standard input; on a terminal,
    a tls:// server without a token or a certificate asks for the token.

    \b
    Examples:
      toban context add prod --server tls://toban.example.org --ca ca.crt
      toban context add ci --server tls://10.0.0.7 --ca ca.crt --token-file token
      toban context add dev --server unix:///tmp/toban-dev/toban.sock
    """
    here = session(ctx, output)
    if not here.server:
        raise Failure(
            "cannot add a context: --server is missing", Exit.USAGE, hint="--server unix:///path or tls://host:port"
        )
    what = f"add context {shown(name)}"
    quiet_grpc()
    from toban.sdk.address import parse

    with doing(what):
        server = parse(here.server)
        credentials = _credentials(here, tls=server.tls)
    with _changing(what) as contexts:
        known = name in contexts.servers
        if known and replace:
            contexts.replace(name, server.text, credentials)
        else:
            contexts.add(name, server.text, credentials)
        if use_it:
            contexts.use(name)
    _report(here, contexts, name, "changed" if known else "added")


def _credentials(here: Session, *, tls: bool) -> dict[str, str]:
    """What the options and the prompt give, by the keys of a context. Raises a TobanError."""
    from toban.sdk import InvalidArgument
    from toban.sdk.credentials import ClientCredentials, checked_token, read_tls_files, read_token_file

    given = ClientCredentials(ca=here.ca or b"", certificate=here.certificate or b"", key=here.key or b"")
    if given.has_tls and not tls:
        raise InvalidArgument("certificates need an address of the form tls://HOST:PORT")
    files = read_tls_files(given)
    found = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
    token = ""
    if here.token_file == "-":  # noqa: S105 - a file name
        token = checked_token(sys.stdin.read(_LONGEST_TOKEN), "on standard input")
    elif here.token_file:
        token = read_token_file(here.token_file)
    elif tls and not files.certificate and sys.stdin.isatty():
        import getpass

        typed = getpass.getpass("Token (empty for none): ")
        token = checked_token(typed, "that was typed") if typed.strip() else ""
    texts = {key: content.decode("ascii", "replace") for key, content in found.items() if content}
    return texts | ({"token": token} if token else {})


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
            Column("CREDENTIALS", lambda each: ", ".join(each.credentials), optional=True),
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

    Tokens and keys are not shown.

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
        fields(
            here,
            [
                ("Name", found.name),
                ("Server", found.server),
                ("Credentials", ", ".join(found.credentials)),
                ("Current", "yes" if found.current else "no"),
                ("File", contexts.path),
            ],
        )
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
    credentials = contexts.credentials(name)
    kinds = [kind for kind in ("token", "ca", "certificate") if getattr(credentials, kind)]
    return NamedDaemon(name=name, server=contexts.servers[name], current=name == contexts.current, credentials=kinds)


def _report(here: Session, contexts: Contexts, name: str, done: str) -> None:
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, asdict(_named(contexts, name)))
    else:
        report_done(here, name, done)
