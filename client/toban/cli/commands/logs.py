"""`toban logs`: shows the output of a run."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import run_names, step_names
from toban.cli.args.name_arguments import connect, run_id, whole_id
from toban.cli.args.time_options import parse_since
from toban.cli.error_report import Failure
from toban.cli.exits import INTERRUPTED, Exit
from toban.cli.render.log_lines import LEVELS, Prefixer, attempt_mark, line_of
from toban.cli.render.output import emit_line, flush_bytes, write_bytes
from toban.cli.render.terminal_text import TerminalText
from toban.cli.session import OutputFormat, OutputOption, Session, is_terminal, session, shown
from toban.cli.syntax import Argument, CommandContext, ExitCommand, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.v1 import run_pb2


class Level(Enum):
    """The least important level to show."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def logs(
    ctx: CommandContext,
    run: Annotated[
        str,
        Argument(
            metavar="RUN",
            help="Run id, NAME#number, or NAME for the active or latest run of a workflow.",
            show_default=False,
            autocompletion=run_names,
        ),
    ] = "",
    process: Annotated[
        str,
        Option(
            "--process",
            metavar="ID",
            help="Only this process, instead of RUN and --step: see `toban processes list`.",
            show_default=False,
        ),
    ] = "",
    step: Annotated[
        str,
        Option(
            "--step",
            "-S",
            metavar="STEP",
            help="Only this step, instance (build[3]) or completion check (build.check).",
            show_default=False,
            autocompletion=step_names,
        ),
    ] = "",
    attempt: Annotated[
        int | None,
        Option("--attempt", min=1, metavar="N", help="Only this attempt of the step."),
    ] = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Follow the output until the run has ended.")] = False,
    tail: Annotated[
        int | None,
        Option("--tail", "-n", min=1, metavar="N", help="Start with the last N lines of each step."),
    ] = None,
    since: Annotated[
        str,
        Option(
            "--since",
            metavar="TIME",
            help="Only output since then: 5m, 1h30m or a date and time.",
            show_default=False,
        ),
    ] = "",
    timestamps: Annotated[bool, Option("--timestamps", "-t", help="Prefix each line with its time.")] = False,
    stderr_only: Annotated[bool, Option("--stderr-only", help="Only standard error.")] = False,
    level: Annotated[
        Level | None,
        Option(
            "--level",
            help="Only lines of at least this level. Other lines count as info on standard output, warning on standard "
            "error.",
            show_default=False,
        ),
    ] = None,
    raw: Annotated[
        bool,
        Option("--raw", help="The output as it was written, with ::progress and ::log lines and control sequences."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Show the output of a run.

    With several steps each line begins with the name of its step, and with its attempt from the second one on. A
    for_each step means all its instances. Lines ::progress are left out, and lines ::log are shown with their level.
    On a terminal colors pass, and other control sequences are escaped. With --raw the output is unchanged. With -o json
    each chunk of output is an object on its own line.

    \b
    Examples:
      toban logs nightly-report
      toban logs nightly-report#12 --step fetch --tail 50
      toban logs nightly-report --step 'build[3]'
      toban logs nightly-report -f --timestamps
      toban logs nightly-report --level warning
      toban logs 0192f3a4-5b6c-7d8e-9f01-23456789abcd --stderr-only
      toban logs --process 0192f3a4-5b6c-7d8e-9f01-23456789abcd
    """
    here = session(ctx, output)
    if bool(run) == bool(process):
        raise Failure("cannot choose a log: give either RUN or --process ID", Exit.USAGE)
    if process and step:
        raise Failure("cannot use --step with --process: it is the step of the process", Exit.USAGE)
    if attempt is not None and not step:
        raise Failure("cannot choose an attempt: --attempt needs --step", Exit.USAGE)
    if raw and level is not None:
        raise Failure("cannot choose a level: --level and --raw exclude each other", Exit.USAGE)
    start = None
    if since:
        try:
            start = parse_since(since, datetime.now(UTC))
        except (ValueError, OverflowError) as error:
            raise Failure(f"cannot read --since: {error}", Exit.USAGE) from None
    what = f"show the log of {shown(run or process)}"
    with connect(here, what) as client:
        found = "" if process else run_id(client, run)
        chosen = _Choice() if process else _choose(client.get_run(found), step, what)
        if chosen.members and attempt is not None:
            raise Failure(
                f"cannot choose an attempt: {shown(step)} has instances",
                Exit.USAGE,
                hint=f"choose an instance: --step '{chosen.members[0]}'",
            )
        from toban.v1 import run_pb2

        messages: Iterable[run_pb2.StreamLogsResponse] = client.stream_logs(
            found,
            process_execution_id=whole_id(client, "process", process) if process else "",
            step=chosen.step,
            attempt=attempt or 0,
            streams=[run_pb2.LOG_STREAM_STDERR] if stderr_only else [],
            tail=tail or 0,
            since=start,
            follow=follow,
            raw=raw,
            level=run_pb2.LogLevel.Value(f"LOG_LEVEL_{level.name}")
            if level is not None
            else run_pb2.LOG_LEVEL_UNSPECIFIED,
        )
        if chosen.members:
            messages = _only(messages, chosen.members)
        try:
            whole = attempt is not None or bool(process)
            writer = _writer(here, several=chosen.several, timestamps=timestamps, raw=raw, chosen_attempt=whole)
            _copy(here, messages, *writer)
        except KeyboardInterrupt:
            raise ExitCommand(Exit.DETACHED if follow else INTERRUPTED) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which output to show: of one step, of all steps, or only of these `members`."""

    step: str = ""
    members: Sequence[str] = ()
    several: bool = False


def _choose(run: run_pb2.Run, step: str, what: str) -> _Choice:
    from toban.cli.render.step_text import CHECK, step_label

    if not step:
        loops = any(one.max_iterations for one in run.steps)
        return _Choice(several=len(run.steps) > 1 or loops)
    known = {one.id: one for one in run.steps}
    base = known.get(step.removesuffix(CHECK))
    if base is None or (step != base.id and not base.max_iterations):
        steps = ", ".join(step_label(one) for one in run.steps[:20])
        raise Failure(
            f"cannot {what}: no step {shown(step)}",
            Exit.NOT_FOUND,
            hint=f"steps: {steps}",
        )
    # A request names one step only.
    ending = step.removeprefix(base.id)
    members = [f"{one.id}{ending}" for one in run.steps if one.parent == base.id]
    if members:
        return _Choice(members=members, several=True)
    return _Choice(step=step)


def _only(
    messages: Iterable[run_pb2.StreamLogsResponse], members: Sequence[str]
) -> Iterator[run_pb2.StreamLogsResponse]:
    wanted = frozenset(members)
    for message in messages:
        if message.HasField("end") or message.chunk.step in wanted:
            yield message


def _copy(
    here: Session,
    messages: Iterable[run_pb2.StreamLogsResponse],
    write: Callable[[run_pb2.LogChunk], None],
    finish: Callable[[], None],
) -> None:
    for message in messages:
        if message.HasField("end"):
            finish()
            _tell_end(here, message.end)
        else:
            write(message.chunk)


def _tell_end(here: Session, end: run_pb2.LogEnd) -> None:
    from toban.sdk import TERMINAL

    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_line({"end": to_dict(end)})
    elif not end.complete and end.run_state in TERMINAL:
        here.warn("the log is incomplete: its last lines may be missing")


def _writer(
    here: Session, *, several: bool, timestamps: bool, raw: bool, chosen_attempt: bool
) -> tuple[Callable[[run_pb2.LogChunk], None], Callable[[], None]]:
    """A function for each chunk, and a function to call after the last one."""
    sys.stdout.flush()
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        return _Objects().write, lambda: None
    terminal = is_terminal() and not raw
    if several or timestamps:
        prefixer = Prefixer(steps=several, timestamps=timestamps, color=here.color, terminal=terminal)

        def prefixed(chunk: run_pb2.LogChunk) -> None:
            _show(prefixer.feed(chunk))

        return prefixed, lambda: _show(prefixer.finish())

    from toban.v1 import run_pb2

    shown_attempt = [1]
    shown_text = TerminalText(color=here.color) if terminal else None

    def plain(chunk: run_pb2.LogChunk) -> None:
        if chunk.attempt != shown_attempt[0] and not chosen_attempt:
            shown_attempt[0] = chunk.attempt
            flush_bytes()
            here.note(f"toban: {chunk.step}{attempt_mark(chunk.attempt)}:")
        for record in chunk.records:
            if record.stream == run_pb2.LOG_STREAM_SYSTEM:
                # Messages of Toban must not mix with the output of the step.
                here.note(f"toban: {record.data.decode('utf-8', 'replace').rstrip()}")
                continue
            data = line_of(record, color=here.color)
            write_bytes(shown_text.feed(data, (chunk.process_execution_id, record.stream)) if shown_text else data)
        flush_bytes()

    return plain, lambda: _show(shown_text.finish()) if shown_text else None


def _show(data: bytes) -> None:
    write_bytes(data)
    flush_bytes()


class _Objects:
    """Writes a JSON object per record of output."""

    def __init__(self) -> None:
        # A record may end within a character.
        self._decoders: dict[tuple[str, int], codecs.IncrementalDecoder] = {}

    def write(self, chunk: run_pb2.LogChunk) -> None:
        from toban.v1 import run_pb2

        for record in chunk.records:
            key = (f"{chunk.step}/{chunk.attempt}", record.stream)
            decoder = self._decoders.get(key)
            if decoder is None:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                self._decoders[key] = decoder
            emit_line(
                {
                    "at": record.at.ToJsonString(),
                    "step": chunk.step,
                    "step_title": chunk.step_title,
                    "attempt": chunk.attempt,
                    "stream": run_pb2.LogStream.Name(record.stream).removeprefix("LOG_STREAM_").lower(),
                    "text": decoder.decode(record.data),
                    "level": LEVELS.get(record.level),
                    "message": record.message,
                    "process_execution_id": chunk.process_execution_id,
                }
            )
