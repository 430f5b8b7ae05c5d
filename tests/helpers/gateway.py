"""A real gateway, `toban web`, before a real daemon; and clients that speak HTTP with it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

WITHIN = 60.0
_CODE = re.compile(r"#code=([\w-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Of a refusal."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        found = self.data
        assert found["status"] == self.status
        return str(found["reason"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEvent:
    """A server-sent event."""

    name: str
    id: str
    data: Any


@dataclass(slots=True)
class HttpClient:
    """Sends its headers with each request."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send("POST", path, body, **headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A body is JSON, or text of YAML. Names of headers have `_` for `-`."""
        connection, response = self._open(method, path, body, headers)
        try:
            content = response.read()
        finally:
            connection.close()
        answered: dict[str, str] = {}
        for name, text in response.getheaders():
            key = name.lower()
            answered[key] = f"{answered[key]}, {text}" if key in answered else text
        return Answer(status=response.status, headers=answered, body=content)

    def events(self, path: str, **headers: str) -> Iterator[SentEvent]:
        """The events of a stream, until it ends or is closed."""
        connection, response = self._open("GET", path, None, headers)
        try:
            assert response.status == 200, response.read()
            assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
            found: dict[str, str] = {}
            for line in response:
                name, _, text = line.decode().rstrip("\n").partition(": ")
                if name:
                    found[name] = text
                elif "data" in found:
                    yield SentEvent(
                        name=found.get("event", "message"), id=found.get("id", ""), data=json.loads(found["data"])
                    )
                    found = {}
                else:
                    found = {}
        finally:
            connection.close()

    def _open(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WITHIN)
        sent = {**self.headers, **{name.replace("_", "-"): text for name, text in headers.items()}}
        content: bytes | None = None
        if isinstance(body, str):
            sent.setdefault("Content-Type", "application/yaml")
            content = body.encode()
        elif isinstance(body, bytes):
            content = body
        elif body is not None:
            sent.setdefault("Content-Type", "application/json")
            content = json.dumps(body).encode()
        connection.request(method, path, content, sent)
        return connection, connection.getresponse()


class Gateway:
    """The program; `url` is what it printed."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self._said: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def code(self) -> str:
        """The code of the link that it printed at its start."""
        with self._news:
            found = self._news.wait_for(lambda: _CODE.search(self.said), WITHIN)
            assert found, self.said
            return found[1]

    @property
    def said(self) -> str:
        """Its standard error so far."""
        return "".join(self._said)

    def client(self, token: str = "") -> HttpClient:
        return HttpClient(self.url, {"Authorization": f"Bearer {token}"} if token else {})

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self._said.append(line)
                self._news.notify_all()


@contextmanager
def running_gateway(
    socket: str,
    *arguments: str,
    program: Sequence[str] = (sys.executable, "-m", "toban.cli"),
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[Gateway]:
    """Serves the daemon at an address such as `unix:///…`; at the end it is gone."""
    command = [*program, "--server", socket, "web", "--listen", "127.0.0.1:0", "--no-build"]
    process = subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        cwd=directory,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http"), process.communicate(timeout=WITHIN)
        yield Gateway(process, url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
