"""Finally steps: they run when everything else has ended, whatever happened, and change nothing about the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.daemon import (
    Daemon,
    cause_name,
    process_state,
    run_state,
    step_states,
    steps_of,
    waits_for,
)
from helpers.gate import Gate
from helpers.refusal import refused
from helpers.wait import wait_until
from toban.v1 import dead_letter_pb2, run_pb2

OUT = run_pb2.LOG_STREAM_STDOUT
TELL = "echo {{ run.state }} {{ run.failed_steps }} {{ run.error }}"


def printed(daemon: Daemon, run_id: str, step: str) -> str:
    return daemon.log_of(run_id, step)[OUT].decode().strip()


def finally_state(run: run_pb2.Run) -> str:
    """The state that the run will have; empty before its finally steps run."""
    part = run.finally_part
    return run_pb2.RunState.Name(part.state).removeprefix("RUN_STATE_") if run.HasField("finally_part") else ""


def wait_finally(daemon: Daemon, run_id: str, step: str) -> run_pb2.Run:
    """Until a process of that finally step runs."""
    daemon.wait_started(run_id, step)
    return daemon.get_run(run_id)


def test_they_run_after_a_success_a_failure_and_know_which(daemon: Daemon) -> None:
    daemon.apply("""
name: told
description: x
params: {bad: {type: integer, default: 0}}
steps:
  fine: {run: "true"}
  soft: {run: "exit {{ params.bad }}", on_failure: continue}
  hard: {run: "exit {{ params.bad }}", depends_on: [fine, soft]}
  never: {run: "true", depends_on: [hard]}
finally:
  tell:
    run: |
      echo {{ run.state }} {{ run.failed_steps }} [{{ run.error }}]
      echo {{ steps.hard.status }} {{ steps.never.status }} {{ steps.hard.exit_code }}
""")
    run = daemon.run("told")
    assert (run_state(run), finally_state(run)) == ("SUCCEEDED", "SUCCEEDED")
    assert printed(daemon, run.id, "tell") == "SUCCEEDED [] []\nSUCCEEDED SUCCEEDED 0"
    run = daemon.run("told", bad=3)
    assert (run_state(run), run.error_message) == ("FAILED", "step hard failed: exit code 3")
    assert step_states(run)["tell"] == "SUCCEEDED"
    assert steps_of(run)["tell"].is_finally
    assert not steps_of(run)["hard"].is_finally
    assert printed(daemon, run.id, "tell") == (
        'FAILED ["soft","hard"] [step hard failed: exit code 3]\nFAILED SKIPPED 3'
    )


def test_a_failed_one_is_counted_and_hides_nothing(daemon: Daemon) -> None:
    daemon.apply("""
name: spoilt
description: x
params: {code: {type: integer, default: 0}}
steps: [{name: work, run: "exit {{ params.code }}"}]
finally:
  - {name: first, run: exit 4}
  - {name: second, run: exit 5, on_failure: retry, max_retries: 0, on_failure_exhausted: continue}
  - {name: third, run: "true"}
""")
    daemon.apply("""
