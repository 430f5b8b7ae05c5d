"""A run that a schedule started begins, also when the database did not say that it was stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from helpers.daemon import Daemon, run_state
from helpers.waiting import wait_until
from toban.v1 import run_pb2

# The first commit of a daemon that has nothing to do is that of its housekeeping.
FIRING = "store.after_commit=EIO@2"


def test_a_run_whose_commit_broke_off_and_was_made_begins(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "s", environment={"TOBAN_TIMEZONE": "UTC"})
    try:
        daemon.start()
        at = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
        daemon.apply(
            f"name: w\ndescription: x\nschedule: {{at: '{at}'}}\nsteps: {{only: {{run: 'true'}}}}\n"
        )
        daemon.kill()
        daemon.start({"TOBAN_FAILPOINTS": FIRING})
        request = run_pb2.ListRunsRequest(workflow="w")
        (run,) = wait_until(lambda: daemon.runs.ListRuns(request, timeout=20).runs, "no run")
        assert run_state(daemon.wait_run(run.id, 10)) == "SUCCEEDED"
        # Else it was another commit that broke off, and nothing is proved.
        assert '"schedule_failed"' in daemon.tail(100)
        assert len(daemon.runs.ListRuns(request, timeout=20).runs) == 1
    finally:
        daemon.clear()
