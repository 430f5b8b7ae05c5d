"""A due time that has its run gets no other one, also when a clock that was set back makes it due again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from faults import clock
from helpers.daemon import Daemon
from helpers.wait import wait_until
from toban.v1 import run_pb2, workflow_pb2

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


def _definition(grace: str) -> workflow_pb2.Workflow:
    source = (
        f"name: w\ndescription: x\noverlap: allow\n"
        f"schedule: {{cron: '* * * * * *', misfire: run_once, misfire_grace: {grace}}}\n"
        f"steps: {{only: {{run: 'true'}}}}\n"
    )
    return workflow_pb2.Workflow(name="w", definition=workflow_pb2.Definition(source=source))


def test_no_other_run_stands_for_a_due_time_that_had_its_run(tmp_path: Path) -> None:
    dial = clock.Clock(tmp_path)
    assert dial.works()
    daemon = Daemon(tmp_path / "s", environment=dial.environment)
    daemon.program = dial.program

    def runs() -> Sequence[run_pb2.Run]:
        return daemon.runs.ListRuns(run_pb2.ListRunsRequest(page_size=1000), timeout=20).runs

    try:
        daemon.start()
        daemon.apply(_definition("1h").definition.source)
        wait_until(lambda: len(runs()) >= 2, "it never became due")
        dial.set(-20)
        # Stored anew, it is due from what the clock shows now.
        request = workflow_pb2.UpdateWorkflowRequest(workflow=_definition("2h"))
        daemon.workflows.UpdateWorkflow(request, timeout=20)
        before = {run.id for run in runs()}
        dial.set(0)
        last = max(run.scheduled_at.ToSeconds() for run in runs())
        wait_until(
            lambda: any(run.id not in before and run.scheduled_at.ToSeconds() > last for run in runs()),
            "it did not go on",
            60,
        )
        stood_for = Counter(at.ToSeconds() for run in runs() for at in (run.scheduled_at, *run.missed))
    finally:
        dial.set(0)
        daemon.clear()
    assert max(stood_for.values()) == 1, stood_for
