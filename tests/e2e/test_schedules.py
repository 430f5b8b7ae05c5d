"""Runs start when they are due, once for each due time, and the daemon can say why one did not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import grpc
import pytest

from helpers.daemon import Daemon, run_state, running_daemon, waits_for
from helpers.gate import Gate
from helpers.wait import wait_until
from toban.v1 import run_pb2, schedule_pb2, system_pb2, workflow_pb2

EVERY_SECOND = '"* * * * * *"'


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "state", environment={"TOBAN_TIMEZONE": "UTC"}) as running:
        yield running


def definition(name: str, schedule: str, fields: str = "", run: str = "true") -> str:
    return f"name: {name}\ndescription: x\n{fields}\nschedule: {schedule}\nsteps: {{only: {{run: '{run}'}}}}\n"


def runs_of(daemon: Daemon, name: str) -> Sequence[run_pb2.Run]:
    request = run_pb2.ListRunsRequest(workflow=name, page_size=1000)
    return daemon.runs.ListRuns(request, timeout=20).runs


def fires_of(daemon: Daemon, name: str) -> Sequence[workflow_pb2.Fire]:
    request = workflow_pb2.ListFiresRequest(workflow=name, page_size=1000)
    return daemon.workflows.ListFires(request, timeout=20).fires


def outcomes(daemon: Daemon, name: str) -> Counter[str]:
    return Counter(
        workflow_pb2.FireOutcome.Name(fire.outcome).removeprefix("FIRE_OUTCOME_") for fire in fires_of(daemon, name)
    )


def why(daemon: Daemon, name: str) -> str:
    request = workflow_pb2.ExplainScheduleRequest(workflow=name)
    return " ".join(daemon.workflows.ExplainSchedule(request, timeout=20).sentences)


def check_once_each(daemon: Daemon, name: str) -> None:
    """One line per due time, one run per line that has one, and no run without a line."""
    fires = fires_of(daemon, name)
    assert len({fire.due_at.ToNanoseconds() for fire in fires}) == len(fires)
    started = {fire.run_id for fire in fires if fire.run_id}
    assert started == {run.id for run in runs_of(daemon, name)}


def times_of(run: run_pb2.Run) -> set[int]:
    """All due times that it stands for."""
    return {at.ToSeconds() for at in (*run.missed, run.scheduled_at)}


def disable(daemon: Daemon, name: str) -> None:
    """And waits until it is noticed: due times decided until then are in the ledger."""
    set_enabled = workflow_pb2.SetWorkflowEnabledRequest(name=name, enabled=False)
    daemon.workflows.SetWorkflowEnabled(set_enabled, timeout=20)
    wait_until(lambda: outcomes(daemon, name)["SKIPPED"] >= 1, "nothing was skipped")


def upcoming(daemon: Daemon, name: str) -> list[datetime]:
    """Its next due times, in their own zone."""
    request = workflow_pb2.PreviewScheduleRequest(workflow=name, count=12)
    found = daemon.workflows.PreviewSchedule(request, timeout=20).due_times
    return [due.due_at.ToDatetime(UTC).astimezone(ZoneInfo(due.timezone)) for due in found]


def problems(daemon: Daemon, source: str) -> list[str]:
    request = workflow_pb2.ValidateWorkflowRequest(definition=workflow_pb2.Definition(source=source))
    return [each.message for each in daemon.workflows.ValidateWorkflow(request, timeout=20).problems]


def weeks_around(now: datetime) -> str:
    """Today and tomorrow as n-th weekdays of their months."""
    days = (now, now + timedelta(days=1))
    return ",".join(f"{day.isoweekday()}#{(day.day + 6) // 7}" for day in days)


def test_a_weekday_of_one_week_of_the_month(daemon: Daemon) -> None:
    """An expression for today starts runs; the words are stored as an expression, and survive a restart."""
    daemon.apply(definition("today", f'"* * * * * {weeks_around(datetime.now(UTC))}"', "overlap: allow"))
    daemon.apply(definition("patch", "[{when: 第2火曜の9時}, {cron: 0 17 * * friL}]", "timezone: Asia/Tokyo"))
    wait_until(lambda: len(runs_of(daemon, "today")) >= 2, "it never became due")
    before = upcoming(daemon, "patch")
    daemon.kill()
    daemon.start()
    dues = upcoming(daemon, "patch")
    assert dues == before
    assert {(due.hour, due.weekday()) for due in dues} == {(9, 1), (17, 4)}
    for due in dues:
        if due.hour == 9:
            assert 8 <= due.day <= 14
        else:
            assert (due + timedelta(days=7)).month != due.month
    disable(daemon, "today")
    check_once_each(daemon, "today")


def test_a_run_for_each_due_time_and_a_line_for_each(daemon: Daemon) -> None:
    daemon.apply(definition("often", EVERY_SECOND, "overlap: allow"))
    wait_until(lambda: len(runs_of(daemon, "often")) >= 3, "it never became due")
    wait_until(lambda: outcomes(daemon, "often")["FIRED"] >= 1, "it was never on time")
    late = []
    for run in runs_of(daemon, "often"):
        assert run.triggered_by == run_pb2.TRIGGER_SCHEDULE
        assert run.scheduled_at.nanos == 0
        late.append(run.created_at.ToNanoseconds() - run.scheduled_at.ToNanoseconds())
    assert 0 <= min(late) < 5e9
    # One run stands for two due times that a busy machine was late for.
    assert outcomes(daemon, "often").keys() <= {"FIRED", "CAUGHT_UP"}
    assert "was started" in why(daemon, "often")
    disable(daemon, "often")
    assert "disabled" in why(daemon, "often")
    check_once_each(daemon, "often")
    times = sorted(fire.due_at.ToSeconds() for fire in fires_of(daemon, "often"))
    assert times == list(range(times[0], times[-1] + 1)), "a due time has no line"
    for run in runs_of(daemon, "often"):
        lines = [fire for fire in fires_of(daemon, "often") if fire.run_id == run.id]
        assert {fire.due_at.ToSeconds() for fire in lines} == times_of(run)


def test_a_run_that_is_still_active_is_in_the_way(daemon: Daemon) -> None:
    daemon.apply(definition("slow", EVERY_SECOND, run="sleep 600"))
    wait_until(lambda: outcomes(daemon, "slow")["SKIPPED"] >= 2, "nothing was skipped")
    assert "overlap: run slow#1 is active" in why(daemon, "slow")


def standing_for(daemon: Daemon, name: str, times: set[int]) -> list[run_pb2.Run]:
    return [run for run in runs_of(daemon, name) if times_of(run) & times]


def test_times_that_passed_without_a_daemon_get_one_run(daemon: Daemon) -> None:
    daemon.apply(definition("kept", EVERY_SECOND, "overlap: allow"))
    daemon.apply(definition("left", f"{{cron: {EVERY_SECOND}, misfire: skip}}", "overlap: allow"))
    wait_until(lambda: outcomes(daemon, "left")["FIRED"] >= 1, "it never became due")
    daemon.kill()
    killed_at = time.time()
    wait_until(lambda: time.time() - killed_at > 4, "time does not pass")
    # Those that nobody was there for; a busy machine may be late for others, before and after.
    alone = set(range(int(killed_at) + 1, int(time.time())))
    assert len(alone) >= 3
    daemon.start()
    wait_until(lambda: standing_for(daemon, "kept", alone), "nothing was caught up")
    wait_until(lambda: outcomes(daemon, "left")["MISSED"] >= 1, "nothing was missed")
    (caught_up,) = standing_for(daemon, "kept", alone)
    assert times_of(caught_up) >= alone
    assert outcomes(daemon, "kept").keys() <= {"FIRED", "CAUGHT_UP"}
    disable(daemon, "left")
    check_once_each(daemon, "left")
    assert standing_for(daemon, "left", alone) == []


def test_a_schedule_selects_the_scope_of_its_runs(daemon: Daemon) -> None:
    daemon.apply(
        "name: scoped\ndescription: x\noverlap: allow\nscopes: {quick: [a]}\n"
        'schedule: {cron: "* * * * * *", scope: quick}\n'
        "steps: {a: {run: 'true'}, b: {run: 'true'}}\n"
    )
    wait_until(lambda: len(runs_of(daemon, "scoped")) >= 1, "it never became due")
    disable(daemon, "scoped")
    run = daemon.wait_run(runs_of(daemon, "scoped")[-1].id)
    assert run.scope == "quick"
    assert [step.state for step in run.steps] == [run_pb2.STEP_STATE_SUCCEEDED, run_pb2.STEP_STATE_SKIPPED]
    assert "scope quick" in why(daemon, "scoped")
    due = daemon.workflows.PreviewSchedule(workflow_pb2.PreviewScheduleRequest(workflow="scoped"), timeout=20).due_times
    assert {each.scope for each in due} == {"quick"}


def test_a_backfill_survives_a_crash_and_starts_each_due_time_once(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    armed = {"TOBAN_TIMEZONE": "UTC", "TOBAN_FAILPOINTS": "backfill.stored=kill@3"}
    with running_daemon(tmp_path / "state", environment=armed) as daemon:
        daemon.environment.pop("TOBAN_FAILPOINTS")
        daemon.apply(
            "name: past\ndescription: x\noverlap: skip\n"
            "schedule: {cron: '0 3 * * *', params: {mode: slow}}\nparams: {mode: {default: x}}\n"
            f"steps: {{only: {{run: 'echo {{{{ run.scheduled_at }}}} {{{{ run.trigger }}}} {{{{ params.mode }}}}"
            f" >> {witness}'}}}}\n"
        )
        request = workflow_pb2.BackfillScheduleRequest(workflow="past", request_id="k")
        request.from_time.FromDatetime(datetime(2026, 1, 1))  # noqa: DTZ001 - UTC
        request.to_time.FromDatetime(datetime(2026, 1, 6, 3))  # noqa: DTZ001
        preview = workflow_pb2.BackfillScheduleRequest(validate_only=True)
        preview.MergeFrom(request)
        would = daemon.workflows.BackfillSchedule(preview, timeout=20).times
        assert [each.local[:16] for each in would] == [f"2026-01-{day:02} 03:00" for day in range(1, 7)]
        assert runs_of(daemon, "past") == []
        with pytest.raises(grpc.RpcError):
            daemon.workflows.BackfillSchedule(request, timeout=20)
        daemon.wait()
        daemon.start()
        times = daemon.workflows.BackfillSchedule(request, timeout=20).times
        assert [each.outcome for each in times].count(workflow_pb2.BACKFILL_OUTCOME_HAS_RUN) == 3
        again = daemon.workflows.BackfillSchedule(request, timeout=20).times
        assert {each.outcome for each in again} == {workflow_pb2.BACKFILL_OUTCOME_HAS_RUN}
        for each in times:
            run = daemon.wait_run(each.run_id)
            assert (run_state(run), run.triggered_by) == ("SUCCEEDED", run_pb2.TRIGGER_BACKFILL)
            assert (run.schedule_id, run.scheduled_at) == ("past/0", each.due_at)
        expected = [f"2026-01-{day:02}T03:00:00+00:00 backfill slow" for day in range(1, 7)]
        assert witness.read_text().splitlines() == expected
        assert outcomes(daemon, "past") == {"CAUGHT_UP": 6}
        check_once_each(daemon, "past")
        assert "a backfill started run past#6 for it" in why(daemon, "past")
        few = workflow_pb2.BackfillScheduleRequest(limit=5)
        few.MergeFrom(request)
        few.limit = 5
        with pytest.raises(grpc.RpcError, match="more than 5 due times"):
            daemon.workflows.BackfillSchedule(few, timeout=20)
        few.limit, few.again, few.scope, few.request_id = 0, True, "nope", ""
        with pytest.raises(grpc.RpcError, match="nope"):
            daemon.workflows.BackfillSchedule(few, timeout=20)
        assert len(runs_of(daemon, "past")) == 6


def test_a_live_run_goes_before_the_waiting_runs_of_a_backfill(daemon: Daemon, tmp_path: Path) -> None:
    go = Gate(f"{tmp_path}/gate")
    source = definition("filled", "{cron: '0 3 * * *'}", "overlap: skip\n", f"read _ < {tmp_path}/gate")
    daemon.apply(source)
    request = workflow_pb2.BackfillScheduleRequest(workflow="filled")
    request.from_time.FromDatetime(datetime(2026, 1, 1))  # noqa: DTZ001 - UTC
    request.to_time.FromDatetime(datetime(2026, 1, 3))  # noqa: DTZ001 - UTC
    first, second = (each.run_id for each in daemon.workflows.BackfillSchedule(request, timeout=20).times)
    daemon.wait_started(first, "only")
    live = daemon.start_run("filled")
    waiting = daemon.get_run(live)
    assert (run_state(waiting), waits_for(waiting)) == ("PENDING", "QUEUE")
    with pytest.raises(grpc.RpcError, match="filled#3"):
        daemon.start_run("filled")
    ended = []
    for run_id in (first, live, second):
        daemon.wait_started(run_id, "only")
        go.release_now()
        ended.append(daemon.wait_run(run_id))
    assert [run_state(run) for run in ended] == ["SUCCEEDED"] * 3
    starts = [run.started_at.ToMicroseconds() for run in ended]
    assert starts == sorted(starts)


def test_schedules_follow_their_calendar(tmp_path: Path) -> None:
    days = tmp_path / "days"
    coming = datetime.now(UTC).date() + timedelta(days=2)
    days.write_text(f"weekend: []\nholidays: [{coming}]\n")
    settings = {"TOBAN_TIMEZONE": "UTC", "TOBAN_CALENDAR": "jp"}
    with running_daemon(tmp_path / "state", environment=settings) as daemon:
        daemon.apply(definition("local", f"{{cron: '0 9 * * *', calendar: {{file: {days}}}}}"))
        daemon.apply(definition("last", "{when: 最終営業日の18時}"))
        shown = daemon.workflows.GetWorkflow(workflow_pb2.GetWorkflowRequest(name="last"), timeout=20).workflow
        assert list(shown.schedules) == [
            "最終営業日の18時: every day at 18:00, on the last business day of the month (jp) UTC"
        ]
        closing = upcoming(daemon, "last")
        assert len({(at.year, at.month) for at in closing}) == len(closing)
        assert {(at.hour, at.minute) for at in closing} == {(18, 0)}
        assert coming not in {at.date() for at in upcoming(daemon, "local")}
        read = daemon.schedules.InterpretTime(schedule_pb2.InterpretTimeRequest(words="毎営業日9時"), timeout=20)
        assert read.understood == "毎営業日(jp) 09:00 (UTC)"
        # Another calendar moves what is still to come.
        days.write_text(f"weekend: []\nholidays: [{coming + timedelta(days=1)}]\n")
        assert daemon.stop() == 0
        daemon.start()
        wait_until(lambda: coming in {at.date() for at in upcoming(daemon, "local")}, "the old calendar is in use")
        assert coming + timedelta(days=1) not in {at.date() for at in upcoming(daemon, "local")}
        # Without its file it goes on as before, and says so.
        days.unlink()
        assert daemon.stop() == 0
        daemon.start()
        wait_until(
            lambda: any(
                each.name == "calendars"
                for each in daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=20).health.conditions
            ),
            "nothing is reported",
        )
        assert coming in {at.date() for at in upcoming(daemon, "local")}
        (why_not,) = problems(daemon, definition("other", f"{{cron: '0 9 * * *', calendar: {{file: {days}}}}}"))
        assert why_not == f"cannot read the calendar {days}: No such file or directory"


def test_business_days_without_a_calendar_are_refused(daemon: Daemon) -> None:
    for schedule in ("{cron: '0 9 * * *', business_day: only}", "{when: every business day at 9}"):
        (found,) = problems(daemon, definition("closed", schedule))
        assert "no calendar says which days are business days" in found
    daemon.apply(definition("open", "{when: every business day at 9}", "calendar: jp"))
    assert all(at.weekday() < 5 for at in upcoming(daemon, "open"))


def test_a_change_of_the_definition_changes_the_schedule_at_once(daemon: Daemon) -> None:
    never = daemon.apply(definition("changed", '"0 0 1 1 *"'))
    preview = workflow_pb2.PreviewScheduleRequest(workflow="changed", count=2)
    upcoming = daemon.workflows.PreviewSchedule(preview, timeout=20).due_times
    assert [due.due_at.ToDatetime().month for due in upcoming] == [1, 1]
    changed = workflow_pb2.Definition(source=definition("changed", EVERY_SECOND, "overlap: allow"))
    workflow = workflow_pb2.Workflow(name=never.name, definition=changed)
    daemon.workflows.UpdateWorkflow(workflow_pb2.UpdateWorkflowRequest(workflow=workflow), timeout=20)
    wait_until(lambda: len(runs_of(daemon, "changed")) >= 1, "it never became due")
    daemon.system.Drain(system_pb2.DrainRequest(), timeout=20)
    wait_until(lambda: outcomes(daemon, "changed")["SKIPPED"] >= 1, "it went on")
    assert "draining" in why(daemon, "changed")
    daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20)
    count = len(runs_of(daemon, "changed"))
    wait_until(lambda: len(runs_of(daemon, "changed")) > count, "it never went on")


def test_no_more_wait_in_line_than_may_also_if_many_are_due_at_once(daemon: Daemon) -> None:
    each = ", ".join(f"{{cron: {EVERY_SECOND}, misfire_grace: {n + 1}m}}" for n in range(100))
    daemon.apply(definition("crowd", f"[{each}]", "overlap: queue", run="sleep 600"))
    # Only who finds the line full is skipped.
    wait_until(lambda: outcomes(daemon, "crowd")["SKIPPED"] >= 100, "it never became due")
    assert len(runs_of(daemon, "crowd")) == 101
    assert "the queue of workflow 'crowd' is full" in why(daemon, "crowd")
    # What ends now makes no place for another.
    set_enabled = workflow_pb2.SetWorkflowEnabledRequest(name="crowd", enabled=False)
    daemon.workflows.SetWorkflowEnabled(set_enabled, timeout=20)
