"""What people do in the console: each act is seen in the daemon, and each change of the daemon in the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from helpers.browser import Site
from toban.v1 import dead_letter_pb2, run_pb2, schedule_pb2

# Runs as text wherever text is taken for markup.
SCRIPT = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


def test_a_run_is_approved(console: Callable[..., Any], site: Site) -> None:
    page = console("/approvals", role="operator").page
    page.get_by_role("button", name="Approve Deploy the web site #2 › release").click()
    page.get_by_label("Note (optional)").fill("checked by hand")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Nothing waits for approval")).to_be_visible()
    run = site.daemon.wait_run(site.ids["approval"])
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    (step,) = (each for each in run.steps if each.id == "release")
    assert "checked by hand" in step.result_json


def test_a_run_is_started_followed_live_and_cancelled(console: Callable[..., Any], site: Site) -> None:
    page = console("/runs", role="operator").page
    run_id = site.ids["running"]
    row = page.get_by_role("row", name=re.compile("在庫の同期 #1"))
    expect(row.get_by_text("Running")).to_be_visible()
    # Of another program: the list follows without being loaded again.
    page.evaluate("() => { window.kept = true; }")
    other = site.daemon.start_run("nightly-batch")
    expect(page.get_by_role("row", name=re.compile("夜間バッチ #5")).get_by_text("Succeeded")).to_be_visible()
    assert page.evaluate("() => window.kept")
    site.daemon.wait_run(other)

    row.get_by_role("button", name="Cancel 在庫の同期 #1").click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(row.get_by_text("Cancelled")).to_be_visible()
    assert site.daemon.wait_run(run_id).state == run_pb2.RUN_STATE_CANCELLED


def test_a_dead_letter_is_requeued_and_another_discarded(console: Callable[..., Any], site: Site) -> None:
    page = console("/dead_letters", role="operator").page
    expect(page.get_by_role("row", name=re.compile("Export of invoices"))).to_have_count(2)
    page.get_by_role("button", name=re.compile("Requeue Export")).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Requeue").click()
    expect(page.get_by_text("Run #3 repeats")).to_be_visible()
    run = site.daemon.runs.GetCurrentRun(run_pb2.GetCurrentRunRequest(workflow="invoice-export"), timeout=60).run
    site.daemon.wait_run(run.id)
    # The run that repeats it failed too, and left one of its own.
    expect(page.get_by_role("button", name=re.compile("Discard Export"))).to_have_count(2)
    page.get_by_role("button", name=re.compile("Discard Export")).last.click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.get_by_role("button", name=re.compile("Discard Export"))).to_have_count(1)
    page.get_by_label("Show").select_option("all")
    every = dead_letter_pb2.ListDeadLettersRequest()
    letters = site.daemon.dead_letters.ListDeadLetters(every, timeout=60).dead_letters
    assert sorted(each.state for each in letters) == [
        dead_letter_pb2.DEAD_LETTER_STATE_OPEN,
        dead_letter_pb2.DEAD_LETTER_STATE_REQUEUED,
        dead_letter_pb2.DEAD_LETTER_STATE_DISCARDED,
    ]
    expect(page.get_by_text("Discarded", exact=True)).to_be_visible()


def test_an_event_is_emitted_after_a_look_at_what_it_starts(console: Callable[..., Any]) -> None:
    page = console("/events", role="operator").page
    page.get_by_role("button", name="Emit an event").click()
    page.get_by_label("Type", exact=True).fill("IMAGE_UPLOADED")
    page.get_by_label("Payload").fill('{"file": ')
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    page.get_by_label("Payload").fill('{"file": "dog.jpg"}')
    expect(page.get_by_role("dialog").get_by_text("would start", exact=False).first).to_be_visible()
    page.get_by_role("button", name="Emit", exact=True).click()
    row = page.get_by_role("row", name=re.compile("dog.jpg"))
    row.get_by_role("link", name="IMAGE_UPLOADED").click()
    expect(page.get_by_text("All of its runs have ended.")).to_be_visible()
    expect(page.get_by_role("table").get_by_text("Succeeded")).to_be_visible()
    # The run emits an event of its own, which starts two workflows.
    chain = page.get_by_role("region", name="What followed")
    for text in ("image-resize #2", "THUMBNAILS_READY", "gallery #2", "search-index #2"):
        expect(chain.get_by_role("link", name=text)).to_be_visible()


def test_a_schedule_in_words_is_read_aloud_before_it_is_stored(console: Callable[..., Any], site: Site) -> None:
    page = console("/schedules?view=subjects", role="editor", expected={422}).page
    page.get_by_role("button", name="New schedule").click()
    page.get_by_label("Subject", exact=True).last.fill("issue-99")
    page.get_by_label("When, in words").fill("whenever it suits")
    expect(page.get_by_role("dialog").locator(".notice.wait")).to_be_visible()
    page.get_by_label("When, in words").fill("毎週金曜17時")
    expect(page.get_by_role("dialog").locator(".notice.ok")).to_contain_text("17:00")
    page.get_by_label("Action").select_option("reminder")
    page.get_by_role("button", name="Create", exact=True).click()
    row = page.get_by_role("row", name=re.compile("issue-99"))
    expect(row.get_by_text("Reminder")).to_be_visible()
    row.get_by_role("button", name=re.compile("Cancel")).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(row).to_have_count(0)
    request = schedule_pb2.ListSchedulesRequest(subject="issue-99", include_ended=True)
    (schedule,) = site.daemon.schedules.ListSchedules(request, timeout=60).schedules
    assert schedule.state == schedule_pb2.SCHEDULE_STATE_CANCELLED


def test_why_a_workflow_did_not_run_is_answered(console: Callable[..., Any]) -> None:
    page = console("/schedules", role="viewer").page
    page.get_by_role("button", name=re.compile("Why 夜間バッチ")).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Due after that")).to_be_visible()
    dialog.get_by_label("Near the time").fill("2026-01-05T03:00")
    expect(dialog.get_by_role("listitem").first).to_be_visible()


def test_a_token_is_created_shown_once_and_revoked(console: Callable[..., Any], site: Site) -> None:
    page = console("/access?view=tokens").page
    page.get_by_role("button", name="New token").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("ci-bot")
    page.get_by_label("Role").select_option("operator")
    page.get_by_label("Only these workflows").fill("nightly-*")
    page.get_by_role("button", name="Create", exact=True).click()
    text = page.get_by_role("dialog").locator("pre").inner_text()
    page.get_by_role("button", name="Close").click()
    assert site.gateway.client(text).get("/api/session").data["identity"]["name"] == "token:ci-bot"
    page.get_by_role("button", name="Revoke ci-bot").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Revoke")
    expect(confirm).to_be_disabled()
    page.get_by_label("Type “ci-bot” to confirm.").fill("ci-bot")
    confirm.click()
    expect(page.get_by_text("ci-bot was revoked.")).to_be_visible()
    assert site.gateway.client(text).get("/api/session").status == 401


def test_the_doctor_and_a_drain_are_seen(console: Callable[..., Any]) -> None:
    page = console("/system").page
    page.get_by_role("button", name="Check now").click()
    expect(page.get_by_role("region", name="Doctor").get_by_role("row").nth(3)).to_be_visible()
    page.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.get_by_text("The daemon is draining: schedules and events start no runs.")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("schedules and events start no runs.")).to_have_count(0)


def test_text_never_becomes_markup(console: Callable[..., Any], site: Site) -> None:
    step = {"title": SCRIPT, "run": "exit 3", "on_failure": "retry", "max_retries": 1, "retry": {"delay": "100ms"}}
    definition = {
        "name": "hostile",
        "title": SCRIPT,
        "description": SCRIPT,
        "labels": {"note": SCRIPT},
        "params": {"text": {"type": "string", "default": "x"}},
        "steps": {"say": step},
    }
    site.daemon.apply(json.dumps(definition))
    site.daemon.run("hostile", text=SCRIPT)
    site.daemon.emit("HOSTILE", {"text": SCRIPT})
    opened = console("/")
    for path in ("/", "/workflows", "/runs", "/events", "/dead_letters?all=true", "/access?view=audit"):
        opened.open(path)
        if path != "/access?view=audit":
            expect(opened.page.get_by_text("onerror").first).to_be_visible()
        assert opened.page.locator("main img").count() == 0
        assert opened.page.title() != "taken"


def test_the_daemon_goes_away_and_returns(console: Callable[..., Any], site: Site) -> None:
    page = console("/runs", expected={0, 401, 500, 503}).page
    site.daemon.kill()
    expect(page.get_by_text("The daemon cannot be reached")).to_be_visible(timeout=40_000)
    # What was loaded stays in view.
    expect(page.get_by_role("row", name=re.compile("Export of invoices #1"))).to_be_visible()
    site.daemon.start()
    # Sessions end with the daemon that they were made by.
    page.get_by_label("Token").fill(site.tokens["admin"], timeout=40_000)
    page.get_by_role("button", name="Log in").click()
    number = site.daemon.run("nightly-batch").number
    row = page.get_by_role("row", name=re.compile(f"夜間バッチ #{number}"))
    expect(row.get_by_text("Succeeded")).to_be_visible()
    expect(page.get_by_text("The daemon cannot be reached")).to_have_count(0)


def test_many_tabs_share_one_stream(console: Callable[..., Any], site: Site) -> None:
    """More than the six connections that a browser opens to one host."""
    first = console("/runs").page
    tabs = [first, *(first.context.new_page() for _ in range(8))]
    for page in tabs[1:]:
        page.goto("/runs")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    number = site.daemon.run("nightly-batch").number
    for page in tabs[1:]:
        expect(page.get_by_role("row", name=re.compile(f"夜間バッチ #{number}"))).to_be_visible()
    # Another tab takes over when the one with the stream is closed.
    first.close()
    site.daemon.run("nightly-batch")
    expect(tabs[-1].get_by_role("row", name=re.compile(f"夜間バッチ #{number + 1}"))).to_be_visible()