name: alarmed
description: x
on: {event: STEP_FAILED, condition: "event.payload.workflow == 'spoilt' && event.payload.step == 'first'"}
steps: [{name: only, run: "true"}]
""")
    run = daemon.run("spoilt")
    assert (run_state(run), run.failed_steps, run.error_message) == ("SUCCEEDED", 2, "")
    assert step_states(run) == {"work": "SUCCEEDED", "first": "FAILED", "second": "FAILED", "third": "SUCCEEDED"}
    letters = daemon.dead_letters.ListDeadLetters(
        dead_letter_pb2.ListDeadLettersRequest(workflow="spoilt"), timeout=20
    ).dead_letters
    assert [(letter.run_id, letter.step) for letter in letters] == [(run.id, "second")]
    again = daemon.dead_letters.RequeueDeadLetter(
        dead_letter_pb2.RequeueDeadLetterRequest(id=letters[0].id), timeout=20
    ).run
    repeated = daemon.wait_run(again.id)
    assert [each.step for each in daemon.processes(repeated.id)] == ["first", "second", "third"], "all, and only those"
    failed = daemon.run("spoilt", code=7)
    assert (run_state(failed), failed.failed_steps, failed.error_message) == (
        "FAILED",
        3,
        "step work failed: exit code 7",
    )
    listed = run_pb2.ListRunsRequest(workflow="alarmed")
    wait_until(lambda: len(daemon.runs.ListRuns(listed, timeout=20).runs) == 3, "an event is missing")


@pytest.mark.parametrize(
    ("end", "state", "ran"),
    [
        ("exit 0", "SUCCEEDED", {"well", "always"}),
        ("exit 1", "FAILED", {"badly", "worse", "always"}),
        ("exec sleep 600", "TIMED_OUT", {"badly", "worse", "always"}),
    ],
)
def test_handlers_are_finally_steps_with_a_condition(daemon: Daemon, end: str, state: str, ran: set[str]) -> None:
    name = f"handlers-{state.lower().replace('_', '-')}"
    daemon.apply(f"""
name: {name}
description: x
timeout: {"1s" if state == "TIMED_OUT" else "1m"}
steps: [{{name: work, run: "{end}"}}]
on_success: {{name: well, run: "true"}}
on_failure:
  - {{name: badly, run: "true"}}
  - {{name: worse, run: "true", when: "size(run.error) > 0 // says why"}}
on_cancel: {{run: "true"}}
finally:
  always: {{run: "true"}}
  other: {{run: "true", when: "run.state == 'PENDING'"}}
""")
    run = daemon.run(name)
    assert run_state(run) == state
    states = step_states(run)
    assert {step for step, state in states.items() if state == "SUCCEEDED"} - {"work"} == ran
    assert {state for step, state in states.items() if step not in {*ran, "work"}} == {"SKIPPED(when)"}


def test_a_cancel_ends_the_steps_and_a_second_one_the_finally_steps(daemon: Daemon) -> None:
    daemon.apply(f"""
name: twice-cancelled
description: x
steps: [{{name: work, run: exec sleep 600}}, {{name: never, run: "true"}}]
finally:
  - {{name: tidy, run: "{TELL}; exec sleep 600"}}
  - {{name: rest, run: "true"}}
on_cancel: {{name: sorry, run: "true"}}
""")
    run_id = daemon.start_run("twice-cancelled")
    daemon.wait_started(run_id, "work")
    daemon.cancel(run_id, "enough")
    run = wait_finally(daemon, run_id, "tidy")
    assert (run_state(run), finally_state(run), waits_for(run)) == ("RUNNING", "CANCELLED", "")
    assert cause_name(run.ending) == "cancelled"
    assert not run.finally_part.HasField("ending")
    request = run_pb2.CancelRunRequest(id=run_id, is_retry=True)
    repeated = daemon.runs.CancelRun(request, timeout=20).run
    assert not repeated.finally_part.HasField("ending"), "its answer was lost: that is no second wish"
    second = daemon.cancel(run_id)
    assert cause_name(second.finally_part.ending) == "cancelled"
    run = daemon.wait_run(run_id)
    assert (run_state(run), run.error_message) == ("CANCELLED", "cancelled: enough")
    states = step_states(run)
    assert states.pop("sorry") in ("SUCCEEDED", "SKIPPED(cancelled)")
    assert states == {
        "work": "CANCELLED",
        "never": "SKIPPED(cancelled)",
        "tidy": "CANCELLED",
        "rest": "SKIPPED(cancelled)",
    }
    assert steps_of(run)["tidy"].reason == "cancelled"
    assert printed(daemon, run_id, "tidy") == "CANCELLED [] cancelled: enough"


def test_the_first_cancel_after_a_success_lets_them_finish(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"""
name: too-late
description: x
steps: [{{name: work, run: "true"}}]
finally: {{run: "read _ < {gate.path}"}}
""")
    run_id = daemon.start_run("too-late")
    wait_finally(daemon, run_id, "finally")
    run = daemon.cancel(run_id)
    assert run.HasField("cancel_requested_at")
    assert not run.finally_part.HasField("ending")
    gate.release_now()
    run = daemon.wait_run(run_id)
    assert (run_state(run), step_states(run)) == ("SUCCEEDED", {"work": "SUCCEEDED", "finally": "SUCCEEDED"})


def test_a_run_cancelled_in_the_queue_has_none(daemon: Daemon) -> None:
    daemon.apply("""
