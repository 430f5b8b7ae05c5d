"""The checker is believed because it can fail: each kind of defect, forged into a true history, is found."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.checker import Kind
from faults.forgery import OUT, Forged, lost, truth
from faults.leftovers import check_left, end_all
from faults.witness import Witness
from faults.workload import made as made_by
from toban.v1 import run_pb2

Forge = Callable[[Forged], object]


def test_a_true_history_has_no_defect() -> None:
    assert truth().check() == []


def test_an_excused_loss_and_its_repetition_are_no_defect() -> None:
    made = truth()
    lost(made, excused=True)
    assert made.check() == []


def test_a_cancel_that_came_too_late_is_no_defect() -> None:
    made = truth()
    made.ledger.cancel_sent.add("plain")
    made.ledger.cancel_acknowledged.add("plain")
    made.runs["plain"].cancel_requested_at.FromSeconds(1)
    assert made.check() == []


def _drop(made: Forged, *begin_with: str) -> None:
    for text in begin_with:
        del made.lines[made.line(text)]


def _move_to_front(made: Forged, begins_with: str) -> None:
    made.lines.insert(0, made.lines.pop(made.line(begins_with)))


def _rename_token(made: Forged) -> None:
    made.lines.append("B plain a another")


def _state(made: Forged, run: str, state: str) -> None:
    made.runs[run].state = run_pb2.RunState.Value(f"RUN_STATE_{state}")


def _step_state(made: Forged, run: str, step: str, state: str) -> None:
    made.step(run, step).state = run_pb2.StepState.Value(f"STEP_STATE_{state}")


def _process_state(made: Forged, run: str, step: str, state: str) -> None:
    made.process(run, step).state = run_pb2.ProcessState.Value(f"PROCESS_STATE_{state}")


def _takes(made: Forged, run: str, step: str, seconds: float) -> None:
    process = made.process(run, step)
    process.finished_at.FromMicroseconds(process.started_at.ToMicroseconds() + int(seconds * 1e6))


def _log(made: Forged, run: str, step: str, data: bytes) -> None:
    made.streams[run][step, 1, OUT] = data
    made.process(run, step).stdout_log_bytes = len(data)


def _did_work_and_failed(made: Forged) -> None:
    _step_state(made, "plain", "b", "FAILED")
    _process_state(made, "plain", "b", "FAILED")


def _lost_for_no_reason(made: Forged) -> None:
    lost(made, excused=False)


def _repeated_without_being_lost(made: Forged) -> None:
    lost(made, excused=True)
    made.processes["again"][0].state = run_pb2.PROCESS_STATE_FAILED
    made.processes["again"][0].exit_code = 1
    made.lines.insert(made.line("B again only only2"), "E again only only1 1")


def _repeated_though_nobody_asked(made: Forged) -> None:
    made.lost = lambda _process, _file: ""
    process = made.add_process("plain", "a", "LOST", cause="lost", attempt=2)
    made.process("plain", "a").state = run_pb2.PROCESS_STATE_LOST
    process.state = run_pb2.PROCESS_STATE_COMPLETED
    process.exit_code = 0


def _left_untidy(made: Forged) -> None:
    """As if the run had ended with its other steps."""
    made.runs["tidied"].ClearField("finally_part")
    made.processes["tidied"] = [p for p in made.processes["tidied"] if p.step == "long"]
    for step in ("tidy", "tell"):
        _step_state(made, "tidied", step, "SKIPPED")
        made.step("tidied", step).skip_reason = run_pb2.SKIP_REASON_CANCELLED
        made.streams["tidied"].pop((step, 1, OUT))
        _drop(made, f"B tidied {step}", f"E tidied {step}")


def _cancelled_twice(made: Forged) -> None:
    made.runs["tidied"].finally_part.ending.cause = run_pb2.RUN_ENDING_CAUSE_CANCELLED


def _tidied_for_another(made: Forged) -> None:
    made.runs["tidied"].finally_part.state = run_pb2.RUN_STATE_SUCCEEDED


def _not_started(made: Forged) -> None:
    _drop(made, "B failing bad", "E failing bad")
    made.process("failing", "bad").pid = 0
    made.streams["failing"].pop(("bad", 1, OUT))
    made.process("failing", "bad").stdout_log_bytes = 0


def _process(made: Forged, run: str, step: str, attempt: int = 1) -> run_pb2.ProcessExecution:
    return next(p for p in made.processes[run] if (p.step, p.attempt) == (step, attempt))


def _gave_up_early(made: Forged) -> None:
    """As if its retry had been forgotten."""
    made.processes["retried"].remove(_process(made, "retried", "bad", 2))
    _drop(made, "B retried bad bad2", "E retried bad bad2")
    made.letters["retried"][0].attempts = 1


def _tried_too_often(made: Forged) -> None:
    made.add_process("retried", "bad", "FAILED", code=5, attempt=3)
    made.letters["retried"][0].attempts = 3


def _iteration_twice(made: Forged) -> None:
    _process(made, "loop", "loop", 2).iteration = 1


def _check_left_out(made: Forged) -> None:
    made.processes["loop"].remove(_process(made, "loop", "loop.check", 1))
    _drop(made, "B loop loop.check loop.check1", "E loop loop.check loop.check1")
    _process(made, "loop", "loop.check", 2).attempt = 1


def _went_on_after_the_last(made: Forged) -> None:
    made.add_process("loop", "short", "COMPLETED", code=0, attempt=2, iteration=2)


def _second_child(made: Forged) -> None:
    twin = run_pb2.Run()
    twin.CopyFrom(made.runs["leaf"])
    twin.id = "twin"
    made.runs["twin"] = twin
    made.processes["twin"] = []


def _overtaken(made: Forged) -> None:
    """A run of a workflow whose runs take turns begins before the one before it is over."""
    made.run("other", "SUCCEEDED").workflow = "leaf"
    made.runs["other"].number = 2
    made.ledger.workflows["other"] = "leaf"
    made.add_step("other", "only", "SUCCEEDED")
    made.add_process("other", "only", "COMPLETED", code=0)
    _move_to_front(made, "B other only")


def _instance_gone(made: Forged) -> None:
    made.runs["each"].steps.remove(made.step("each", "each[1]"))


def _within_the_other(made: Forged) -> None:
    """A step that needs a lock is executed between two steps of the run that holds it."""
    lines = [made.lines.pop(made.line(begins)) for begins in ("B sharer db", "E sharer db")]
    at = made.line("B holder two")
    made.lines[at:at] = lines


FORGERIES: list[tuple[str, Forge, Kind]] = [
    ("run gone", lambda m: m.runs.pop("plain"), Kind.MISSING),
    ("run of another workflow", lambda m: m.ledger.workflows.update(plain="slow"), Kind.CONTRADICTED),
    ("two answers for one run", lambda m: m.ledger.contradictions.append("x"), Kind.CONTRADICTED),
    ("run nobody asked for", lambda m: m.ledger.workflows.pop("plain"), Kind.UNASKED),
    ("steps of no run", lambda m: m.lines.append("B nowhere a token"), Kind.UNASKED),
    ("final state changed", lambda m: m.ledger.ended.update(plain=4), Kind.CONTRADICTED),
    ("cancel forgotten", lambda m: m.runs["endless"].ClearField("cancel_requested_at"), Kind.CONTRADICTED),
    ("run never ends", lambda m: _state(m, "plain", "RUNNING"), Kind.UNENDED),
    ("cancelled by nobody", lambda m: m.ledger.cancel_sent.clear(), Kind.UNTRUE),
    ("cancelled for another cause", lambda m: m.runs["endless"].ClearField("ending"), Kind.UNTRUE),
    ("failed without a failure", lambda m: _state(m, "plain", "FAILED"), Kind.UNTRUE),
    (
        "success with a cause",
        lambda m: setattr(m.runs["plain"].ending, "cause", run_pb2.RUN_ENDING_CAUSE_ABORTED),
        Kind.UNTRUE,
    ),
    ("success in spite of a failure", lambda m: _state(m, "failing", "SUCCEEDED"), Kind.UNTRUE),
    ("success in spite of a skip", lambda m: _step_state(m, "plain", "b", "SKIPPED"), Kind.UNTRUE),
    ("timed out without a timeout", lambda m: _state(m, "failing", "TIMED_OUT"), Kind.UNTRUE),
    ("run timed out early", lambda m: m.runs["bounded"].finished_at.FromSeconds(1_000_000_001), Kind.EARLY_OR_LATE),
    ("step timed out early", lambda m: _takes(m, "slow", "slow", 1.5), Kind.EARLY_OR_LATE),
    ("step timed out late", lambda m: _takes(m, "slow", "slow", 30), Kind.EARLY_OR_LATE),
    ("run's timeout held late", lambda m: _takes(m, "bounded", "long", 30), Kind.EARLY_OR_LATE),
    (
        "timed out for no timeout",
        lambda m: setattr(m.process("slow", "slow").ending, "cause", run_pb2.PROCESS_ENDING_CAUSE_CANCEL),
        Kind.UNTRUE,
    ),
    ("timed out and was done", lambda m: m.lines.append("E slow slow slow1 0"), Kind.UNTRUE),
    ("began twice", _rename_token, Kind.DOUBLED),
    ("began twice with one token", lambda m: m.lines.append("B plain a a1"), Kind.DOUBLED),
    ("ended twice", lambda m: m.lines.append("E plain a a1 0"), Kind.DOUBLED),
    ("repeated without being lost", _repeated_without_being_lost, Kind.DOUBLED),
    ("repeated though nobody asked", _repeated_though_nobody_asked, Kind.DOUBLED),
    ("succeeded and never began", lambda m: _drop(m, "B plain b", "E plain b"), Kind.UNTRUE),
    ("succeeded and was not done", lambda m: _drop(m, "E plain b"), Kind.UNTRUE),
    ("failed and had succeeded", _did_work_and_failed, Kind.UNTRUE),
    ("wrong exit code", lambda m: setattr(m.process("failing", "bad"), "exit_code", 4), Kind.UNTRUE),
    ("succeeded with a step that fails", lambda m: _process_state(m, "failing", "bad", "COMPLETED"), Kind.UNTRUE),
    ("cancelled without a signal", lambda m: m.process("endless", "long").ending.ClearField("signals"), Kind.UNTRUE),
    ("cancelled in a run that goes on", lambda m: _step_state(m, "plain", "b", "CANCELLED"), Kind.UNTRUE),
    ("process still running", lambda m: _process_state(m, "plain", "a", "RUNNING"), Kind.UNTRUE),
    ("step without a process", lambda m: m.processes["plain"].pop(0), Kind.UNTRUE),
    ("skipped and began", lambda m: m.lines.append("B bounded never x"), Kind.UNTRUE),
    (
        "skipped for another reason",
        lambda m: setattr(m.step("bounded", "never"), "skip_reason", run_pb2.SKIP_REASON_ABORTED),
        Kind.SKIPPED,
    ),
    ("step left out", lambda m: m.runs["plain"].steps.pop(), Kind.SKIPPED),
    ("not started", _not_started, Kind.SKIPPED),
    ("lost for no reason", _lost_for_no_reason, Kind.LOST),
    ("survivors", lambda m: setattr(m.process("slow", "slow").ending, "survivors", 1), Kind.LEFT),
    ("not proved empty", lambda m: setattr(m.process("endless", "long").ending, "proved_empty", False), Kind.LEFT),
    ("dependent began first", lambda m: _move_to_front(m, "B plain b"), Kind.ORDER),
    ("too many at once", lambda m: m.lines.append(m.lines.pop(m.line("E plain b"))), Kind.ORDER),
    ("began after a cancelled one", lambda m: m.lines.append("B endless never x"), Kind.ORDER),
    ("log cut off", lambda m: _log(m, "plain", "a", b"a a"), Kind.LOG),
    ("log of somebody else", lambda m: _log(m, "plain", "a", b"a b1\n"), Kind.LOG),
    ("log twice", lambda m: _log(m, "plain", "a", b"a a1\na a1\n"), Kind.LOG),
    ("wrong beginning of a log", lambda m: _log(m, "slow", "slow", b"slow x"), Kind.LOG),
    ("log gone", lambda m: _log(m, "failing", "bad", b""), Kind.LOG),
    ("sizes are wrong", lambda m: setattr(m.process("plain", "a"), "stderr_log_bytes", 5), Kind.LOG),
    ("told to be incomplete", lambda m: m.incomplete.add("plain"), Kind.LOG),
    ("repeated text is wrong", lambda m: _log(m, "plain", "b", b"b b1 a a2\n"), Kind.LOG),
    ("failed with a retry left", _gave_up_early, Kind.SKIPPED),
    ("tried too often", _tried_too_often, Kind.DOUBLED),
    ("exit code of another attempt", lambda m: setattr(_process(m, "retried", "flaky", 2), "attempt", 1), Kind.DOUBLED),
    ("no dead letter", lambda m: m.letters.clear(), Kind.LETTER),
    ("two dead letters", lambda m: m.letters["retried"].append(m.letters["retried"][0]), Kind.LETTER),
    ("dead letter of a success", lambda m: setattr(m.letters["retried"][0], "step", "flaky"), Kind.LETTER),
    ("dead letter counts wrong", lambda m: setattr(m.letters["retried"][0], "attempts", 1), Kind.LETTER),
    ("iteration twice", _iteration_twice, Kind.DOUBLED),
    ("check left out", _check_left_out, Kind.DOUBLED),
    ("loop goes on after its last check", _went_on_after_the_last, Kind.DOUBLED),
    ("iterations miscounted", lambda m: setattr(m.step("loop", "loop"), "iteration", 3), Kind.UNTRUE),
    ("incomplete loop succeeded", lambda m: _step_state(m, "loop", "short", "SUCCEEDED"), Kind.UNTRUE),
    ("reader began before the loop was over", lambda m: _move_to_front(m, "B loop last"), Kind.ORDER),
    ("instance gone", _instance_gone, Kind.SKIPPED),
    ("instance twice", lambda m: m.lines.append("B each each[1] another"), Kind.DOUBLED),
    ("instance failed, step did not", lambda m: _step_state(m, "each", "each[1]", "FAILED"), Kind.UNTRUE),
    ("ran in spite of its condition", lambda m: _step_state(m, "each", "no", "SUCCEEDED"), Kind.UNTRUE),
    ("artifact cut off", lambda m: m.artifacts.update({("loop", "loop"): b"loop2 1\n"}), Kind.ARTIFACT),
    ("artifact of iteration 1", lambda m: m.artifacts.update({("loop", "loop"): made_by("loop1")}), Kind.ARTIFACT),
    ("artifact gone", lambda m: m.step("each", "each[2]").ClearField("artifacts"), Kind.ARTIFACT),
    ("handed something else", lambda m: _log(m, "loop", "last", b"last last1\n" + made_by("loop1")), Kind.LOG),
    ("two children", _second_child, Kind.DOUBLED),
    ("child failed, parent did not", lambda m: _state(m, "leaf", "FAILED"), Kind.UNTRUE),
    ("child gone", lambda m: m.runs.pop("leaf"), Kind.SKIPPED),
    ("child of nobody", lambda m: setattr(m.runs["leaf"], "parent_run", "nobody"), Kind.UNASKED),
    ("child cancelled by nobody", lambda m: _state(m, "leaf", "CANCELLED"), Kind.UNTRUE),
    ("parent went on before its child was over", lambda m: _move_to_front(m, "B parent after"), Kind.ORDER),
    ("out of turn", _overtaken, Kind.ORDER),
    ("finally step left out", _left_untidy, Kind.SKIPPED),
    ("finally step stopped", lambda m: _step_state(m, "tidied", "tidy", "CANCELLED"), Kind.SKIPPED),
    ("finally steps cancelled", _cancelled_twice, Kind.SKIPPED),
    ("finally step twice", lambda m: m.lines.append("B tidied tidy another"), Kind.DOUBLED),
    ("finally step too early", lambda m: _move_to_front(m, "B tidied tidy"), Kind.ORDER),
    ("finally steps out of order", lambda m: _move_to_front(m, "B tidied tell"), Kind.ORDER),
    ("finally steps of another result", _tidied_for_another, Kind.UNTRUE),
    ("finally steps of a run that never began", lambda m: m.runs["tidied"].ClearField("started_at"), Kind.UNTRUE),
    ("lock of the kernel taken", lambda m: m.lines.append("X sharer pair pair1 pair"), Kind.LOCK),
    ("lock with two holders", _within_the_other, Kind.LOCK),
    ("lock taken before its holder was done", lambda m: _move_to_front(m, "B sharer db"), Kind.LOCK),
    ("step says it wrote more", lambda m: m.lines.append(m.lines.pop(m.line("E plain loud"))[:-1] + "x"), Kind.LOG),
]


@pytest.mark.parametrize(("forge", "kind"), [each[1:] for each in FORGERIES], ids=[each[0] for each in FORGERIES])
def test_a_forgery_is_found(forge: Forge, kind: Kind) -> None:
    made = truth()
    forge(made)
    kinds = {defect.kind for defect in made.check()}
    assert kind in kinds, f"found: {kinds}"


def test_every_kind_can_be_found() -> None:
    assert {each[2] for each in FORGERIES} == set(Kind)


def test_a_process_that_is_left_is_found(tmp_path: Path) -> None:
    """By the environment of a step, and by what it holds open."""
    (tmp_path / "runs").mkdir()
    assert check_left(tmp_path) == []
    server = {"TOBAN_SERVER": f"unix://{tmp_path}/toban.sock"}
    left = [
        subprocess.Popen(["sleep", "60"], env={**os.environ, **server}, cwd="/"),
        subprocess.Popen(["sleep", "60"], cwd=tmp_path / "runs"),
    ]
    try:
        found = check_left(tmp_path, patience=0.1)
        assert {defect.kind for defect in found} == {Kind.LEFT}
        assert len(found) == 2
        assert end_all(tmp_path) == 2
    finally:
        for process in left:
            process.kill()
            process.wait()


def test_a_line_that_no_step_wrote_is_not_read_over() -> None:
    with pytest.raises(ValueError, match="cannot read line 2"):
        Witness.parse(["B run step token", "B run st"])
