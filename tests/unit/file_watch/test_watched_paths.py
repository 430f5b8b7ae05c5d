"""Watched paths with real files: each change is reported once, under the declared name."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence, Set
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helpers.wait import wait_for
from toband.file_watch import path_changes
from toband.file_watch.native_notifier import Native
from toband.file_watch.notifier import Notifier, Told
from toband.file_watch.own_files import NO_FILES, OwnFiles
from toband.file_watch.path_state import PathState, state_of
from toband.file_watch.watched_paths import WatchedPaths

New = Callable[[OwnFiles], Notifier]

if sys.platform == "linux":
    from toband.file_watch import inotify_notifier
    from toband.file_watch.inotify_notifier import Inotify

    NOTIFIERS: list[New] = [Inotify, Native]

    class Held(Inotify):
        """Reads nothing while it is held: changes meanwhile are reported together, however long it takes."""

        def __init__(self, own: OwnFiles = NO_FILES) -> None:
            super().__init__(own)
            self._free, self._idle = threading.Event(), threading.Event()
            self._free.set()

        def wait(self, timeout: float) -> Sequence[Told]:
            if not self._free.is_set():
                self._idle.set()
                self._free.wait()
            return super().wait(timeout)

        @asynccontextmanager
        async def held(self) -> AsyncIterator[None]:
            self._idle.clear()
            self._free.clear()
            self.wake()
            try:
                await wait_for(self._idle.is_set, "it goes on reading")
                yield
            finally:
                self._free.set()

else:
    NOTIFIERS = [Native]

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs links of POSIX")

Change = tuple[str, str]
Put = Callable[[Path], None]


class Watching:
    """The reported changes by declared path."""

    def __init__(self, notifier: New, own: OwnFiles = NO_FILES) -> None:
        self.paths = WatchedPaths(self._new, own)
        self.notifier: Notifier | None = None
        self._notifier = notifier
        self.settling = 0.0
        self.altered: set[str] = set()
        self.told: list[tuple[str, str, str]] = []
        self.batches: list[tuple[int, int]] = []
        """How many changes were told at once, and how many more there were."""
        self._reader = asyncio.create_task(self._read())

    def _new(self, own: OwnFiles) -> Notifier:
        self.notifier = self._notifier(own)
        return self.notifier

    async def _read(self) -> None:
        while True:
            for each in await self.paths.changes():
                self.told += ((each.watch, one.path, one.change.value) for one in each.changes)
                self.altered |= {one.path for one in each.changes if one.altered}
                self.batches.append((len(each.changes), each.more))

    async def follow(self, *paths: Path) -> None:
        self.paths.follow({str(path): {self.settling} for path in paths})
        await self.settle()

    async def settle(self) -> None:
        async with asyncio.timeout(30):
            await self.paths.settled()

    async def until_watched(self, *directories: Path) -> None:
        wanted = {str(each) for each in directories}
        await wait_for(lambda: wanted <= self._watched(), f"a watch of {wanted}")
        await self.settle()

    def _watched(self) -> Set[str]:
        if isinstance(self.notifier, Native):
            groups = [group for group in self.notifier._groups.values() if group is not None]
            return {path for group in groups for path in group.paths}
        assert isinstance(self.notifier, Inotify)
        return self.notifier.watched

    async def after(self, *expected: Change, watch: Path, base: Path | None = None) -> None:
        """Waits until these changes of a watch were reported, and checks at the end that there were no others."""
        await wait_for(lambda: set(expected) <= set(self.of(watch, base)), f"{expected} of {watch}")
        await self.settle()
        found = self.of(watch, base)
        assert sorted(set(found)) == sorted(expected)
        self.told = [each for each in self.told if each[0] != str(watch)]

    def of(self, watch: Path, base: Path | None = None) -> Collection[Change]:
        base = base or watch
        return [
            ("" if path == str(base) else os.path.relpath(path, base).replace(os.sep, "/"), change)
            for declared, path, change in self.told
            if declared == str(watch)
        ]

    async def close(self) -> None:
        self._reader.cancel()
        await self.paths.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_changes, "QUIET", 0.2)


@pytest.fixture(params=NOTIFIERS, ids=lambda each: each.__name__.lower())
async def watching(request: pytest.FixtureRequest) -> AsyncIterator[Watching]:
    made = Watching(request.param)
    yield made
    await made.close()


@pytest.fixture
async def linux() -> AsyncIterator[Watching]:
    made = Watching(Held)
    yield made
    await made.close()


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody watches it."""
    return tmp_path_factory.mktemp("outside")


