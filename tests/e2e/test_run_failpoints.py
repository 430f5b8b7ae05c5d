"""The daemon dies between any two changes of a run that has everything: each step, check and child still runs once.

One run, and many lives of the daemon: each kills itself at another place of the run's way. The run fails in its last
step and is retried, so that results and files are taken over too.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from helpers.daemon import (
    Daemon,
    process_state,
    run_state,
    running_daemon,
    step_states,
    steps_of,
)
from toban.v1 import dead_letter_pb2, run_pb2

# A dozen daemons, one after the other.
pytestmark = pytest.mark.timeout(600)

OUT = run_pb2.LOG_STREAM_STDOUT
NOTE = 'echo "$TOBAN_STEP" >> "$WITNESS"'
LEAF = f"""
name: leaf
description: the child of everything
overlap: queue
params: {{made: {{type: string}}}}
steps:
  only: {{run: '{NOTE}; echo child of {{{{ params.made }}}}'}}
"""
EVERYTHING = f"""
name: everything
description: a step of every kind
steps:
  make:
    run: |
      {NOTE}
      echo made
      seq 1000 > numbers
      mkdir -p tree/deep; echo leaf > tree/deep/leaf
      head -c 100000 /dev/zero | tr '\\0' x | sed 's/^/text=/' >> $TOBAN_OUTPUT
    outputs: [{{name: numbers, path: numbers}}, {{name: tree, path: tree/}}]
  loop:
    run: '{NOTE}; echo $TOBAN_ITERATION >> tally'
    completion_check: {{run: 'echo check >> "$WITNESS"; test $(wc -l < tally) -ge 2'}}
    max_iterations: 4
    outputs: [{{name: tally, path: tally}}]
    depends_on: [make]
  each:
    run: '{NOTE}; echo {{{{ item }}}}'
    for_each: "[3, 1, 2]"
    max_parallel: 2
    depends_on: [make, loop]
  child:
    job_type: workflow
    target: leaf
    kwargs: {{made: "{{{{ steps.make.stdout }}}}"}}
    depends_on: [make, each]
  maybe: {{run: '{NOTE}', when: size(steps.make.outputs.text) == 100000, depends_on: [make, child]}}
  never: {{run: '{NOTE}', when: steps.make.exit_code != 0, depends_on: [make, child]}}
  tried:
    run: '{NOTE}; test $TOBAN_ATTEMPT -ge 2'
    max_retries: 3
    retry: {{delay: 100ms, jitter: 0}}
    depends_on: [maybe, never]
  join:
    run: |
      {NOTE}
      cat in branch/deep/leaf tally.kept | cksum
      echo {{{{ steps.each.stdout }}}} {{{{ size(steps.make.outputs.text) }}}} {{{{ steps.child.status }}}}
      test -e "$WITNESS".joined || {{ touch "$WITNESS".joined; exit 1; }}
    inputs:
      - {{from: make, artifact: numbers, as: in}}
      - {{from: make, artifact: tree, as: branch}}
      - {{from: loop, artifact: tally, as: tally.kept}}
    on_failure: retry
    max_retries: 0
    depends_on: [make, loop, each, child, maybe, never, tried]
finally:
  - {{name: tell, run: '{NOTE}; echo {{{{ run.state }}}} {{{{ run.failed_steps }}}}', when: steps.join.exit_code >= 0}}
  - {{name: tidy, run: '{NOTE}'}}
