"""`toban access`: shows who may reach the daemon, and makes certificates and a first token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.cli.args.name_arguments import connect
from toban.cli.commands import access_certificates
from toban.cli.render.access_text import role_text
from toban.cli.render.output import Column, emit_one, fields, paint, table
from toban.cli.session import OutputOption, Session, session
from toban.cli.syntax import CommandContext, Group

if TYPE_CHECKING:
    from toban.v1 import access_pb2

app = Group(
    name="access",
    help="""Show who may reach the daemon; make certificates.

    Without a command it shows the access.

    \b
    Examples:
      toban access
      toban access init --dir /etc/toban/tls --host toban.example.org
    """,
    default="show",
)


@app.command()
def show(ctx: CommandContext, output: OutputOption = None) -> None:
    """Show the addresses of the daemon, and the user of steps.

    The role of an address is that of callers without a credential. If steps run as the user of the daemon, roles and
    secrets are no boundary against those who define workflows.

    \b
    Examples:
      toban access show
      toban access show -o json
    """
    here = session(ctx, output)
    with connect(here, "show the access to the daemon") as client:
        found = client.get_access()
    emit_one(here, found, name="\n".join(door.address for door in found.doors), show=lambda: _show(here, found))


def _show(here: Session, found: access_pb2.GetAccessResponse) -> None:
    columns: list[Column[access_pb2.Door]] = [
        Column("ADDRESS", lambda door: door.address, lambda _: "bold", folds=True),
        Column("ROLE WITHOUT A CREDENTIAL", lambda door: role_text(door.role, "none: a credential is required")),
    ]
    table(here, found.doors, columns)
    print()
    fields(here, [("user of the daemon", found.daemon_user), ("user of steps", found.step_user)])
    if found.steps_share_user:
        warning = (
            "Steps run as the user of the daemon: they can read its database, keys and secrets, and open its sockets. "
            "Roles and secrets are no boundary against those who define workflows."
        )
        print(paint(here, warning, "yellow"))
        here.note("hint: set `step_user` in the configuration of the daemon")


app.command()(access_certificates.init)
app.command()(access_certificates.renew)
