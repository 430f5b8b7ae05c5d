"""Replaces secrets by `***`, in whole texts and in streams that arrive in chunks of any size.

Every byte that belongs to an occurrence of a form of a secret (see `secret_forms`) is covered, and every run of covered
bytes is replaced by one `***`. In a stream, an end that may be the beginning of a form is held back until more arrives,
for as long as that takes: what is written cannot be taken back. The result therefore does not depend on the
chunks.

Programs that encode break their output into lines, such as `base64` after 76 characters. Wherever so long a line of
encoded text ends, the search also sees the text without the break.

A search looks at pairs of bytes. It reads the data as UTF-16, so that the regular expression engine compares pairs with
sets of pairs: all the forms at once, at hundreds of megabytes per second. Only where several pairs in a row agree is
a form compared.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from toband.secret_forms import forms_of

MASK = b"***"
_LEAST_AT_END = 6
"""Bytes. If a stream ends with at least so much of the beginning of a form, that is masked too."""
# Pairs in a row, for forms of at least 2n + 1 bytes: one of the two alignments has n whole pairs.
_PAIRS = (7, 4, 2)
_HEAD = 4
# No byte may look like a surrogate of UTF-16. That two bytes look the same only costs a comparison.
_SEVEN_BITS = bytes(byte & 0x7F for byte in range(256))
_WRAPPED = 48
"""Characters of base64 or hexadecimal digits before a line break that may be within an encoded secret."""
_BREAK = re.compile(rb"\n(?<=[A-Za-z0-9+/_-]{47}[A-Za-z0-9+/_\r-]\n)")
_HALF_A_BREAK = re.compile(rb"[A-Za-z0-9+/_-]{47}\r\Z")

Span = tuple[int, int]


class _Search(NamedTuple):
    """For forms of a certain length and more."""

    width: int
    """Bytes at a candidate that decide whether a form is compared."""
    pairs: re.Pattern[str]
    forms: dict[bytes, list[tuple[int, bytes]]]
    """By those bytes: forms, and how many bytes earlier they begin."""


class Masker:
    """Knows the values of some secrets. Immutable; threads may share it."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in forms_of(value)}
        self._searches = _searches(forms)
        self._longest = max(map(len, forms), default=0)
        self._across_lines = any(b"\n" in form for form in forms)
        self._heads: dict[bytes, list[bytes]] = defaultdict(list)
        self._short_heads: set[bytes] = set()
        for form in sorted(forms):
            self._heads[form[:_HEAD]].append(form)
            self._short_heads.update(form[:size] for size in range(1, _HEAD))

    def __repr__(self) -> str:
        return f"Masker({sum(map(len, self._heads.values()))} forms)"

    def mask(self, data: bytes) -> bytes:
        spans = self.spans(data, line_breaks(data))
        if not spans:
            return data
        parts: list[bytes] = []
        end = 0
        for start, stop in spans:
            parts += (data[end:start], MASK)
            end = stop
        return b"".join((*parts, data[end:]))

    def mask_text(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        masked = self.mask(data)
        return text if masked is data else masked.decode(errors="replace")

    def mask_value(self, value: Any) -> Any:
        """A value of JSON, its strings and names masked. A number that is a secret becomes a string."""
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, dict):
            return {self.mask_text(str(name)): self.mask_value(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mask_value(each) for each in value]
        if value is None or isinstance(value, bool):
            return value
        text = str(value)
        masked = self.mask_text(text)
        return value if masked == text else masked

    def stream(self) -> MaskedStream:
        return MaskedStream(self)

    def spans(self, data: bytes, breaks: Sequence[Span]) -> list[Span]:
        """All covered runs, in order. Runs that touch are one. `breaks` are those of `line_breaks`."""
        found = list(self._occurrences(data))
        if breaks:
            whole = _Unwrapped(data, breaks)
            found += [(whole.place(start), whole.place(stop - 1) + 1) for start, stop in self._occurrences(whole.text)]
        return merged(found) if found else found

    def _occurrences(self, data: bytes) -> Iterator[Span]:
        text = data.translate(_SEVEN_BITS)[: len(data) & ~1].decode("utf-16-le")
        for width, pairs, forms in self._searches:
            for match in pairs.finditer(text):
                at = match.start() * 2
                for earlier, form in forms.get(data[at : at + width], ()):
                    start = at - earlier
                    if start >= 0 and data.startswith(form, start):
                        yield start, start + len(form)

    def partial(self, data: bytes, breaks: Sequence[Span]) -> int:
        """Where the first end of the data begins that is the beginning of a form and not a whole one; else its size."""
        first = self._partial(data)
        if breaks:
            whole = _Unwrapped(data, breaks)
            at = self._partial(whole.text)
            if at < len(whole.text):
                first = min(first, whole.place(at))
        return first

    def _partial(self, data: bytes) -> int:
        size = len(data)
        first = max(0, size - self._longest + 1)
        if not self._across_lines:
            first = max(first, data.rfind(b"\n", first) + 1)
        for start in range(first, size - _HEAD + 1):
            forms = self._heads.get(data[start : start + _HEAD])
            if forms is not None:
                end = data[start:]
                if any(len(form) > size - start and form.startswith(end) for form in forms):
                    return start
        for start in range(max(first, size - _HEAD + 1), size):
            if data[start:] in self._short_heads:
                return start
        return size


class MaskedStream:
    """One stream of output."""

    __slots__ = ("_before", "_held", "_lead", "_masker", "_run")

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._before = b""
        """The last bytes before those held: they tell whether a line break is within encoded text."""
        self._held = b""
        self._lead = 0
        """How many of the bytes held are covered by an occurrence that began before them."""
        self._run = False
        """The last thing written was a mask, which covers what directly follows too."""

    def feed(self, data: bytes) -> bytes:
        """What can be written now."""
        if self._held:
            data = self._held + data
        breaks = line_breaks(data, self._before)
        stop = self._masker.partial(data, breaks)
        return self._written(data, self._spans(data, breaks), stop)

    def end(self) -> bytes:
        """The rest. An end that is most of a secret, because its writer was killed, is masked."""
        data = self._held
        breaks = line_breaks(data, self._before)
        spans = self._spans(data, breaks)
        if len(data) >= _LEAST_AT_END:
            spans = merged([*spans, (self._masker.partial(data, breaks), len(data))])
        return self._written(data, spans, len(data))

    def _spans(self, data: bytes, breaks: Sequence[Span]) -> list[Span]:
        spans = self._masker.spans(data, breaks)
        return merged([(0, self._lead), *spans]) if self._lead else spans

    def _written(self, data: bytes, spans: list[Span], stop: int) -> bytes:
        self._held = data[stop:]
        if stop == 0:
            return b""
        self._before = data[stop - _WRAPPED : stop] if stop >= _WRAPPED else (self._before + data[:stop])[-_WRAPPED:]
        self._lead = 0
        if not spans and stop == len(data):
            self._run = False
            return data
        parts: list[bytes] = []
        end = 0
        for start, after in spans:
            if start >= stop:
                break
            if start > end:
                parts.append(data[end:start])
                self._run = False
            if not self._run:
                parts.append(MASK)
                self._run = True
            end = min(after, stop)
            self._lead = max(0, after - stop)
        if end < stop:
            parts.append(data[end:stop])
            self._run = False
        return b"".join(parts)


class _Unwrapped:
    """Data without some line breaks."""

    def __init__(self, data: bytes, breaks: Sequence[Span]) -> None:
        parts: list[bytes] = []
        self._breaks: list[int] = []
        """Their places in the text."""
        self._removed: list[int] = []
        """How many bytes before each of these places are not in the text."""
        end = removed = 0
        for start, stop in breaks:
            parts.append(data[end:start])
            self._breaks.append(start - removed)
            removed += stop - start
            self._removed.append(removed)
            end = stop
        self.text = b"".join((*parts, data[end:]))

    def place(self, at: int) -> int:
        """Where a byte of the text is in the data."""
        before = bisect_right(self._breaks, at)
        return at + (self._removed[before - 1] if before else 0)


def line_breaks(data: bytes, before: bytes = b"") -> list[Span]:
    """Line breaks that may be within encoded text, and an end that may be the first half of one. `before` precedes the
    data."""
    text, size = before + data, len(before)
    found = []
    for match in _BREAK.finditer(text, size):
        at = match.start()
        found.append((max(0, at - (text[at - 1 : at] == b"\r") - size), at + 1 - size))
    if text.endswith(b"\r") and data and _HALF_A_BREAK.search(text, max(0, len(text) - _WRAPPED)):
        found.append((len(data) - 1, len(data)))
    return found


def merged(spans: Iterable[Span]) -> list[Span]:
    """In order, with those that overlap or touch as one."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        elif start < stop:
            found.append((start, stop))
    return found


def _searches(forms: Iterable[bytes]) -> list[_Search]:
    by_count: dict[int, list[bytes]] = defaultdict(list)
    for form in sorted(forms):
        by_count[next(count for count in _PAIRS if len(form) > 2 * count)].append(form)
    return [_search(count, group) for count, group in by_count.items()]


def _search(count: int, forms: list[bytes]) -> _Search:
    sets: list[set[int]] = [set() for _ in range(count)]
    known: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    for form in forms:
        for earlier in (0, 1):
            window = form[earlier : earlier + 2 * count]
            known[window].append((earlier, form))
            seven = window.translate(_SEVEN_BITS)
            for place, pairs in enumerate(sets):
                pairs.add(seven[2 * place] | seven[2 * place + 1] << 8)
    classes = ["[" + "".join(f"\\u{pair:04x}" for pair in sorted(pairs)) + "]" for pairs in sets]
    return _Search(2 * count, re.compile(f"{classes[0]}(?={''.join(classes[1:])})"), known)
