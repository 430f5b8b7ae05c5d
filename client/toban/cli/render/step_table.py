"""Rows of the table of steps: instances follow their step; many instances become a count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from toban.cli.human_text import clock, span
from toban.cli.render.run_text import progress_text
from toban.cli.render.step_text import step_note, step_order, step_state, step_style, tally
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

# With more instances than this, only the first active or failed ones are shown; the rest is counted.
_MOST: Final = 20
_SHOWN: Final = 10
_ITEM_WIDTH: Final = 40
_MATTERS: Final = frozenset(
    {
        run_pb2.STEP_STATE_FAILED,
        run_pb2.STEP_STATE_INCOMPLETE,
        run_pb2.STEP_STATE_RUNNING,
        run_pb2.STEP_STATE_CHECKING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: a step, or a count of the remaining instances (`step` is None then)."""

    label: str
    step: run_pb2.Step | None
    note: str = ""

    @property
    def name(self) -> str:
        return self.step.id if self.step is not None else ""

    @property
    def title(self) -> str:
        """Instances have the title of their step, which is in a row above."""
        return self.step.title if self.step is not None and not self.step.parent else ""

    @property
    def state(self) -> str:
        return step_state(self.step) if self.step is not None else ""

    @property
    def style(self) -> str:
        return step_style(self.step) if self.step is not None else "dim"

    @property
    def exit_code(self) -> str:
        if self.step is None:
            return ""
        return str(self.step.exit_code) if self.step.HasField("exit_code") else "-"

    @property
    def started_at(self) -> Timestamp | None:
        return self.step.started_at if self.step is not None else None

    @property
    def started(self) -> str:
        return clock(self.started_at) if self.step is not None else ""

    def took(self, now: datetime) -> str:
        """The time from start to finish, or until now."""
        if self.step is None:
            return ""
        return span(self.step.started_at, self.step.finished_at, now)


def step_rows(
    steps: Iterable[run_pb2.Step],
    *,
    now: datetime,
    every: bool = False,
    names: Mapping[str, str] | None = None,
) -> list[Row]:
    """All rows in the order of the definition. With `every`, no instance is left out."""
    rows: list[Row] = []
    ordered = sorted(steps, key=step_order)
    below = instances(ordered)
    for step in ordered:
        if step.parent:
            continue
        own = below.get(step.id, [])
        rows.append(Row(label=step.id, step=step, note=row_note(step, own, now, names)))
        chosen = own if every or len(own) <= _MOST else _choose(own)
        rows += [Row(label=f"  {one.id}", step=one, note=row_note(one, (), now, names)) for one in chosen]
        if len(chosen) < len(own):
            known = {one.id for one in chosen}
            rest = [one for one in own if one.id not in known]
            rows.append(Row(label=f"  … {len(rest)} more", step=None, note=tally(rest)))
    return rows


def instances(steps: Iterable[run_pb2.Step]) -> dict[str, list[run_pb2.Step]]:
    """The instances of each step that has any."""
    found: dict[str, list[run_pb2.Step]] = {}
    for step in steps:
        if step.parent:
            found.setdefault(step.parent, []).append(step)
    return found


def row_note(
    step: run_pb2.Step,
    own: Sequence[run_pb2.Step],
    now: datetime,
    names: Mapping[str, str] | None = None,
) -> str:
    """The note of a step, with a count of its instances or with its own item, and with its progress."""
    about = f"{len(own)} instances: {tally(own)}" if len(own) > 1 else _item(step)
    return "; ".join(filter(None, (about, progress_text(step), step_note(step, now=now, names=names))))


def _item(step: run_pb2.Step) -> str:
    """The item of an instance, short enough for a line."""
    text = step.item_json
    if step.item_bytes:
        return f"item of {step.item_bytes:,} bytes"
    if not text:
        return ""
    return f"item {text if len(text) <= _ITEM_WIDTH else text[: _ITEM_WIDTH - 1] + '…'}"


def _choose(own: Sequence[run_pb2.Step]) -> list[run_pb2.Step]:
    return [one for one in own if one.state in _MATTERS][:_SHOWN]
