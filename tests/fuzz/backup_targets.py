"""Backups, as a restore reads them and writes their files."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from fuzz.mutation import mutated_bytes
from fuzz.target import Check, Target
from toband.state_archive.archive_format import BLOCK, FORMAT, ArchiveEnd, ArchiveError, Manifest
from toband.state_archive.archive_reader import ArchiveReader
from toband.state_archive.archive_writer import ArchiveWriter
from toband.state_archive.restored_files import RestoredFiles

MANIFEST = Manifest(
    format=FORMAT,
    version="1",
    revision="0001",
    database="sqlite",
    installation="x",
    host="h",
    state_dir="/s",
    taken_at="2026-01-01T00:00:00+00:00",
    rows={"runs": 1},
    columns={"runs": ["id"]},
    config_file="",
    definitions=[],
    with_key=False,
)
END = ArchiveEnd(files=2, bytes=3, removed_runs=[], left_out=[], files_left_out=0)
_NAMES = (b"runs/1/deep/file", b"runs/1/link/fil0", b"runs/../../../ff", b"/tmp/1/deep/file", b"runs/1//deep/fil")
_DIGEST = re.compile(rb"comment=sha256 ([0-9a-f]{64})")


def _sample() -> bytes:
    """Not compressed: a change then reaches what is read."""
    facts, sink = os.stat("/"), io.BytesIO()
    own = os.stat(__file__)
    writer = ArchiveWriter(sink)
    writer.begin(MANIFEST)
    writer.add_data("rows/runs.jsonl", b'["1"]\n')
    writer.add_entry("runs/1", facts)
    writer.add_entry("runs/1/link", facts, link="/")
    writer.add_file("runs/1/deep/file", own, io.BytesIO(b"abc").read)
    writer.finish(END)
    return gzip.decompress(sink.getvalue())


def _mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Changes bytes or names; mostly the checksums are right again."""
    if random.randrange(3) == 0:
        data = data.replace(random.choice(_NAMES), random.choice(_NAMES))
    else:
        data = mutated_bytes(random, data, others)
    return data if random.randrange(4) == 0 else _consistent(data)


def _consistent(data: bytes) -> bytes:
    """With the digest of everything before it in each header."""
    found, at = bytearray(data), 0
    while match := _DIGEST.search(found, at):
        header = max(0, match.start() // BLOCK - 1) * BLOCK
        found[match.start(1) : match.end(1)] = hashlib.sha256(found[:header]).hexdigest().encode()
        at = match.end()
    return bytes(found)


@contextlib.contextmanager
def _restored(work: Path) -> Iterator[Check]:
    file, top, outside = work / "backup", work / "restored", work / "outside"
    outside.mkdir()

    def check(data: bytes) -> str:
        """It is refused with a reason, or read; nothing is written elsewhere."""
        file.write_bytes(gzip.compress(data, 1))
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        reader, written = ArchiveReader(str(file)), 0
        try:
            reader.verify()  # as a restore does first
            files = RestoredFiles(str(top))
            for member in reader.members():
                if member.info.name.startswith("runs/"):
                    files.add(member, member.info.name)
                    written += 1
                else:
                    member.data()
            files.close()
        except ArchiveError as error:
            return re.sub(r"/\S+|'.*'", "", str(error))
        except OSError as error:
            return f"{type(error).__name__} {error.errno}"
        finally:
            assert sorted(os.listdir(work)) == ["backup", "outside", "restored"]
        return f"{written} files"

    yield check


TARGETS = (
    Target(
        name="backup",
        reads="a backup",
        samples=(_sample(), _sample().replace(b"runs/1/link", b"runs/1/deep", 1)),
        mutate=_mutated,
        opened=_restored,
    ),
)
