"""The archive: what is written is read again, and no damage goes unnoticed."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from toband.state_archive.archive_format import BLOCK, FORMAT, ArchiveEnd, ArchiveError, Manifest
from toband.state_archive.archive_reader import ArchiveReader, Member
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
END = ArchiveEnd(files=2, bytes=3, removed_runs=["r"], left_out=[], files_left_out=0)
LONG = "deep/" * 60 + "name"


def archive(tmp_path: Path) -> bytes:
    (tmp_path / "file").write_bytes(b"abc")
    facts = os.stat(tmp_path / "file")
    sink = io.BytesIO()
    writer = ArchiveWriter(sink)
    writer.begin(MANIFEST)
    writer.add_data("rows/runs.jsonl", b'["1"]\n')
    writer.add_entry("runs/1", os.stat(tmp_path))
    with open(tmp_path / "file", "rb") as file:
        writer.add_file(LONG, facts, file.read)
    writer.add_entry("runs/1/名前\udcff", os.stat(tmp_path), link="目\udcff")
    # It is shorter now than it was when its size was taken.
    writer.add_file("runs/1/cut", facts, io.BytesIO(b"a").read)
    writer.finish(END)
    return sink.getvalue()


def read(path: Path) -> dict[str, bytes | str]:
    reader = ArchiveReader(str(path))
    found: dict[str, bytes | str] = {}
    for member in reader.members():
        found[member.info.name] = member.info.linkname or member.data()
    assert reader.manifest == MANIFEST
    assert reader.end == END
    return found


def test_an_archive_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(archive(tmp_path))
    assert read(path) == {
        "rows/runs.jsonl": b'["1"]\n',
        "runs/1": b"",
        LONG: b"abc",
        "runs/1/名前\udcff": "目\udcff",
        "runs/1/cut": b"a\0\0",
    }


def test_an_archive_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path)
    path = tmp_path / "archive"
    for length in (*range(2, len(whole) - 40, 9), *range(len(whole) - 40, len(whole))):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError, match="cut off"):
            ArchiveReader(str(path)).verify()


def test_an_archive_with_a_changed_byte_anywhere_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path)
    path = tmp_path / "archive"
    plain = gzip.decompress(whole)
    for place in (*range(40), *range(40, len(whole) - 40, 7), *range(len(whole) - 40, len(whole))):
        changed = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        with suppress(OSError, EOFError, zlib.error):
            if gzip.decompress(changed) == plain:
                continue  # the compression has more than one form of the same
        path.write_bytes(changed)
        with pytest.raises(ArchiveError, match=r"cannot use the backup .*: it is"):
            ArchiveReader(str(path)).verify()


def test_a_changed_member_is_named_even_if_the_compression_is_in_order(tmp_path: Path) -> None:
    plain = gzip.decompress(archive(tmp_path))
    path = tmp_path / "archive"
    path.write_bytes(gzip.compress(plain.replace(b'["1"]', b'["2"]')))
    with pytest.raises(ArchiveError, match=r"rows/runs.jsonl is not what was written"):
        ArchiveReader(str(path)).verify()


def test_an_archive_of_a_later_format_is_refused(tmp_path: Path) -> None:
    sink = io.BytesIO()
    writer = ArchiveWriter(sink)
    writer.begin(replace(MANIFEST, format=FORMAT + 1))
    writer.finish(END)
    path = tmp_path / "archive"
    path.write_bytes(sink.getvalue())
    with pytest.raises(ArchiveError, match=f"its format is {FORMAT + 1}, and this release reads format {FORMAT}"):
        ArchiveReader(str(path)).verify()


def test_a_negative_size_is_damage(tmp_path: Path) -> None:
    plain = bytearray(gzip.decompress(archive(tmp_path)))
    (start,) = (at for at in range(0, len(plain), BLOCK) if plain[at : at + 11] == b"runs/1/cut\0")
    header = plain[start : start + BLOCK]
    header[124:136] = b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    plain[start : start + BLOCK] = header
    path = tmp_path / "archive"
    path.write_bytes(gzip.compress(plain))
    with pytest.raises(ArchiveError, match=r"it is damaged \(a size is negative\)"):
        ArchiveReader(str(path)).verify()


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "outside").mkdir()
    files, directory = RestoredFiles(str(tmp_path / "top")), tarfile.TarInfo("x")
    directory.type = tarfile.DIRTYPE
    link = tarfile.TarInfo("x")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
    files.add(Member(link, iter(()), ""), "runs/link")
    for name, reason in (("runs/link/a/b", "leads through a link"), ("runs/../a", "is no path"), ("/a", "is no path")):
        with pytest.raises(ArchiveError, match=reason):
            files.add(Member(directory, iter(()), ""), name)
    assert list((tmp_path / "outside").iterdir()) == []
