"""Which files are definition files, and the problems of unreadable paths."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from toban.limits import MAX_SOURCE_BYTES
from toband.file_watch import definition_files, definition_tree
from toband.file_watch.definition_files import WatchedFiles
from toband.file_watch.definition_tree import find
from toband.ports import Listing

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs names that are only bytes")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs links and permissions of POSIX")


def seen(*places: Path) -> Listing:
    return find([str(place) for place in places], time.time()).listing


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


def test_a_place_that_is_moved_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files cannot be found, but must not count as removed."""
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


@POSIX
def test_a_link_that_leads_out_is_told_and_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.yaml").write_text("x")
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.yaml").write_text("x")
    (folder / "b.yaml").symlink_to(outside / "x.yaml")
    (folder / "root").symlink_to("/")
    (folder / "sub" / "out").symlink_to(outside)
    (folder / "sub" / "up").symlink_to("../..")
    (folder / "similar").symlink_to(f"{folder}-not")
    (tmp_path / "folder-not").mkdir()
    looked: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> object:
        looked.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    tree = find([str(folder)], time.time())
    links = (folder / "root", folder / "similar", folder / "sub" / "out", folder / "sub" / "up")
    assert tree.listing.unreadable == dict.fromkeys(map(str, links), definition_tree.LEADS_OUT)
    assert names(tree.listing, folder) == ["a.yaml", "b.yaml"]
    assert looked == [str(folder), str(folder / "sub")]
    assert [each.path for each in tree.folders] == looked


@POSIX
def test_links_inside_are_followed_and_no_directory_is_entered_twice(tmp_path: Path) -> None:
    for name in ("one", "two", ".releases/7"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.yaml").write_text("x")
    (tmp_path / "another").symlink_to("one")
    (tmp_path / "one" / "two").symlink_to("../two")
    (tmp_path / "two" / "one").symlink_to("../one")
    (tmp_path / "current").symlink_to(".releases/7")
    listing = seen(tmp_path)
    assert names(listing, tmp_path) == ["one/a.yaml", "two/a.yaml", "current/a.yaml"]
    assert listing.unreadable == {}
    # A place may be a link itself.
    (tmp_path.parent / f"{tmp_path.name}-link").symlink_to(tmp_path)
    assert len(seen(tmp_path.parent / f"{tmp_path.name}-link").files) == 3


def test_looking_stops_at_a_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"{number}.yaml").write_text("x")
    (other := tmp_path.parent / f"{tmp_path.name}-other").mkdir()
    monkeypatch.setattr(definition_tree, "FILES_MOST", 3)
    listing = seen(tmp_path, other)
    assert len(listing.files) == 3
    assert listing.unreadable == {str(tmp_path): "it has more than 3 definition files: split it"}
    monkeypatch.setattr(definition_tree, "FILES_MOST", 100)
    monkeypatch.setattr(definition_tree, "ENTRIES_MOST", 4)
    listing = seen(tmp_path)
    assert listing.unreadable == {str(tmp_path): "it has more than 4 entries: list fewer directories"}


def test_directories_that_are_too_deep_are_told(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * definition_tree.DEEPEST)
    deep.mkdir(parents=True)
    (deep / "a.yaml").write_text("x")
    (deep.parent / "b.yaml").write_text("x")
    listing = seen(tmp_path)
    assert listing.unreadable == {str(deep): definition_tree.TOO_DEEP}
    assert [Path(path).name for path in listing.files] == ["b.yaml"]


@POSIX
async def test_what_a_link_leads_out_to_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches a whole tree follows its links: one to `/` takes a watch for each directory of the machine."""
    monkeypatch.setattr(definition_files, "TICK", 0.01)
    (tmp_path / "sub").mkdir()
    (tmp_path / "root").symlink_to("/")
    (tmp_path / ".hidden").symlink_to("/")
    paths: list[str] = []

    async def watch(self: WatchedFiles, given: list[str]) -> None:
        paths.extend(given)
        await asyncio.Event().wait()

    monkeypatch.setattr(WatchedFiles, "_watch", watch)
    watched = WatchedFiles([str(tmp_path)])
    await watched.look()
    async with asyncio.timeout(30):
        await watched.changed(20)
        await asyncio.sleep(0)
    await watched.close()
    assert [os.path.basename(path) for path in paths] == [tmp_path.name, "sub"]


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
async def test_a_place_whose_name_is_no_text_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert find(place, changed + 0.1).listing.young == {str(path)}
    assert find(place, max(changed, path.stat().st_mtime) + 1).listing.young == frozenset()


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


async def test_where_the_system_does_not_tell_somebody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_files, "TICK", 0.01)

    async def fail(self: WatchedFiles, paths: list[str]) -> None:
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
