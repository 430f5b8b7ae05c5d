"""A step that shows how long it lives: heartbeat_step.py FIFO. Deaf to TERM; a line of monotonic time every 20 ms.

The monotonic clock is one for all processes, and does not jump.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fd = os.open(sys.argv[1], os.O_WRONLY)
    while True:
        os.write(fd, f"{time.monotonic()}\n".encode())
        time.sleep(0.02)


if __name__ == "__main__":
    main()
