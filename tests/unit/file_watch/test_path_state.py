"""The state of a path, and file systems that cannot notify."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from toband.file_watch.path_state import is_as_before, mounts, remote, state_of

TABLE = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:40 / /srv/on\\040the\\040net rw - nfs4 host:/export rw,vers=4.2
41 27 0:41 / /mnt/far rw - cifs //host/share rw
42 27 0:42 / /mnt/near rw - tmpfs tmpfs rw
nonsense
"""


def test_a_path_is_watched_from_the_nearest_directory_above_it(tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    state = state_of(str(base / "a" / "b" / "c"))
    assert state.mark is None
    assert state.names == {str(base / "a")}
    assert state.own == {str(base / "a" / "b" / "c")}
    assert {(spot.path, spot.tree) for spot in state.spots} == {(str(base), False)}


def test_a_directory_is_watched_with_all_below_it_and_from_above(tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    (base / "tree").mkdir()
    state = state_of(str(base / "tree"))
    assert state.root == str(base / "tree")
    assert {(Path(spot.path), spot.tree) for spot in state.spots} == {
        (base, False),
        (base / "tree", True),
    }


def test_a_quick_look_finds_what_is_different(tmp_path: Path) -> None:
    path = tmp_path / "file"
    missing = state_of(str(path))
    assert is_as_before(str(path), missing)
    path.write_text("x")
    assert not is_as_before(str(path), missing)
    there = state_of(str(path))
    assert is_as_before(str(path), there)
    path.write_text("longer")
    assert not is_as_before(str(path), there)


@pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")
def test_file_systems_of_other_machines(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    mounted = mounts(str(table))
    assert mounted["/srv/on the net"] == "nfs4"
    paths = ["/srv/on the net/in", "/srv", "/mnt/far", "/mnt/near/x", "/mnt/farther"]
    assert remote(paths, mounted) == {"/srv/on the net/in": "nfs4", "/mnt/far": "cifs"}


def test_nothing_is_said_where_the_system_does_not_say(tmp_path: Path) -> None:
    assert mounts(str(tmp_path / "missing")) == {}
    assert remote([str(tmp_path)], {}) == {}
