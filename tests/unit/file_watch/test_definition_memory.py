"""Notes about definition files that one daemon writes and the next one reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from toband.file_watch import definition_memory
from toband.file_watch.definition_memory import RememberedFiles, reader_of_definitions
from toband.ports import KnownFile

ONE = KnownFile(digest="d1", stored={"b": "1-0 x", "a": "2-0 y"}, warnings=("mind this",))
TWO = KnownFile(digest="d2", stored={})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "files.jsonl"


def content(path: Path) -> bytes:
    return path.read_bytes()


def cut_off(path: Path) -> None:
    path.write_bytes(content(path)[:-9])


def memory(path: Path, reader: str = "me") -> RememberedFiles:
    return RememberedFiles(str(path), reader)


async def test_the_next_one_knows_it(path: Path) -> None:
    assert await memory(path).recall() == {}
    await memory(path).remember({"/a": ONE, "/b": TWO}, {"/a", "/b"})
    found = await memory(path).recall()
    assert found == {"/a": ONE, "/b": TWO}
    assert list(found["/a"].stored) == ["b", "a"]
    # What another reader understood is nothing to this one.
    assert await memory(path, "other").recall() == {}


async def test_a_name_that_is_no_text_is_kept(path: Path) -> None:
    await memory(path).remember({"/\udcff": TWO}, {"/\udcff"})
    assert await memory(path).recall() == {"/\udcff": TWO}


async def test_a_change_is_added_and_replaces_what_was_there(path: Path) -> None:
    first = memory(path)
    await first.recall()
    await first.remember({"/a": ONE, "/b": ONE}, {"/a", "/b"})
    before = content(path)
    await first.remember({"/a": TWO}, {"/a", "/b"})
    assert content(path).startswith(before)
    assert await memory(path).recall() == {"/a": TWO}


async def test_lines_that_are_cut_off_or_strange_concern_nobody_else(path: Path) -> None:
    await memory(path).remember({"/a": ONE, "/b": ONE}, {"/a", "/b"})
    cut_off(path)
    second = memory(path)
    assert await second.recall() == {"/a": ONE}
    await second.remember({"/a": ONE, "/c": TWO}, {"/c"})
    with path.open("ab") as file:
        file.write(b'[]\n7\n{"path": 1}\n{"path": "/d", "digest": "x", "stored": 5}\n\xff\0\0\n')
    assert await memory(path).recall() == {"/a": ONE, "/c": TWO}


async def test_it_is_written_anew_when_most_of_it_is_old(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_memory, "SPARE", 10)
    writer = memory(path)
    for _ in range(20):
        await writer.remember({"/a": ONE}, {"/a"})
    assert len(content(path).splitlines()) <= 12 + 2
    assert await memory(path).recall() == {"/a": ONE}


async def test_a_place_that_takes_nothing_is_no_trouble(tmp_path: Path) -> None:
    writer = memory(tmp_path / "nowhere" / "files.jsonl")
    await writer.remember({"/a": ONE}, {"/a"})
    assert await writer.recall() == {}
    (tmp_path / "nowhere").mkdir()
    await writer.remember({"/a": ONE, "/b": TWO}, {"/b"})
    assert await writer.recall() == {"/a": ONE, "/b": TWO}


def test_readers_differ_by_release_and_zone() -> None:
    assert reader_of_definitions("1", "UTC", "sh", "jp") == reader_of_definitions("1", "UTC", "sh", "jp")
    others = [
        ("1", "UTC", "sh", ""),
        ("2", "UTC", "sh", ""),
        ("1", "X", "sh", ""),
        ("1", "UTC", "bash", ""),
        ("1", "UTC", "sh", "jp"),
    ]
    assert len({reader_of_definitions(*each) for each in others}) == 5
