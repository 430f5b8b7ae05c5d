"""A run that a schedule started begins, also when the database did not say that it was stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from helpers.daemon import Daemon, run_state
from helpers.wait import wait_until
from toban.v1 import run_pb2

# Whichever of its commits is that of the run.
FIRING = "store.after_commit=EIO"


def definition(name: str, at: str) -> str:
    return f"name: {name}\ndescription: x\nschedule: {{at: '{at}'}}\nsteps: {{only: {{run: 'true'}}}}\n"


def stored_in_time(daemon: Daemon) -> str:
    """A workflow that is stored, and its daemon gone, before it is due: a busy machine may need more time for that."""
    for seconds in (3, 15, 60):
        daemon.start()
        name, at = f"w{seconds}", datetime.now(UTC) + timedelta(seconds=seconds)
        daemon.apply(definition(name, at.isoformat()))
        daemon.kill()
        if datetime.now(UTC) < at:
            return name
    raise AssertionError("it is due before its daemon is gone")


def test_a_run_whose_commit_broke_off_and_was_made_begins(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "s", environment={"TOBAN_TIMEZONE": "UTC"})
    try:
        name = stored_in_time(daemon)
        daemon.start({"TOBAN_FAILPOINTS": FIRING})
        request = run_pb2.ListRunsRequest(workflow=name)
        listed = wait_until(lambda: daemon.runs.ListRuns(request, timeout=20).runs, "no run", 90)
        (run,) = listed
        assert run_state(daemon.wait_run(run.id)) == "SUCCEEDED"
        # Else it was another commit that broke off, and nothing is proved.
        assert '"schedule_failed"' in daemon.log.read_text()
        assert len(daemon.runs.ListRuns(request, timeout=20).runs) == 1
    finally:
        daemon.clear()