@pytest.fixture
def put(outside: Path) -> Put:
    """Files that come with all that is in them: one that is created and then written to is two changes, and is
    reported twice if the machine pauses in between."""

    def put(path: Path) -> None:
        (outside / "file").write_text("x")
        os.replace(outside / "file", path)

    return put


def append(path: Path) -> None:
    """One change, unlike a text that replaces another."""
    with path.open("a") as file:
        file.write("y")


async def test_files_of_a_tree(watching: Watching, tmp_path: Path, put: Put) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "old").write_text("x")
    (tmp_path / "beside").write_text("x")
    await watching.follow(tree)
    put(tree / "sub" / "new")
    (tmp_path / "beside").write_text("y")
    await watching.after(("sub/new", "added"), watch=tree)
    append(tree / "old")
    await watching.after(("old", "modified"), watch=tree)
    (tree / "old").unlink()
    await watching.after(("old", "deleted"), watch=tree)
    assert watching.told == []


async def test_a_file_by_itself(watching: Watching, tmp_path: Path, put: Put) -> None:
    path = tmp_path / "list.txt"
    path.write_text("x")
    (tmp_path / "other").write_text("x")
    await watching.follow(path)
    (tmp_path / "other").write_text("y")
    append(path)
    await watching.after(("", "modified"), watch=path)
    # As editors do it: whoever opens it finds the old text or the new one.
    (tmp_path / "list.txt.new").write_text("replaced")
    os.replace(tmp_path / "list.txt.new", path)
    await watching.after(("", "modified"), watch=path)
    path.unlink()
    await watching.after(("", "deleted"), watch=path)
    put(path)
    await watching.after(("", "added"), watch=path)
    assert watching.told == []


async def test_what_is_not_there_yet(watching: Watching, tmp_path: Path, outside: Path, put: Put) -> None:
    file, tree = tmp_path / "a" / "b" / "file", tmp_path / "a" / "tree"
    await watching.follow(file, tree)
    for directory in (tmp_path / "a", tmp_path / "a" / "b"):
        directory.mkdir()
        await watching.until_watched(directory)
    assert watching.told == []
    put(file)
    await watching.after(("", "added"), watch=file)
    (outside / "tree").mkdir()
    (outside / "tree" / "one").write_text("x")
    (outside / "tree").rename(tree)
    await watching.after(("", "added"), ("one", "added"), watch=tree)
    put(tree / "two")
    await watching.after(("two", "added"), watch=tree)
    shutil.rmtree(tmp_path / "a")
    await watching.after(("", "deleted"), watch=file)
    await wait_for(lambda: ("", "deleted") in watching.of(tree), "the tree is gone")
    await watching.settle()
    watching.told.clear()
    # Once more from where it began, and all at once.
    (outside / "a" / "tree").mkdir(parents=True)
    (outside / "a").rename(tmp_path / "a")
    await watching.after(("", "added"), watch=tree)


@LINUX
async def test_directories_that_come_as_a_whole_and_move(linux: Watching, tmp_path: Path, put: Put) -> None:
    tree, away = tmp_path / "tree", tmp_path / "away"
    tree.mkdir()
    (away / "deep").mkdir(parents=True)
    (away / "deep" / "file").write_text("x")
    await linux.follow(tree)
    away.rename(tree / "came")
    await linux.after(("came", "added"), ("came/deep", "added"), ("came/deep/file", "added"), watch=tree)
    (tree / "came").rename(tree / "renamed")
    await linux.after(
        ("came", "deleted"),
        ("renamed", "added"),
        ("renamed/deep", "added"),
        ("renamed/deep/file", "added"),
        watch=tree,
    )
    (tree / "renamed" / "deep" / "file").write_text("y")
    await linux.after(("renamed/deep/file", "modified"), watch=tree)
    (tree / "renamed").rename(away)
    await linux.after(("renamed", "deleted"), watch=tree)
    # It is elsewhere now, and nobody's business.
    (away / "deep" / "file").write_text("z")
    put(tree / "mark")
    await linux.after(("mark", "added"), watch=tree)


