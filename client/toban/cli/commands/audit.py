"""`toban audit`: shows, verifies and exports the audit log."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Annotated, BinaryIO

from toban.cli.args.name_arguments import connect
from toban.cli.args.time_options import time_option
from toban.cli.error_report import Failure
from toban.cli.exits import INTERRUPTED, Exit
from toban.cli.human_text import clock
from toban.cli.render.access_text import outcome_text
from toban.cli.render.output import Column, emit_list, emit_one, fields, take, time_column
from toban.cli.session import LimitOption, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, ExitCommand, Group, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted
from toban.safe_text import json_escaped

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import access_pb2

app = Group(
    name="audit",
    help="""Show, verify and export the audit log.

    It records every change and every refused call: who, from where, what, and on what.

    \b
    Examples:
      toban audit list --refused --since 1d
      toban audit verify
      toban audit export --to audit.jsonl
    """,
)

_PAGE = 1000
# Seconds between two looks for new entries.
_INTERVAL = 2.0
# The end of a file in which its last line is looked for; entries with a difference may be long.
_TAIL = 16 * 1024 * 1024
# How each line begins.
_ENTRY = b'{"sequence": '
_KNOWN = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")

ActorOption = Annotated[
    str, Option("--actor", metavar="NAME", help="Only of this identity, as in token:ci.", show_default=False)
]
MethodOption = Annotated[
    str, Option("--method", metavar="METHOD", help="Only calls of this method, as in StartRun.", show_default=False)
]
TargetOption = Annotated[
    str, Option("--target", metavar="NAME", help="Only about this workflow, run or other target.", show_default=False)
]
RefusedOption = Annotated[bool, Option("--refused", help="Only calls that were refused.")]
SinceOption = Annotated[
    str, Option("--since", metavar="TIME", help="Recorded since: 5m, 1d or a date and time.", show_default=False)
]
UntilOption = Annotated[str, Option("--until", metavar="TIME", help="Recorded before that time.", show_default=False)]


@app.command("list")
def list_(
    ctx: CommandContext,
    actor: ActorOption = "",
    method: MethodOption = "",
    target: TargetOption = "",
    refused: RefusedOption = False,
    since: SinceOption = "",
    until: UntilOption = "",
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List entries of the audit log, newest first.

    \b
    Examples:
      toban audit list
      toban audit list --refused --since 1d
      toban audit list --actor token:ci --method StartRun
    """
    from toban.v1 import access_pb2

    here = session(ctx, output)
    what = "list the audit log"
    after, before = time_option(since, "--since", what), time_option(until, "--until", what)
    with connect(here, what) as client:
        entries = client.list_audit_entries(
            actor=actor,
            method=method,
            target=target,
            outcome=access_pb2.AUDIT_OUTCOME_REFUSED if refused else access_pb2.AUDIT_OUTCOME_UNSPECIFIED,
            recorded_after=after,
            recorded_before=before,
            page_size=min(limit + 1, _PAGE),
        )
        found, more = take(entries, limit)
    columns: list[Column[access_pb2.AuditEntry]] = [
        Column("ENTRY", lambda entry: str(entry.sequence)),
        time_column("RECORDED", lambda entry: entry.recorded_at),
        Column("ACTOR", lambda entry: entry.actor or "-", lambda _: "bold", folds=True),
        Column("METHOD", lambda entry: entry.method),
        Column("TARGET", lambda entry: entry.target, folds=True),
        Column("OUTCOME", outcome_text, lambda entry: "red" if entry.reason else ""),
        Column("FROM", lambda entry: entry.source, optional=True),
    ]
    emit_list(here, found, columns, name=lambda entry: str(entry.sequence), more=more, empty="no entries")


@app.command()
def show(
    ctx: CommandContext,
    entry: Annotated[int, Argument(metavar="ENTRY", min=1, help="Number of the entry.", show_default=False)],
    output: OutputOption = None,
) -> None:
    """Show one entry with its details.

    The details show what changed, such as the difference between two versions of a definition.

    \b
    Example:
      toban audit show 120
    """
    here = session(ctx, output)
    what = f"show entry {entry} of the audit log"
    with connect(here, what) as client:
        entries = client.list_audit_entries(after_sequence=entry - 1, oldest_first=True, page_size=1)
        found = next(iter(entries), None)
    if found is None or found.sequence != entry:
        raise Failure(f"cannot {what}: no such entry", Exit.NOT_FOUND, hint="`toban audit list` lists the newest")
    emit_one(here, found, name=str(entry), show=lambda: _show(here, found))