name: queued-finally
description: x
overlap: queue
steps: [{name: work, run: exec sleep 600}]
finally: {run: "true"}
""")
    first, second = daemon.start_run("queued-finally"), daemon.start_run("queued-finally")
    daemon.cancel(second)
    run = daemon.wait_run(second)
    assert step_states(run) == {"work": "SKIPPED(cancelled)", "finally": "SKIPPED(cancelled)"}
    assert not run.HasField("finally_part")
    daemon.cancel(first)
    run = daemon.wait_run(first)
    assert step_states(run) == {"work": "CANCELLED", "finally": "SUCCEEDED"}


def test_finally_timeout_is_theirs_and_the_timeout_of_the_run_is_not(daemon: Daemon) -> None:
    daemon.apply("""
name: own-time
description: x
timeout: 1s
finally_timeout: 2s
steps: [{name: work, run: exec sleep 600}]
finally:
  longer: {run: "sleep 1.2"}
  endless: {run: exec sleep 600}
  after: {run: "true", depends_on: [endless]}
""")
    run = daemon.run("own-time")
    assert (run_state(run), run.error_message) == ("TIMED_OUT", "the run's timeout passed")
    assert cause_name(run.finally_part.ending) == "timed_out"
    assert step_states(run) == {
        "work": "CANCELLED",
        "longer": "SUCCEEDED",
        "endless": "CANCELLED",
        "after": "SKIPPED(timed_out)",
    }
    assert steps_of(run)["endless"].reason == "finally_timeout passed"
    process = daemon.process_of(run.id, "endless")
    assert (process_state(process), cause_name(process.ending)) == ("TIMED_OUT", "finally_timeout")


def test_a_successor_starts_after_the_finally_steps_of_the_run_that_it_replaces(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    witness = tmp_path / "witness"
    daemon.apply(f"""
name: replaced-finally
description: x
overlap: replace
params: {{hold: {{type: boolean, default: false}}}}
steps:
  - {{name: work, run: "echo work $TOBAN_RUN_ID >> {witness}"}}
  - {{name: hold, run: exec sleep 600, when: params.hold}}
finally:
  - {{name: wait, run: "read _ < {gate.path}", when: params.hold}}
  - {{name: tidy, run: "echo tidy $TOBAN_RUN_ID >> {witness}"}}
""")
    first = daemon.start_run("replaced-finally", hold=True)
    daemon.wait_started(first, "hold")
    second = daemon.start_run("replaced-finally")
    daemon.wait_started(first, "wait")
    third = daemon.start_run("replaced-finally")
    assert not daemon.get_run(first).finally_part.HasField("ending"), "two replacements are no second cancel"
    assert run_state(daemon.get_run(third)) == "PENDING"
    gate.release_now()
    assert [run_state(daemon.wait_run(each)) for each in (first, second, third)] == [
        "CANCELLED",
        "CANCELLED",
        "SUCCEEDED",
    ]
    lines = [f"work {first}", f"tidy {first}", f"work {third}", f"tidy {third}"]
    assert witness.read_text().splitlines() == lines


def test_a_cancelled_child_tidies_up_before_the_step_of_its_parent_is_over(daemon: Daemon, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    daemon.apply(f"""
name: tidy-child
description: x
overlap: queue
steps: [{{name: work, run: exec sleep 600}}]
finally: {{name: inner, run: "sleep 0.3; echo inner >> {witness}"}}
""")
    daemon.apply(f"""
