"""Logging in and out, what a role may see, and preferences."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from helpers.browser import Site


def test_a_link_logs_in_once(console: Callable[..., Any], site: Site) -> None:
    opened = console(f"/login#code={site.gateway.code()}", role="", expected={401})
    expect(opened.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert opened.page.url == f"{site.gateway.url}/"

    again = console(f"/login#code={site.gateway.code()}", role="", expected={401})
    expect(again.page.get_by_text("This link was used before")).to_be_visible()


def test_a_token_logs_in_and_a_wrong_one_does_not(console: Callable[..., Any], site: Site) -> None:
    opened = console("/runs", role="", expected={401, 422})
    page = opened.page
    page.get_by_label("Token").fill("toban_no_such")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(site.tokens["operator"])
    page.get_by_role("button", name="Log in").click()
    # On the page that was asked for.
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.get_by_role("button", name="Operator").click()
    expect(page.get_by_text("token:operator")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in to Toban")).to_be_visible()


def test_a_session_that_is_revoked_leads_to_the_login_page(console: Callable[..., Any], site: Site) -> None:
    page = console("/runs", role="operator", expected={401}).page
    cookie = page.context.cookies()[0]["value"]
    assert site.gateway.client(cookie).send("DELETE", "/api/session", Toban_Request="test").status == 204
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_role("heading", name="Log in to Toban")).to_be_visible()


def test_a_viewer_sees_no_buttons_that_change_anything(console: Callable[..., Any]) -> None:
    opened = console("/", role="viewer")
    known = {"Ctrl K", "Viewer", "Why?"}
    pages = ("workflows", "runs", "approvals", "schedules?view=subjects", "events", "dead_letters", "system")
    for path in ("/", *(f"/{each}" for each in pages)):
        opened.open(path)
        buttons = opened.page.get_by_role("main").get_by_role("button").all_inner_texts()
        assert [each for each in buttons if each not in known] == [], path
        assert opened.page.get_by_role("link", name="New workflow").count() == 0
    names = opened.page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert "Secrets" not in names
    # The server refuses anyway.
    answer = opened.page.request.post("/api/workflows/nightly-batch/run", data={}, headers={"Toban-Request": "test"})
    assert (answer.status, answer.json()["reason"]) == (403, "ROLE_REQUIRED")


def test_language_and_colours_change_at_once_and_stay(console: Callable[..., Any]) -> None:
    page = console("/runs").page
    page.get_by_role("button", name="Administrator").click()
    page.get_by_label("Language").select_option("ja")
    expect(page.get_by_role("heading", level=1)).to_have_text("実行履歴")
    assert page.locator("html").get_attribute("lang") == "ja"
    page.get_by_label("配色").select_option("dark")
    expect(page.locator("html")).to_have_css("background-color", "rgb(15, 19, 24)")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("実行履歴")
    expect(page.locator("html")).to_have_css("background-color", "rgb(15, 19, 24)")


def test_pages_workflows_and_runs_are_found_by_keyboard(console: Callable[..., Any], site: Site) -> None:
    page = console("/").page
    page.keyboard.press("Control+k")
    page.keyboard.type("dead")
    expect(page.get_by_role("option", name="Dead letters")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
    page.keyboard.press("Control+k")
    page.keyboard.type("在庫")
    expect(page.get_by_role("option", name="在庫の同期 sync-inventory")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type(site.ids["failed"][-12:])
    expect(page.get_by_role("option", name=re.compile("Export of invoices"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(site.ids["failed"]))


def test_the_console_of_a_checkout_is_built_once() -> None:
    """It was built before this test: nothing is said, and nothing is done."""
    program = "from toban.gateway.console_checkout import build_console; raise SystemExit(not build_console())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=170, check=False)
    assert (done.returncode, done.stderr) == (0, "")
