"""A step that emits the next event of a chain, once, whether there is a daemon just now or not: TYPE HOPS KEY."""

from __future__ import annotations

import sys
import time

from toban.sdk import SyncClient, TobanError

WITHIN = 90.0


def main(event_type: str, hops: str, key: str) -> None:
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            with SyncClient() as toban:
                toban.emit_event(event_type, {"hops": int(hops)}, dedupe_key=key)
            return
        except TobanError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
