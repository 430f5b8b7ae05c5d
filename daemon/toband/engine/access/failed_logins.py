"""Failed logins: a source that presents one invalid credential after the other has to wait, longer each time.

Only time ends the wait: otherwise a caller with a valid credential could reset it and continue to guess.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

from toband.engine.errors import TooManyFailuresError

SOURCES_MOST = 10_000
"""Sources that are remembered; of more, the one that failed longest ago is forgotten."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
FORGOTTEN_AFTER = 900.0
"""Seconds without a failure after which the failures of a source are forgotten."""
_IPV6_NETWORK = 64


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class FailedLogins:
    """Belongs to the event loop. Times are of a monotonic clock. `free` failures have no consequences."""

    def __init__(self, free: int) -> None:
        self.free = free
        self._sources: OrderedDict[str, _Failures] = OrderedDict()

    def check(self, source: str, now: float) -> None:
        """Raises TooManyFailuresError while the source has to wait. Does not count as a failure."""
        found = self._sources.get(source)
        if found is not None and now < found.until:
            raise TooManyFailuresError(found.until - now)

    def failed(self, source: str, now: float) -> None:
        found = self._sources.pop(source, None)
        if found is None or now - found.last > FORGOTTEN_AFTER:
            found = _Failures()
        self._sources[source] = found
        found.count += 1
        found.last = now
        beyond = found.count - self.free
        if beyond > 0:
            found.until = now + min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(beyond - 1, 30))
        while len(self._sources) > SOURCES_MOST:
            self._sources.popitem(last=False)


def source_of(peer: str) -> str:
    """The source of a call from a peer as gRPC names it, such as `ipv4:10.0.0.7:4711`; empty for a local socket.

    A host with one address of IPv6 has a whole network of them.
    """
    space, _, rest = peer.partition(":")
    host = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]").partition("%")[0]
    if space == "ipv4":
        return host
    if space != "ipv6":
        return ""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_NETWORK), strict=False))
