"""The masker: every form of a secret, however the output is cut into chunks; compared with a naive reference."""

from __future__ import annotations

import base64
import html
import json
import random
import shlex
import time
import urllib.parse
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toband.masker import MASK, Masker
from toband.secret_forms import LONGEST, forms_of

PASSWORD = "pä/s+w? \"o'r&d\\<$>~*"
KEY = "-----BEGIN KEY-----\nTUlJRXZRSUJBREFOQmdrcWhraUc5dzBCQVFFRkFB\nabc\nc2VjcmV0IQ==\n-----END KEY-----\n"
LONG = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1000))


def reference(values: Sequence[str], data: bytes, *, stream: bool = False) -> bytes:
    """Marks every byte of every form, position by position."""
    forms = {form for value in values for form in forms_of(value)}
    covered = [False] * len(data)
    for start in range(len(data)):
        for form in forms:
            if data[start : start + len(form)] == form:
                covered[start : start + len(form)] = [True] * len(form)
    if stream:
        begun = [
            at for at in range(len(data)) if any(len(f) > len(data) - at and f.startswith(data[at:]) for f in forms)
        ]
        if begun and len(data) - begun[0] >= 6:
            covered[begun[0] :] = [True] * (len(data) - begun[0])
    out = bytearray()
    for at, byte in enumerate(data):
        if not covered[at]:
            out.append(byte)
        elif at == 0 or not covered[at - 1]:
            out += MASK
    return bytes(out)


def streamed(values: Sequence[str], chunks: Sequence[bytes]) -> bytes:
    stream = Masker(values).stream()
    return b"".join([*map(stream.feed, chunks), stream.end()])


def written_as(value: str) -> Iterator[str]:
    """How programs write a value. None of it comes from the code that is tested."""
    raw = value.encode()
    yield value
    for around in ("", "a", "ab", "abc"):
        for text in (f"{around}{value}", f"{around}{value}{around}"):
            yield base64.b64encode(text.encode()).decode()
            yield base64.urlsafe_b64encode(text.encode()).decode()
            yield urllib.parse.quote(base64.b64encode(text.encode()))
    yield from (raw.hex(), raw.hex().upper())
    for safe in ("", "/", "!'()*", ";,/?:@&=+$#!'()*"):
        quoted = urllib.parse.quote(value, safe=safe)
        yield from (quoted, quoted.replace("%20", "+"))
        yield "".join(part.lower() if at % 2 else part for at, part in enumerate(_split_escapes(quoted)))
    yield urllib.parse.quote_plus(value)
    for ascii_only in (False, True):
        text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield from (
            text,
            text.replace("/", "\\/"),
            text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        )
        yield json.dumps(json.dumps(value, ensure_ascii=ascii_only), ensure_ascii=ascii_only)[3:-3]
    yield shlex.quote(value)
    yield "'" + value.replace("'", "'\\''") + "'"
    yield from (repr(value)[1:-1], ascii(value)[1:-1], repr(raw)[2:-1])
    yield from (html.escape(value), html.escape(value, quote=False))


def _split_escapes(quoted: str) -> list[str]:
    """Escapes at odd places."""
    parts = [""]
    rest = quoted
    while "%" in rest:
        before, _, after = rest.partition("%")
        parts[-1] += before
        parts += [f"%{after[:2]}", ""]
        rest = after[2:]
    parts[-1] += rest
    return parts


@pytest.mark.parametrize(
    "value", ["hunter2secret", PASSWORD, "日本語のパスワード", "tab\tand\x1bescape", "1234567", LONG]
)
def test_however_a_secret_is_written(value: str) -> None:
    masker = Masker([value])
    bare = value.strip()
    pieces = {form.decode(errors="replace") for form in forms_of(value)}
    for written in written_as(value):
        shown = masker.mask(f"before {written} after".encode()).decode()
        assert "***" in shown, written
        assert bare not in shown
        assert not any(piece in shown for piece in pieces), written
        # At the ends of base64 there are characters in which a secret shares bits with its neighbours.
        assert len(shown.replace("***", "").replace("before", "").replace("after", "")) < 20, (written, shown)


@pytest.mark.parametrize("value", ["hunter2secret", PASSWORD, KEY, LONG[:300]])
def test_encoded_text_in_lines(value: str) -> None:
    """As base64, openssl and xxd print it, with anything before and after it, in any chunks."""
    masker = Masker([value])
    for before, width, end in ((0, 76, b"\n"), (1, 64, b"\n"), (33, 76, b"\r\n"), (44, 64, b"\r\n"), (56, 60, b"\n")):
        raw = random.Random(before).randbytes(before) + value.encode() + b"after"
        for whole in (base64.b64encode(raw), raw.hex().encode()):
            lines = [whole[at : at + width] for at in range(0, len(whole), width)]
            written = b"key: " + end.join(lines) + end
            stream, size = masker.stream(), 1 + before % 7
            chunks = [written[at : at + size] for at in range(0, len(written), size)]
            shown = b"".join([*map(stream.feed, chunks), stream.end()])
            assert shown == masker.mask(written)
            assert MASK in shown
            # What does not encode it, the characters in which it shares bits with its neighbours, and short lines.
            rest = len(whole) * (before + 5) // len(raw) + 8 + 2 * len("abc" if value == KEY else "")
            assert len(shown.replace(MASK, b"").removeprefix(b"key: ").replace(end, b"")) <= rest, shown


def test_a_short_line_is_shown_at_once() -> None:
    stream = Masker(["hunter2secret"]).stream()
    assert stream.feed(b"the end is h\n") == b"the end is h\n"


