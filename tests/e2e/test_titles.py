"""Titles of workflows and steps, in any script, wherever people look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.command import Toban
from helpers.daemon import running_daemon
from toban.cli.exits import Exit
from toban.cli.human_text import width

NIGHTLY = """
id: nightly
name: 夜間バッチ
description: d
schedule: 0 3 * * *
on: ORDER_PAID
steps:
  - {id: fetch, name: データ取得, run: echo fetched | tee data, outputs: [{name: data, path: data}]}
  - {name: 集計, run: "echo {{ steps.fetch.stdout }} counted", for_each: [1, 2], max_parallel: 1}
  - {name: send, title: 結果の通知, run: exit 3, max_retries: 1, on_failure: retry, retry: {delay: 1ms}}
"""
LISTENER = """
name: listener
description: causes the events of the daemon to be stored
on: {event: [RUN_FAILED, STEP_FAILED, DEFINITION_CHANGED], condition: event.type == 'NEVER'}
steps:
  - {name: never, run: "true"}
"""
COUNT = "step-34af9cc6"


@pytest.fixture(scope="module")
def toban(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toban]:
    with running_daemon(tmp_path_factory.mktemp("titles") / "state") as daemon:
        command = Toban(daemon)
        command("apply", "-", stdin=LISTENER)
        command("apply", "-", stdin=NIGHTLY)
        yield command


@pytest.fixture(scope="module")
def followed(toban: Toban) -> str:
    """What a run printed while it was followed."""
    said = toban("run", "nightly", "--follow", code=1)
    assert said.err.startswith("started nightly#1 (")
    assert "): 夜間バッチ\n" in said.err
    assert "step 結果の通知 (send): attempt 1 failed (exit code 3), retrying" in said.err
    return said.out


def columns(text: str, header: str) -> list[str]:
    """The cells below a header, by width on a terminal."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if header in line.split())
    start = width(lines[at][: lines[at].index(header)])
    cells = []
    for line in lines[at + 1 :]:
        if not line:
            break
        rest = line
        while rest and width(line) - width(rest) < start:
            rest = rest[1:]
        assert width(line) - width(rest) in (start, width(line)), "the columns are aligned"
        cells.append(rest.split("  ")[0].strip())
    return cells


def test_a_followed_run(followed: str) -> None:
    lines = followed.splitlines()
    assert lines[:-1] == ["データ取得 | fetched", "集計[0] | fetched counted", "集計[1] | fetched counted"]
    assert lines[-1].startswith("夜間バッチ (nightly#1) failed after ")
    assert lines[-1].endswith(": step 結果の通知 (send) failed: exit code 3")


def test_lists_and_reports(toban: Toban, followed: str) -> None:
    assert columns(toban("runs", "list").out, "TITLE") == ["夜間バッチ"]
    shown = toban("runs", "show", "nightly").out
    assert "title:      夜間バッチ\n" in shown
    assert columns(shown, "TITLE") == ["データ取得", "集計", "", "", "結果の通知"]
    assert "step 結果の通知 (send) failed: exit code 3" in shown
    assert "Last lines of 結果の通知 (send) (attempt 2):" in shown
    processes = columns(toban("runs", "processes", "nightly").out, "TITLE")
    assert processes == ["結果の通知", "結果の通知", "集計", "集計", "データ取得"]
    assert columns(toban("workflows", "list").out, "TITLE") == ["listener", "夜間バッチ"]
    assert columns(toban("runs", "artifacts", "nightly").out, "TITLE") == ["データ取得"]
    letters = toban("dead-letters", "list").out
    assert "夜間バッチ (nightly#1)" in letters
    assert "結果の通知 (send)" in letters
    letter = toban("dead-letters", "list", "-o", "name").out.strip()
    assert "結果の通知 (send)" in toban("dead-letters", "show", letter).out


def test_logs(toban: Toban, followed: str) -> None:
    assert toban("logs", "nightly").out == "".join(f"{line}\n" for line in followed.splitlines()[:-1])
    first = json.loads(toban("logs", "nightly", "-o", "json").out.splitlines()[0])
    assert (first["step"], first["step_title"]) == ("fetch", "データ取得")
    wrong = toban("logs", "nightly", "--step", "データ取得", code=Exit.NOT_FOUND)
    assert "データ取得 (fetch)" in wrong.err


def test_for_programs(toban: Toban, followed: str) -> None:
    run = toban("runs", "show", "nightly", "-o", "json").data
    assert (run["workflow"], run["workflow_title"]) == ("nightly", "夜間バッチ")
    assert [(step["id"], step["title"]) for step in run["steps"]] == [
        ("fetch", "データ取得"),
        (COUNT, "集計"),
        (f"{COUNT}[0]", "集計"),
        (f"{COUNT}[1]", "集計"),
        ("send", "結果の通知"),
    ]
    (listed,) = toban("runs", "list", "-o", "json").data
    assert listed["workflow_title"] == "夜間バッチ"
    (artifact,) = toban("runs", "artifacts", "nightly", "-o", "json").data
    assert (artifact["step"], artifact["step_title"]) == ("fetch", "データ取得")
    (letter,) = toban("dead-letters", "list", "-o", "json").data
    assert (letter["step"], letter["step_title"]) == ("send", "結果の通知")


def test_plans_and_schedules(toban: Toban) -> None:
    plan = toban("run", "nightly", "--dry-run")
    assert columns(plan.out, "TITLE") == ["データ取得", "集計", "結果の通知"]
    assert "夜間バッチ (nightly) (version 1) would run 3 of 3 steps" in plan.err
    assert toban("workflows", "next", "nightly", "-n", "1").err.startswith("夜間バッチ (nightly)\n")
    assert toban("why", "nightly").out.startswith("夜間バッチ (nightly)\n")


def test_schedules_of_subjects(toban: Toban) -> None:
    for workflow in ("listener", "nightly"):
        toban("schedule", "every day at 15:00", "--subject", "issue-42", "--workflow", workflow)
    assert columns(toban("schedules", "list").out, "TITLE") == ["", "夜間バッチ"]
    untitled, titled = toban("schedules", "list", "-o", "json").data
    assert (untitled["workflow_title"], titled["workflow_title"]) == ("", "夜間バッチ")
    assert "workflow:    夜間バッチ (nightly)\n" in toban("schedules", "show", titled["id"]).out


def test_payloads_of_events(toban: Toban, followed: str) -> None:
    def payload(event_type: str) -> Any:
        (event,) = toban("events", "list", "--type", event_type, "-o", "json").data
        return json.loads(event["payload_json"])

    ended, failed, changed = payload("RUN_FAILED"), payload("STEP_FAILED"), payload("DEFINITION_CHANGED")
    assert (ended["workflow"], ended["workflow_title"]) == ("nightly", "夜間バッチ")
    assert (failed["workflow_title"], failed["step"], failed["step_title"]) == ("夜間バッチ", "send", "結果の通知")
    assert (changed["data"]["name"], changed["data"]["title"]) == ("nightly", "夜間バッチ")


def test_a_title_is_no_name(toban: Toban) -> None:
    said = toban("run", "夜間バッチ", code=Exit.NOT_FOUND)
    assert "that is the title of nightly" in said.err


def test_the_run_of_an_event(toban: Toban) -> None:
    event = toban("emit", "ORDER_PAID", "--wait", "-o", "json", code=1).data["id"]
    assert "夜間バッチ (nightly#" in toban("events", "show", event).out