name: tidy-parent
description: x
steps: {{child: {{job_type: workflow, target: tidy-child}}}}
finally: {{name: outer, run: "echo outer >> {witness}"}}
""")
    run_id = daemon.start_run("tidy-parent")
    child = child_of(daemon, run_id)
    daemon.wait_started(child, "work")
    daemon.cancel(run_id)
    run = daemon.wait_run(run_id)
    assert (run_state(run), step_states(run)) == ("CANCELLED", {"child": "CANCELLED", "outer": "SUCCEEDED"})
    assert witness.read_text().split() == ["inner", "outer"]
    assert step_states(daemon.get_run(child)) == {"work": "CANCELLED", "inner": "SUCCEEDED"}


def test_a_second_cancel_reaches_the_finally_steps_of_child_runs(daemon: Daemon) -> None:
    """Of a child of a child that was cancelled, and of one that is a finally step itself."""
    daemon.apply("""
name: holding
description: x
overlap: allow
params: {seconds: {type: integer, default: 0}}
steps: {work: {run: "exec sleep {{ params.seconds }}"}}
finally: {name: held, run: exec sleep 600}
finally_timeout: 1h
""")
    daemon.apply("""
name: holding-middle
description: x
overlap: allow
steps: {inner: {job_type: workflow, target: holding, kwargs: {seconds: 600}}}
""")
    daemon.apply("""
name: holding-outer
description: x
steps: {middle: {job_type: workflow, target: holding-middle}}
finally: {name: tidy, job_type: workflow, target: holding}
finally_timeout: 1h
""")
    outer = daemon.start_run("holding-outer")
    inner = child_of(daemon, child_of(daemon, outer))
    daemon.wait_started(inner, "work")
    daemon.cancel(outer)
    daemon.wait_started(inner, "held")
    daemon.cancel(outer)
    run = daemon.wait_run(inner)
    assert (run_state(run), step_states(run)) == ("CANCELLED", {"work": "CANCELLED", "held": "CANCELLED"})
    tidying = child_of(daemon, outer, but=1)
    daemon.wait_started(tidying, "held")
    assert run_state(daemon.get_run(outer)) == "RUNNING"
    daemon.cancel(outer)
    run = daemon.wait_run(tidying)
    assert (run_state(run), step_states(run)) == ("SUCCEEDED", {"work": "SUCCEEDED", "held": "CANCELLED"})
    run = daemon.wait_run(outer)
    assert (run_state(run), step_states(run)["middle"]) == ("CANCELLED", "CANCELLED")


def child_of(daemon: Daemon, run_id: str, *, but: int = 0) -> str:
    """The child of a run; with `but`, of which so many came earlier."""
    listed = run_pb2.ListRunsRequest(parent_run=run_id)
    found = wait_until(
        lambda: [run.id for run in daemon.runs.ListRuns(listed, timeout=20).runs][: -but or None], "no child run"
    )
    return str(found[0])


def test_partial_runs_and_retries_run_them_all_again(daemon: Daemon) -> None:
    daemon.apply("""
name: every-time
description: x
params: {code: {type: integer, default: 1}}
scopes: {small: [a]}
steps:
  a: {run: "true"}
  b: {run: "echo 7; exit {{ params.code }}", depends_on: [a]}
finally:
  each: {run: "true", for_each: "[1, 2]"}
  tell: {run: "echo {{ steps.b.status }}", depends_on: [each]}
