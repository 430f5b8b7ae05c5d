"""Ways to show a run while it goes on. The live one, for terminals, has a module of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

from toban.cli.human_text import one_line, span
from toban.cli.render.output import emit_line, flush_bytes, paint, to_dict, write_bytes
from toban.cli.render.run_text import (
    needs_approval,
    run_name,
    run_state,
    run_style,
    step_note,
    step_state,
    step_style,
    typed,
)
from toban.cli.session import Session
from toban.v1 import run_pb2


class Tracker:
    """A run as its changes tell it."""

    def __init__(self) -> None:
        self.run = run_pb2.Run()
        self.steps: dict[str, run_pb2.Step] = {}

    def take(self, change: run_pb2.WatchRunResponse) -> list[run_pb2.Step]:
        """Takes a change in and gives the steps whose state it changed."""
        moved = []
        for step in change.run.steps:
            before = self.steps.get(step.id)
            if before is None or before.state != step.state:
                moved.append(step)
            self.steps[step.id] = step
        self.run = change.run
        return moved


class View:
    """Shows nothing. Entered before the first change and left after the last."""

    # Whether the output of the steps is wanted, too.
    logs = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        """The run changed; `moved` are the steps in another state than before."""

    def wrote(self, text: bytes) -> None:
        """Whole lines of output came, each with its step."""


class Objects(View):
    """Writes each change as one JSON object on a line."""

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        emit_line(to_dict(change))


class Plain(View):
    """Writes what the steps print, and beside it which of them failed, are retried, or wait for a person."""

    logs = True

    def __init__(self, here: Session) -> None:
        self._here = here

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        for step in moved:
            if self._here.verbose or _matters(step):
                self._here.note(f"toban: step {told(step)}")
            if needs_approval(step):
                command = f"toban runs approve {run_name(change.run)} {typed(step.id)}"
                self._here.note(f"hint: `{command}` lets it go on")

    def wrote(self, text: bytes) -> None:
        write_bytes(text)
        flush_bytes()


def _matters(step: run_pb2.Step) -> bool:
    """Whether a person who follows the output should know of it."""
    if step.state in (run_pb2.STEP_STATE_FAILED, run_pb2.STEP_STATE_INCOMPLETE):
        return not step.source_run
    return needs_approval(step) or (step.state == run_pb2.STEP_STATE_READY and step.HasField("not_before"))


class Changes(View):
    """Writes one line per change of the run or of a step."""

    def __init__(self, here: Session) -> None:
        self._here = here
        self._state = ""

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        # The first picture also holds steps to which nothing has happened yet.
        for step in moved:
            if change.change or step.state != run_pb2.STEP_STATE_PENDING:
                self._line(f"step {paint(self._here, told(step), step_style(step))}")
        state = run_state(change.run)
        if state != self._state:
            self._state = state
            self._line(f"run {paint(self._here, state, run_style(change.run))}")

    def _line(self, text: str) -> None:
        now = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        print(f"{now}  {text}", flush=True)


def told(step: run_pb2.Step) -> str:
    """A step in words: what became of it, after how long, and why."""
    text = f"{step.id} {step_state(step)}"
    if step.HasField("started_at") and step.HasField("finished_at"):
        text += f" after {span(step.started_at, step.finished_at, datetime.now(UTC))}"
    note = step_note(step)
    return one_line(f"{text}: {note}" if note else text)
