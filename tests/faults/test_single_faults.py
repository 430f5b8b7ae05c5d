"""One thing fails for a while, under load. The daemon survives, loses nothing, and recovers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import grpc
import pytest

from faults import strace_faults
from faults.descriptors import no_descriptors
from faults.scene import under_load
from faults.settings import LONG
from helpers.wait import wait_until

FOR = 10.0 if LONG else 1.0
STOPPED_FOR = 60.0 if LONG else 2.0
REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED,)

traced = pytest.mark.skipif(bool(strace_faults.why_not()), reason=f"cannot trace: {strace_faults.why_not()}")


@traced
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ("fsync,fdatasync", "EIO"),
        ("pwrite64,fsync,fdatasync,mkdir,link,linkat,rename", "EROFS"),
    ],
)
def test_a_disk_that_fails_for_a_while(tmp_path: Path, calls: str, error: str) -> None:
    """The daemon cannot commit: it promises nothing meanwhile, and keeps what it promised before."""
    with (
        under_load(tmp_path, refusals=REFUSED) as scene,
        strace_faults.injected(scene.daemon.pid, calls, f"error={error}", tmp_path),
    ):
        scene.last(FOR)
        # However long that takes: it lasts until something met with it.
        wait_until(lambda: '"store_failed"' in scene.daemon.log.read_text(), "nothing failed", 60)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_descriptors_run_out_for_a_while(tmp_path: Path) -> None:
    with under_load(tmp_path, refusals=REFUSED) as scene, no_descriptors(scene.daemon.pid):
        scene.last(FOR)


@traced
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_process_can_be_forked_for_a_while(tmp_path: Path) -> None:
    """What cannot be started yet waits for it."""
    with under_load(tmp_path, refusals=REFUSED) as scene:
        (spawner,) = scene.daemon.children()
        with strace_faults.injected(spawner, "fork,vfork,clone,clone3", "error=EAGAIN", tmp_path):
            scene.last(FOR)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_daemon_is_stopped_for_a_while(tmp_path: Path) -> None:
    with under_load(tmp_path) as scene:
        os.kill(scene.daemon.pid, signal.SIGSTOP)
        try:
            scene.last(STOPPED_FOR)
        finally:
            os.kill(scene.daemon.pid, signal.SIGCONT)
