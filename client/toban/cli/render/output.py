"""Writes results: tables for people; JSON, YAML and names for programs."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toban.cli.human_text import clock, indented, local, moment, one_line, width, zone_name
from toban.cli.safe_streams import colored
from toban.cli.session import OutputFormat, Session, is_terminal
from toban.message_json.message_data import to_dict
from toban.safe_text import json_escaped, safe

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Column(Generic[_Item]):
    """One column of a table: its header, its values and their color."""

    header: str
    value: Callable[[_Item], str]
    style: Callable[[_Item], str] | None = None
    # On a narrow terminal: left out, or folded over several lines.
    optional: bool = False
    folds: bool = False
    # The time of which `value` is the text: its zone goes to the header.
    at: Callable[[_Item], Timestamp | None] | None = None


def time_column(
    header: str,
    at: Callable[[_Item], Timestamp | None],
    style: Callable[[_Item], str] | None = None,
    *,
    optional: bool = False,
) -> Column[_Item]:
    """A column of times; an absent time is `-`."""
    return Column(header, lambda item: clock(at(item)), style, optional=optional, at=at)


def take(items: Iterable[_Item], limit: int) -> tuple[list[_Item], bool]:
    """The first items, and whether there are more."""
    found = list(itertools.islice(items, limit + 1))
    return found[:limit], len(found) > limit


def emit_list(
    session: Session,
    items: Sequence[Message],
    columns: Sequence[Column[Any]],
    *,
    name: Callable[[Any], str],
    more: bool = False,
    empty: str = "",
) -> None:
    """Writes a list in the chosen format."""
    match session.output:
        case OutputFormat.TABLE:
            if items:
                table(session, items, columns)
            elif empty:
                session.note(empty)
        case OutputFormat.NAME:
            for item in items:
                print(name(item))
        case _:
            emit_data(session, [to_dict(item) for item in items])
    if more:
        session.note(f"more available: use --limit {len(items) * 2}")


def emit_one(session: Session, message: Message, *, name: str, show: Callable[[], None]) -> None:
    """Writes one item in the chosen format; `show` writes it for people."""
    match session.output:
        case OutputFormat.TABLE:
            show()
        case OutputFormat.NAME:
            print(name)
        case _:
            emit_data(session, to_dict(message))


def emit_data(session: Session, data: Any) -> None:
    """Writes plain data as YAML with -o yaml, else as JSON."""
    if session.output is OutputFormat.YAML:
        from ruamel.yaml import YAML

        yaml = YAML()
        yaml.default_flow_style = False
        yaml.width = 100_000
        text = io.StringIO()
        yaml.dump(data, text)
        if not safe(text.getvalue()):
            # Control characters need escapes, which YAML then uses for all non-ASCII characters.
            yaml.allow_unicode = False
            text = io.StringIO()
            yaml.dump(data, text)
        print(text.getvalue(), end="")
    else:
        print(json_escaped(json.dumps(data, indent=2, ensure_ascii=False)))


def report_done(session: Session, name: str, outcome: str) -> None:
    """Reports one of several items at once: it stays done even if the next one fails."""
    if session.output is OutputFormat.TABLE:
        print(f"{outcome} {name}", flush=True)
    elif session.output is OutputFormat.NAME:
        print(name, flush=True)


def emit_line(data: Any) -> None:
    """Writes one JSON object of a stream at once."""
    print(json_escaped(json.dumps(data, ensure_ascii=False)), flush=True)


def write_bytes(data: bytes) -> None:
    """Writes bytes unchanged; `flush_bytes` makes them visible."""
    out = sys.stdout.buffer
    written = out.write(data)
    # Under PYTHONUNBUFFERED a write may be partial.
    while written < len(data):
        written += out.write(memoryview(data)[written:])


def write_file(text: str) -> None:
    """Writes the text of a file: unchanged, except on a terminal."""
    if is_terminal():
        print(text.replace("\r\n", "\n"), end="", flush=True)
        return
    sys.stdout.flush()
    write_bytes(text.encode())
    flush_bytes()


def flush_bytes() -> None:
    """Flushes what `write_bytes` wrote."""
    sys.stdout.buffer.flush()


def table(session: Session, items: Iterable[_Item], columns: Sequence[Column[_Item]]) -> None:
    """Writes a table: within the width of a terminal, in full width elsewhere."""
    items = list(items)
    columns = [_zoned(column, items) for column in columns]
    if is_terminal():
        _terminal_table(session, items, columns)
        return
    rows = [[indented(column.value(item)) for column in columns] for item in items]
    print(wide_table([column.header for column in columns], rows))


def _zoned(column: Column[_Item], items: Sequence[_Item]) -> Column[_Item]:
    """The column of times with their zone in its header; on both sides of a clock change the cells keep theirs."""
    if column.at is None:
        return column
    times = filter(None, map(moment, map(column.at, items)))
    zones = {zone_name(local(at)) for at in times}
    if len(zones) != 1:
        return column
    (zone,) = zones
    text = column.value
    return replace(column, header=f"{column.header} ({zone})", value=lambda item: text(item).removesuffix(f" {zone}"))


def wide_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with spaces, never cut."""
    lines = [headers, *rows]
    widths = [max(width(line[index]) for line in lines) for index in range(len(headers))]
    return "\n".join(
        "  ".join(cell + " " * (widths[index] - width(cell)) for index, cell in enumerate(line)).rstrip()
        for line in lines
    )


def _terminal_table(session: Session, items: Sequence[_Item], columns: Sequence[Column[_Item]]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = session.console()
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    shown = _fitting(items, columns, console.width)
    for column in shown:
        drawn.add_column(column.header, overflow="fold", no_wrap=not column.folds)
    for item in items:
        cells = [
            Text(indented(column.value(item)), style=column.style(item) if column.style else "") for column in shown
        ]
        drawn.add_row(*cells)
    console.print(drawn, soft_wrap=False)


def _fitting(items: Sequence[_Item], columns: Sequence[Column[_Item]], room: int) -> list[Column[_Item]]:
    """The columns that fit: optional ones are dropped, the last one first."""

    def wanted(column: Column[_Item]) -> int:
        cells = (width(indented(column.value(item))) for item in items)
        return max(width(column.header), *cells, 0) + 2

    shown = list(columns)
    for column in reversed(columns):
        if sum(map(wanted, shown)) <= room + 2:
            break
        if column.optional:
            shown.remove(column)
    return shown


def fields(session: Session, pairs: Iterable[tuple[str, str]]) -> None:
    """Writes names and values, one pair per line; skips pairs without a value."""
    lines = [(label, one_line(value)) for label, value in pairs if value]
    if not lines:
        return
    left = max(width(label) for label, _ in lines) + 2
    for label, value in lines:
        print(f"{paint(session, label + ':', 'bold')}{' ' * (left - width(label) - 1)}{value}")


_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}


def paint(session: Session, text: str, style: str) -> str:
    """The text in a color, if colors are enabled."""
    code = _CODES.get(style)
    return colored(text, code) if code and session.color else text
