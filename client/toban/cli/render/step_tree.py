"""The steps of a run as a tree of its graph, with durations and bars over the time of the run.

A step stands below the last step that all ways to it pass: branches are indented below the step where they begin, and
the step that joins them follows them. A chain of steps needs no indentation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from toban.cli.human_text import moment, one_line, width
from toban.cli.render.step_table import Row, step_rows
from toban.cli.render.step_text import step_label, tally
from toban.cli.safe_streams import behind
from toban.v1 import run_pb2

_MOST: Final = 20
"""Branches of one step, without steps below them, that are all shown."""
_SHOWN: Final = 10
_NARROWEST_LABEL: Final = 16
_BARS: Final = (10, 24)
"""Columns of the bars, at least and at most."""
_NARROWEST_NOTE: Final = 24

_DONE: Final = frozenset(
    {run_pb2.STEP_STATE_SUCCEEDED, run_pb2.STEP_STATE_SKIPPED, run_pb2.STEP_STATE_PENDING, run_pb2.STEP_STATE_READY}
)


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters of a tree. `states` are by StepState."""

    states: Mapping[int, str]
    fork: str
    last: str
    line: str
    bar: str
    more: str


_STATES: Final = (
    run_pb2.STEP_STATE_PENDING,
    run_pb2.STEP_STATE_READY,
    run_pb2.STEP_STATE_RUNNING,
    run_pb2.STEP_STATE_CHECKING,
    run_pb2.STEP_STATE_SUCCEEDED,
    run_pb2.STEP_STATE_FAILED,
    run_pb2.STEP_STATE_INCOMPLETE,
    run_pb2.STEP_STATE_SKIPPED,
    run_pb2.STEP_STATE_CANCELLED,
)
# None of the signs for states is wide in East Asian fonts.
UNICODE: Final = Signs(dict(zip(_STATES, "◦◦▸▸✓✗~-⊘", strict=True)), "├─ ", "└─ ", "│  ", "━", "…")
ASCII: Final = Signs(dict(zip(_STATES, "..>>+x~-!", strict=True)), "|- ", "`- ", "|  ", "=", "...")


def signs() -> Signs:
    """The signs that standard output can show."""
    encoding = getattr(behind(sys.stdout), "encoding", "") or ""
    return UNICODE if encoding.lower().startswith("utf") and os.environ.get("TERM") != "linux" else ASCII


@dataclass(frozen=True, slots=True)
class StepNode:
    """A step, or a number of `hidden` steps, and where it stands.

    `before` are the lines of the tree before it, `below` those before its instances.
    """

    step: run_pb2.Step | None
    before: str = ""
    below: str = ""
    note: str = ""
    hidden: int = 0


Segment = tuple[str, str]
"""A text and its color."""


def tree(steps: Iterable[run_pb2.Step], chars: Signs, *, every: bool = False) -> list[StepNode]:
    """The steps of the definition in the order of the tree. Without `every`, of many branches some are only counted."""
    defined = {step.id: step for step in sorted(steps, key=lambda step: step.index) if not step.parent}
    parents = _parents(defined)
    below: dict[str, list[str]] = {}
    for step in _sorted(defined):
        below.setdefault(parents[step], []).append(step)
    nodes: list[StepNode] = []
    # Steps with the texts before their line and before the lines below; for an empty name, the steps that are counted.
    # The last one is next.
    left: list[tuple[str, str, str, Sequence[str]]] = []

    def add(children: Sequence[str], indent: str, *, root: bool) -> None:
        leaves = [name for name in children if _is_leaf(defined[name], below)]
        # Those that matter least are counted.
        hidden: Sequence[str] = []
        if len(leaves) > _MOST and not every:
            hidden = sorted(leaves, key=lambda name: defined[name].state in _DONE)[_SHOWN:]
        left_out = set(hidden)
        kept = [name for name in children if name not in left_out]
        if hidden:
            kept.insert(1 + max(kept.index(name) for name in leaves if name not in left_out), "")
        rows = []
        for number, name in enumerate(kept):
            last = number == len(kept) - 1
            before = indent if root else indent + (chars.last if last else chars.fork)
            inside = indent if root else indent + (" " * len(chars.line) if last else chars.line)
            rows.append((name, before, inside, hidden))
        left.extend(reversed(rows))

    add(below.get("", []), "", root=True)
    while left:
        name, before, inside, hidden = left.pop()
        if not name:
            nodes.append(StepNode(None, before, inside, tally(defined[one] for one in hidden), len(hidden)))
            continue
        nodes.append(StepNode(defined[name], before, inside, _joins(defined[name], parents[name])))
        children = below.get(name, [])
        # A chain goes on in the same column.
        add(children, inside, root=len(children) == 1)
    return nodes


