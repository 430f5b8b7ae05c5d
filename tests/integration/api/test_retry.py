"""RunService and DeadLetterService: runs that repeat others, and runs that go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc

from helpers.daemon import Daemon, run_state, step_states, steps_of
from helpers.gate import Gate
from helpers.refusal import refused
from toban.v1 import dead_letter_pb2, workflow_pb2
from toban.v1 import run_pb2 as pb


def apply(daemon: Daemon, name: str, steps: object, **fields: object) -> None:
    definition = {"name": name, "description": "for a test", **fields, "steps": steps}
    daemon.apply(json.dumps(definition))


def retry(daemon: Daemon, run_id: str, **how: Any) -> pb.Run:
    made = daemon.runs.RetryRun(pb.RetryRunRequest(id=run_id, **how), timeout=20).run
    return daemon.wait_run(made.id)


def letters(daemon: Daemon, **how: Any) -> list[dead_letter_pb2.DeadLetter]:
    asked = dead_letter_pb2.ListDeadLettersRequest(**how)
    return list(daemon.dead_letters.ListDeadLetters(asked, timeout=20).dead_letters)


def failing(flag: Path) -> dict[str, object]:
    """Three steps in a row, of which the second fails until the file is there."""
    return {
        "first": {"run": f"echo first >> {flag}.log; echo value=1 >> $TOBAN_OUTPUT"},
        "second": {
            "run": f"echo second {{{{ steps.first.outputs.value }}}} >> {flag}.log; test -e {flag}",
            "depends_on": ["first"],
        },
        "third": {"run": f"echo third >> {flag}.log", "depends_on": ["second"]},
    }


def test_a_retry_repeats_what_failed_and_keeps_the_rest(daemon: Daemon, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    apply(daemon, "retried", failing(flag))
    failed = daemon.run("retried")
    assert run_state(failed) == "FAILED"
    flag.touch()
    request = pb.RetryRunRequest(id=failed.id, request_id="retried")
    made = daemon.runs.RetryRun(request, timeout=20).run
    again = daemon.wait_run(made.id)
    assert (run_state(again), again.retry_of, again.number) == ("SUCCEEDED", failed.id, 2)
    assert again.triggered_by == pb.TRIGGER_RETRY
    kept = steps_of(again)["first"]
    assert (kept.source_run, dict(kept.outputs)) == (failed.id, {"value": "1"})
    assert (tmp_path / "flag.log").read_text().split("\n")[:-1] == [
        "first",
        "second 1",
        "second 1",
        "third",
    ]
    assert {each.step for each in daemon.processes(again.id)} == {"second", "third"}
    assert daemon.runs.RetryRun(request, timeout=20).run.id == again.id
    repeats = daemon.runs.ListRuns(pb.ListRunsRequest(retry_of=failed.id), timeout=20).runs
    assert [each.id for each in repeats] == [again.id]


def test_more_is_repeated_when_asked_for(daemon: Daemon, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    apply(daemon, "all-again", failing(flag))
    run = daemon.run("all-again")
    nothing = refused(lambda: retry(daemon, run.id))
    assert (nothing.code, nothing.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NOTHING_TO_RETRY",
    )
    last = retry(daemon, run.id, from_steps=["third"])
    assert [each.step for each in daemon.processes(last.id)] == ["third"]
    everything = retry(daemon, run.id, everything=True)
    assert len(daemon.processes(everything.id)) == 3
    both = refused(lambda: retry(daemon, run.id, everything=True, from_steps=["third"]))
    assert both.violations[0][0] == "everything"
    assert refused(lambda: retry(daemon, run.id, from_steps=["x"])).reason == "UNKNOWN_STEP"
    assert refused(lambda: retry(daemon, "no-such-run")).reason == "RUN_NOT_FOUND"


def test_a_retry_has_the_same_version_or_the_newest(daemon: Daemon) -> None:
    apply(daemon, "newest", [{"name": "only", "run": "exit 1"}])
    failed = daemon.run("newest")
    source = '{"name": "newest", "description": "d", "steps": [{"name": "only", "run": "true"}]}'
    workflow = workflow_pb2.Workflow(name="newest", definition=workflow_pb2.Definition(source=source))
    daemon.workflows.UpdateWorkflow(workflow_pb2.UpdateWorkflowRequest(workflow=workflow), timeout=20)
    same = retry(daemon, failed.id)
    assert (same.version, run_state(same)) == (1, "FAILED")
    newest = retry(daemon, failed.id, newest_version=True)
    assert (newest.version, run_state(newest)) == (2, "SUCCEEDED")


def test_a_run_that_goes_on_is_neither_retried_nor_deleted(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "goes-on", [{"name": "only", "run": f"read _ < {gate.path}"}])
    run_id = daemon.start_run("goes-on")
    for call in (
        lambda: retry(daemon, run_id),
        lambda: daemon.runs.DeleteRun(pb.DeleteRunRequest(id=run_id), timeout=20),
    ):
        refusal = refused(call)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "RUN_NOT_TERMINAL",
        )
        assert refusal.metadata["run_id"] == run_id
    gate.release_now()
    daemon.wait_run(run_id)


def test_a_deleted_run_is_gone_with_its_files(daemon: Daemon) -> None:
    apply(daemon, "goes", [{"name": "only", "run": "echo hello"}])
    run, last = daemon.run("goes"), daemon.run("goes")
    asked = pb.DeleteRunRequest(id=run.id)
    daemon.runs.DeleteRun(asked, timeout=20)
    assert refused(lambda: daemon.get_run(run.id)).reason == "RUN_NOT_FOUND"
    assert refused(lambda: daemon.runs.DeleteRun(asked, timeout=20)).reason == "RUN_NOT_FOUND"
    assert not list((daemon.state_dir / "runs").rglob(f"*{run.id}*"))
    # The next one counts on from the last, although that is gone too.
    daemon.runs.DeleteRun(pb.DeleteRunRequest(id=last.id), timeout=20)
    assert daemon.run("goes").number == 3


def test_a_dead_letter_is_requeued_from_the_failed_step_on(daemon: Daemon, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    steps: Any = failing(flag)
    steps["second"] |= {"on_failure": "retry", "max_retries": 1, "retry": {"delay": "10ms"}}
    apply(daemon, "letters", steps)
    failed = daemon.run("letters")
    assert step_states(failed)["second"] == "FAILED"
    assert steps_of(failed)["second"].attempts == 2
    (letter,) = letters(daemon, workflow="letters")
    assert (letter.run_id, letter.step, letter.attempts) == (failed.id, "second", 2)
    assert letter.error_class == pb.ERROR_CLASS_RETRYABLE_TRANSIENT
    assert letter.error_message
    assert letter.process_execution_id == daemon.processes(failed.id)[-1].id
    flag.touch()
    request = dead_letter_pb2.RequeueDeadLetterRequest(id=letter.id, request_id="letters")
    answer = daemon.dead_letters.RequeueDeadLetter(request, timeout=20)
    run = daemon.wait_run(answer.run.id)
    assert (run_state(run), run.retry_of) == ("SUCCEEDED", failed.id)
    assert {each.step for each in daemon.processes(run.id)} == {"second", "third"}
    assert answer.dead_letter.state == dead_letter_pb2.DEAD_LETTER_STATE_REQUEUED
    assert answer.dead_letter.requeued_as == run.id
    assert answer.dead_letter.resolved_by
    assert daemon.dead_letters.RequeueDeadLetter(request, timeout=20).run.id == run.id
    for call in (
        lambda: daemon.dead_letters.RequeueDeadLetter(
            dead_letter_pb2.RequeueDeadLetterRequest(id=letter.id), timeout=20
        ),
        lambda: daemon.dead_letters.DiscardDeadLetter(
            dead_letter_pb2.DiscardDeadLetterRequest(id=letter.id), timeout=20
        ),
    ):
        refusal = refused(call)
        assert refusal.reason == "DEAD_LETTER_CLOSED"
        assert refusal.metadata["requeued_as"] == run.id


def test_dead_letters_are_listed_and_discarded(daemon: Daemon) -> None:
    step = {"run": "exit 1", "on_failure": "retry", "max_retries": 0}
    apply(daemon, "discarded", {"only": step})
    runs = [daemon.run("discarded").id for _ in range(3)]
    assert [each.run_id for each in letters(daemon, workflow="discarded")] == runs[::-1]
    asked = dead_letter_pb2.ListDeadLettersRequest(workflow="discarded", page_size=2)
    page = daemon.dead_letters.ListDeadLetters(asked, timeout=20)
    asked.page_token = page.next_page_token
    rest = daemon.dead_letters.ListDeadLetters(asked, timeout=20)
    assert [each.run_id for each in (*page.dead_letters, *rest.dead_letters)] == runs[::-1]
    assert rest.next_page_token == ""
    first = page.dead_letters[0].id
    discard = dead_letter_pb2.DiscardDeadLetterRequest(id=first)
    done = daemon.dead_letters.DiscardDeadLetter(discard, timeout=20).dead_letter
    assert done.state == dead_letter_pb2.DEAD_LETTER_STATE_DISCARDED
    assert daemon.dead_letters.DiscardDeadLetter(discard, timeout=20).dead_letter == done
    still = [dead_letter_pb2.DEAD_LETTER_STATE_OPEN]
    assert [each.run_id for each in letters(daemon, workflow="discarded", states=still)] == (runs[1::-1])
    got = dead_letter_pb2.GetDeadLetterRequest(id=first)
    assert daemon.dead_letters.GetDeadLetter(got, timeout=20).dead_letter == done
    none = dead_letter_pb2.GetDeadLetterRequest(id="none")
    missing = refused(lambda: daemon.dead_letters.GetDeadLetter(none, timeout=20))
    assert (missing.code, missing.reason) == (
        grpc.StatusCode.NOT_FOUND,
        "DEAD_LETTER_NOT_FOUND",
    )
