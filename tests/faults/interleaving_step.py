"""A step that writes lines to both streams in turns: interleaving_step.py LINES GATE…

It stops before each gate, a FIFO, until a line can be read from it. `text` says what comes out.
"""

from __future__ import annotations

import os
import sys

BATCH = 200


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%07d %s\n" % (n, b"=" * (n * 7 % 41)) for n in range(first, first + count))


def batches(total: int) -> list[tuple[int, int]]:
    """Descriptor and first line of each write, in order."""
    return [(1 + first // BATCH % 2, first) for first in range(0, total, BATCH)]


def text(total: int) -> tuple[bytes, bytes]:
    streams: dict[int, list[bytes]] = {1: [], 2: []}
    for fd, first in batches(total):
        streams[fd].append(lines(first, BATCH))
    return b"".join(streams[1]), b"".join(streams[2])


def main() -> None:
    work = batches(int(sys.argv[1]))
    gates = sys.argv[2:]
    share = len(work) // (len(gates) + 1)
    for number, (fd, first) in enumerate(work):
        if gates and number and number % share == 0:
            with open(gates.pop(0)) as gate:
                gate.readline()
        data = lines(first, BATCH)
        while data:
            data = data[os.write(fd, data) :]


if __name__ == "__main__":
    main()
