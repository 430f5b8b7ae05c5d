"""Numbers for people."""

from __future__ import annotations


def size_text(size: int) -> str:
    """`512 B`, `1.5 KiB`, `200.0 MiB`; for people, not to be read back."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`, `3 directories`, `4 processes`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}es" if noun.endswith("s") else f"{number} {noun}s"
