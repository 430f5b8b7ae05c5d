"""A state directory that an older release wrote is opened, migrated, read as before, and its runs go on."""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.daemon import (
    Daemon,
    cause_name,
    process_state,
    run_state,
    running_daemon,
    skip_reason,
    steps_of,
    waits_for,
)
from toban.cli.render.reason_text import not_started, owner
from toban.v1 import dead_letter_pb2, event_pb2, run_pb2, schedule_pb2, workflow_pb2
from toband.installation import owner_of
from toband.state_dir import StateDir

HERE = Path(__file__).parent / "old_state"
HOME = "@HOME@"
MICROS = re.compile(r"\b1[78]\d{14}\b")
TRANSITION = re.compile(r"""INSERT INTO "run_history" VALUES\('[^']*',\d+,(\d+),""")
FILED = "name: filed\ndescription: A file owns it.\nsteps: {only: {run: echo filed}}\n"
CALL = 20.0
ACTIVE = ("PENDING", "RUNNING")


class Restored:
    """A daemon of today on the old state, and what the old daemon said about it."""

    def __init__(self, daemon: Daemon, home: Path) -> None:
        self.daemon = daemon
        text = (HERE / "expected.json").read_text().replace(HOME, str(home))
        self.expected: dict[str, list[dict[str, Any]]] = json.loads(text)

    def id_of(self, workflow: str, number: int = 1) -> str:
        (found,) = (
            run["id"] for run in self.expected["runs"] if (run["workflow"], run["number"]) == (workflow, number)
        )
        return str(found)


def restore(home: Path) -> Path:
    """The state directory below `home`, as old as on the day when the daemon was killed, and on this machine."""
    with tarfile.open(HERE / "files.tar.gz") as archive:
        archive.extractall(home, filter="data")
    state = home / "state"
    text = (HERE / "database.sql").read_text().replace(HOME, str(home))
    # Retention would remove what is old, and retries are not due yet: all of it is as recent as on that day.
    later = time.time_ns() // 1000 - max(int(found) for found in TRANSITION.findall(text))
    database = sqlite3.connect(state / "toban.db")
    database.executescript(MICROS.sub(lambda found: str(int(found[0]) + later), text))
    known = json.loads((state / "installation.json").read_text())
    facts = (state / "installation.json").stat()
    known |= {"inode": facts.st_ino, "device": facts.st_dev, "path": str(state)}
    (state / "installation.json").write_text(json.dumps(known))
    owner = owner_of(StateDir(str(state)), datetime.now(UTC))
    assert owner.installation == known["id"]
    database.execute("UPDATE ownership SET machine = ?", (owner.machine,))
    database.commit()
    database.close()
    (home / "definitions").mkdir()
    (home / "definitions" / "filed.yaml").write_text(FILED)
    return state


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Restored]:
    environment = {"TOBAN_TIMEZONE": "UTC", "TOBAN_DEFINITIONS": str(tmp_path / "definitions")}
    with running_daemon(restore(tmp_path), environment=environment) as daemon:
        yield Restored(daemon, tmp_path)


def run_facts(daemon: Daemon, run_id: str) -> dict[str, Any]:
    run = daemon.get_run(run_id)
    return {
        "id": run.id,
        "workflow": run.workflow,
        "number": run.number,
        "state": run_state(run),
        "trigger": run_pb2.Trigger.Name(run.triggered_by).removeprefix("TRIGGER_"),
        "error": run.error_message,
        "waiting_for": waits_for(run),
        "ending": cause_name(run.ending),
        "steps": {step.id: step_facts(step) for step in run.steps},
        "attempts": [
            {
                "step": each.step,
                "state": process_state(each),
                "error": each.error_message,
                "exit_code": each.exit_code if each.HasField("exit_code") else None,
            }
            for each in daemon.processes(run_id)
        ],
        "log": {str(stream): data.decode()[-200:] for stream, data in sorted(daemon.log_of(run_id).items())},
    }


def step_facts(step: run_pb2.Step) -> dict[str, Any]:
    return {
        "state": run_pb2.StepState.Name(step.state).removeprefix("STEP_STATE_"),
        "reason": skip_reason(step) or step.reason,
        "attempts": step.attempts,
        "outputs": dict(step.outputs),
        "artifacts": [artifact.name for artifact in step.artifacts],
    }


def workflows_of(daemon: Daemon) -> list[dict[str, Any]]:
    request = workflow_pb2.ListWorkflowsRequest(page_size=1000)
    return [
        {"name": each.name, "owner": owner(each), "enabled": each.enabled, "version": each.version}
        for each in daemon.workflows.ListWorkflows(request, timeout=CALL).workflows
    ]


def letters_of(daemon: Daemon) -> list[dict[str, Any]]:
    request = dead_letter_pb2.ListDeadLettersRequest(page_size=1000)
    return [
        {
            "run": each.run_id,
            "step": each.step,
            "error": each.error_message,
            "state": dead_letter_pb2.DeadLetterState.Name(each.state).removeprefix("DEAD_LETTER_STATE_"),
        }
        for each in daemon.dead_letters.ListDeadLetters(request, timeout=CALL).dead_letters
    ]


def events_of(daemon: Daemon) -> list[dict[str, Any]]:
    request = event_pb2.ListEventsRequest(page_size=1000)
    return [
        {
            "id": each.id,
            "type": each.type,
            "state": event_pb2.EventState.Name(each.state).removeprefix("EVENT_STATE_"),
            "bytes": each.payload_bytes,
            "runs": [
                {
                    "workflow": run.workflow,
                    "outcome": event_pb2.EventRunOutcome.Name(run.outcome).removeprefix("EVENT_RUN_OUTCOME_"),
                    "reason": not_started(run),
                    "run": run.run_id,
                }
                for run in each.runs
            ],
        }
        for each in daemon.events.ListEvents(request, timeout=CALL).events
    ]