def _joins(step: run_pb2.Step, parent: str) -> str:
    """The steps that it waits for, if they are not the step above it."""
    if set(step.depends_on) <= {parent}:
        return ""
    names = list(step.depends_on)
    return f"after {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _is_leaf(step: run_pb2.Step, below: Mapping[str, Sequence[str]]) -> bool:
    """Whether it is a branch of one line."""
    return step.id not in below and not step.instances and len(step.depends_on) <= 1


def _sorted(defined: Mapping[str, run_pb2.Step]) -> list[str]:
    """The steps, each behind those that it depends on, else in the order of the definition."""
    placed: dict[str, None] = {}
    for start in defined:
        todo = [start]
        while todo:
            name = todo[-1]
            needed = [] if name in placed else [one for one in defined[name].depends_on if one in defined]
            missing = [one for one in needed if one not in placed]
            if missing and len(todo) <= len(defined):
                todo += reversed(missing)
                continue
            placed[todo.pop()] = None
    return list(placed)


def _parents(defined: Mapping[str, run_pb2.Step]) -> dict[str, str]:
    """By step, the last step that all ways to it pass; empty if there is none."""
    parents: dict[str, str] = {}
    depth = {"": 0}
    for name in _sorted(defined):
        common: str | None = None
        for needed in defined[name].depends_on:
            if needed not in parents:
                continue
            other = needed
            while common is not None and common != other:
                if depth[common] >= depth[other]:
                    common = parents[common]
                else:
                    other = parents[other]
            common = other
        parents[name] = common or ""
        depth[name] = depth[parents[name]] + 1
    return parents


def tree_lines(
    run: run_pb2.Run,
    steps: Iterable[run_pb2.Step],
    chars: Signs,
    *,
    columns: int,
    now: datetime,
    every: bool = False,
    names: Mapping[str, str] | None = None,
) -> list[list[Segment]]:
    """The lines of the tree within so many columns."""
    found = list(steps)
    rows: dict[str, list[Row]] = {}
    own: list[Row] = []
    for row in step_rows(found, now=now, every=every, names=names):
        # Instances, and the count of those left out, follow their step.
        if row.step is not None and not row.step.parent:
            rows[row.step.id] = own = []
        own.append(row)
    lines: list[_Line] = []
    for node in tree(found, chars, every=every):
        if node.step is None:
            lines.append(_Line(f"{node.before}{chars.more}", f"{node.hidden} more", "", "", node.note, "dim"))
            continue
        for number, row in enumerate(rows[node.step.id]):
            before = node.before if number == 0 else f"{node.below}  "
            lines.append(_line(row, before, node.note if number == 0 else "", chars, now))
    return _arranged(lines, run, chars, columns, now)


@dataclass(frozen=True, slots=True)
class _Line:
    before: str
    label: str
    state: str
    took: str
    note: str
    style: str
    step: run_pb2.Step | None = None


