"""The walk through a directory of a run: what is in it is found, and nothing outside."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from toband.supervise.files.tree_walk import walk_tree


def walked(top: Path) -> tuple[dict[str, bytes | str], list[str]]:
    left_out: list[str] = []
    found: dict[str, bytes | str] = {}
    for entry in walk_tree(str(top), lambda path, reason: left_out.append(f"{path}: {reason}")):
        if entry.fd >= 0:
            found[entry.path] = os.read(entry.fd, 1000)
        else:
            found[entry.path] = f"-> {entry.link}" if entry.link is not None else "directory"
    return found, left_out


def test_files_links_and_directories_are_found_and_links_are_not_followed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/file").write_bytes(b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (top / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(top / "socket"))
    assert walked(top) == (
        {"a": "directory", "a/b": "directory", "a/b/file": b"x", "link": f"-> {tmp_path}/outside"},
        [],
    )


def test_what_disappears_during_the_walk_is_not_there(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    found = []
    for entry in walk_tree(str(tmp_path), lambda *_: None):
        found.append(entry.path)
        if entry.path == "a":
            (tmp_path / "b/file").unlink()
            (tmp_path / "b").rmdir()
    assert found == ["a", "a/file", "c", "c/file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read all files")
def test_root_reads_no_file_of_its_own_that_others_may_have_named_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "top").mkdir()
    os.link(secret, tmp_path / "top/own")
    assert walked(tmp_path / "top")[0] == {"own": b"secret"}
    os.chown(tmp_path / "top", 65534, 65534)
    assert walked(tmp_path / "top") == ({}, ["own: it is a file of root with a second name"])


def test_a_tree_that_is_too_deep_is_reported(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(210):
        path /= "d"
        path.mkdir()
    found, left_out = walked(tmp_path)
    assert len(found) == 200
    assert [line.partition(": ")[2] for line in left_out] == ["it is more than 200 levels deep"]
