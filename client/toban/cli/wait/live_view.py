"""The live view of a run on a terminal: the list of steps below, their output scrolling above it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from toban.cli.human_text import indented, one_line, span
from toban.cli.render.run_text import progress_text, run_label, run_name, run_state, run_style
from toban.cli.render.step_table import instances, row_note
from toban.cli.render.step_text import (
    ACTIVE_STEPS,
    needs_approval,
    step_label,
    step_order,
    step_state,
    step_style,
    tally,
    typed,
    waits_for_something,
)
from toban.cli.render.step_tree import signs, tree_lines
from toban.cli.session import Session
from toban.cli.wait.run_views import Tracker, View
from toban.v1 import run_pb2

# Which steps are shown if there is no room for all: the lowest numbers first.
_ORDER: Final = {
    run_pb2.STEP_STATE_RUNNING: 0,
    run_pb2.STEP_STATE_CHECKING: 0,
    run_pb2.STEP_STATE_FAILED: 1,
    run_pb2.STEP_STATE_INCOMPLETE: 1,
    run_pb2.STEP_STATE_READY: 2,
    run_pb2.STEP_STATE_CANCELLED: 3,
    run_pb2.STEP_STATE_PENDING: 4,
}


class _Raw:
    """Text that goes to the terminal unchanged."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveView(View):
    """A View for terminals."""

    logs = True
    names = True

    def __init__(self, here: Session) -> None:
        self._console = here.console()
        self._tracker: Tracker | None = None
        self._spinner = Spinner("dots" if self._console.encoding.startswith("utf") else "line")
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def changed(
        self,
        tracker: Tracker,
        change: run_pb2.WatchRunResponse,
        moved: Sequence[run_pb2.Step],
    ) -> None:
        """Stores the run; the next frame draws it."""
        self._tracker = tracker

    def wrote(self, text: bytes) -> None:
        """Writes lines above the list of steps."""
        if text:
            self._console.print(_Raw(text.decode("utf-8", "replace")), end="", crop=False)

    def _draw(self) -> Group | Text:
        tracker = self._tracker
        if tracker is None:
            return Text("")
        now = datetime.now(UTC)
        steps = list(tracker.steps.values())
        room = max(self._console.height - 5, 3)
        chosen = _choose(steps, room)
        below = instances(steps)
        rows = Table.grid(padding=(0, 2, 0, 0))
        for step in chosen:
            # A step that waits for approval, or for something else, has no process.
            running = step.state in ACTIVE_STEPS and not (needs_approval(step) or waits_for_something(step))
            label = f"  {step.id}" if step.parent else step_label(step)
            note = row_note(step, below.get(step.id, ()), now, tracker.names)
            rows.add_row(
                self._spinner if running else Text(" "),
                Text(indented(label), style="bold" if running else "", overflow="ellipsis"),
                Text(one_line(step_state(step)), style=step_style(step), no_wrap=True),
                Text(span(step.started_at, step.finished_at, now), no_wrap=True),
                Text(one_line(note), style="dim", overflow="ellipsis", no_wrap=True),
            )
        parts: list[Text | Table] = [rows]
        if not tracker.run.HasField("finished_at"):
            # After the end the last line has it.
            parts.insert(0, _headline(tracker.run, now))
        if len(chosen) < len(steps):
            parts.append(_rest(steps, {step.id for step in chosen}))
        return Group(*parts, *_approval(tracker))


class LiveTree(LiveView):
    """The steps as a tree, without their output. A tree that is too high becomes the list of the LiveView."""

    logs = False

    def _draw(self) -> Group | Text:
        tracker = self._tracker
        if tracker is None:
            return Text("")
        now = datetime.now(UTC)
        columns, rows = self._console.size
        steps = tracker.steps.values()
        lines = tree_lines(tracker.run, steps, signs(), columns=columns, now=now, names=tracker.names)
        if len(lines) > max(rows - 5, 3):
            return super()._draw()
        parts = [Text("").join(Text(text, style=style) for text, style in line) for line in lines]
        if not tracker.run.HasField("finished_at"):
            parts.insert(0, _headline(tracker.run, now))
        return Group(*parts, *_approval(tracker))


def _approval(tracker: Tracker) -> list[Text]:
    """How to decide a step that waits for approval."""
    waiting = next(filter(needs_approval, tracker.steps.values()), None)
    if waiting is None:
        return []
    command = f"toban runs approve {run_name(tracker.run)} {typed(waiting.id)}"
    return [Text(one_line(f"`{command}` approves {step_label(waiting)}"), style="yellow")]


def _choose(steps: Sequence[run_pb2.Step], room: int) -> list[run_pb2.Step]:
    if len(steps) <= room:
        return sorted(steps, key=step_order)
    first = sorted(steps, key=lambda step: (_ORDER.get(step.state, 5), step_order(step)))[:room]
    return sorted(first, key=step_order)


def _headline(run: run_pb2.Run, now: datetime) -> Text:
    text = Text()
    text.append(one_line(run_label(run)), style="bold")
    text.append(" ")
    text.append(one_line(run_state(run)), style=run_style(run))
    text.append(f" {span(run.started_at, run.finished_at, now)}", style="dim")
    if run.steps_total:
        text.append(f"  {run.steps_ended}/{run.steps_total}")
    if reported := progress_text(run):
        text.append(f"  {one_line(reported)}")
    return text


def _rest(steps: Iterable[run_pb2.Step], chosen: set[str]) -> Text:
    return Text(f"and {tally(step for step in steps if step.id not in chosen)}", style="dim")