def _line(row: Row, before: str, joins: str, chars: Signs, now: datetime) -> _Line:
    if row.step is None:
        return _Line(f"{before}{chars.more}", row.label.strip().removeprefix("… "), "", "", row.note, "dim")
    sign = chars.states.get(row.step.state, "?")
    label = row.step.id if row.step.parent else step_label(row.step)
    took = row.took(now).strip("-")
    note = "; ".join(filter(None, (row.note, joins)))
    return _Line(f"{before}{sign}", one_line(label), row.state, took, one_line(note), row.style, row.step)


def _arranged(
    lines: Sequence[_Line], run: run_pb2.Run, chars: Signs, columns: int, now: datetime
) -> list[list[Segment]]:
    longest = max((width(f"{line.before} {line.label}") for line in lines), default=0)
    left = min(longest, max(columns // 2, _NARROWEST_LABEL))
    state = max((width(line.state) for line in lines), default=0)
    took = max((width(line.took) for line in lines), default=0)
    used = left + state + took + 4
    # Notes get their room first, bars what is left.
    wanted = max((width(line.note) for line in lines), default=0)
    bars = min(max(columns - used - wanted - 4, _BARS[0]), _BARS[1])
    if used + bars + 2 > columns:
        bars = 0
    room = columns - used - (bars + 2 if bars else 0) - 2
    drawn: list[list[Segment]] = []
    for line in lines:
        label = _cut(f"{line.before} {line.label}", left, chars.more)
        sign_end = min(len(line.before), len(label))
        head: list[Segment] = [
            (label[: sign_end - 1], "dim"),
            (label[sign_end - 1 : sign_end], line.style),
            (_padded(label[sign_end:], left - width(label[:sign_end])), "bold" if line.step is not None else "dim"),
            ("  " + _padded(line.state, state), line.style),
            ("  " + _padded(line.took, took), ""),
        ]
        if bars:
            head.append(("  " + _padded(_bar(line.step, run, bars, chars.bar, now), bars), line.style))
        if room >= _NARROWEST_NOTE:
            first, *rest = _wrapped(line.note, room) or [""]
            drawn.append([*head, (f"  {first}".rstrip(), "dim")])
            drawn += [[(" " * (columns - room) + text, "dim")] for text in rest]
        else:
            drawn.append(head)
            indent = " " * min(len(line.before) + 3, columns // 2)
            drawn += [[(indent + text, "dim")] for text in _wrapped(line.note, columns - len(indent))]
    return [_stripped(line) for line in drawn]


def _stripped(line: list[Segment]) -> list[Segment]:
    """Without spaces at the end of the line."""
    while line and not line[-1][0].strip():
        line.pop()
    if line:
        line[-1] = line[-1][0].rstrip(), line[-1][1]
    return [segment for segment in line if segment[0]]


def _bar(step: run_pb2.Step | None, run: run_pb2.Run, columns: int, sign: str, now: datetime) -> str:
    """When the step ran within the time of the run."""
    begin, start = moment(run.started_at), moment(step.started_at) if step is not None else None
    if step is None or begin is None or start is None:
        return ""
    end, stop = moment(run.finished_at) or now, moment(step.finished_at) or now
    whole = (end - begin).total_seconds()
    # A result kept from an earlier run has the times of that run.
    if whole <= 0 or stop < begin or start > end:
        return ""
    first = int(columns * max((start - begin).total_seconds(), 0) / whole)
    last = -(-columns * min((stop - begin).total_seconds(), whole) // whole)
    first = min(first, columns - 1)
    return " " * first + sign * max(int(last) - first, 1)


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def _cut(text: str, columns: int, more: str) -> str:
    if width(text) <= columns:
        return text
    taken = ""
    for char in text:
        if width(taken + char) > columns - len(more):
            break
        taken += char
    return taken + more


def _wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns, broken between words where possible."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width(line) + 1 + width(word) <= columns:
            line += f" {word}"
            continue
        if line:
            lines.append(line)
        while width(word) > columns:
            part = _cut(word, columns, "")
            lines.append(part)
            word = word[len(part) :]
        line = word
    return [*lines, line] if line else lines