@LINUX
async def test_a_tree_that_goes_away_and_comes_back(linux: Watching, tmp_path: Path, put: Put) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    await linux.follow(tree)
    tree.rename(tmp_path / "away")
    await linux.after(("", "deleted"), watch=tree)
    (tmp_path / "away" / "sub" / "unseen").write_text("x")
    (tmp_path / "away").rename(tree)
    await linux.after(("", "added"), ("sub", "added"), ("sub/unseen", "added"), watch=tree)
    # At once, within one batch: it may even have got the same number.
    assert isinstance(linux.notifier, Held)
    async with linux.notifier.held():
        shutil.rmtree(tree)
        (tree / "sub").mkdir(parents=True)
    await wait_for(lambda: ("", "modified") in linux.of(tree), "another tree")
    await linux.settle()
    linux.told.clear()
    put(tree / "sub" / "new")
    await linux.after(("sub/new", "added"), watch=tree)


@POSIX
@LINUX
async def test_links_are_followed_for_what_is_declared_only(linux: Watching, tmp_path: Path, put: Put) -> None:
    one, two, link = tmp_path / "one", tmp_path / "two", tmp_path / "link"
    one.mkdir()
    two.mkdir()
    (two / "file").write_text("x")
    link.symlink_to(one)
    (one / "inside").symlink_to(two)
    (tmp_path / "name").symlink_to(two / "file")
    await linux.follow(link, tmp_path / "name")
    put(one / "new")
    await linux.after(("new", "added"), watch=link)
    (two / "file").write_text("longer")
    await linux.after(("", "modified"), watch=tmp_path / "name")
    assert linux.told == []
    (tmp_path / "other").symlink_to(two)
    os.replace(tmp_path / "other", link)
    await linux.after(("", "modified"), ("file", "added"), watch=link)
    put(two / "more")
    await linux.after(("more", "added"), watch=link)


async def test_a_file_that_is_being_written_is_told_once_at_its_end(watching: Watching, tmp_path: Path) -> None:
    watching.settling = 1.5
    await watching.follow(tmp_path)
    path = tmp_path / "slow"
    script = "import sys, time\nfor _ in range(10): print('x', flush=True); time.sleep(0.2)"
    with path.open("w") as file:
        writer = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=file)
        assert await writer.wait() == 0
    ended = time.time()
    assert watching.told == []
    await watching.after(("slow", "added"), watch=tmp_path)
    assert time.time() - ended > 1.0
    path.unlink()
    await watching.after(("slow", "deleted"), watch=tmp_path)


@LINUX
async def test_what_is_renamed_is_complete(linux: Watching, tmp_path: Path, put: Put, outside: Path) -> None:
    linux.settling = 3600
    await linux.follow(tmp_path / "file", tmp_path)
    put(tmp_path / "file")
    (outside / "tree").mkdir()
    (outside / "tree" / "one").write_text("x")
    (outside / "tree").rename(tmp_path / "tree")
    expected = {("file", "added"), ("tree", "added"), ("tree/one", "added")}
    await wait_for(lambda: expected <= set(linux.of(tmp_path)), "both")
    await wait_for(lambda: ("", "added") in linux.of(tmp_path / "file"), "the file by itself")


async def test_many_changes_at_once(watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_changes, "CHANGES_MOST", 10)
    monkeypatch.setattr(path_changes, "QUIET", 0.5)
    await watching.follow(tmp_path)
    for number in range(250):
        (tmp_path / f"{number}").write_text("x")
    # On a busy machine they come in several batches, and a file in two of them.
    await wait_for(lambda: sum(map(sum, watching.batches)) >= 250, "all files")
    assert max(told for told, _ in watching.batches) == 10
    assert all(told == 10 for told, more in watching.batches if more)
    assert sum(more for _, more in watching.batches) > 0
    assert {change for _, _, change in watching.told} <= {"added", "modified"}


