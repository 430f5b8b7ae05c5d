"""`toban sessions`: creates, lists and revokes sessions of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import session_ids
from toban.cli.args.labels import parse_labels
from toban.cli.args.name_arguments import connect, listed_id
from toban.cli.args.time_options import expiry_option
from toban.cli.commands.tokens import GrantedRole
from toban.cli.error_report import doing
from toban.cli.human_text import clock
from toban.cli.render.access_text import narrowing_text, role_text
from toban.cli.render.output import Column, emit_data, emit_list, report_done, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.v1 import access_pb2

app = Group(
    name="sessions",
    help="""Create, list and revoke short-lived tokens of your own.

    \b
    Examples:
      toban sessions create "browser on the laptop" --role viewer
      toban sessions revoke 0123456789abcdef
    """,
)


@app.command()
def create(
    ctx: CommandContext,
    text: Annotated[
        str, Argument(metavar="[LABEL]", help="What it is for, such as the name of a browser.", show_default=False)
    ] = "",
    role: Annotated[
        GrantedRole | None,
        Option("--role", metavar="ROLE", help="At most your own role, which is the default.", show_default=False),
    ] = None,
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
        str,
        Option("--expires", metavar="TIME", help="When it ends: 12h, at most 7d.", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Create a session, and print it for the only time.

    A session is a token with your name and at most your rights, for a program that makes calls for you. It ends after
    12 hours or at --expires, with the credential that created it, and when the daemon stops.

    \b
    Examples:
      toban sessions create
      toban sessions create browser --role viewer --expires 8h
    """
    from toban.v1 import access_rule_pb2

    here = session(ctx, output)
    what = "create a session"
    labels = parse_labels(label or [], what)
    expires_at = expiry_option(expires, "--expires", what)
    number = access_rule_pb2.Role.Value(f"ROLE_{role.name}") if role else access_rule_pb2.ROLE_UNSPECIFIED
    with connect(here, what) as client:
        made = client.create_session(text, role=number, workflows=workflows or (), labels=labels, expires_at=expires_at)
    _report(here, made)


def _report(here: Session, made: access_pb2.CreateSessionResponse) -> None:
    created = made.session
    match here.output:
        case OutputFormat.TABLE:
            print(made.text, flush=True)
        case OutputFormat.NAME:
            print(created.id)
        case _:
            emit_data(here, to_dict(made))
    limited = f", limited to {narrowing_text(created.narrowing)}" if created.HasField("narrowing") else ""
    whose = f"created session {created.id} of {created.owner}"
    here.note(f"{whose}: {role_text(created.role)}{limited}, until {clock(created.expires_at)}; it is not shown again")


@app.command("list")
def list_(ctx: CommandContext, limit: LimitOption = 100, output: OutputOption = None) -> None:
    """List your valid sessions, oldest first, without their texts.

    An admin sees the sessions of all users.

    \b
    Examples:
      toban sessions list
      toban sessions list -o json
    """
    here = session(ctx, output)
    with connect(here, "list the sessions") as client:
        found, more = take(client.list_sessions(page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[access_pb2.Session]] = [
        Column("ID", lambda each: each.id, lambda _: "bold"),
        Column("OWNER", lambda each: each.owner),
        Column("LABEL", lambda each: each.label, folds=True),
        Column("ROLE", lambda each: role_text(each.role)),
        Column("LIMITED TO", lambda each: narrowing_text(each.narrowing), folds=True),
        time_column("EXPIRES", lambda each: each.expires_at),
        time_column("LAST USED", lambda each: each.last_used_at, optional=True),
    ]
    emit_list(here, found, columns, name=lambda each: str(each.id), more=more, empty="no sessions")


@app.command()
def revoke(
    ctx: CommandContext,
    ids: Annotated[
        list[str],
        Argument(
            metavar="ID", help="Ids of sessions, or parts of them.", show_default=False, autocompletion=session_ids
        ),
    ],
    output: OutputOption = None,
) -> None:
    """End sessions at once, with the streams opened with them.

    \b
    Examples:
      toban sessions revoke 0123456789abcdef
    """
    here = session(ctx, output)
    revoked: list[access_pb2.Session] = []
    with connect(here, "revoke sessions") as client:
        listed = {one.id: one.label for one in client.list_sessions(page_size=1000)}
        for each in ids:
            with doing(f"revoke session {shown(each)}"):
                revoked.append(client.revoke_session(listed_id("session", each, listed)))
            # At once: it stays revoked even if the next one fails.
            report_done(here, revoked[-1].id, "revoked")
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [to_dict(each) for each in revoked])
