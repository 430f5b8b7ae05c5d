"""Open streams, and calls whose request has not come, by credential: the end of a credential ends them."""

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
        if not credential:
            yield
            return
        self._next += 1
        number = self._next
        self._ends[credential][number] = end
        try:
            yield
        finally:
            ends = self._ends.get(credential)
            if ends is not None:
                ends.pop(number, None)
                if not ends:
                    del self._ends[credential]

    def credentials(self) -> list[str]:
        """Those with open streams."""
        return list(self._ends)

    def end(self, credential: str, error: InvalidCredentialError) -> None:
        """Ends the streams that were opened with the credential."""
        for each in list(self._ends.pop(credential, {}).values()):
            each(error)
