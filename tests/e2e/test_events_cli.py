"""Events and schedules of subjects as people use them: `toban` against a daemon that really starts things."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.command import Toban
from helpers.daemon import running_daemon
from helpers.wait import wait_until

LISTENERS = """
name: invoices
description: x
on: {event: ORDER_PAID, condition: event.payload.order > 3, priority: 10}
steps: {only: {run: 'echo order {{ event.payload.order }}'}}
---
name: ledger
description: x
on: ORDER_PAID
steps: {only: {run: 'test {{ event.payload.order }} != 13'}}
---
name: calm
description: x
on: {event: BURST, debounce: 500ms}
steps: {only: {run: 'test {{ event.coalesced }} = 1'}}
---
name: relay
description: x
on: RELAYED
env: {PYTHON: PATH_OF_PYTHON}
steps: {only: {run: '"$PYTHON" -m toban.cli emit ORDER_PAID -d [1]'}}
---
name: ping
description: x
on: {event: RUN_SUCCEEDED, condition: event.payload.workflow == 'pong'}
env: {PYTHON: PATH_OF_PYTHON}
steps: {only: {run: '"$PYTHON" -m toban.cli run pong'}}
---
name: pong
description: x
steps: {only: {run: 'true'}}
---
name: switch
description: x
grants: [{role: editor}]
on: {event: DEFINITION_CHANGED, condition: event.payload.data.name == 'switched'}
env:
  PYTHON: PATH_OF_PYTHON
  VERB: '{{ event.payload.action == "disabled" ? "enable" : "disable" }}'
