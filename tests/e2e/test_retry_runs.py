"""A run is retried from its failed steps: the others do not run again, and their results and files are available."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.daemon import Daemon, run_state, running_daemon, step_states, steps_of
from helpers.refusal import refused
from toban.v1 import dead_letter_pb2, run_pb2, workflow_pb2

OUT = run_pb2.LOG_STREAM_STDOUT

# Ten steps in two branches; `f` fails until a file says otherwise. Each notes that it was executed.
TEN = """
name: ten
description: Ten steps, one of which fails
defaults: {workspace: "{{ run.dir }}"}
steps:
  a: {run: "NOTE a; echo 1; seq 3 > numbers; echo size=3 >> $TOBAN_OUTPUT", outputs: [{name: numbers, path: numbers}]}
  b: {run: "NOTE b; mkdir tree; echo deep > tree/leaf", depends_on: [a], outputs: [{name: tree, path: tree/}]}
  c: {run: "NOTE c; cat in; echo {{ steps.a.stdout }}", depends_on: [a], inputs: [{from: a, artifact: numbers, as: in}]}
  d: {run: "NOTE d; echo {{ item }}", for_each: "[1, 2]", depends_on: [b]}
  e: {run: NOTE e, when: "false", depends_on: [b]}
  f: {run: "NOTE f; test -e READY", depends_on: [c, d], on_failure: retry, max_retries: 0}
  g:
    run: "NOTE g; cat in; cat branch/leaf; echo {{ steps.a.outputs.size }} {{ steps.d.stdout }} {{ steps.c.stdout }}"
    depends_on: [f, a, b, c, d]
    inputs: [{from: a, artifact: numbers, as: in}, {from: b, artifact: tree, as: branch}]
  h: {run: NOTE h, depends_on: [g]}
  i: {run: NOTE i, depends_on: [b]}
  j: {run: NOTE j, depends_on: [h, i, e]}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("retry") / "state") as running:
        yield running


def ten(place: Path, name: str) -> str:
    note = f"echo >> {place}/executed."
    source = TEN.replace("name: ten", f"name: {name}").replace("READY", str(place / "ready"))
    for letter in "abcdefghij":
        source = source.replace(f"NOTE {letter}", f"{note}{letter}")
    return source


def executed(place: Path) -> str:
    """The steps in the order of the alphabet, each as often as it ran."""
    found = sorted(place.glob("executed.*"))
    return "".join(path.suffix[1] * len(path.read_text().splitlines()) for path in found)


def retry(daemon: Daemon, run_id: str, **how: object) -> run_pb2.Run:
    request = run_pb2.RetryRunRequest(id=run_id, **how)  # type: ignore[arg-type]
    return daemon.wait_run(daemon.runs.RetryRun(request, timeout=20).run.id)


