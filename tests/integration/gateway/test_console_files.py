"""The files of the console as a browser gets them, from a directory that looks like a built one."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from helpers.gateway import Answer
from toban.gateway import console_files
from toban.gateway.request_guard import PAGE_POLICY, RequestGuard
from toban.gateway.web_site import web_site

SCRIPT = b"console.log(1)"


Browser = Callable[..., Awaitable[Answer]]


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Browser:
    built = tmp_path / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<!doctype html><title>Toban</title>")
    (built / "assets" / "index-1a2b.js").write_bytes(SCRIPT)
    (built / "assets" / "index-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr(console_files, "STATIC", built)
    app = Starlette(routes=[Route("/{path:path}", console_files.console_file, methods=["GET", "HEAD", "POST"])])
    guarded = RequestGuard(app, web_site("127.0.0.1", 7280, tls=False))

    async def ask(path: str, method: str = "GET", encoding: str = "identity") -> Answer:
        said: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            said.append(dict(message))

        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1:7280"), (b"accept-encoding", encoding.encode())],
        }
        await guarded(scope, receive, send)
        return Answer(
            status=said[0]["status"],
            headers={name.decode(): text.decode() for name, text in said[0]["headers"]},
            body=b"".join(each["body"] for each in said[1:]),
        )

    return ask


async def test_an_address_of_the_console_is_its_page(browser: Browser) -> None:
    for path in ("/", "/runs/01a1f5d2", "/login", "/index.html"):
        answer = await browser(path)
        assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache"), path
        assert answer.body.startswith(b"<!doctype html>")
        assert answer.headers["content-security-policy"] == PAGE_POLICY


async def test_files_whose_names_change_with_their_content_are_kept_for_good(browser: Browser) -> None:
    plain = await browser("/assets/index-1a2b.js")
    assert (plain.body, plain.headers.get("content-encoding")) == (SCRIPT, None)
    assert "immutable" in plain.headers["cache-control"]
    small = await browser("/assets/index-1a2b.js", encoding="gzip, deflate")
    assert (gzip.decompress(small.body), small.headers["content-encoding"]) == (SCRIPT, "gzip")
    assert small.headers["content-type"] == plain.headers["content-type"]
    assert small.headers["content-type"].startswith("text/javascript")
    assert small.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path", ["/../secret", "/%2e%2e/secret", "/assets/../../secret", "/assets/%2e%2e%2f%2e%2e%2fsecret", "/assets/x%00"]
)
async def test_nothing_outside_of_the_directory_is_read(browser: Browser, path: str) -> None:
    answer = await browser(path)
    assert b"secret" not in answer.body
    assert answer.status in (200, 404)


async def test_a_missing_file_is_no_page_and_nothing_can_be_posted(browser: Browser) -> None:
    assert (await browser("/assets/gone.js")).status == 404
    assert (await browser("/", "POST")).status == 405


async def test_without_a_console_a_page_says_how_to_build_it(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(console_files, "STATIC", tmp_path / "missing")
    answer = await browser("/")
    assert b"scripts/build-console" in answer.body
