"""The masker: any output with any secrets in it, in any chunks."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from fuzz.mutation import mutated_bytes
from fuzz.target import Check, Target
from toband.masker import MASK, MaskedStream, Masker
from toband.secret_forms import SHORTEST, forms_of

_BORDER = b"\n--\n"
_SECRETS_MOST = 5
_OUTPUT_MOST = 4096
# Overlapping matches: a line may be the end of one line break and the beginning of the next.
_WRAPPED = re.compile(rb"(?=(?:[A-Za-z0-9+/_-]{48}|[A-Za-z0-9+/_-]{47}(?=\r))(\r?\n))")
_VALUES = (
    "hunter2secret",
    "pä/s+w? \"o'r&d\\<$>~*",
    "first line\nx\nsecond line\n",
    "aaaaaa",
    "abcabcabc",
    "\x00\x1b\udcff€𝄞€",
)


def encoded(secrets: Sequence[str], output: bytes) -> bytes:
    return json.dumps(list(secrets)).encode() + _BORDER + output


def _split(data: bytes) -> tuple[list[str], bytes]:
    """Secrets as the daemon accepts them, and output; what is no JSON is one secret."""
    head, _, output = data.partition(_BORDER)
    try:
        given = json.loads(head)
    except (ValueError, RecursionError):
        given = head.decode(errors="surrogateescape")
    texts = given if isinstance(given, list) else [given]
    secrets = [text[:2000] for text in texts if isinstance(text, str) and len(text) >= SHORTEST]
    return [each for each in secrets if _is_text(each)][:_SECRETS_MOST], output[:_OUTPUT_MOST]


def _is_text(text: str) -> bool:
    """A value comes as UTF-8; bytes that are none are escaped."""
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mostly puts forms of the secrets, whole and in part, into the output."""
    if random.randrange(4) == 0:
        return mutated_bytes(random, data, others)
    secrets, output = _split(data)
    if random.randrange(6) == 0:
        secrets = [*secrets, random.choice((*_VALUES, random.choice(_VALUES)[::-1], "ab" * random.randrange(3, 300)))]
    forms = sorted({form for secret in secrets for form in forms_of(secret)}) or [b"none at all"]
    changed = bytearray(output)
    for _ in range(random.choice((1, 2, 4))):
        form = random.choice(forms)
        at, start = random.randrange(len(changed) + 1), random.choice((0, 0, random.randrange(len(form))))
        changed[at : at + random.choice((0, 1, 10))] = form[
            start : random.choice((len(form), random.randrange(len(form) + 1)))
        ]
    if random.randrange(4) == 0:
        width, end = random.choice((48, 64, 76)), random.choice((b"\n", b"\r\n"))
        lines = base64.b64encode(changed)
        changed = bytearray(end.join(lines[at : at + width] for at in range(0, len(lines), width)))
    return encoded(secrets[-_SECRETS_MOST:], bytes(changed))


def _reference(forms: set[bytes], data: bytes) -> bytes:
    """Every occurrence of every form, one by one, also over line breaks within encoded text."""
    covered = bytearray(len(data))
    breaks = {at for each in _WRAPPED.finditer(data) for at in range(*each.span(1))}
    for places in (range(len(data)), [at for at in range(len(data)) if at not in breaks]):
        text = bytes(data[at] for at in places)
        for form in forms:
            at = text.find(form)
            while at >= 0:
                first, last = places[at], places[at + len(form) - 1]
                covered[first : last + 1] = b"\1" * (last + 1 - first)
                at = text.find(form, at + 1)
    out = bytearray()
    for at, byte in enumerate(data):
        if not covered[at]:
            out.append(byte)
        elif at == 0 or not covered[at - 1]:
            out += MASK
    return bytes(out)


def _streamed(stream: MaskedStream, data: bytes, sizes: Iterator[int]) -> bytes:
    written, at = [], 0
    while at < len(data):
        size = next(sizes)
        written.append(stream.feed(data[at : at + size]))
        at += size
    return b"".join((*written, stream.end()))


def _sizes(seed: bytes) -> Iterator[int]:
    random = Random(seed)
    while True:
        yield random.choice((1, 1, 2, 3, 7, 64, 1000))


@contextlib.contextmanager
def _masked(_work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """Exactly the forms are masked, and a stream shows none of them, however it is cut."""
        secrets, output = _split(data)
        masker, forms = Masker(secrets), {form for secret in secrets for form in forms_of(secret)}
        masked = masker.mask(output)
        assert masked == _reference(forms, output)
        whole = _streamed(masker.stream(), output, iter([len(output)]))
        assert _streamed(masker.stream(), output, _sizes(data)) == whole, "it depends on the chunks"
        # An end that is the beginning of a form may be masked besides.
        assert whole == masked or (whole.endswith(MASK) and masked.startswith(whole[: -len(MASK)])), whole
        value = {"text": output.decode(errors="surrogateescape"), "all": secrets, "number": 123456}
        shown = json.dumps(masker.mask_value(value), ensure_ascii=False).encode(errors="surrogatepass")
        plain = {each.encode(errors="surrogateescape") for each in secrets if each.isalnum()}
        assert not any(each in shown for each in plain), "a value shows a secret"
        count = ("none", "one", "many")[min(2, masked.count(MASK))]
        return f"{'some' if secrets else 'no'} secrets, {count} masked, end masked: {whole != masked}"

    yield check


TARGETS = (
    Target(
        name="masker",
        reads="output with secrets in it, in chunks",
        samples=tuple(
            encoded([value], f"before {value} after {value!r}".encode(errors="surrogateescape")) for value in _VALUES
        ),
        mutate=_mutated,
        opened=_masked,
    ),
)
