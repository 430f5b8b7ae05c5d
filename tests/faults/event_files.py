"""Files that appear in a watched directory, and the events about them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from faults.event_outcome import Outcome, events_of, payload_of, shown
from faults.listeners import FILE_CHANGED, WATCHING
from helpers.daemon import Daemon
from helpers.wait import wait_until

_ATTEMPTS = 10
_SOON = 3.0
_QUIET = 3


class Inbox:
    """Files come into it whole, each with a name of its own, and stay. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Neither it nor what is beside it need exist yet."""
        self.path = path
        self.came: dict[str, float] = {}
        """When, by path."""
        self.watched: list[str] = []
        """Those that came while the directory was known to be watched, and nobody was killed."""

    def make(self) -> None:
        self.path.mkdir()
        self._aside.mkdir()

    @property
    def _aside(self) -> Path:
        return self.path.with_name("aside")

    def put(self) -> str:
        """Its path."""
        name = f"file-{len(self.came)}"
        aside, path = self._aside / name, self.path / name
        aside.write_text(name)
        self.came[str(path)] = time.time()
        aside.rename(path)
        return str(path)

    def put_quietly(self, daemon: Daemon) -> None:
        """A few while the daemon lives and goes on living. The last is told when those before it have been."""
        for _ in range(_ATTEMPTS):
            try:
                # What comes before the directory is watched again is told to nobody.
                self._wait_told(daemon, [self.put()], _SOON)
                break
            except AssertionError:
                continue
        self.watched = [self.put() for _ in range(_QUIET)]
        self._wait_told(daemon, self.watched)
        self.watched.append(self.put())
        self._wait_told(daemon, self.watched)

    def _wait_told(self, daemon: Daemon, paths: list[str], within: float = 30.0) -> None:
        def told() -> bool:
            found = {payload_of(event)["path"] for event in events_of(daemon, FILE_CHANGED)}
            return found.issuperset(paths)

        wait_until(told, f"files are not told: {paths}", within)


def check_files(inbox: Inbox, outcome: Outcome) -> Iterator[str]:
    """Each reported change happened, and is reported once; each change of a watched path is reported."""
    told: Counter[str] = Counter()
    for event in outcome.of(FILE_CHANGED):
        payload = payload_of(event)
        told[payload["path"]] += 1
        came = inbox.came.get(payload["path"])
        if came is None or event.emitted_at.ToMicroseconds() / 1e6 < came:
            yield f"{shown(event)} tells of what did not happen"
        facts = (payload["change"], payload["workflow"], payload["watch"], payload.get("more"))
        if facts != ("added", WATCHING, str(inbox.path), None):
            yield f"{shown(event)} tells it wrong"
    yield from (f"{path} is told {count} times" for path, count in told.items() if count > 1)
    yield from (f"{path} came and is not told" for path in inbox.watched if not told[path])