@LINUX
async def test_a_name_that_is_no_text(linux: Watching, tmp_path: Path, put: Put) -> None:
    await linux.follow(tmp_path)
    put(tmp_path / "\ufffd really")
    put(tmp_path / os.fsdecode(b"\xff"))
    await linux.after(("\ufffd", "added"), ("\ufffd really", "added"), watch=tmp_path)
    assert linux.altered == {f"{tmp_path}/\ufffd"}


@pytest.mark.parametrize("notifier", NOTIFIERS, ids=lambda each: each.__name__.lower())
async def test_nothing_is_told_of_what_the_daemon_writes_for_itself(notifier: New, tmp_path: Path, put: Put) -> None:
    tree = tmp_path / "tree"
    state, database, log = tree / "state", tree / "db" / "toban.db", tree / "log.json"
    (state / "runs").mkdir(parents=True)
    database.parent.mkdir()
    (tree / "stateless").mkdir()
    own = OwnFiles.of(state_dir=str(state), database_file=str(database), logs=[str(log)])
    watching = Watching(notifier, own)
    await watching.follow(tree)
    (state / "ballast").write_text("x")
    (state / "runs" / "1").mkdir()
    (state / "runs" / "1" / "out").write_text("x")
    for end in ("", "-wal", "-shm", "-journal", "-ballast"):
        database.with_name(f"toban.db{end}").write_text("x")
    log.write_text("x")
    put(tree / "db" / "other.db")
    put(tree / "stateless" / "a")
    await watching.after(("db/other.db", "added"), ("stateless/a", "added"), watch=tree)
    assert watching.paths.troubles == {}
    await watching.close()


@LINUX
async def test_directories_of_the_daemon_take_no_watches(tmp_path: Path) -> None:
    (tmp_path / "state" / "runs").mkdir(parents=True)
    (tmp_path / "in").mkdir()
    made: list[Inotify] = []

    def new(own: OwnFiles) -> Notifier:
        made.append(Inotify(own))
        return made[0]

    watching = Watching(new, OwnFiles.of(state_dir=str(tmp_path / "state")))
    await watching.follow(tmp_path)
    assert made[0].watched == {str(tmp_path.parent), str(tmp_path), str(tmp_path / "in")}
    await watching.close()


@POSIX
async def test_a_watch_that_would_never_tell_anything_is_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_changes, "LOOK_AGAIN", 0.1)
    state, elsewhere, link = tmp_path / "state", tmp_path / "elsewhere", tmp_path / "link"
    for folder in (state, elsewhere):
        folder.mkdir()
    link.symlink_to(state)
    database = tmp_path / "toban.db"
    database.write_text("x")
    own = OwnFiles.of(state_dir=str(state), database_file=str(database))
    watching = Watching(NOTIFIERS[0], own)
    below = state / "missing" / "file"
    await watching.follow(state, below, database, link)
    await wait_for(lambda: len(watching.paths.troubles) == 4, "what is wrong")
    assert set(watching.paths.troubles) == {str(each) for each in (state, below, database, link)}
    assert "which are not watched" in watching.paths.troubles[str(database)]
    (state / "a").write_text("x")
    database.write_text("xy")
    below.parent.mkdir()
    below.write_text("x")
    # A link may be led elsewhere.
    link.unlink()
    link.symlink_to(elsewhere)
    await wait_for(lambda: str(link) not in watching.paths.troubles, "a link that is watched")
    await watching.settle()
    (elsewhere / "b").write_text("x")
    await wait_for(lambda: ("b", "added") in watching.of(link), "a change")
    assert {watch for watch, _, _ in watching.told} == {str(link)}
    await watching.close()


@LINUX
async def test_what_is_wrong_with_a_name_that_is_no_text_can_be_shown(
    linux: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"k\xe9")
    folder.mkdir()
    add = Inotify._add

    def denied(self: Inotify, path: str) -> int:
        return errno.EACCES if path == str(folder) else add(self, path)

    monkeypatch.setattr(Inotify, "_add", denied)
    await linux.follow(tmp_path)
    assert set(linux.paths.troubles) == {f"{tmp_path}/k\\xe9"}


