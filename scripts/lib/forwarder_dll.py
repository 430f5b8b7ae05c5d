"""Writes a DLL for 64-bit Windows without code: each exported name forwards to a function of another DLL.

    forwarder_dll.py OUT.dll NAME=OTHER.FUNCTION…

Wine before 9 has no bcryptprimitives.dll, without which nothing that was built with a recent Rust is loaded there.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping

BASE = 0x1_8000_0000
HEADERS = 0x200
SECTION = 0x1000
FILE_ALIGNMENT = 0x200


def dll(name: str, forwarded: Mapping[str, str]) -> bytes:
    """The whole file: headers and one section with the export table."""
    exports = _exports(name, dict(sorted(forwarded.items())))
    raw_size = -(-len(exports) // FILE_ALIGNMENT) * FILE_ALIGNMENT
    dos = struct.pack("<2s58xI", b"MZ", 64)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, 240, 0x2022)
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII",
        0x20B,
        14,
        0,
        0,
        raw_size,
        0,
        0,
        SECTION,
        BASE,
        SECTION,
        FILE_ALIGNMENT,
        6,
        0,
        0,
        0,
        6,
        0,
        0,
        2 * SECTION,
        HEADERS,
        0,
        3,
        0x160,
        1 << 20,
        1 << 12,
        1 << 20,
        1 << 12,
        0,
        16,
    )
    directories = struct.pack("<II", SECTION, len(exports)).ljust(16 * 8, b"\0")
    section = struct.pack(
        "<8sIIIIIIHHI",
        b".rdata",
        len(exports),
        SECTION,
        raw_size,
        HEADERS,
        0,
        0,
        0,
        0,
        0x40000040,
    )
    headers = (dos + coff + optional + directories + section).ljust(HEADERS, b"\0")
    return headers + exports.ljust(raw_size, b"\0")


def _exports(name: str, forwarded: Mapping[str, str]) -> bytes:
    count = len(forwarded)
    functions = SECTION + 40
    names = functions + 4 * count
    ordinals = names + 4 * count
    texts = bytearray()

    def place(text: str) -> int:
        at = ordinals + 2 * count + len(texts)
        texts.extend(text.encode() + b"\0")
        return at

    own = place(name)
    # An address within this table is the text of a name in another DLL.
    targets = [place(target) for target in forwarded.values()]
    exported = [place(export) for export in forwarded]
    head = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, own, 1, count, count, functions, names, ordinals)
    return head + struct.pack(f"<{count}I{count}I{count}H", *targets, *exported, *range(count)) + bytes(texts)


if __name__ == "__main__":
    path, *pairs = sys.argv[1:]
    with open(path, "wb") as file:
        file.write(dll(os.path.basename(path), dict(pair.split("=", 1) for pair in pairs)))
