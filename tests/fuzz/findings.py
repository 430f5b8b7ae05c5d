"""The corpus of inputs, and the notes that explain them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from fuzz.target import CORPUS, NOTE_SUFFIX

GROWN_MOST = 4096


def keep_finding(target: str, data: bytes, reason: str, seed: int, corpus: Path = CORPUS) -> Path:
    """Writes the input to the corpus, with a note beside it; its path."""
    path = _kept(data, corpus / target)
    shown = path.relative_to(corpus.parents[2]) if corpus == CORPUS else path
    note = f"Found by scripts/fuzz --target {target} --seed {seed}. Repeat it with:\n\n"
    note += f"    scripts/fuzz --target {target} --input {shown}\n\n{reason.strip()}\n"
    path.with_suffix(NOTE_SUFFIX).write_text(note)
    return path


def grow_corpus(inputs: Iterable[bytes], directory: Path) -> None:
    """Keeps those that are small."""
    for data in inputs:
        if len(data) <= GROWN_MOST:
            _kept(data, directory)


def _kept(data: bytes, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path