async def test_paths_come_and_go(watching: Watching, tmp_path: Path, put: Put) -> None:
    one, two = tmp_path / "one", tmp_path / "one" / "two"
    two.mkdir(parents=True)
    await watching.follow(one, two)
    put(two / "a")
    await watching.after(("two/a", "added"), watch=one)
    await watching.after(("a", "added"), watch=two)
    await watching.follow(one)
    put(two / "b")
    await watching.after(("two/b", "added"), watch=one)
    await watching.follow(two)
    put(one / "c")
    put(two / "d")
    await watching.after(("d", "added"), watch=two)
    assert watching.told == []
    await watching.follow()
    assert watching.paths._thread is None


@LINUX
async def test_a_limit_of_the_system_is_told_and_tried_again(
    linux: Watching, tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_changes, "TRY_AGAIN", 0.05)
    allowed = [3]
    add = Inotify._add

    def limited(self: Inotify, path: str) -> int:
        if path not in self.watched and len(self.watched) >= allowed[0]:
            return errno.ENOSPC
        return add(self, path)

    monkeypatch.setattr(Inotify, "_add", limited)
    for name in "abcdef":
        (tmp_path / name).mkdir()
    linux.paths.follow({str(tmp_path): {0.0}})
    await wait_for(lambda: bool(linux.paths.troubles), "the limit")
    [(path, why)] = linux.paths.troubles.items()
    assert path.startswith(str(tmp_path))
    assert "fs.inotify.max_user_watches" in why
    allowed[0] = 100
    # There is no trouble either between a try that begins and one that fails.
    await linux.until_watched(*(tmp_path / name for name in "abcdef"))
    await wait_for(lambda: not linux.paths.troubles, "another try")
    for name in "abcdef":
        put(tmp_path / name / "file")
    await linux.after(*((f"{name}/file", "added") for name in "abcdef"), watch=tmp_path)


@LINUX
async def test_when_the_system_loses_count(
    linux: Watching, tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Inotify._take
    lost = [True]

    def overflow(self: Inotify, watch: int, mask: int, name: str, told: list[Told]) -> None:
        take(self, -1, inotify_notifier._Q_OVERFLOW, "", told) if lost[0] else take(self, watch, mask, name, told)

    await linux.follow(tmp_path)
    monkeypatch.setattr(Inotify, "_take", overflow)
    (tmp_path / "sub").mkdir()
    await linux.after(("", "modified"), watch=tmp_path)
    lost[0] = False
    # The directory that nobody told of is watched all the same.
    put(tmp_path / "sub" / "file")
    await linux.after(("sub/file", "added"), watch=tmp_path)


@LINUX
async def test_one_above_a_path_that_moves_is_found_by_looking(
    linux: Watching, tmp_path: Path, outside: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_changes, "LOOK_AGAIN", 0.05)
    tree = tmp_path / "above" / "between" / "tree"
    tree.mkdir(parents=True)
    await linux.follow(tree)
    (tmp_path / "above").rename(tmp_path / "moved")
    await linux.after(("", "deleted"), watch=tree)
    (outside / "above" / "between" / "tree").mkdir(parents=True)
    (outside / "above").rename(tmp_path / "above")
    await linux.after(("", "added"), watch=tree)
    put(tree / "file")
    await linux.after(("file", "added"), watch=tree)


@LINUX
async def test_a_path_that_cannot_be_looked_at(
    linux: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    monkeypatch.setattr(path_changes, "TRY_AGAIN", 0.05)

    def denied(path: str) -> PathState:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(path_changes, "state_of", denied)
    linux.paths.follow({str(path): {0.0}})
    await wait_for(lambda: "Permission denied" in linux.paths.troubles.get(str(path), ""), "told")
    monkeypatch.setattr(path_changes, "state_of", state_of)
    await wait_for(lambda: not linux.paths.troubles, "another try")
    await linux.settle()
    assert linux.told == []
    path.write_text("longer")
    await linux.after(("", "modified"), watch=path)


@LINUX
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() == 0, reason="root may read all")
async def test_what_may_not_be_read_is_told(linux: Watching, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    await linux.follow(tmp_path)
    assert set(linux.paths.troubles) == {str(closed)}
