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
    witness, free = tmp_path / "w", tmp_path / "free"
    witness.touch()
    # However long the daemon is away: none comes to its end before the newest is made.
    held = f"until [ -e {free} ]; do sleep 0.05; done"
    try:
        daemon.start()
        daemon.apply(
            f"name: w\ndescription: x\noverlap: {overlap}\n"
            f"steps: {{only: {{run: 'echo $TOBAN_RUN_ID >> {witness}; {held}'}}}}\n"
        )
        old = [daemon.start_run("w") for _ in range(4)]
        daemon.kill()
        dial.set(-3600)
        daemon.start()
        new = daemon.start_run("w")
        if overlap == "replace":
            assert [run_state(daemon.wait_run(each)) for each in old] == ["CANCELLED"] * 4
            free.touch()
            assert run_state(daemon.wait_run(new)) == "SUCCEEDED"
        else:
            free.touch()
            for each in (*old, new):
                daemon.wait_run(each)
            assert witness.read_text().split() == [*old, new]
    finally:
        daemon.clear()