steps: {only: {run: '"$PYTHON" -m toban.cli workflows "$VERB" switched'}}
---
name: remind
description: x
params: {who: {type: string}}
steps: {only: {run: 'echo {{ params.who }} {{ event.payload.issueId }}'}}
""".replace("PATH_OF_PYTHON", json.dumps(sys.executable))


@pytest.fixture(scope="module")
def toban(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toban]:
    state = tmp_path_factory.mktemp("events") / "state"
    with running_daemon(state, environment={"TOBAN_TIMEZONE": "Asia/Tokyo"}) as daemon:
        command = Toban(daemon)
        command("apply", "-", stdin=LISTENERS)
        yield command


def test_an_event_starts_what_listens(toban: Toban) -> None:
    event, *started = toban("emit", "ORDER_PAID", "-d", '{"order": 7}').out.splitlines()
    found = re.fullmatch(r"emitted ORDER_PAID \((\S+)\)", event)
    assert found is not None
    assert [line.split()[1].split("#")[0] for line in started] == ["invoices", "ledger"]
    wait_until(
        lambda: toban("events", "show", found[1], "-o", "json").data["all_ended"],
        "the runs of the event never ended",
    )
    shown = toban("events", "show", found[1]).out
    assert re.search("^invoices +10 +succeeded +invoices#", shown, re.MULTILINE)
    assert shown.endswith('Payload:\n{\n  "order": 7\n}\n')
    assert toban("logs", "invoices").out == "order 7\n"
    assert f"ORDER_PAID ({found[1]})" in toban("runs", "show", "invoices").out
    assert found[1] in toban("events", "list", "--type", "ORDER_PAID", "-o", "name").out
    assert "started by:  ORDER_PAID" in toban("workflows", "show", "ledger").out


def test_waiting_for_all_of_it(toban: Toban) -> None:
    failed = toban("emit", "ORDER_PAID", "-d", "@-", "--wait", stdin='{"order": 13}', code=1)
    told = sorted(failed.out.splitlines())
    assert re.match(r"invoices#\d+ succeeded after ", told[0])
    assert re.match(r"ledger#\d+ failed after ", told[1])
    given = ["emit", "ORDER_PAID", "-d", '{"order": 8}', "--dedupe-key", "once", "--wait"]
    first = toban(*given, "-o", "json").data
    assert (first["created"], first["all_ended"]) == (True, True)
    again = toban(*given, "-o", "json").data
    assert (again["id"], again["created"]) == (first["id"], False)


def test_waiting_for_the_run_of_a_burst(toban: Toban) -> None:
    assert re.match(r"calm#\d+ succeeded after ", toban("emit", "BURST", "--wait").out)
    for key in ("one", "two", "three"):
        toban("emit", "BURST", "--dedupe-key", key)
    for key in ("three", "one"):
        waited = toban("emit", "BURST", "--dedupe-key", key, "--wait", code=1)
        assert re.match(r"calm#\d+ failed after ", waited.out), "it represents three events"


def test_why_nothing_is_started(toban: Toban) -> None:
    candidates = toban("events", "resolve", "ORDER_PAID", "-d", '{"order": 1}')
    rows = [re.split("  +", line) for line in candidates.out.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["ledger", "yes"], ["invoices", "no"]]
    assert "would start 1 run" in candidates.err
    assert "no current definition listens to it" in toban("emit", "NOBODY_CARES").out
    wrong = toban("emit", "NO SPACES", code=2)
    assert wrong.err.startswith("toban: cannot emit ")


def test_a_step_emits(toban: Toban) -> None:
    toban("emit", "RELAYED", "--wait")
    (run,) = toban("runs", "list", "--workflow", "relay", "-o", "json").data
    (event,) = (
        event
        for event in toban("events", "list", "--type", "ORDER_PAID", "-o", "json").data
        if event["source"] == "step"
    )
    assert (event["source_run"], event["source_step"]) == (run["id"], "only")
    assert (run["depth"], event["depth"]) == (0, 1)
    assert "step only of relay#1" in toban("events", "show", event["id"]).out


@pytest.mark.timeout(300)
def test_a_chain_is_cut_where_runs_start_runs(toban: Toban) -> None:
    toban("run", "pong")
    cut_at_last(toban, "RUN_SUCCEEDED", "pong")


@pytest.mark.timeout(300)
def test_a_chain_is_cut_where_runs_change_definitions(toban: Toban) -> None:
    switched = {"name": "switched", "description": "x", "steps": {"only": {"run": "true"}}}
    toban("apply", "-", stdin=json.dumps(switched))
    cut_at_last(toban, "DEFINITION_CHANGED", "switched")


def cut_at_last(toban: Toban, event_type: str, about: str) -> None:
    """Waits until the chain of events about a workflow is cut: behind 16 runs, and nothing came of it.

    Each run starts an interpreter, which takes seconds on a busy machine.
    """

    def found() -> list[dict[str, Any]]:
        listed = toban("events", "list", "--type", event_type, "--limit", "200", "-o", "json").data
        return [event for event in listed if f'"{about}"' in event["payload_json"]]

    wait_until(
        lambda: any(event["state"] == "cut" for event in found()),
        f"the chain of {event_type} was never cut",
        deadline=240,
    )
    assert sorted(event["depth"] for event in found()) == [*range(found()[-1]["depth"], 17)]


def test_watching(toban: Toban) -> None:
    watching = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "toban.cli",
            "--server",
            toban.daemon.socket,
            "events",
            "watch",
            "--type",
            "ORDER_SENT",
            "-o",
            "json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watching.stdout is not None
    assert watching.stderr is not None
    with watching:
        try:
            assert watching.stderr.readline() == b"watching events; Ctrl-C stops\n"
            emitted = toban("emit", "ORDER_SENT", "-o", "name").out.strip()
            assert json.loads(watching.stdout.readline())["id"] == emitted
        finally:
            watching.kill()


def test_draining_keeps_events(toban: Toban) -> None:
    # What the tests before started may yet end, and that is an event too.
    wait_until(lambda: is_quiet(toban), "something goes on")
    toban("system", "drain")
    try:
        kept = toban("emit", "ORDER_PAID", "-d", '{"order": 9}')
        assert "pending: the daemon drains" in kept.err
        assert re.search("^pending events: +1$", toban("system", "info").out, re.MULTILINE)
    finally:
        toban("system", "resume")
    event = re.findall(r"\((\S+)\)", kept.out)[0]
    wait_until(
        lambda: toban("events", "show", event, "-o", "json").data["all_ended"],
        "it was not resolved afterwards",
    )
    assert "event runs" in toban("system", "info").out


def is_quiet(toban: Toban) -> bool:
    info = toban("system", "info").out
    return "pending events" not in info and bool(re.search("^active runs: +0$", info, re.MULTILINE))


def test_a_schedule_of_a_subject(toban: Toban) -> None:
    made = toban("schedule", "毎日午後3時に進捗確認", "--subject", "issue-42", "-a", "check_progress")
    first, understood, *due = made.out.splitlines()
    schedule = re.findall(r"\((\S+)\)", first)[0]
    assert "15:00" in understood
    assert len(due) == 5
    assert all(line.endswith("15:00:00+09:00 Asia/Tokyo") for line in due)
    assert schedule in toban("schedules", "list", "--subject", "issue-42").out
    assert "request:     毎日午後3時に進捗確認" in toban("schedules", "show", schedule).out
    assert toban("schedules", "cancel", "--subject", "issue-42").out == ("cancelled 1 schedule of issue-42\n")
    assert toban("schedules", "list", "--subject", "issue-42").out == ""
    assert "cancelled" in toban("schedules", "list", "--subject", "issue-42", "--all").out


def test_times_that_are_only_asked_about(toban: Toban) -> None:
    for given in (["every weekday at 15:00"], ["--cron", "0 15 * * 1-5"]):
        asked = toban("schedule", *given, "--dry-run")
        assert asked.out.count("15:00:00+09:00 Asia/Tokyo") == 5
    refused = toban("schedule", "whenever you like", "--subject", "a", "-a", "reminder", code=2)
    assert "whenever" in refused.err
    unknown = toban("schedule", "tomorrow at 9am", "--subject", "a", "-w", "remimd", code=5)
    assert "did you mean remind?" in unknown.err
    assert toban("schedules", "list", "--subject", "a").out == ""


def test_a_schedule_that_is_due_starts_its_workflow(toban: Toban) -> None:
    given = ["schedule", "--every", "1s", "--max-occurrences", "1", "--subject", "issue-7"]
    schedule = toban(*given, "-w", "remind", "-p", "who=bo", "-o", "name").out.strip()
    wait_until(
        lambda: "succeeded" in toban("runs", "list", "--workflow", "remind").out,
        "it was never due",
    )
    assert toban("logs", "remind").out == "bo issue-7\n"
    (run,) = toban("runs", "list", "--workflow", "remind", "-o", "json").data
    assert (run["schedule_id"], run["event_type"]) == (schedule, "SCHEDULE_TRIGGERED")
    ended = toban("schedules", "show", schedule, "-o", "json").data
    assert (ended["state"], ended["occurrences"]) == ("ended", 1)
