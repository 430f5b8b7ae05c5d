"""The difference between two texts of a definition, as people read it: unified, and of bounded size and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

DIFF_MOST = 16_000
"""Characters of a difference; the middle of a longer one is left out."""
_CONTEXT = 3
_COMPARED = 400
"""Lines that are matched with each other. Matching takes quadratic time: longer blocks are shown as replaced."""


def definition_diff(old: str, new: str) -> str:
    """The difference; empty if the lines are equal."""
    return elided("\n".join(_hunks(old.splitlines(), new.splitlines())), DIFF_MOST)


def elided(text: str, most: int) -> str:
    """The text with its middle left out, and a note there, if it has more than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    same = _common(old, new)
    first = max(0, same - _CONTEXT)
    tail = _common(old[same:][::-1], new[same:][::-1])
    left = max(0, tail - _CONTEXT)
    before, after = old[first : len(old) - left], new[first : len(new) - left]
    for group in _groups(before, after, same - first, tail - left):
        a, b, c, d = group[0][1], group[-1][2], group[0][3], group[-1][4]
        yield f"@@ -{_range(first + a, b - a)} +{_range(first + c, d - c)} @@"
        for kind, low, high, into, end in group:
            if kind == "equal":
                yield from (f" {line}" for line in before[low:high])
                continue
            yield from (f"-{line}" for line in before[low:high])
            yield from (f"+{line}" for line in after[into:end])


_Operation = tuple[str, int, int, int, int]


def _groups(old: Sequence[str], new: Sequence[str], head: int, tail: int) -> Iterator[Sequence[_Operation]]:
    """Operations on the lines, in groups with some equal lines around each; `head` and `tail` lines are equal."""
    if max(len(old), len(new)) <= _COMPARED:
        yield from SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT)
        return
    a, b = len(old) - tail, len(new) - tail
    yield [
        ("equal", 0, head, 0, head),
        ("replace", head, a, head, b),
        ("equal", a, len(old), b, len(new)),
    ]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for line, also in zip(one, other, strict=False):
        if line != also:
            break
        count += 1
    return count


def _range(start: int, count: int) -> str:
    """As `diff -u` writes it: counted from 1, or the line before an empty range."""
    return f"{start + 1 if count else start},{count}"
