"""`toban whoami`: the identity of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.cli.args.name_arguments import connect
from toban.cli.human_text import clock, enum_word
from toban.cli.render.access_text import narrowing_text, role_text
from toban.cli.render.output import emit_one, fields
from toban.cli.session import OutputOption, Session, session
from toban.cli.syntax import CommandContext

if TYPE_CHECKING:
    from toban.v1 import access_pb2


def whoami(ctx: CommandContext, output: OutputOption = None) -> None:
    """Show who you are to the daemon, and what you may do.

    Records, the audit log and approvals use this name.

    \b
    Examples:
      toban whoami
      toban whoami --context prod -o json
    """
    here = session(ctx, output)
    with connect(here, "find out who you are") as client:
        found = client.who_am_i()
        server = client.address.text
    emit_one(here, found, name=found.identity.name, show=lambda: _show(here, found.identity, server))


def _show(here: Session, identity: access_pb2.Identity, server: str) -> None:
    from toban.v1 import access_pb2

    fields(
        here,
        [
            ("identity", identity.name),
            ("proved by", enum_word(access_pb2.IdentityKind, identity.kind)),
            ("role", role_text(identity.role)),
            ("limited to", narrowing_text(identity.narrowing)),
            ("also called", ", ".join(identity.aliases)),
            ("session", identity.session_id),
            ("expires", clock(identity.expires_at, absent="")),
            ("daemon", server),
        ],
    )
    if identity.kind == access_pb2.IDENTITY_KIND_SOCKET:
        here.note("hint: the daemon knows you only by your socket: you match no approver by name")
