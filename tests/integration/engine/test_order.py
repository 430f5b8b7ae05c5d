"""The order of steps: lists in sequence, branches in parallel, never more than `concurrency`."""

from __future__ import annotations

from pathlib import Path

from helpers.daemon import Daemon, run_state, step_states
from helpers.gate import Gate
from helpers.wait import wait_until


def test_a_list_runs_one_after_the_other(daemon: Daemon, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    steps = "".join(
        f"  - name: s{n}\n    run: echo begin {n} >> {witness}; echo end {n} >> {witness}\n" for n in range(6)
    )
    daemon.apply(f"name: list\ndescription: x\nsteps:\n{steps}")
    run = daemon.run("list")
    assert run_state(run) == "SUCCEEDED"
    assert witness.read_text().split("\n")[:-1] == [f"{edge} {n}" for n in range(6) for edge in ("begin", "end")]
    ends = [step.finished_at.ToMicroseconds() for step in run.steps]
    starts = [step.started_at.ToMicroseconds() for step in run.steps]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_a_step_of_a_list_may_name_what_it_waits_for(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"""
name: named
description: x
steps:
  - {{name: held, run: read _ < {gate.path}}}
  - {{name: free, run: echo free, depends_on: []}}
  - {{name: after-free, run: echo after}}
  - {{name: after-both, run: echo both, depends_on: [held, after-free]}}
""")
    run_id = daemon.start_run("named")
    wait_until(
        lambda: (
            step_states(daemon.get_run(run_id))
            == {
                "held": "RUNNING",
                "free": "SUCCEEDED",
                "after-free": "SUCCEEDED",
                "after-both": "PENDING",
            }
        ),
        "the others do not wait for the held one",
    )
    gate.release_now()
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"


def test_branches_run_side_by_side(daemon: Daemon, tmp_path: Path) -> None:
    """Each branch waits for the other: one after the other they would wait for ever."""
    left, right = tmp_path / "left", tmp_path / "right"
    for path in (left, right):
        Gate(str(path))
    daemon.apply(f"""
name: side
description: x
timeout: 60s
steps:
  root: {{run: "true"}}
  left: {{run: "echo go > {right}; read _ < {left}", depends_on: [root]}}
  right: {{run: "read _ < {right}; echo go > {left}", depends_on: [root]}}
  join: {{run: "true", depends_on: [left, right]}}
""")
    run = daemon.run("side")
    assert set(step_states(run).values()) == {"SUCCEEDED"}
    steps = {step.id: step for step in run.steps}
    for branch in ("left", "right"):
        root, join = steps["root"], steps["join"]
        assert root.finished_at.ToMicroseconds() <= steps[branch].started_at.ToMicroseconds()
        assert steps[branch].finished_at.ToMicroseconds() <= join.started_at.ToMicroseconds()


def test_no_more_run_than_concurrency_allows(daemon: Daemon, tmp_path: Path) -> None:
    gates = [Gate(f"{tmp_path}/gate{n}") for n in range(6)]
    steps = "".join(f"  s{n}: {{run: read _ < {gate.path}}}\n" for n, gate in enumerate(gates))
    daemon.apply(f"name: narrow\ndescription: x\nconcurrency: 2\nsteps:\n{steps}")
    run_id = daemon.start_run("narrow")
    for first in (0, 2, 4):
        expected = ["SUCCEEDED"] * first + ["RUNNING"] * 2 + ["READY"] * (4 - first)
        wait_until(
            lambda e=expected: list(step_states(daemon.get_run(run_id)).values()) == e,  # type: ignore[misc]
            f"expected {expected}",
        )
        gates[first].release_now()
        gates[first + 1].release_now()
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED"
    edges = [(step.started_at.ToMicroseconds(), 1) for step in run.steps]
    edges += [(step.finished_at.ToMicroseconds(), -1) for step in run.steps]
    running = most = 0
    for _, change in sorted(edges):
        running += change
        most = max(most, running)
    assert most == 2
