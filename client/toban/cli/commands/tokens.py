"""`toban tokens`: creates, lists and revokes tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import token_names
from toban.cli.args.labels import parse_labels
from toban.cli.args.name_arguments import connect, listed_id
from toban.cli.args.time_options import expiry_option
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.human_text import clock, enum_word
from toban.cli.render.access_text import narrowing_text, role_text
from toban.cli.render.output import Column, emit_data, emit_list, report_done, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.v1 import access_pb2

app = Group(
    name="tokens",
    help="""Create, list and revoke tokens.

    \b
    Examples:
      toban tokens create ci --role operator --expires 90d --to ci.token
      toban tokens revoke ci
    """,
)


class GrantedRole(Enum):
    """Roles on the command line; each includes those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


@app.command()
def create(
    ctx: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Name for the token.", show_default=False)],
    role: Annotated[
        GrantedRole,
        Option("--role", metavar="ROLE", help="viewer, operator (runs), editor (definitions) or admin."),
    ],
    workflows: Annotated[
        list[str] | None,
        Option(
            "--workflows", metavar="PATTERN", help="Only workflows with such a name, as in nightly-*; may be repeated."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        Option("--label", "-l", metavar="KEY=VALUE", help="Only workflows with this label; may be repeated."),
    ] = None,
    expires: Annotated[
        str, Option("--expires", metavar="TIME", help="When it ends: 90d, or a date.", show_default=False)
    ] = "",
    to: Annotated[
        str,
        Option("--to", "-O", metavar="FILE", help="Write it to a new file that only you can read.", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Create a token, and print it for the only time.

    The token gives its role to its holder: keep it like a password. Without --expires it is valid until it is revoked.

    \b
    Examples:
      toban tokens create ci --role operator --expires 90d --to ci.token
      toban tokens create nightly --role operator --workflows 'nightly-*'
      toban tokens create aiko --role admin > aiko.token
    """
    from toban.v1 import access_rule_pb2

    here = session(ctx, output)
    what = f"create token {shown(name)}"
    labels = parse_labels(label or [], what)
    expires_at = expiry_option(expires, "--expires", what)
    with _new_file(to, what) as file:
        with connect(here, what) as client:
            number = access_rule_pb2.Role.Value(f"ROLE_{role.name}")
            made = client.create_token(name, number, workflows=workflows or (), labels=labels, expires_at=expires_at)
        if file is not None:
            _write(file, made, to)
            made.text = ""
    _report(here, made, to)


def _report(here: Session, made: access_pb2.CreateTokenResponse, to: str) -> None:
    token = made.token
    match here.output:
        case OutputFormat.TABLE if made.text:
            print(made.text, flush=True)
        case OutputFormat.TABLE:
            print(f"wrote {to}")
        case OutputFormat.NAME:
            print(token.name)
        case _:
            emit_data(here, to_dict(made))
    limited = f", limited to {narrowing_text(token.narrowing)}" if token.HasField("narrowing") else ""
    until = f", until {clock(token.expires_at)}" if token.HasField("expires_at") else ""
    again = "" if to else "; it is not shown again"
    here.note(f"created token {token.name}: {role_text(token.role)}{limited}{until}{again}")


@contextmanager
def _new_file(path: str, what: str) -> Iterator[int | None]:
    """A descriptor of a new, private file, which is removed if the block fails. None without a path."""
    if not path:
        yield None
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot {what}: {path}: {reason}", Exit.USAGE) from None
    try:
        yield file
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)


def _write(file: int, made: access_pb2.CreateTokenResponse, path: str) -> None:
    """Raises Failure with a file that cannot be written: the token exists then, but is lost."""
    try:
        data = f"{made.text}\n".encode()
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except OSError as error:
        raise Failure(
            f"created the token {made.token.name}, but cannot write it to {path}: {error.strerror}",
            Exit.INTERNAL,
            hint=f"`toban tokens revoke {made.token.name}`, then create it again",
        ) from None


@app.command("list")
def list_(
    ctx: CommandContext,
    every: Annotated[bool, Option("--all", help="Also expired and revoked tokens.")] = False,
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List the tokens, oldest first, without their texts.

    \b
    Examples:
      toban tokens list
      toban tokens list --all -o json
    """
    here = session(ctx, output)
    with connect(here, "list the tokens") as client:
        found, more = take(client.list_tokens(include_ended=every, page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[access_pb2.Token]] = [
        Column("NAME", lambda token: token.name, lambda _: "bold"),
        Column("ROLE", lambda token: role_text(token.role)),
        Column("STATE", _state, lambda token: "" if _state(token) == "valid" else "dim"),
        Column("LIMITED TO", lambda token: narrowing_text(token.narrowing), folds=True),
        time_column("EXPIRES", lambda token: token.expires_at),
        time_column("LAST USED", lambda token: token.last_used_at, optional=True),
        Column("CREATED BY", lambda token: token.created_by, optional=True),
        Column("ID", lambda token: token.id, optional=True),
    ]
    emit_list(here, found, columns, name=lambda token: str(token.name), more=more, empty="no tokens")


def _state(token: access_pb2.Token) -> str:
    from toban.v1 import access_pb2

    return enum_word(access_pb2.TokenState, token.state)


@app.command()
def revoke(
    ctx: CommandContext,
    tokens: Annotated[
        list[str],
        Argument(
            metavar="TOKEN",
            help="Names or ids of tokens, or parts of ids.",
            show_default=False,
            autocompletion=token_names,
        ),
    ],
    output: OutputOption = None,
) -> None:
    """End tokens at once, and the streams that were opened with them.

    It cannot be undone. The name is free for another token.

    \b
    Examples:
      toban tokens revoke ci
      toban tokens revoke 0123456789abcdef
    """
    here = session(ctx, output)
    revoked: list[access_pb2.Token] = []
    with connect(here, "revoke tokens") as client:
        listed = {one.id: one.name for one in client.list_tokens(include_ended=True, page_size=1000)}
        for each in tokens:
            with doing(f"revoke token {shown(each)}"):
                revoked.append(client.revoke_token(listed_id("token", each, listed)))
            # At once: it stays revoked even if the next one fails.
            report_done(here, revoked[-1].name, "revoked")
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [to_dict(token) for token in revoked])
