"""A step that prints a lot to both streams and records it in the witness file: loud_step.py LINES.

Started as a program, with the standard library alone. The text depends on nothing but the attempt's token, so that a
checker can write the same; see `workload.loud_text`.
"""

from __future__ import annotations

import hashlib
import os
import sys

BLOCK = 500


def lines(token: str, stream: str, first: int, count: int) -> bytes:
    filler = "0123456789abcdef" * 8
    return b"".join(f"{token} {stream} {n:08} {filler[: n % 113]}\n".encode() for n in range(first, first + count))


def main() -> None:
    who = " ".join(os.environ[name] for name in ("TOBAN_RUN_ID", "TOBAN_STEP", "TOBAN_ATTEMPT_TOKEN"))
    token = os.environ["TOBAN_ATTEMPT_TOKEN"]
    note(f"B {who}")
    digests = (hashlib.sha256(), hashlib.sha256())
    for first in range(0, int(sys.argv[1]), BLOCK):
        for fd, stream, digest in ((1, "out", digests[0]), (2, "err", digests[1])):
            data = lines(token, stream, first, BLOCK)
            digest.update(data)
            while data:
                data = data[os.write(fd, data) :]
    note(f"E {who} 0 {digests[0].hexdigest()} {digests[1].hexdigest()}")


def note(line: str) -> None:
    fd = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


if __name__ == "__main__":
    main()
