"""Which files count, and what is said of places that cannot be looked at."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from toban.limits import MAX_SOURCE_BYTES
from toband.ports import Listing
from toband.watching import definition_files
from toband.watching.definition_files import WatchedFiles, look

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs names that are only bytes")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs links and permissions of POSIX")


def seen(*places: Path) -> Listing:
    return look([str(place) for place in places], time.time())


def names(listing: Listing, folder: Path) -> list[str]:
    return [Path(path).relative_to(folder).as_posix() for path in listing.files]


def test_definitions_at_any_depth_and_nothing_else(tmp_path: Path) -> None:
    kept = ["a.yaml", "b.YML", "sub/deeper/c.json"]
    others = [".hidden.yaml", "a.yaml~", "#a.yaml", ".git/x.yaml", "notes.txt", "a.yaml.bak"]
    for name in (*kept, *others):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "folder.yaml").mkdir()
    listing = seen(tmp_path, tmp_path / "a.yaml")
    assert sorted(names(listing, tmp_path)) == sorted(kept)
    assert listing.unreadable == {}


def test_places_that_are_not_there(tmp_path: Path) -> None:
    # A file that is gone was removed; whatever is below a missing directory nobody knows.
    missing, below = tmp_path / "missing", tmp_path / "missing" / "a.yaml"
    listing = seen(tmp_path / "gone.yaml", missing, below)
    assert listing.files == {}
    assert set(listing.unreadable) == {str(missing), str(below)}


def test_a_place_that_is_moved_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are not found any more, and nobody may take them for removed."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.yaml").write_text("x")
    scandir = os.scandir

    def moving(path: str) -> contextlib.nullcontext[list[os.DirEntry[str]]]:
        with scandir(path) as found:
            entries = list(found)
        folder.rename(tmp_path / "elsewhere")
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", moving)
    listing = seen(folder)
    assert listing.files == {}
    assert set(listing.unreadable) == {str(folder)}


@POSIX
def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    (tmp_path / "..1").mkdir()
    (tmp_path / "..1" / "a.yaml").write_text("one")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "nowhere.yaml").symlink_to("missing")
    (tmp_path / "itself.yaml").symlink_to("itself.yaml")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe.yaml")
    listing = seen(tmp_path)
    assert names(listing, tmp_path) == ["a.yaml"]
    assert set(listing.unreadable) == {str(tmp_path / "itself.yaml")}


@LINUX
def test_names_that_are_no_text_are_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("x")
    (tmp_path / os.fsdecode(b"bad\xff.yaml")).write_text("x")
    (tmp_path / os.fsdecode(b"notes\xff")).write_text("x")
    (tmp_path / os.fsdecode(b"itself\xff.yaml")).symlink_to(os.fsdecode(b"itself\xff.yaml"))
    folder = tmp_path / os.fsdecode(b"k\xe9")
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "k.yaml").write_text("x")
    (tmp_path / os.fsdecode(b"data\xe9")).mkdir()
    listing = seen(tmp_path, folder)
    assert names(listing, tmp_path) == ["good.yaml"]
    assert listing.unreadable == {
        f"{tmp_path}/bad\\xff.yaml": "its name is not UTF-8: rename it",
        f"{tmp_path}/itself\\xff.yaml": "its name is not UTF-8: rename it",
        f"{tmp_path}/k\\xe9": "its name is not UTF-8: rename it",
    }


@LINUX
async def test_a_place_whose_name_is_no_text_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_files, "TICK", 0.01)
    place = tmp_path / os.fsdecode(b"k\xe9")
    good = tmp_path / "good"
    place.mkdir()
    good.mkdir()
    watched = WatchedFiles([str(place), str(good)])
    async with asyncio.timeout(30):
        for _ in range(definition_files.UNSURE + 1):
            await watched.changed(600)
        (good / "a.yaml").write_text("x")
        await watched.changed(600)
        listing = await watched.look()
    assert (names(listing, tmp_path), len(listing.unreadable)) == (["good/a.yaml"], 1)
    assert not any(watcher.done() for watcher in watched._watchers)
    await watched.close()


def test_a_file_that_is_still_written_to_is_young(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x")
    changed = path.stat().st_ctime
    place = [str(path)]
    assert look(place, changed + 0.1).young == {str(path)}
    assert look(place, max(changed, path.stat().st_mtime) + 1).young == frozenset()


def test_every_content_has_a_mark_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x")
    before = seen(path).files
    assert seen(path).files == before
    path.write_text("xx")
    assert seen(path).files != before


async def test_no_more_is_read_than_a_definition_may_have(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"#" * (MAX_SOURCE_BYTES + 100))
    missing = str(tmp_path / "missing")
    found = await WatchedFiles([]).read([str(path), missing])
    data = found[str(path)]
    assert isinstance(data, bytes)
    assert len(data) == MAX_SOURCE_BYTES + 1
    assert isinstance(found[missing], FileNotFoundError)


async def test_where_the_system_does_not_tell_somebody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definition_files, "TICK", 0.01)

    async def fail(self: WatchedFiles, paths: list[str], *, recursive: bool) -> None:
        return

    monkeypatch.setattr(WatchedFiles, "_watch", fail)
    watched = WatchedFiles([str(tmp_path)])
    async with asyncio.timeout(30):
        for _ in range(5):
            await watched.changed(600)
        # A place that appears or goes is told in any case.
        os.rmdir(tmp_path)
        await watched.changed(600)
    await watched.close()
