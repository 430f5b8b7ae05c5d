"""A step that forks without end while it is being killed: nothing of it is left, and the record says how it went."""

from __future__ import annotations

import json
from pathlib import Path

from helpers import steps
from helpers.daemon import cause_name, process_state, run_state, running_daemon
from helpers.processes import marked
from helpers.wait import wait_until


def test_a_storm_of_forks_is_ended_and_the_record_says_how(tmp_path: Path) -> None:
    marker = f"storm-{tmp_path}"
    with running_daemon(tmp_path / "s") as daemon:
        ids = {}
        for name, limit in (("timeout", "6s"), ("cancel", "60s")):
            argv = steps.python(steps.STORMING, str(tmp_path / name), "40", marker)
            step = {"job_type": "exec", "target": argv[0], "args": argv[1:]}
            step |= {"timeout": limit, "kill_grace": "300ms"}
            daemon.apply(json.dumps({"name": name, "description": "x", "steps": {"storm": step}}))
            ids[name] = daemon.start_run(name)
        wait_until(lambda: all((tmp_path / name).exists() for name in ids), "they do not get going")
        assert marked(marker)
        daemon.cancel(ids["cancel"], "enough")
        runs = {name: daemon.wait_run(run_id) for name, run_id in ids.items()}
        assert marked(marker) == [], "a process is left"
        assert run_state(runs["cancel"]) == "CANCELLED"
        assert run_state(runs["timeout"]) == "FAILED"
        for name, cause in (("cancel", "cancel"), ("timeout", "timeout")):
            process = daemon.process_of(ids[name], "storm")
            expected = "CANCELLED" if name == "cancel" else "TIMED_OUT"
            assert (process_state(process), cause_name(process.ending)) == (expected, cause)
            assert list(process.ending.signals) == ["TERM", "KILL"]
            assert process.ending.proved_empty
            assert process.ending.survivors == 0
            assert process.signal == 9
            assert process.ending.took.ToMicroseconds() >= 300_000, "the grace was given"
