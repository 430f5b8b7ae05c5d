"""`toban runs artifacts`: lists and downloads the artifacts of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import step_names
from toban.cli.args.name_arguments import RunArgument, connect, run_id
from toban.cli.args.output_path import check_replaceable
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import enum_word
from toban.cli.render.output import Column, emit_data, emit_list, flush_bytes, take, write_bytes
from toban.cli.render.terminal_text import TerminalText
from toban.cli.render.title_text import title_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, is_terminal, session, shown
from toban.cli.syntax import CommandContext, Option
from toban.quantity_text import size_text

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2


def artifacts(
    ctx: CommandContext,
    run: RunArgument,
    step: Annotated[
        str,
        Option(
            "--step",
            "-S",
            metavar="STEP",
            help="Only artifacts of this step or instance.",
            show_default=False,
            autocompletion=step_names,
        ),
    ] = "",
    download: Annotated[
        str,
        Option(
            "--download",
            metavar="NAME",
            help="Download this artifact: its only file, or a tar archive of its files.",
            show_default=False,
        ),
    ] = "",
    file: Annotated[
        str,
        Option(
            "--file",
            metavar="PATH",
            help="Download only this file of the artifact.",
            show_default=False,
        ),
    ] = "",
    to: Annotated[
        str,
        Option(
            "-O",
            "--to",
            metavar="PATH",
            help="Target: a file, a directory, or - for standard output, where a terminal gets only colors of it.",
            show_default=False,
        ),
    ] = "",
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List the artifacts of a run, or download one.

    Without -O a download is stored in the current directory under its own name; it never overwrites a file.

    \b
    Examples:
      toban runs artifacts nightly-report
      toban runs artifacts nightly-report#12 --step fetch -o json
      toban runs artifacts nightly-report --download report -O report.html
      toban runs artifacts nightly-report --download logs -O - | tar -x
    """
    here = session(ctx, output)
    if (to or file) and not download:
        raise Failure("cannot download: -O and --file need --download NAME", Exit.USAGE)
    what = f"download {shown(download)} of {shown(run)}" if download else "list artifacts"
    with connect(here, what) as client:
        found = run_id(client, run)
        if download:
            owner = _owner(client, found, step, download, what)
            _download(here, client, found, owner, download, file, to)
            return
        listed, more = take(client.list_artifacts(found, step=step, page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[run_pb2.StepArtifact]] = [
        Column("STEP", lambda one: one.step, lambda _: "bold"),
        *title_column(listed, lambda one: one.step, lambda one: one.step_title),
        Column("NAME", lambda one: one.artifact.name),
        Column("TYPE", lambda one: one.artifact.type or "-"),
        Column("FILES", lambda one: str(one.artifact.files)),
        Column("SIZE", lambda one: size_text(one.artifact.bytes)),
        Column("STATE", lambda one: _state(one.artifact), lambda one: _style(one.artifact), optional=True),
        Column("PATH", lambda one: one.artifact.path, optional=True),
    ]
    emit_list(
        here,
        listed,
        columns,
        name=lambda one: f"{one.step}/{one.artifact.name}",
        more=more,
        empty="no artifacts",
    )


def _state(artifact: run_pb2.Artifact) -> str:
    """How the attempt ended that left it; `-` if the daemon does not send it."""
    from toban.v1 import run_pb2

    return enum_word(run_pb2.ProcessState, artifact.state) if artifact.state else "-"


def _style(artifact: run_pb2.Artifact) -> str:
    return "" if _state(artifact) in ("-", "completed") else "yellow"


def _owner(client: SyncClient, run: str, step: str, name: str, what: str) -> str:
    """The step that has the artifact. Raises Failure if there is none, or more than one."""
    all_of_them = list(client.list_artifacts(run, step=step, page_size=1000))
    owners = [one.step for one in all_of_them if one.artifact.name == name]
    if step in owners:
        return step
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise Failure(
            f"cannot {what}: {len(owners)} steps have an artifact of that name",
            Exit.USAGE,
            hint=f"choose one with --step: {_some(owners)}",
        )
    names = list(dict.fromkeys(one.artifact.name for one in all_of_them))
    raise Failure(
        f"cannot {what}: no such artifact",
        Exit.NOT_FOUND,
        hint=f"artifacts: {_some(names)}" if names else "",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def _write(pieces: Iterator[bytes], *, color: bool) -> None:
    """To standard output: unchanged, except on a terminal, which gets colors and no other control sequences."""
    sys.stdout.flush()
    text = TerminalText(color=color) if is_terminal() else None
    for piece in pieces:
        write_bytes(text.feed(piece) if text else piece)
    if text:
        write_bytes(text.finish())
    flush_bytes()


def _download(here: Session, client: SyncClient, run: str, step: str, name: str, file: str, to: str) -> None:
    messages = client.download_artifact(run, step, name, path=file)
    with closing(messages):
        first = next(messages, None)
        if first is None or not first.HasField("header"):
            raise Failure(f"cannot download {shown(name)}: the daemon sent no data", Exit.INTERNAL)
        pieces = (message.data for message in messages)
        if to == "-":
            _write(pieces, color=here.color)
            return
        target = _target(first.header, name, to)
        written = _save(pieces, target, replace=bool(to) and not os.path.isdir(to))
    match here.output:
        case OutputFormat.TABLE:
            kind = "a tar archive" if first.header.tar else "a file"
            print(f"wrote {target}: {kind} of {size_text(written)}")
        case OutputFormat.NAME:
            print(target)
        case _:
            emit_data(here, {"path": target, "bytes": written, "tar": first.header.tar})


def _target(header: run_pb2.ArtifactHeader, name: str, to: str) -> str:
    """The target path. Only the last part of the daemon's file name is used."""
    own = os.path.basename(header.file_name.replace("\\", "/")) or name
    if not to:
        return own
    return os.path.join(to, own) if os.path.isdir(to) else to


def _save(pieces: Iterator[bytes], target: str, *, replace: bool) -> int:
    """Writes the whole file or nothing. Raises Failure."""
    refused = Failure(
        f"cannot write {shown(target)}: the file exists",
        Exit.CONFLICT,
        hint="-O PATH chooses another file, or replaces this one",
    )
    if not replace and os.path.lexists(target):
        raise refused
    check_replaceable(target)
    written = 0
    try:
        import tempfile

        handle, partial = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target) or ".")
        try:
            with os.fdopen(handle, "wb") as out:
                for piece in pieces:
                    out.write(piece)
                    written += len(piece)
            _give_usual_mode(partial)
            os.replace(partial, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
    except OSError as error:
        raise Failure(f"cannot write {shown(target)}: {error.strerror or error}", Exit.USAGE) from None
    return written


def _give_usual_mode(path: str) -> None:
    """Gives a private temporary file the mode of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)