def _show(here: Session, entry: access_pb2.AuditEntry) -> None:
    fields(
        here,
        [
            ("entry", str(entry.sequence)),
            ("recorded", clock(entry.recorded_at)),
            ("actor", entry.actor),
            ("role", entry.role),
            ("from", entry.source),
            ("method", entry.method),
            ("target", entry.target),
            ("outcome", outcome_text(entry)),
            ("request id", entry.request_id),
            ("hash", entry.hash),
        ],
    )
    if entry.detail:
        print(f"\n{entry.detail}")


@app.command()
def verify(
    ctx: CommandContext,
    known: Annotated[
        str,
        Option(
            "--known",
            metavar="ENTRY:HASH",
            help="An entry that you noted earlier: shows whether newer ones were removed.",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Compute all hashes again, to find changed entries.

    Exits with 1 if an entry was changed, added or removed. A user who can write the database could compute all hashes
    anew: note the last entry elsewhere, and give it with --known the next time.

    \b
    Examples:
      toban audit verify
      toban audit verify --known "$(cat last-entry)"
      toban audit verify -o name > last-entry
    """
    here = session(ctx, output)
    noted = _KNOWN.fullmatch(known)
    if known and noted is None:
        raise Failure(f"cannot verify the audit log: --known: {shown(known)} is not ENTRY:HASH", Exit.USAGE)
    with connect(here, "verify the audit log") as client:
        if noted is None:
            found = client.verify_audit()
        else:
            found = client.verify_audit(known_sequence=int(noted[1]), known_hash=noted[2])
    emit_one(here, found, name=f"{found.last_sequence}:{found.last_hash}", show=lambda: _show_verified(here, found))
    if found.HasField("broken"):
        broken = found.broken
        raise Failure(f"the audit log is broken at entry {broken.sequence}: {broken.reason}", Exit.RUN_FAILED)


def _show_verified(here: Session, found: access_pb2.VerifyAuditResponse) -> None:
    if found.HasField("broken"):
        return
    if not found.entries:
        print("the audit log is empty")
        return
    print(f"{counted(found.entries, 'entry')} verified: {found.first_sequence} to {found.last_sequence}")
    here.note(f"hint: note this elsewhere: --known {found.last_sequence}:{found.last_hash}")


@app.command()
def export(
    ctx: CommandContext,
    after: Annotated[
        int, Option("--after", min=0, metavar="ENTRY", help="Only entries after this one.", show_default=False)
    ] = 0,
    to: Annotated[
        str,
        Option("--to", "-O", metavar="FILE", help="Append the entries that this file lacks.", show_default=False),
    ] = "",
    follow: Annotated[bool, Option("-f", "--follow", help="Continue with new entries until Ctrl-C.")] = False,
) -> None:
    """Write the audit log as JSON lines, oldest first.

    Each line is an entry as in `toban audit list -o json`. With --to it continues after the last whole line of the
    file, so that it may be repeated.

    \b
    Examples:
      toban audit export --to audit.jsonl
      toban audit export --after 120 | jq .method
      toban audit export --follow --to audit.jsonl
    """
    here = session(ctx)
    if to and after:
        raise Failure("cannot use --after with --to: the file says where to continue", Exit.USAGE)
    with connect(here, "export the audit log") as client:
        try:
            if not to:
                sys.stdout.flush()
                _export(client, sys.stdout.buffer, after, follow=follow)
                return
            with _opened(to) as file:
                after = _last_sequence(file, to)
                copied = _export(client, file, after, follow=follow)
                os.fsync(file.fileno())
        except KeyboardInterrupt:
            raise ExitCommand(INTERRUPTED) from None
    here.note(f"wrote {counted(copied, 'entry')} to {to}")


def _export(client: SyncClient, file: BinaryIO, after: int, *, follow: bool) -> int:
    """Returns the number of entries."""
    copied = 0
    while True:
        for entry in client.list_audit_entries(after_sequence=after, oldest_first=True, page_size=_PAGE):
            line = json_escaped(json.dumps(to_dict(entry), ensure_ascii=False))
            file.write(f"{line}\n".encode())
            after = entry.sequence
            copied += 1
        file.flush()
        if not follow:
            return copied
        time.sleep(_INTERVAL)


def _opened(path: str) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot export the audit log to {path}: {reason}", Exit.USAGE) from None


def _last_sequence(file: BinaryIO, path: str) -> int:
    """The number of the last entry in the file; 0 if it is empty. Removes a line that was not finished."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    tail = file.read()
    whole, _, rest = tail.rpartition(b"\n")
    try:
        last = int(json.loads(whole.splitlines()[-1])["sequence"]) if whole else 0
        if rest and not rest.startswith(_ENTRY[: len(rest)]):
            raise ValueError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Failure(
            f"cannot export the audit log to {path}: its last line is not an entry", Exit.USAGE, hint="use another file"
        ) from None
    file.truncate(size - len(rest))
    file.seek(0, os.SEEK_END)
    return last
