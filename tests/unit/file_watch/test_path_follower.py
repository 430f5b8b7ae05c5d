"""When changes are reported: close ones as one, and none too late. The test sets the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import pytest

from toband.file_watch.notifier import NotificationKind, Told
from toband.file_watch.path_follower import LONGEST, QUIET, Follower
from toband.file_watch.path_state import Spot


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
    def __init__(self, tree: Path) -> None:
        self._now = 1000.0
        self._tree = tree
        self._notifier = Scripted()
        self._follower = Follower(self._notifier, clock=lambda: self._now)
        self._follower.declare([str(tree)])
        assert self.after(LONGEST) == []
        assert self._follower.settled

    def after(self, seconds: float, **kinds: NotificationKind) -> list[tuple[str, str]]:
        """What is told when these have happened to files so much later."""
        self._now += seconds
        self._notifier.told = [(str(self._tree / name), kind) for name, kind in kinds.items()]
        return [(Path(one.path).name, one.change.value) for each in self._follower.turn() for one in each.changes]


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
