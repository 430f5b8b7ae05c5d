"""Every page, in both languages, light and dark, on a desktop and on a phone: it has its title, axe finds nothing, and
nothing is wider than the window.

scripts/gen-screenshots saves each page as a picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helpers.browser import DESKTOP, PHONE, Site

SMALLEST = (360, 740)

# Name of the picture, path, title in English and in Japanese.
PAGES = [
    ("overview", "/", "Overview", "概要"),
    ("workflows", "/workflows", "Workflows", "ワークフロー管理"),
    ("workflow", "/workflows/nightly-batch", "夜間バッチ", "夜間バッチ"),
    ("workflow-schedule", "/workflows/nightly-batch?tab=schedule", "夜間バッチ", "夜間バッチ"),
    ("workflow-versions", "/workflows/web-deploy?tab=versions", "Deploy the web site", "Deploy the web site"),
    ("editor-new", "/workflows/new", "New workflow", "ワークフロー新規作成"),
    ("editor", "/workflows/web-deploy/edit", "Edit Deploy the web site", "Deploy the web siteを編集"),
    ("runs", "/runs", "Runs", "実行履歴"),
    ("run", "/runs/{failed}", "Export of invoices #2", "Export of invoices #2"),
    ("run-timeline", "/runs/{succeeded}?tab=timeline", "夜間バッチ #4", "夜間バッチ #4"),
    ("run-log", "/runs/{failed}?tab=log", "Export of invoices #2", "Export of invoices #2"),
    ("approvals", "/approvals", "Approvals", "承認"),
    ("schedules", "/schedules", "Schedules", "スケジュール"),
    ("schedules-by-subject", "/schedules?view=subjects", "Schedules", "スケジュール"),
    ("schedules-ledger", "/schedules?view=ledger", "Schedules", "スケジュール"),
    ("events", "/events", "Events", "イベント"),
    ("event", "/events/{event}", "IMAGE_UPLOADED", "IMAGE_UPLOADED"),
    ("dead-letters", "/dead_letters", "Dead letters", "デッドレター"),
    ("jobs", "/jobs", "Jobs", "ジョブ"),
    ("job", "/jobs/notify", "Tell the team", "Tell the team"),
    ("secrets", "/secrets", "Secrets", "シークレット"),
    ("access", "/access", "Access and audit", "アクセスと監査"),
    ("access-sessions", "/access?view=sessions", "Access and audit", "アクセスと監査"),
    ("access-tokens", "/access?view=tokens", "Access and audit", "アクセスと監査"),
    ("access-audit", "/access?view=audit", "Access and audit", "アクセスと監査"),
    ("system", "/system", "System", "システム"),
    ("not-found", "/nowhere", "There is no such page", "ページが見つかりません"),
]
LOOKS = {
    "en-light-desktop": {"language": "en", "dark": False, "size": DESKTOP},
    "ja-dark-phone": {"language": "ja", "dark": True, "size": PHONE},
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_accessible_and_fits(console: Callable[..., Any], site: Site, look: str) -> None:
    opened = console("/", **LOOKS[look])
    for name, path, english, japanese in PAGES:
        opened.open(path.format(**site.ids))
        title = english if look.startswith("en") else japanese
        assert opened.page.get_by_role("heading", level=1).inner_text() == title, path
        opened.check()
        opened.save_picture(f"{name}-{look}")


@pytest.mark.parametrize("look", LOOKS)
def test_the_login_page_is_accessible_and_fits(console: Callable[..., Any], look: str) -> None:
    opened = console("/login", role="", expected={401}, **LOOKS[look])
    opened.check()
    opened.save_picture(f"login-{look}")


def test_pages_fit_the_smallest_window(console: Callable[..., Any], site: Site) -> None:
    opened = console("/", size=SMALLEST)
    for _, path, *_ in PAGES:
        opened.open(path.format(**site.ids))
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") <= SMALLEST[0], path
