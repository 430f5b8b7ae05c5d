"""One run in the console: live, what failed and why, its log, and what people do with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from helpers.browser import Site
from helpers.gate import Gate
from toban.v1 import run_pb2

LIVE = """
name: live
description: Is held at a gate.
steps:
  first: {run: "echo begun"}
  held: {depends_on: [first], run: "echo '::progress 3/10 halfway'; echo waiting; read -r _ < '@GATE@'; echo over"}
  last: {depends_on: [held], run: "echo done"}
"""
FAILING = r"""
name: failing
title: 失敗する処理
description: Fails until a file is there.
steps:
  fetch: {run: "for i in $(seq 1 40); do echo page $i; done"}
  each: {depends_on: [fetch], for_each: [a, b, c], run: "echo {{ item }}"}
  upload:
    depends_on: [fetch]
    run: |
      test -e '@FILE@' && { echo uploaded; exit 0; }
      echo connecting
      printf '\033[31merror:\033[0m 503 Service Unavailable\n' >&2
      exit 3
  report: {depends_on: [upload], run: "echo reported"}
"""
# Markup, colours, a cursor that moves, bytes that are no text, and a line of 10 MB.
ODD = r"""
name: odd-output
description: <img src=x onerror="document.title='taken'">
params: {note: {type: string, default: "<script>document.title='taken'</script>"}}
steps:
  print:
    title: <b>print</b>
    run: |
      echo "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
      printf '\033[1;32mgreen\033[0m \033[2J\033[10;10Hplain \033]0;title\007end\n'
      printf 'bad \377\376 bytes \001\n'
      head -c 10000000 /dev/zero | tr '\0' x; echo
      seq 1 6000
      echo the needle
"""
APPROVAL = """
name: to-approve
description: Waits for a person.
steps:
  ask: {job_type: approval}
  after: {depends_on: [ask], run: "true"}