def schedules_of(daemon: Daemon) -> list[dict[str, Any]]:
    request = schedule_pb2.ListSchedulesRequest(include_ended=True, page_size=1000)
    return [
        {
            "id": each.id,
            "subject": each.subject,
            "workflow": each.workflow,
            "state": schedule_pb2.ScheduleState.Name(each.state).removeprefix("SCHEDULE_STATE_"),
        }
        for each in daemon.schedules.ListSchedules(request, timeout=CALL).schedules
    ]


def fires_of(daemon: Daemon) -> list[dict[str, Any]]:
    request = workflow_pb2.ListFiresRequest(page_size=1000)
    return [
        {
            "schedule": each.schedule_id,
            "workflow": each.workflow,
            "run": each.run_id,
            "reason": f"event {each.event_id}" if each.event_id else not_started(each),
            "outcome": workflow_pb2.FireOutcome.Name(each.outcome).removeprefix("FIRE_OUTCOME_"),
        }
        for each in daemon.workflows.ListFires(request, timeout=CALL).fires
    ]


def test_ended_runs_read_as_before(old: Restored) -> None:
    ended = [run for run in old.expected["runs"] if run["state"] not in ACTIVE]
    assert len(ended) > 20
    for run in ended:
        assert run_facts(old.daemon, run["id"]) == run


def test_everything_else_reads_as_before(old: Restored) -> None:
    assert workflows_of(old.daemon) == old.expected["workflows"]
    assert letters_of(old.daemon) == old.expected["letters"]
    # Runs that recovery ends before the listeners are known add events of their own.
    known = {event["id"] for event in old.expected["events"]}
    assert [event for event in events_of(old.daemon) if event["id"] in known] == old.expected["events"]
    assert schedules_of(old.daemon) == old.expected["schedules"]
    assert fires_of(old.daemon) == old.expected["fires"]
    artifact = run_pb2.DownloadArtifactRequest(run_id=old.id_of("files"), step="make", name="kept")
    answers = old.daemon.runs.DownloadArtifact(artifact, timeout=CALL)
    assert b"".join(answer.data for answer in answers) == b"kept\n"


def approve(daemon: Daemon, run_id: str, note: str) -> None:
    decision = run_pb2.APPROVAL_DECISION_APPROVED
    request = run_pb2.DecideApprovalRequest(run_id=run_id, step="ask", decision=decision, note=note)
    daemon.runs.DecideApproval(request, timeout=CALL)


def test_waiting_runs_wait_as_before_and_go_on(old: Restored) -> None:
    daemon = old.daemon
    waiting = [run for run in old.expected["runs"] if run["waiting_for"]]
    assert {run["workflow"] for run in waiting} == {"approval", "busy", "paused", "backing-off"}
    for run in waiting:
        assert run_facts(daemon, run["id"]) == run
    first, second = old.id_of("approval"), old.id_of("approval", 2)
    approve(daemon, first, "yes")
    assert run_state(daemon.wait_run(first)) == "SUCCEEDED"
    assert daemon.log_of(first, "after") == {run_pb2.LOG_STREAM_STDOUT: b"noted yes\n"}
    # That was its turn.
    for _ in daemon.runs.WatchRun(run_pb2.WatchRunRequest(id=second), timeout=60):
        if steps_of(daemon.get_run(second))["ask"].state == run_pb2.STEP_STATE_RUNNING:
            approve(daemon, second, "again")
            break
    assert run_state(daemon.wait_run(second)) == "SUCCEEDED"
    paused = old.id_of("paused")
    daemon.runs.ResumeRun(run_pb2.ResumeRunRequest(id=paused), timeout=CALL)
    approve(daemon, paused, "go on")
    assert run_state(daemon.wait_run(paused)) == "SUCCEEDED"


def test_steps_that_were_cut_are_settled(old: Restored) -> None:
    daemon = old.daemon
    cut = daemon.wait_run(old.id_of("cut"))
    assert run_state(cut) == "FAILED"
    assert [process_state(each) for each in daemon.processes(cut.id)] == ["LOST"]
    assert daemon.log_of(cut.id)[run_pb2.LOG_STREAM_STDOUT] == b"begun\n"
    rerun = daemon.wait_run(old.id_of("rerun"))
    assert run_state(rerun) == "SUCCEEDED"
    assert [process_state(each) for each in daemon.processes(rerun.id)] == ["LOST", "COMPLETED"]
    # Its end is only in the attempt file.
    meanwhile = daemon.wait_run(old.id_of("meanwhile"))
    assert run_state(meanwhile) == "SUCCEEDED"
    assert daemon.log_of(meanwhile.id)[run_pb2.LOG_STREAM_STDOUT] == b"begun\nended\nafter\n"


def test_new_runs_start(old: Restored) -> None:
    daemon = old.daemon
    for workflow, number in (("good", 4), ("greeting", 2), ("filed", 1), ("parent", 2)):
        run = daemon.run(workflow)
        assert (run_state(run), run.number) == ("SUCCEEDED", number)
    failed = old.id_of("half", 2)
    retried = daemon.runs.RetryRun(run_pb2.RetryRunRequest(id=failed), timeout=CALL).run
    assert steps_of(daemon.wait_run(retried.id))["a"].source_run
    event = daemon.emit("thing.happened", {"number": 2})
    # The runs that were cut announce their end, before or after this.
    assert event.sequence > len(old.expected["events"])
    repeated = daemon.emit("thing.happened", {"text": "again"}, dedupe_key="one")
    assert repeated.id == old.expected["events"][0]["id"]
