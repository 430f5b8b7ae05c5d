"""Views of a run while it is followed. The live one, for terminals, is in live_view."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Self

from toban.cli.human_text import one_line, zoned
from toban.cli.render.output import emit_line, flush_bytes, paint, write_bytes
from toban.cli.render.run_text import progress_text, run_name, run_state, run_style
from toban.cli.render.step_text import needs_approval, step_line, step_style, typed, waits_for_something
from toban.cli.session import Session
from toban.message_json.message_data import to_dict
from toban.v1 import run_pb2

# Seconds between two lines about a step that reports no total.
_REPORTS_EVERY: Final = 60.0


class Tracker:
    """The state of a run, built from its changes."""

    def __init__(self) -> None:
        self.run = run_pb2.Run()
        self.steps: dict[str, run_pb2.Step] = {}
        self.names: dict[str, str] = {}
        """Names of the runs that the steps refer to, by id, if the view shows them."""

    def take(self, change: run_pb2.WatchRunResponse) -> list[run_pb2.Step]:
        """Applies a change and returns the steps whose state it changed."""
        moved = []
        for step in change.run.steps:
            before = self.steps.get(step.id)
            if before is None or before.state != step.state:
                moved.append(step)
            self.steps[step.id] = step
        self.run = change.run
        return moved


class View:
    """Shows nothing. Entered before the first change and exited after the last one."""

    # Whether the view also shows the output of the steps, and the names of other runs.
    logs = False
    names = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        """The run changed; `moved` are the steps whose state changed."""

    def wrote(self, text: bytes) -> None:
        """Complete lines of output arrived, each with its step."""


class JsonLines(View):
    """Writes each change as a JSON object on its own line."""

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        emit_line(to_dict(change))


class ProgressLines:
    """Chooses the reports of progress that are worth a line: per step each tenth of its total, else one per minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic."""
        self._clock = clock
        # By step: its attempt, and the number of tenths or minutes.
        self._shown: dict[str, tuple[int, int]] = {}

    def of(self, steps: Iterable[run_pb2.Step]) -> list[str]:
        """Lines for those of the steps whose progress is worth one."""
        lines = []
        for step in steps:
            if not (text := progress_text(step)):
                continue
            whole = step.progress_total
            share = 10 * step.progress_current / whole if whole else self._clock() / _REPORTS_EVERY
            now = step.attempts, int(share)
            if now > self._shown.get(step.id, (0, 0)) or step.id not in self._shown:
                self._shown[step.id] = now
                lines.append(one_line(f"{step.id}: {text}"))
        return lines


class PlainOutput(View):
    """Writes the output of the steps, and notes on failures, retries and approvals."""

    logs = True
    names = True

    def __init__(self, here: Session) -> None:
        self._here = here
        self._progress = ProgressLines()

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        for line in self._progress.of(change.run.steps if change.change else ()):
            self._here.note(f"toban: step {line}")
        for step in moved:
            if self._here.verbose or _matters(step):
                self._here.note(f"toban: step {step_line(step, tracker.names)}")
            if needs_approval(step):
                command = f"toban runs approve {run_name(change.run)} {typed(step.id)}"
                self._here.note(f"hint: `{command}` approves it")

    def wrote(self, text: bytes) -> None:
        write_bytes(text)
        flush_bytes()


def _matters(step: run_pb2.Step) -> bool:
    """Whether the change is worth a note in the output."""
    if step.state in (run_pb2.STEP_STATE_FAILED, run_pb2.STEP_STATE_INCOMPLETE):
        return not step.source_run
    if needs_approval(step) or waits_for_something(step):
        return True
    return step.state == run_pb2.STEP_STATE_READY and step.HasField("not_before")


class ChangeLines(View):
    """Writes one line per change of the run or of a step."""

    names = True

    def __init__(self, here: Session) -> None:
        self._here = here
        self._state = ""
        self._progress = ProgressLines()

    def changed(self, tracker: Tracker, change: run_pb2.WatchRunResponse, moved: Sequence[run_pb2.Step]) -> None:
        for line in self._progress.of(change.run.steps if change.change else ()):
            self._line(f"step {line}")
        # The first message also has steps that have not changed yet.
        for step in moved:
            if change.change or step.state != run_pb2.STEP_STATE_PENDING:
                self._line(f"step {paint(self._here, step_line(step, tracker.names), step_style(step))}")
        state = run_state(change.run)
        if state != self._state:
            self._state = state
            self._line(f"run {paint(self._here, state, run_style(change.run))}")

    def _line(self, text: str) -> None:
        print(f"{zoned(datetime.now(UTC))}  {text}", flush=True)
