"""`toban backup`: writes a backup of the daemon's whole state into one file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.name_arguments import connect
from toban.cli.args.output_path import check_replaceable
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data, flush_bytes, write_bytes
from toban.cli.session import OutputFormat, OutputOption, Session, complain, session, shown
from toban.cli.syntax import Argument, CommandContext, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted, size_text

if TYPE_CHECKING:
    from toban.v1 import system_pb2

_SHOW_EVERY: Final = 0.2


def backup(
    ctx: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="The file to write, or - for standard output.")],
    with_key: Annotated[
        bool,
        Option("--with-key", help="Include the key of the secrets: the file then reveals their values."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Write a backup of the daemon's whole state.

    It contains the database, the logs and artifacts of all runs, the definition files and the configuration file, as of
    now. The daemon keeps working meanwhile. FILE is replaced only when the backup is complete. `toban restore` makes a
    state directory from it.

    \b
    Examples:
      toban backup toban-backup.tar.gz
      toban --context production backup production.tar.gz
      toban backup - | ssh nas 'cat > toban-backup.tar.gz'
    """
    here = session(ctx, output)
    with connect(here, "make a backup") as client:
        messages = client.backup(with_key=with_key)
        with closing(messages):
            pieces = _Pieces(messages, quiet=here.quiet)
            size = _print(pieces) if file == "-" else _save(pieces, file)
        summary = pieces.summary
    assert summary is not None
    if file != "-":
        _report(here, file, size, summary)
    for path in summary.left_out:
        complain(f"toban: warning: not in the backup: {path}")
    if summary.files_left_out > len(summary.left_out):
        complain(f"toban: warning: and {counted(summary.files_left_out - len(summary.left_out), 'more file')}")


class _Pieces:
    """The bytes of the archive. On a terminal it shows how far the backup is."""

    def __init__(self, messages: Iterator[system_pb2.BackupResponse], *, quiet: bool) -> None:
        self._messages = messages
        self._shows = sys.stderr.isatty() and not quiet
        self._shown_at = 0.0
        self._size = 0
        self.summary: system_pb2.BackupSummary | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Raises Failure if the daemon ends the stream too early."""
        try:
            for message in self._messages:
                match message.WhichOneof("part"):
                    case "data":
                        self._size += len(message.data)
                        yield message.data
                    case "progress":
                        self._show(message.progress)
                    case "summary":
                        self.summary = message.summary
                    case None:
                        pass  # of a newer daemon
        finally:
            if self._shows and self._shown_at:
                print("\r\033[K", end="", file=sys.stderr, flush=True)
        if self.summary is None:
            raise Failure("cannot make a backup: the daemon ended it early", Exit.INTERNAL)

    def _show(self, progress: system_pb2.BackupProgress) -> None:
        now = time.monotonic()
        if self._shows and now - self._shown_at >= _SHOW_EVERY:
            self._shown_at = now
            rows = f"{progress.rows:,} of {progress.rows_total:,} rows"
            runs = f"files of {progress.runs:,} of {progress.runs_total:,} runs"
            print(f"\r\033[Kbackup: {rows}, {runs}, {size_text(self._size)}", end="", file=sys.stderr, flush=True)


def _print(pieces: _Pieces) -> int:
    sys.stdout.flush()
    size = 0
    for piece in pieces:
        write_bytes(piece)
        size += len(piece)
    flush_bytes()
    return size


def _save(pieces: _Pieces, file: str) -> int:
    """Writes the whole file or nothing, durably. Raises Failure."""
    check_replaceable(file)
    partial = f"{file}.part"
    size = 0
    try:
        try:
            with suppress(FileNotFoundError):
                os.unlink(partial)
            with open(partial, "xb", opener=_private) as out:
                for piece in pieces:
                    out.write(piece)
                    size += len(piece)
                out.flush()
                os.fsync(out.fileno())
            os.replace(partial, file)
            _sync_directory(os.path.dirname(os.path.abspath(file)))
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
    except OSError as error:
        raise Failure(f"cannot write {shown(file)}: {error.strerror or error}", Exit.USAGE) from None
    return size


def _report(here: Session, file: str, size: int, summary: system_pb2.BackupSummary) -> None:
    match here.output:
        case OutputFormat.TABLE:
            inside = f"{counted(summary.runs, 'run')}, {counted(summary.files, 'file')} of {size_text(summary.bytes)}"
            print(f"wrote {file}: {size_text(size)}, with {inside}")
        case OutputFormat.NAME:
            print(file)
        case _:
            emit_data(here, {"path": file, "size": size, **to_dict(summary)})


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_directory(path: str) -> None:
    if sys.platform == "win32":
        return
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