""")

    def ran(run: run_pb2.Run) -> list[str]:
        return sorted(process.step for process in daemon.processes(run.id))

    last = ["each[0]", "each[1]", "tell"]
    request = run_pb2.StartRunRequest(workflow="every-time", scope="small")
    small = daemon.wait_run(daemon.runs.StartRun(request, timeout=20).run.id)
    assert (run_state(small), ran(small)) == ("SUCCEEDED", ["a", *last]), "no result of b is needed"
    assert printed(daemon, small.id, "tell") == "SKIPPED"
    request = run_pb2.StartRunRequest(workflow="every-time", only=["each"])
    alone = daemon.wait_run(daemon.runs.StartRun(request, timeout=20).run.id)
    assert (run_state(alone), ran(alone)) == ("SUCCEEDED", last)
    failed = daemon.run("every-time")
    assert (run_state(failed), ran(failed)) == ("FAILED", ["a", "b", *last])
    retry = run_pb2.RetryRunRequest(id=failed.id)
    retry.params.update({"code": 0})
    again = daemon.wait_run(daemon.runs.RetryRun(retry, timeout=20).run.id)
    assert (run_state(again), ran(again)) == ("SUCCEEDED", ["b", *last])
    refusal = refused(
        lambda: daemon.runs.RetryRun(run_pb2.RetryRunRequest(id=failed.id, skip=["tell"], skip_note="x"), timeout=20)
    )
    assert refusal.reason == "STEP_NOT_SKIPPABLE"
    refusal = refused(lambda: daemon.runs.RetryRun(run_pb2.RetryRunRequest(id=again.id), timeout=20))
    assert refusal.reason == "NOTHING_TO_RETRY", "what succeeded is not repeated for its finally steps"


def test_a_pause_delays_them_and_a_cancel_does_not_wait_for_it(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    daemon.apply(f"""
name: paused-finally
description: x
overlap: allow
steps: [{{name: work, run: "read _ < {gate.path}"}}]
finally: {{name: tidy, run: "true"}}
""")

    def paused() -> str:
        run_id = daemon.start_run("paused-finally")
        daemon.wait_started(run_id, "work")
        daemon.runs.PauseRun(run_pb2.PauseRunRequest(id=run_id), timeout=20)
        gate.release_now()
        wait_until(lambda: step_states(daemon.get_run(run_id))["work"] == "SUCCEEDED", "it does not end")
        run = daemon.get_run(run_id)
        assert (run_state(run), waits_for(run), finally_state(run)) == ("RUNNING", "RESUME", "")
        return run_id

    resumed = paused()
    daemon.runs.ResumeRun(run_pb2.ResumeRunRequest(id=resumed), timeout=20)
    cancelled = paused()
    daemon.cancel(cancelled)
    for run_id in (resumed, cancelled):
        run = daemon.wait_run(run_id)
        assert (run_state(run), step_states(run)) == ("SUCCEEDED", {"work": "SUCCEEDED", "tidy": "SUCCEEDED"})


def test_they_get_artifacts_of_steps_that_ended_badly(daemon: Daemon) -> None:
    daemon.apply("""
name: report
description: x
steps:
  check:
    run: echo two failed > report; exit 1
    outputs: [{name: report, path: report}]
finally:
  send: {run: cat mail, inputs: [{from: check, artifact: report, as: mail}]}
""")
    run = daemon.run("report")
    assert run_state(run) == "FAILED"
    assert printed(daemon, run.id, "send") == "two failed"


def test_a_plan_has_them_last(daemon: Daemon) -> None:
    daemon.apply("""
name: planned-finally
description: x
steps: {a: {run: "true"}, b: {run: "true", depends_on: [a]}}
finally: {tidy: {run: "true"}}
on_failure: {name: mail, run: "true"}
""")
    request = run_pb2.PlanRunRequest(workflow="planned-finally", only=["a"])
    plan = daemon.runs.PlanRun(request, timeout=20)
    assert [(step.id, step.is_finally, bool(step.skip_reason)) for step in plan.steps] == [
        ("a", False, False),
        ("b", False, True),
        ("tidy", True, False),
        ("mail", True, False),
    ]
    assert plan.steps[3].when == 'run.state == "FAILED" || run.state == "TIMED_OUT"'
