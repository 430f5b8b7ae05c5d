"""Chromium before a real gateway: pages that are logged in, and a guard that notes what a page may not do."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Page, Request, Response, expect, sync_playwright

from helpers.daemon import Daemon
from helpers.gateway import Gateway

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or ""
AXE = ROOT / "client/console/node_modules/axe-core/axe.min.js"
WITHIN_MS = 20_000
expect.set_options(timeout=WITHIN_MS)
PHONE = (390, 844)
DESKTOP = (1440, 900)

# Pictures for the documentation are written into this directory if it is set: see scripts/gen-screenshots.
PICTURES = os.environ.get("TOBAN_TEST_SCREENSHOTS", "")

# Of a browser that asks for nothing outside of this machine.
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
]
# WCAG 2.2 AA, and what axe calls best practice.
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The browser's own line for each refused request; the tests that provoke one name the answer.
_ANSWER = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A daemon with sample data behind a gateway. `ids` are those of sample_data.fill, `tokens` one for each role."""

    daemon: Daemon
    gateway: Gateway
    directory: Path
    tokens: Mapping[str, str]
    ids: Mapping[str, str]


@dataclass
class Console:
    """A page of the console, and what it did that it may not do. Without slots: playwright notes its handlers in it."""

    page: Page
    origin: str
    # Statuses that the test provokes; 0 for no answer at all.
    expected: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_error)
        self.page.on("request", self._on_request)
        self.page.on("response", self._on_response)

    def open(self, path: str) -> None:
        """Goes to a page, and waits until it has its heading and nothing is loading."""
        self.page.goto(path)
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        self.settle()

    def settle(self) -> None:
        """Waits until what is in view has been loaded."""
        expect(self.page.locator(".loading")).to_have_count(0)

    def check(self) -> None:
        """Fails if axe finds anything, or if the page is wider than the window."""
        assert violations(self.page) == []
        wide, window = self.page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window, f"the page is {wide} wide, the window {window}"

    def save_picture(self, name: str) -> None:
        """For the documentation, if pictures were asked for: not much longer than a window."""
        if not PICTURES:
            return
        assert self.page.viewport_size is not None
        width, window = self.page.viewport_size["width"], self.page.viewport_size["height"]
        height = min(self.page.evaluate("() => document.documentElement.scrollHeight"), window + 300)
        area: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
        self.page.screenshot(path=Path(PICTURES, f"{name}.png"), full_page=True, clip=area)

    def _on_error(self, error: object) -> None:
        self.wrong.append(f"error: {error}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        answer = _ANSWER.search(message.text)
        if answer and int(answer[1]) in self.expected:
            return
        if "net::ERR_" in message.text and 0 in self.expected:
            return
        self.wrong.append(f"console: {message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.wrong.append(f"request to another place: {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.request.resource_type == "document":
            policy = response.headers.get("content-security-policy", "")
            if "default-src 'self'" not in policy or "unsafe" in policy:
                self.wrong.append(f"content security policy: {policy!r}")


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened_console(
    browser: Browser,
    url: str,
    token: str = "",
    *,
    language: str = "en",
    dark: bool = False,
    size: tuple[int, int] = DESKTOP,
    expected: Set[int] = frozenset(),
) -> Iterator[Console]:
    """A page of a browser profile of its own, logged in with a token if there is one."""
    context = browser.new_context(
        base_url=url,
        locale={"en": "en-GB", "ja": "ja-JP"}[language],
        timezone_id="Asia/Tokyo",
        color_scheme="dark" if dark else "light",
        viewport={"width": size[0], "height": size[1]},
        reduced_motion="reduce",
    )
    try:
        if token:
            answer = context.request.post("/api/session", data={"token": token}, headers={"Toban-Request": "test"})
            assert answer.status == 201, answer.text()
        page = context.new_page()
        page.set_default_timeout(WITHIN_MS)
        yield Console(page, url, set(expected))
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """What axe finds on the page: the rule, and the elements."""
    # Not a script of the page: its policy allows no text as a script.
    page.evaluate(AXE.read_text("utf-8"))
    result: dict[str, Any] = page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']})", _RULES
    )
    return [
        f"{each['id']}: {each['help']}: {'; '.join(str(node['html'])[:200] for node in each['nodes'][:4])}"
        for each in result["violations"]
    ]
