"""Streams, calls without a complete request, and sessions: they end with their credential."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toband.engine.errors import InvalidCredentialError

End = Callable[[InvalidCredentialError], None]


class LiveStreams:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._ends: defaultdict[str, dict[int, End]] = defaultdict(dict)
        self._next = 0

    @contextmanager
    def open(self, credential: str, end: End) -> Iterator[None]:
        """While the context lasts, the end of the credential calls `end` once. An empty credential never ends."""
        close = self.watch(credential, end)
        try:
            yield
        finally:
            close()

    def watch(self, credential: str, end: End) -> Callable[[], None]:
        """The end of the credential calls `end` once, until the returned function is called."""
        if not credential:
            return lambda: None
        self._next += 1
        number = self._next
        self._ends[credential][number] = end

        def close() -> None:
            ends = self._ends.get(credential)
            if ends is not None:
                ends.pop(number, None)
                if not ends:
                    del self._ends[credential]

        return close

    def credentials(self) -> list[str]:
        """Those that something depends on."""
        return list(self._ends)

    def end(self, credential: str, error: InvalidCredentialError) -> None:
        """Ends everything that depends on the credential."""
        for each in list(self._ends.pop(credential, {}).values()):
            each(error)