def test_lines_of_a_secret() -> None:
    masker = Masker([KEY])
    for line in ("TUlJRXZRSUJBREFOQmdrcWhraUc5dzBCQVFFRkFB", "c2VjcmV0IQ=="):
        assert masker.mask(f"> {line}\r\n".encode()) == b"> ***\r\n"
    assert masker.mask(b"abc") == b"abc"
    assert masker.mask(f"[{KEY.strip()}]".encode()) == b"[***]"
    assert masker.mask(KEY.replace("\n", "\r\n").encode()) == b"***\r\n"
    assert b"abc" not in masker.mask(json.dumps(KEY).encode())
    indented = "".join(f"    {line}\n" for line in KEY.splitlines())
    assert masker.mask(indented.encode()) == b"    ***\n    ***\n    abc\n    ***\n    ***\n"


def test_short_texts_are_no_secrets() -> None:
    assert Masker(["", "12345", "a\nb\n"]).mask(b"12345 a\nb\n") == b"12345 a\nb\n"


def test_values() -> None:
    masker = Masker(["123456", PASSWORD])
    value = {PASSWORD: [1, 123456, True, None, "x"], "b": {"c": f"is {PASSWORD}!"}, "d": 0.5}
    assert masker.mask_value(value) == {"***": [1, "***", True, None, "x"], "b": {"c": "is ***!"}, "d": 0.5}
    assert json.loads(json.dumps(masker.mask_value(value)))
    assert "123456" not in repr(masker)


@pytest.mark.parametrize("value", ["hunter2secret", PASSWORD, KEY, LONG])
def test_two_writes_split_at_every_byte(value: str) -> None:
    for written in (value.encode(), base64.b64encode(value.encode()), json.dumps(value).encode()):
        data = b"begin " + written + b" end\n"
        whole = Masker([value]).mask(data)
        masker = Masker([value])
        for at in range(len(data) + 1):
            stream = masker.stream()
            parts = stream.feed(data[:at]), stream.feed(data[at:]), stream.end()
            assert b"".join(parts) == whole, at
        assert streamed([value], [data[at : at + 1] for at in range(len(data))]) == whole


def test_only_what_may_begin_a_secret_is_held_back() -> None:
    stream = Masker(["hunter2secret"]).stream()
    assert stream.feed(b"Password: ") == b"Password: "
    assert stream.feed(b"hunter") == b""
    assert stream.feed(b"s\n") == b"hunters\n"
    assert stream.feed(b"hunter2secre") == b""
    # Its writer was killed: this is no longer a beginning that anybody may see.
    assert stream.end() == b"***"
    stream = Masker(["hunter2secret"]).stream()
    assert stream.feed(b"hunte") + stream.end() == b"hunte"


def test_occurrences_that_overlap_or_touch_are_one() -> None:
    values = ["abcdefgh", "defghijklm", "ijklmnop"]
    assert Masker(values).mask(b"-abcdefghijklmnop-") == b"-***-"
    assert Masker(["abcabc"]).mask(b"abcabcabc") == b"***"
    assert streamed(["abcabc"], [b"abcabc", b"abc", b"abcx"]) == b"***x"


SMALL = st.text(alphabet='abA1/+ \n"é', min_size=6, max_size=14)
CHUNKS = st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=40)


@given(
    values=st.lists(SMALL, min_size=1, max_size=3),
    picks=st.lists(st.integers(0, 1 << 30), max_size=8),
    sizes=CHUNKS,
    noise=st.text(alphabet='abA1/+ \n"é', max_size=12),
)
@example(values=["aaaaaa", "aaaaaaaaa"], picks=[0], sizes=[1], noise="aaaa")
def test_it_does_what_the_reference_does(values: list[str], picks: list[int], sizes: list[int], noise: str) -> None:
    forms = sorted({form for value in values for form in forms_of(value)}) or [b"x"]
    data = noise.encode()
    for pick in picks:
        form = forms[pick % len(forms)]
        # Whole ones, and ones that are cut at either end.
        data += (form, form[: pick % 11], form[pick % 5 :], noise.encode()[: pick % 13])[pick % 4]
    assert Masker(values).mask(data) == reference(values, data)
    rest = data
    chunks: list[bytes] = []
    while rest:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(rest[:size])
        rest = rest[size:]
    assert streamed(values, chunks) == reference(values, data, stream=True)


@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_other_bytes_pass_unchanged(data: bytes, cut: int) -> None:
    values = ["hunter2secret", "\x80\xff-ünlikely-\xd8"]
    assert streamed(values, [data[:cut], data[cut:]]) == data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 5000, "a"),
        ("a" * 5000 + "b", "a"),
        ("ab" * 3000, "abababababab-"),
        ("abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxy"),
    ],
)
def test_near_misses_take_time_in_proportion(value: str, text: str) -> None:
    masker = Masker([value])

    def seconds(size: int) -> float:
        data = (text * (size // len(text) + 1)).encode()[:size]
        best = 60.0
        for _ in range(3):
            stream = masker.stream()
            began = time.process_time()
            for at in range(0, size, 4096):
                stream.feed(data[at : at + 4096])
            best = min(best, time.process_time() - began)
        return best

    # Four times the output takes about four times as long, and not sixteen times.
    assert seconds(128 * 1024) < 9 * seconds(32 * 1024)


def test_forms_are_bounded() -> None:
    forms = forms_of(LONG + PASSWORD * 100)
    assert max(map(len, forms)) <= LONGEST
    assert min(map(len, forms)) >= 6
    assert PASSWORD not in repr(Masker([PASSWORD]))
