"""Of runs that replace each other the newest stays, also when the clock was set back before it was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import clock
from helpers.daemon import Daemon, run_state

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


@pytest.mark.parametrize("overlap", ["replace", "queue"])
def test_the_newest_stays(tmp_path: Path, overlap: str) -> None:
    dial = clock.Clock(tmp_path)
    assert dial.works()
    daemon = Daemon(tmp_path / "s", environment=dial.environment)
    daemon.program = dial.program
    witness = tmp_path / "w"
    witness.touch()
    try:
        daemon.start()
        daemon.apply(
            f"name: w\ndescription: x\noverlap: {overlap}\n"
            f"steps: {{only: {{run: 'echo $TOBAN_RUN_ID >> {witness}; sleep 2'}}}}\n"
        )
        old = [daemon.start_run("w") for _ in range(4)]
        daemon.kill()
        dial.set(-3600)
        daemon.start()
        new = daemon.start_run("w")
        runs = [daemon.wait_run(each) for each in (*old, new)]
        if overlap == "replace":
            assert [run_state(run) for run in runs] == ["CANCELLED"] * 4 + ["SUCCEEDED"]
        else:
            assert witness.read_text().split() == [*old, new]
    finally:
        daemon.clear()