def test_only_what_failed_and_what_follows_is_executed(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(ten(tmp_path, "ten"))
    first = daemon.run("ten")
    assert run_state(first) == "FAILED"
    assert step_states(first)["j"] == "SKIPPED(aborted)"
    assert executed(tmp_path) in ("abcddf", "abcddfi")
    for path in tmp_path.glob("executed.*"):
        path.unlink()
    (tmp_path / "ready").touch()
    ended_i = step_states(first)["i"] == "SUCCEEDED"

    again = retry(daemon, first.id)
    assert run_state(again) == "SUCCEEDED", again.error_message
    assert executed(tmp_path) == ("fghj" if ended_i else "fghij")
    assert again.retry_of == first.id
    assert again.triggered_by == run_pb2.TRIGGER_RETRY
    steps = steps_of(again)
    assert {name for name, step in steps.items() if step.source_run == first.id} >= {
        "a",
        "b",
        "c",
        "d",
        "d[0]",
        "d[1]",
    }
    assert step_states(again)["e"] == "SKIPPED(when)"
    assert steps["a"].attempts == 1
    assert {execution.step for execution in daemon.processes(again.id)} <= set("fghij")
    # Values, files and logs of what was kept reach the steps that were executed.
    printed = daemon.log_of(again.id, "g")[OUT].decode()
    assert printed == '1\n2\n3\ndeep\n3 ["1","2"] 1\n2\n3\n1\n'
    context = daemon.state_dir / "runs" / again.id / "context"
    assert (context / "a" / "numbers" / "numbers").read_text() == "1\n2\n3\n"
    assert (context / "b" / "tree" / "tree" / "leaf").read_text() == "deep\n"


def test_a_dead_letter_is_requeued_once(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(ten(tmp_path, "letters"))
    first = daemon.run("letters")
    request = dead_letter_pb2.ListDeadLettersRequest(workflow="letters")
    (letter,) = daemon.dead_letters.ListDeadLetters(request, timeout=20).dead_letters
    assert (letter.run_id, letter.step, letter.attempts) == (first.id, "f", 1)
    (tmp_path / "ready").touch()
    wish = dead_letter_pb2.RequeueDeadLetterRequest(id=letter.id)
    made = daemon.dead_letters.RequeueDeadLetter(wish, timeout=20)
    again = daemon.wait_run(made.run.id)
    assert (run_state(again), again.retry_of) == ("SUCCEEDED", first.id)
    assert "".join(sorted(set(executed(tmp_path)))) == "abcdfghij"
    assert executed(tmp_path).count("a") == 1
    refusal = refused(lambda: daemon.dead_letters.RequeueDeadLetter(wish, timeout=20))
    assert refusal.reason == "DEAD_LETTER_CLOSED"
    looked_at = dead_letter_pb2.GetDeadLetterRequest(id=letter.id)
    found = daemon.dead_letters.GetDeadLetter(looked_at, timeout=20).dead_letter
    assert found.state == dead_letter_pb2.DEAD_LETTER_STATE_REQUEUED
    assert found.requeued_as == again.id


def test_the_newest_version_repeats_what_changed(daemon: Daemon, tmp_path: Path) -> None:
    source = ten(tmp_path, "newest")
    daemon.apply(source)
    first = daemon.run("newest")
    for path in tmp_path.glob("executed.*"):
        path.unlink()
    changed = source.replace("; test -e", "; true ||").replace("cat in; echo", "echo")
    definition = workflow_pb2.Definition(source=changed)
    update = workflow_pb2.UpdateWorkflowRequest(workflow=workflow_pb2.Workflow(name="newest", definition=definition))
    daemon.workflows.UpdateWorkflow(update, timeout=20)
    again = retry(daemon, first.id, newest_version=True)
    assert run_state(again) == "SUCCEEDED", again.error_message
    assert (first.version, again.version) == (1, 2)
    assert executed(tmp_path).replace("i", "") == "cfghj", "c changed, f failed"


def test_a_partial_run_takes_what_it_needs_from_the_latest(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    daemon.apply(ten(tmp_path, "partial"))
    request = run_pb2.StartRunRequest(workflow="partial", only=["g"])
    refusal = refused(lambda: daemon.runs.StartRun(request, timeout=20))
    assert refusal.reason == "NO_PRIOR_RESULT"
    whole = daemon.run("partial")
    assert run_state(whole) == "SUCCEEDED"
    part = daemon.wait_run(daemon.runs.StartRun(request, timeout=20).run.id)
    assert run_state(part) == "SUCCEEDED", part.error_message
    assert [execution.step for execution in daemon.processes(part.id)] == ["g"]
    assert daemon.log_of(part.id, "g") == daemon.log_of(whole.id, "g")
    assert steps_of(part)["a"].source_run == whole.id
    assert step_states(part)["h"] == "SKIPPED(scope)"
    # What was taken over can be taken over again, also by name.
    named = run_pb2.StartRunRequest(workflow="partial", from_steps=["g"], from_run=part.id)
    last = daemon.wait_run(daemon.runs.StartRun(named, timeout=20).run.id)
    assert run_state(last) == "SUCCEEDED", last.error_message
    assert [execution.step for execution in daemon.processes(last.id)] == ["g", "h", "j"]
    assert steps_of(last)["a"].source_run == whole.id


def test_what_cannot_be_retried(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    daemon.apply(ten(tmp_path, "fine"))
    done = daemon.run("fine")
    assert refused(lambda: retry(daemon, done.id)).reason == "NOTHING_TO_RETRY"
    assert refused(lambda: retry(daemon, done.id, from_steps=["z"])).reason == "UNKNOWN_STEP"
    assert refused(lambda: retry(daemon, "nothing")).reason == "RUN_NOT_FOUND"
    repeated = retry(daemon, done.id, from_steps=["h"])
    assert [execution.step for execution in daemon.processes(repeated.id)] == ["h", "j"]
    whole = retry(daemon, done.id, everything=True)
    assert len(daemon.processes(whole.id)) == 10


def test_a_retry_that_starts_no_process_of_its_own_has_the_files_too(daemon: Daemon, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    daemon.apply(f"name: leaf\ndescription: x\nsteps: {{only: {{run: test -e {ready}}}}}\n")
    daemon.apply("""
name: late
description: keeps a file, and fails in a child
steps:
  make: {run: seq 3 > file, outputs: [{name: file, path: file}]}
  child: {job_type: workflow, target: leaf, depends_on: [make]}
""")
    first = daemon.run("late")
    assert step_states(first) == {"make": "SUCCEEDED", "child": "FAILED"}
    ready.touch()
    again = retry(daemon, first.id)
    assert run_state(again) == "SUCCEEDED", again.error_message
    daemon.runs.DeleteRun(run_pb2.DeleteRunRequest(id=first.id), timeout=20)
    request = run_pb2.DownloadArtifactRequest(run_id=again.id, step="make", name="file")
    answers = daemon.runs.DownloadArtifact(request, timeout=20)
    assert b"".join(answer.data for answer in answers) == b"1\n2\n3\n"


def test_a_retry_of_a_retry_repeats_what_is_not_kept_any_more(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(f"""
name: gone
description: its second step fails until it is told otherwise
steps:
  a: {{run: echo >> {tmp_path}/executed.a}}
  b: {{run: test -e {tmp_path}/ready, depends_on: [a]}}
""")
    first = daemon.run("gone")
    second = retry(daemon, first.id)
    assert executed(tmp_path) == "a"
    daemon.runs.DeleteRun(run_pb2.DeleteRunRequest(id=first.id), timeout=20)
    (tmp_path / "ready").touch()
    third = retry(daemon, second.id)
    assert (run_state(third), executed(tmp_path)) == ("SUCCEEDED", "aa")


EACH = """
name: each
description: Instances that fail until a file says otherwise
params: {mode: {type: string, default: fast}}
steps:
  first: {run: "echo a b c d"}
  build:
    for_each: ["a", "b", "c", "d"]
    max_parallel: 1
    on_failure: continue
    depends_on: [first]
    workspace: "{{ run.dir }}"
    run: |
      echo {{ item }} >> PLACE/executed
      echo {{ item }}-{{ params.mode }} > made
      case {{ item }} in b|d) test -e PLACE/ready || exit 1;; esac
      while test -e PLACE/hold; do sleep 0.1; done
    outputs: [{name: made, path: made}]
  check: {run: "test -e PLACE/ready", depends_on: [build]}
  gather:
    depends_on: [build, check]
    workspace: "{{ run.dir }}"
    inputs: [{from: build, artifact: made, as: in}]
    run: "cat in/*; echo {{ steps.build.exit_code }}"
"""


def test_only_the_failed_instances_are_repeated_also_over_a_killed_daemon(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "state") as daemon:
        daemon.apply(EACH.replace("PLACE", str(tmp_path)))
        first = daemon.run("each")
        assert run_state(first) == "FAILED"
        note = tmp_path / "executed"
        assert note.read_text().split() == ["a", "b", "c", "d"]
        note.unlink()
        (tmp_path / "ready").touch()
        (tmp_path / "hold").touch()
        request = run_pb2.RetryRunRequest(id=first.id)
        request.params["mode"] = "slow"
        again = daemon.runs.RetryRun(request, timeout=20).run.id
        daemon.wait_started(again, "build[1]")
        daemon.kill()
        (tmp_path / "hold").unlink()
        daemon.start()
        ended = daemon.wait_run(again)
        assert run_state(ended) == "SUCCEEDED", ended.error_message
        assert note.read_text().split() == ["b", "d"]
        assert ended.params["mode"] == "slow"
        steps = steps_of(ended)
        assert [steps[f"build[{number}]"].source_run for number in range(4)] == [first.id, "", first.id, ""]
        assert daemon.log_of(again, "gather")[OUT].decode() == "a-fast\nb-slow\nc-fast\nd-slow\n[0,0,0,0]\n"


def test_a_failed_step_is_skipped_with_who_and_why(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(ten(tmp_path, "skipped"))
    first = daemon.run("skipped")
    for path in tmp_path.glob("executed.*"):
        path.unlink()
    refusal = refused(lambda: retry(daemon, first.id, skip=["f"]))
    assert refusal.violations[0][0] == "skip_note"
    refusal = refused(lambda: retry(daemon, first.id, skip=["a"], skip_note="no need"))
    assert refusal.reason == "STEP_NOT_SKIPPABLE"
    refusal = refused(lambda: retry(daemon, first.id, skip=["f[0]"], skip_note="no need"))
    assert refusal.text == "workflow 'skipped' has no step 'f[0]': write f, not one of its instances"
    again = retry(daemon, first.id, skip=["f"], skip_note="known false alarm")
    assert run_state(again) == "SUCCEEDED", again.error_message
    assert executed(tmp_path).replace("i", "") == "ghj"
    skipped = steps_of(again)["f"]
    assert step_states(again)["f"] == "SKIPPED(requested)"
    assert (skipped.skipped_by, skipped.skip_note) == (again.caller, "known false alarm")
    assert skipped.reason == "exit code 1"


def test_a_retry_says_that_a_newer_version_exists(daemon: Daemon, tmp_path: Path) -> None:
    source = "name: fixed\ndescription: x\nsteps: {a: {run: exit 3}}\n"
    daemon.apply(source)
    first = daemon.run("fixed")
    request = run_pb2.RetryRunRequest(id=first.id)
    made = daemon.runs.RetryRun(request, timeout=20)
    assert made.newer_version == 0
    daemon.wait_run(made.run.id)
    definition = workflow_pb2.Definition(source=source.replace("exit 3", "exit 0"))
    update = workflow_pb2.UpdateWorkflowRequest(workflow=workflow_pb2.Workflow(name="fixed", definition=definition))
    daemon.workflows.UpdateWorkflow(update, timeout=20)
    made = daemon.runs.RetryRun(request, timeout=20)
    assert (made.run.version, made.newer_version) == (1, 2)
    assert run_state(daemon.wait_run(made.run.id)) == "FAILED"
    request.newest_version = True
    made = daemon.runs.RetryRun(request, timeout=20)
    assert (made.run.version, made.newer_version) == (2, 0)
    assert run_state(daemon.wait_run(made.run.id)) == "SUCCEEDED"