"""
ONCE = ["make", "loop", "loop", "check", "check", "each[0]", "each[1]", "each[2]", "only", "maybe", "tried", "tried"]
STATES = {
    "make": "SUCCEEDED",
    "loop": "SUCCEEDED",
    "each": "SUCCEEDED",
    "each[0]": "SUCCEEDED",
    "each[1]": "SUCCEEDED",
    "each[2]": "SUCCEEDED",
    "child": "SUCCEEDED",
    "maybe": "SUCCEEDED",
    "never": "SKIPPED(when)",
    "tried": "SUCCEEDED",
}
LAST = {"tell": "SUCCEEDED", "tidy": "SUCCEEDED"}

LIVES = (
    ("values.spilled=kill@1", "what a step left is in its file, and that it ended is not known"),
    ("outputs.collect=kill@1", "before its outputs are kept"),
    ("outputs.kept=kill@1", "they are kept, and that is not known"),
    (
        "launch.ready=kill@2",
        "before the first completion check; the first time is the start of the daemon",
    ),
    ("launch.ready=kill@2", "between two iterations"),
    ("step.evaluate=kill@1", "a step is ready, and what it is to be run for is not settled"),
    ("child.make=kill@1", "an attempt that is a child run, which there is not"),
    ("child.made=kill@1", "there is, and it has not begun"),
    ("child.ended=kill@1", "it is over, and its parent does not know"),
    ("inputs.laid_out=kill@1", "the inputs of a step are there, the step is not"),
    ("step.evaluate=kill@1", "all other steps have ended, and no finally step has begun"),
    ("launch.before_send=kill@1", "the first finally step is launched, and its supervisor does not know"),
    ("launch.after_send=kill@1", "the next one begins, and the daemon does not hear of it"),
    ("run.prepared=kill@2", "the retry has taken over files and has done nothing with them"),
)


@dataclass(frozen=True)
class Outcome:
    """What the last daemon says, and what the steps themselves left behind."""

    daemon: Daemon
    first: run_pb2.Run
    again: run_pb2.Run
    witness: Sequence[str]


def ends(daemon: Daemon) -> tuple[run_pb2.Run, run_pb2.Run]:
    """The run and its retry; a client without an answer asks again, with the same request id."""
    wish = run_pb2.StartRunRequest(workflow="everything", request_id="first")
    first = daemon.wait_run(daemon.runs.StartRun(wish, timeout=20).run.id)
    request = run_pb2.RetryRunRequest(id=first.id, request_id="again")
    return first, daemon.wait_run(daemon.runs.RetryRun(request, timeout=20).run.id)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    directory = tmp_path_factory.mktemp("d")
    witness = directory / "witness"
    with running_daemon(directory / "s") as daemon:
        for source in (LEAF, EVERYTHING):
            daemon.apply(f"{source}env: {{WITNESS: {witness}}}\n")
        daemon.kill()
        for place, meaning in LIVES:
            daemon.start({"TOBAN_FAILPOINTS": place}, wait=False)
            if daemon.wait_serving():
                with contextlib.suppress(grpc.RpcError):
                    ends(daemon)
            try:
                how = daemon.wait()
            except subprocess.TimeoutExpired:
                how = 0
            assert how == -signal.SIGKILL, f"it did not come past {place} ({meaning})"
        daemon.start()
        first, again = ends(daemon)
        yield Outcome(daemon, first, again, witness.read_text().split())


def test_everything_happens_once(outcome: Outcome) -> None:
    first, again = outcome.first, outcome.again
    assert (run_state(first), run_state(again)) == ("FAILED", "SUCCEEDED"), first.error_message
    assert step_states(first) == {**STATES, "join": "FAILED", **LAST}
    assert step_states(again) == {**STATES, "join": "SUCCEEDED", **LAST}
    assert outcome.witness[:5] == ["make", "loop", "check", "loop", "check"]
    assert sorted(outcome.witness) == sorted([*ONCE, *("join", *LAST) * 2])


def test_counts_are_those_of_what_happened(outcome: Outcome) -> None:
    for run in (outcome.first, outcome.again):
        steps = steps_of(run)
        assert (steps["loop"].iteration, steps["loop"].attempts, steps["loop"].checks) == (2, 2, 2)
        assert (steps["tried"].attempts, steps["join"].attempts) == (2, 1)
        assert [steps[f"each[{n}]"].attempts for n in range(3)] == [1, 1, 1]
        taken = {name for name, step in steps.items() if step.source_run == outcome.first.id}
        assert taken == (set() if run is outcome.first else STATES.keys() - {"never"})
    executed = Counter(process.step for process in outcome.daemon.processes(outcome.first.id))
    assert executed == Counter(
        {
            "make": 1,
            "loop": 2,
            "loop.check": 2,
            "each[0]": 1,
            "each[1]": 1,
            "each[2]": 1,
            "child": 1,
            "maybe": 1,
            "tried": 2,
            "join": 1,
            "tell": 1,
            "tidy": 1,
        }
    )
    assert [process.step for process in outcome.daemon.processes(outcome.again.id)] == ["join", *LAST]


def test_there_is_one_child_and_one_dead_letter(outcome: Outcome) -> None:
    listed = outcome.daemon.runs.ListRuns(run_pb2.ListRunsRequest(), timeout=20).runs
    assert len(listed) == 3, "the run, its child, and the retry, which needs no child"
    (child,) = (run for run in listed if run.workflow == "leaf")
    assert (child.parent_run, child.parent_step) == (outcome.first.id, "child")
    assert (run_state(child), dict(child.params)) == ("SUCCEEDED", {"made": "made"})
    told = {"run_id": child.id, "number": child.number, "state": "SUCCEEDED"}
    assert json.loads(steps_of(outcome.again)["child"].result_json) == told
    request = dead_letter_pb2.ListDeadLettersRequest()
    letters = outcome.daemon.dead_letters.ListDeadLetters(request, timeout=20).dead_letters
    assert [(each.run_id, each.step, each.attempts) for each in letters] == [(outcome.first.id, "join", 1)]


def test_values_and_files_are_whole(outcome: Outcome) -> None:
    files = {
        "make/numbers/numbers": "".join(f"{n}\n" for n in range(1, 1001)).encode(),
        "make/tree/tree/deep/leaf": b"leaf\n",
        "loop/tally/tally": b"1\n2\n",
        "loop/iteration-1/tally/tally": b"1\n",
        "loop/iteration-2/tally/tally": b"1\n2\n",
    }
    for run in (outcome.first, outcome.again):
        assert kept(context_of(outcome, run)) == files
        _, values = outcome.daemon.log_of(run.id, "join")[OUT].splitlines()
        assert values == b'["3","1","2"] 100000 SUCCEEDED'
        failed = {"FAILED": b'["join"]', "SUCCEEDED": b"[]"}[run_state(run)]
        assert outcome.daemon.log_of(run.id, "tell")[OUT].split() == [run_state(run).encode(), failed]


def test_the_notes_in_the_context_directory_say_the_same(outcome: Outcome) -> None:
    """Of what it executed, and in the retry of what it keeps."""
    executed = ("make", "loop", "each", "each/2", "child", "maybe", "tried", "join")
    for run, state, steps in (
        (outcome.first, "FAILED", executed),
        (outcome.again, "SUCCEEDED", executed),
    ):
        context = context_of(outcome, run)
        assert json.loads((context / "_workflow.json").read_text())["status"] == state
        notes = {name: json.loads((context / name / "_meta.json").read_text()) for name in steps}
        assert {name: note["status"] for name, note in notes.items()} == {
            name: state if name == "join" else "SUCCEEDED" for name in steps
        }


def context_of(outcome: Outcome, run: run_pb2.Run) -> Path:
    return outcome.daemon.state_dir / "runs" / run.id / "context"


def kept(context: Path) -> dict[str, bytes]:
    """Everything in a context directory but the notes."""
    return {
        str(path.relative_to(context)): path.read_bytes()
        for path in sorted(context.rglob("*"))
        if path.is_file() and path.name not in ("_meta.json", "_workflow.json")
    }


def test_outputs_are_not_believed_when_the_machine_went_down_before_they_were_kept(
    tmp_path: Path,
) -> None:
    """The next daemon is one of another boot: what lies in the workspace may never have reached the disk."""
    first_life = {"TOBAN_BOOT_ID": "one", "TOBAN_FAILPOINTS": "outputs.collect=kill@1"}
    with running_daemon(tmp_path / "s", environment=first_life) as daemon:
        daemon.environment |= {"TOBAN_BOOT_ID": "two", "TOBAN_FAILPOINTS": ""}
        gate = tmp_path / "gate"
        daemon.apply(f"""
name: down
description: a step that may be repeated
steps:
  make:
    run: until [ -e {gate} ]; do sleep 0.01; done; echo 1 > file
    outputs: [{{name: file, path: file}}]
    max_retries: 1
    retry: {{delay: 1ms}}
""")
        run_id = daemon.start_run("down")
        gate.touch()
        assert daemon.wait() == -signal.SIGKILL
        daemon.start()
        run = daemon.wait_run(run_id)
        assert run_state(run) == "SUCCEEDED", run.error_message
        step = steps_of(run)["make"]
        assert (step.attempts, step.retries, len(step.artifacts)) == (2, 1, 1)
        states = [process_state(process) for process in daemon.processes(run_id)]
        assert states == ["COMPLETED", "COMPLETED"], "its own work was done both times"