"""

Opener = Callable[..., Any]


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(str(tmp_path / "gate"))


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Views of the run").get_by_role("link", name=name).click()


def node(page: Page, name: str) -> Any:
    return page.get_by_role("region", name="Steps and what they depend on").get_by_role(
        "button", name=re.compile(f"^{re.escape(name)}")
    )


def test_a_run_turns_green_while_it_is_watched(console: Opener, site: Site, gate: Gate) -> None:
    site.daemon.apply(LIVE.replace("@GATE@", gate.path))
    run = site.daemon.start_run("live")
    opened = console("/runs/live%231", role="operator")
    page: Page = opened.page
    expect(node(page, "held")).to_contain_text("Running · 30%")
    expect(page.get_by_text("1 of 3 steps · 3/10 · halfway")).to_be_visible()
    opened.check()
    page.evaluate("() => { window.kept = true; }")
    tab(page, "Log")
    log = page.get_by_role("group", name="Lines of the log")
    expect(log).to_contain_text("waiting")
    gate.release_now()
    expect(log).to_contain_text("over")
    expect(log).to_contain_text("done")
    tab(page, "Graph")
    for step in ("first", "held", "last"):
        expect(node(page, step)).to_contain_text("Succeeded")
    expect(page.get_by_role("main").locator(".page-head")).to_contain_text("Succeeded")
    assert page.evaluate("() => window.kept")
    assert site.daemon.wait_run(run).state == run_pb2.RUN_STATE_SUCCEEDED


def test_a_failed_run_says_what_failed_and_is_retried_from_there(console: Opener, site: Site) -> None:
    file = site.directory / "there"
    site.daemon.apply(FAILING.replace("@FILE@", str(file)))
    run = site.daemon.run("failing")
    opened = console(f"/runs/{run.id}", role="editor")
    page: Page = opened.page
    failure = page.get_by_role("region", name="upload failed")
    expect(failure).to_contain_text("exit code 3")
    expect(failure.get_by_label("The last lines of its log")).to_have_text(
        re.compile("connecting.*error: 503 Service Unavailable", re.DOTALL)
    )
    expect(failure.get_by_role("link", name="Edit the workflow")).to_be_visible()
    expect(node(page, "each")).to_contain_text("3/3")
    opened.check()

    failure.get_by_role("button", name="See the log").click()
    log = page.get_by_role("group", name="Lines of the log")
    expect(log).to_contain_text("503 Service Unavailable")
    expect(log).not_to_contain_text("page 1")
    tab(page, "Graph")

    file.touch()
    failure.get_by_role("button", name="Retry from here").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", name="失敗する処理 #2")).to_be_visible()
    expect(node(page, "report")).to_contain_text("Succeeded")
    again = site.daemon.runs.GetCurrentRun(run_pb2.GetCurrentRunRequest(workflow="failing"), timeout=60).run
    assert again.retry_of == run.id
    assert [each.id for each in site.daemon.get_run(again.id).steps if not each.source_run] == ["upload", "report"]

    tab(page, "Compare")
    expect(page.get_by_label("Compare with")).to_have_value(run.id)
    row = page.get_by_role("row", name=re.compile("^upload"))
    expect(row).to_contain_text("Succeeded")
    expect(row).to_contain_text("Failed")
    opened.check()


def test_a_run_is_paused_resumed_and_cancelled_by_its_name(console: Opener, site: Site, gate: Gate) -> None:
    site.daemon.apply(LIVE.replace("@GATE@", gate.path).replace("live", "to-cancel"))
    run = site.daemon.start_run("to-cancel")
    site.daemon.wait_started(run, "held")
    page: Page = console(f"/runs/{run}", role="operator").page
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("main").locator(".page-head")).to_contain_text("Paused")
    assert site.daemon.get_run(run).HasField("paused_at")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()

    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Cancel the run")
    expect(confirm).to_be_disabled()
    dialog.get_by_label(re.compile("to-cancel#1")).fill("to-cancel#1")
    confirm.click()
    expect(page.get_by_role("main").locator(".page-head")).to_contain_text("Cancelled")
    assert site.daemon.wait_run(run).state == run_pb2.RUN_STATE_CANCELLED


def test_a_step_is_approved_with_a_comment(console: Opener, site: Site) -> None:
    site.daemon.apply(APPROVAL)
    run = site.daemon.start_run("to-approve")
    viewer: Page = console(f"/runs/{run}", role="viewer").page
    expect(viewer.get_by_role("heading", name="ask waits for approval")).to_be_visible()
    for name in ("Approve", "Reject", "Pause", "Cancel"):
        expect(viewer.get_by_role("button", name=name, exact=True)).to_have_count(0)
    page: Page = console(f"/runs/{run}", role="operator").page
    page.get_by_label("Comment").fill("looks right")
    page.get_by_role("button", name="Approve").click()
    for each in (page, viewer):
        expect(each.get_by_role("main").locator(".page-head")).to_contain_text("Succeeded")
    (step,) = (each for each in site.daemon.wait_run(run).steps if each.id == "ask")
    assert "looks right" in step.result_json


def test_whatever_is_printed_is_shown_as_text(console: Opener, site: Site) -> None:
    site.daemon.apply(ODD)
    run = site.daemon.run("odd-output")
    opened = console(f"/runs/{run.id}?tab=log#L2", role="viewer")
    page: Page = opened.page
    log = page.get_by_role("group", name="Lines of the log")
    expect(log.locator('[data-line="1"]')).to_contain_text("<img src=x onerror=")
    second = log.locator('[data-line="2"]')
    expect(second).to_contain_text("green plain end")
    expect(second.locator(".fg-2.bold")).to_have_text("green")
    expect(second).to_have_class(re.compile("chosen"))
    expect(page.get_by_role("region", name="Line 2")).to_contain_text("green plain end")
    expect(log.locator('[data-line="3"]')).to_contain_text("bad \ufffd\ufffd bytes \u2401")
    expect(log.locator('[data-line="4"]')).to_contain_text("more characters")
    # Found in lines that are not drawn; Enter goes there.
    page.get_by_label("Find").fill("the needle")
    expect(page.get_by_role("status").get_by_text("1", exact=True)).to_be_visible()
    page.get_by_label("Find").press("Enter")
    expect(log.locator("mark")).to_have_text("the needle")
    expect(page).to_have_url(re.compile(r"#L60\d\d$"))
    assert log.locator("[data-line]").count() < 150
    opened.check()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert b"bad \xff\xfe bytes \x01" in download.value.path().read_bytes()
    tab(page, "Parameters")
    expect(page.get_by_text("<script>document.title='taken'</script>")).to_be_visible()
    tab(page, "Graph")
    expect(page.get_by_text("<b>print</b>")).to_be_visible()
    assert "taken" not in page.title()


@pytest.mark.parametrize("view", ["graph", "timeline", "log", "params", "artifacts", "resources", "history", "compare"])
def test_every_view_fits_a_phone_in_japanese_and_dark(console: Opener, site: Site, view: str) -> None:
    opened = console(
        f"/runs/{site.ids['failed']}?tab={view}&step=upload", role="operator", language="ja", dark=True, size=(360, 780)
    )
    opened.check()


def test_a_run_that_is_not_there_is_said_so(console: Opener) -> None:
    for path in ("/runs/nothing%237", "/runs/01a1f5d2-267b-705e-91f9-f1404222216a"):
        page: Page = console(path, role="viewer", expected={404}).page
        expect(page.get_by_role("heading", name=re.compile("There is no run"))).to_be_visible()
