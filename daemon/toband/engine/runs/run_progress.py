"""Progress of a run: the last that its steps reported."""

from __future__ import annotations

from toband.domain.run_model import Attempt, Progress, Run
from toband.engine.runs.registry import ActiveRuns
from toband.ports import Logs


class RunProgress:
    """Reads the log of a live attempt only when it is asked."""

    def __init__(self, active: ActiveRuns, logs: Logs) -> None:
        self._active = active
        self._logs = logs

    async def of(self, run: Run) -> Progress | None:
        """What the current step has reported; otherwise the last report of a step that has ended."""
        attempt = self.reporter(run.id)
        live = await self._logs.progress(attempt) if attempt is not None else None
        return live or run.progress

    def reporter(self, run_id: str) -> Attempt | None:
        """The live process of the current step."""
        run = self._active.run(run_id)
        step = run.steps.get(run.current_step) if run is not None else None
        attempt = step.attempt if step is not None else None
        return attempt if attempt is not None and not attempt.child and not attempt.state.terminal else None
