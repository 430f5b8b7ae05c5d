"""When changes are reported: close ones as one, and none too late. The test sets the time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import pytest

from toband.file_watch import path_changes
from toband.file_watch.notifier import NotificationKind, Told
from toband.file_watch.path_changes import LONGEST, QUIET, Follower
from toband.file_watch.path_state import Spot
from toband.ports import WatchChanges

ADDED, MODIFIED, MOVED = NotificationKind.ADDED, NotificationKind.MODIFIED, NotificationKind.MOVED
DELETED = NotificationKind.DELETED
SETTLE = 2.0


class Scripted:
    """Implements `Notifier`: tells what the test says."""

    busy = False

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.troubles: Mapping[str, str] = {}

    def want(self, spots: Set[Spot], fresh: Set[Spot]) -> None: ...

    def wait(self, timeout: float) -> Sequence[Told]:
        told, self.told = self.told, []
        return told

    def try_again(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Scene:
    def __init__(self, tree: Path, *settles: float) -> None:
        self._now = 1000.0
        self._tree = tree
        self._notifier = Scripted()
        self._follower = Follower(self._notifier, clock=lambda: self._now)
        self.declare(*settles or (0.0,))
        assert self.after(LONGEST) == []
        assert self._follower.settled

    def declare(self, *settles: float) -> None:
        self._follower.declare({str(self._tree): settles})

    @property
    def settled(self) -> bool:
        return self._follower.settled

    def batches_after(self, seconds: float, *told: tuple[str, NotificationKind]) -> Sequence[WatchChanges]:
        self._now += seconds
        self._notifier.told = [(str(self._tree / name), kind) for name, kind in told]
        return self._follower.turn()

    def after(self, seconds: float, **kinds: NotificationKind) -> list[tuple[str, str]]:
        """The changes reported when these have happened to files so much later."""
        batches = self.batches_after(seconds, *kinds.items())
        return [(Path(one.path).name, one.change.value) for each in batches for one in each.changes]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_file_that_is_created_and_written_to_is_one_change(scene: Scene) -> None:
    assert scene.after(0, a=NotificationKind.ADDED) == []
    assert scene.after(QUIET * 0.9, a=NotificationKind.MODIFIED) == []
    assert scene.after(QUIET * 0.9) == []
    assert scene.after(QUIET * 0.2) == [("a", "added")]


def test_one_that_is_written_to_after_a_while_is_two(scene: Scene) -> None:
    assert scene.after(0, a=NotificationKind.ADDED) == []
    assert scene.after(QUIET) == [("a", "added")]
    assert scene.after(0, a=NotificationKind.MODIFIED) == []
    assert scene.after(QUIET) == [("a", "modified")]


def test_what_never_rests_is_told_all_the_same(scene: Scene) -> None:
    assert scene.after(0, a=NotificationKind.ADDED) == []
    told: list[tuple[str, str]] = []
    passed = 0.0
    while not told:
        passed += QUIET * 0.5
        told = scene.after(QUIET * 0.5, b=NotificationKind.MODIFIED)
    assert told == [("a", "added"), ("b", "modified")]
    assert LONGEST <= passed < LONGEST + QUIET


def test_a_file_is_told_when_it_is_complete_however_long_that_takes(tmp_path: Path) -> None:
    scene, path = Scene(tmp_path, SETTLE), tmp_path / "a"
    path.write_text("x")
    assert scene.after(0, a=ADDED) == []
    for _ in range(3600):
        with path.open("a") as file:
            file.write("x")
        assert scene.after(1.0, a=MODIFIED) == []
    assert scene.after(QUIET) == []
    assert scene.after(SETTLE * 0.9) == []
    assert scene.after(SETTLE) == [("a", "added")]
    assert scene.settled
    # What is written to later is another change.
    assert scene.after(0, a=MODIFIED) == []
    assert scene.after(QUIET) == []
    assert scene.after(SETTLE) == [("a", "modified")]
    assert scene.after(SETTLE * 10) == []


def test_a_file_that_changes_without_a_word_is_not_complete(tmp_path: Path) -> None:
    """As one that is mapped into memory, or on a network."""
    scene, path = Scene(tmp_path, SETTLE), tmp_path / "a"
    path.write_text("x")
    assert scene.after(0, a=ADDED) == []
    assert scene.after(QUIET) == []
    path.write_text("xy")
    assert scene.after(SETTLE) == []
    os.utime(path, ns=(1, 1))
    assert scene.after(SETTLE) == []
    assert scene.after(SETTLE) == [("a", "added")]


def test_a_change_that_was_told_of_just_now_is_waited_for(tmp_path: Path) -> None:
    scene, path = Scene(tmp_path, SETTLE), tmp_path / "a"
    path.write_text("x")
    assert scene.after(0, a=ADDED) == []
    assert scene.after(QUIET) == []
    # The size and the time are the same: the clock of the file system may be coarse.
    assert scene.after(SETTLE, a=MODIFIED) == []
    assert scene.after(QUIET) == []
    assert scene.after(SETTLE) == [("a", "added")]


def test_a_rename_a_deletion_and_a_directory_are_told_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SETTLE)
    for name in ("moved", "gone", "begun", "touched"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder").mkdir()
    assert scene.after(0, moved=MOVED, gone=ADDED, folder=ADDED, begun=ADDED) == []
    assert scene.after(QUIET) == [("moved", "added"), ("folder", "added")]
    (tmp_path / "gone").unlink()
    # A complete one comes over one that was begun.
    assert scene.after(0, gone=DELETED, begun=MOVED) == []
    assert scene.after(QUIET) == [("gone", "deleted"), ("begun", "added")]
    assert scene.settled
    assert scene.batches_after(0, ("touched", MOVED), ("touched", MODIFIED)) == ()
    assert scene.after(QUIET) == []
    assert scene.after(SETTLE) == [("touched", "added")]
    # One that is gone before anything tells so is not told as complete.
    (tmp_path / "brief").write_text("x")
    assert scene.after(0, brief=ADDED) == []
    assert scene.after(QUIET) == []
    (tmp_path / "brief").unlink()
    assert scene.after(SETTLE) == []
    assert scene.after(0, brief=DELETED) == []
    assert scene.after(QUIET) == [("brief", "deleted")]


def test_each_watch_of_a_path_waits_as_long_as_it_says(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0.0, SETTLE)
    (tmp_path / "a").write_text("x")
    assert scene.batches_after(0, ("a", ADDED)) == ()
    assert [each.settle for each in scene.batches_after(QUIET)] == [0.0]
    assert [each.settle for each in scene.batches_after(SETTLE)] == [SETTLE]
    # With another time nothing that waits is forgotten.
    assert scene.after(0, a=MODIFIED) == []
    assert [each.settle for each in scene.batches_after(QUIET)] == [0.0]
    scene.declare(5 * SETTLE)
    assert [each.settle for each in scene.batches_after(SETTLE)] == [5 * SETTLE]
    assert scene.after(0, a=MODIFIED) == []
    assert scene.after(QUIET) == []
    scene.declare()
    assert scene.settled


def test_no_more_files_are_waited_for_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_changes, "CHANGES_MOST", 3)
    monkeypatch.setattr(path_changes, "MORE_MOST", 2)
    scene = Scene(tmp_path, SETTLE)
    for half in ("abcd", "efgh"):
        for name in half:
            (tmp_path / name).write_text("x")
        assert scene.batches_after(0, *((name, ADDED) for name in half)) == ()
        assert scene.after(QUIET) == []
    [batch] = scene.batches_after(SETTLE)
    assert [Path(each.path).name for each in batch.changes] == ["a", "b", "c"]
    assert batch.more == 5
    assert scene.settled
