"""Signals that would dump core: the daemon, its spawner and its shims leave none; steps have the limits they should."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, run_state
from helpers.gate import Gate
from helpers.processes import alive, children_of, command_of, seen


@pytest.fixture
def core_dumps() -> Iterator[int]:
    """Core dumps are on, as far as this user may turn them on."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_nothing_dumps_core(core_dumps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    daemon = Daemon(tmp_path / "state")
    daemon.start()
    try:
        gate = Gate(str(tmp_path / "gate"))
        daemon.apply(f"name: w\nsteps: [{{name: s, run: 'ulimit -c; read x < {gate.path}; ls -ln /proc/self/maps'}}]")
        run_id = daemon.start_run("w")
        daemon.wait_started(run_id, "s")
        (spawner,) = (seen(pid) for pid in daemon.children() if "toban: " in command_of(pid))
        shims = [each for each in children_of(spawner.pid) if "w#1 s" in command_of(each.pid)]
        for process in (spawner, *shims):
            os.kill(process.pid, signal.SIGABRT)
        assert daemon.process is not None
        os.kill(daemon.pid, signal.SIGABRT)
        ended = os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert (ended.si_code, ended.si_status) == (os.CLD_KILLED, signal.SIGABRT)
        daemon.process.wait()
        assert len(shims) == 1
        assert all(map(alive, (spawner, *shims))), "they ignore it"
        daemon.start()
        gate.release_now()
        assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
        limit, maps = b"".join(daemon.log_of(run_id).values()).decode().splitlines()
        assert limit == ("unlimited" if core_dumps == resource.RLIM_INFINITY else str(core_dumps // 1024))
        assert maps.split()[2] == str(os.geteuid()), "a step is an ordinary process"
    finally:
        daemon.stop()
    assert not [path for path in tmp_path.rglob("core*") if path.is_file()]
