"""The files of ended runs: compression, sizes, and a removal that reaches nothing else."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.logs import WrittenLog
from helpers.others_may_enter import let_others_enter
from helpers.supervision import RUN, new_attempt
from helpers.wait import DEADLINE, wait_for
from toband.domain.attempt_model import Attempt, AttemptState
from toband.ports import LogKind, StoppedError
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.run_directories import remove_tree, size_on_disk
from toband.supervise.files.run_files import RunFiles
from toband.supervise.host.run_archive import MARK, RunArchive

ID = "0192f3a4-5b6c-7d8e-9f01-23456789abcd"


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(str(tmp_path / "runs"))


@pytest.fixture
async def archive(files: RunFiles) -> AsyncIterator[RunArchive]:
    made = RunArchive(files)
    yield made
    await made.close()


def written(files: RunFiles, size: int = 10_000, *, end: bool = True) -> Attempt:
    """The attempt of a finished log."""
    with WrittenLog(files) as log:
        log.print((LogKind.STDOUT, b"x" * size))
        if end:
            log.end()
        return replace(log.attempt, state=AttemptState.COMPLETED)


def names(files: RunFiles) -> list[str]:
    return sorted(os.listdir(files.attempts(RUN)))


async def test_finished_logs_are_compressed(files: RunFiles, archive: RunArchive) -> None:
    attempts = [written(files) for _ in range(3)]
    assert await archive.compressible(RUN) == 3
    assert await archive.compress(attempts) == 3
    assert await archive.compressible(RUN) == 0
    assert names(files) == sorted(f"{files.log_name(each)}.gz" for each in attempts)
    assert await archive.compress(attempts) == 0
    size = await archive.measure(RUN)
    assert 0 < size.log_bytes < size.bytes


async def test_logs_of_instances_and_checks(files: RunFiles, archive: RunArchive) -> None:
    attempts = []
    for step in ("build", "build.check", "build[3]", "build[3].check", "build[13]"):
        with WrittenLog(files, step) as log:
            log.print((LogKind.STDOUT, b"x" * 10_000))
            log.end()
            attempts.append(replace(log.attempt, state=AttemptState.COMPLETED))
    found = [name.rsplit(".", 2)[0] for name in names(files)]
    assert found == sorted(["build.1", "build.3.1", "build.13.1", "build.check.1", "build.3.check.1"])
    assert await archive.compressible(RUN) == 5
    assert await archive.compress(attempts) == 5
    assert set(names(files)) == {f"{files.log_name(each)}.gz" for each in attempts}


async def test_half_made_values_are_tidied_away(files: RunFiles, archive: RunArchive) -> None:
    attempt = written(files)
    ValueFiles(files).spill(attempt, {"a": 1}, {})
    os.link(files.values(attempt), f"{files.values(attempt)}.new")
    assert await archive.tidy(RUN) == 1
    assert [name for name in names(files) if "values" in name] == [os.path.basename(files.values(attempt))]


async def test_what_may_still_be_written_or_is_small_is_left_alone(files: RunFiles, archive: RunArchive) -> None:
    small = written(files, 100)
    no_end = written(files, end=False)
    lost = replace(no_end, state=AttemptState.LOST)
    running = replace(written(files), state=AttemptState.RUNNING)
    with WrittenLog(files) as held:
        held.print((LogKind.STDOUT, b"x" * 10_000))
        alive = replace(held.attempt, state=AttemptState.LOST)
        missing = replace(new_attempt(), state=AttemptState.COMPLETED)
        assert await archive.compress([small, no_end, running, missing]) == 0
        # Not settled by that: it is to be tried again.
        with pytest.raises(BlockingIOError, match="has not gone yet"):
            await archive.compress([alive])
        assert not [name for name in names(files) if name.endswith(".gz")]
    # One that was lost gets no record any more.
    assert await archive.compress([lost]) == 1
    assert await archive.compressible("no-such-run") == 0


async def test_what_crashes_left_is_tidied(files: RunFiles, archive: RunArchive) -> None:
    attempt = written(files, 100)
    directory = Path(files.attempts(RUN))
    name = files.log_name(attempt)
    old, young = directory / f".{name}.4711", directory / f".{name}.4712"
    for path in (old, young, directory / f"{name}.gz.new"):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    assert await archive.tidy(RUN) == 2
    assert names(files) == sorted([name, young.name])
    assert await archive.tidy("no-such-run") == 0


async def test_marks_and_strays(files: RunFiles, archive: RunArchive) -> None:
    assert await archive.directories() == []
    os.makedirs(f"{files.root}/{ID}")
    os.makedirs(f"{files.root}/something-else")
    os.symlink("/", f"{files.root}/{ID[:-1]}e")
    (found,) = await archive.directories()
    assert (found.run_id, found.condemned) == (ID, False)
    missing = ID[:-1] + "0"
    assert await archive.condemn([ID, missing]) == [ID, missing]
    (found,) = await archive.directories()
    assert found.condemned
    await archive.remove(ID)
    await archive.remove(ID)
    assert await archive.directories() == []


@pytest.mark.parametrize("trick", ["link", "directory"])
async def test_a_mark_that_a_step_made_itself_is_no_trap(
    files: RunFiles, archive: RunArchive, tmp_path: Path, trick: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("stay")
    os.makedirs(files.run(ID))
    if trick == "link":
        os.symlink(outside, f"{files.run(ID)}/{MARK}")
    else:
        os.makedirs(f"{files.run(ID)}/{MARK}/inner")
    assert await archive.condemn([ID]) == [ID]
    assert [each.condemned for each in await archive.directories()] == [True]
    await archive.remove(ID)
    assert await archive.directories() == []
    assert outside.read_text() == "stay"


async def test_a_run_that_cannot_be_marked_is_told(files: RunFiles, archive: RunArchive) -> None:
    os.makedirs(files.root)
    Path(files.run(ID)).write_text("a file, not a directory")  # noqa: ASYNC240
    assert await archive.condemn([ID]) == []


async def test_output_is_held_while_told(files: RunFiles, archive: RunArchive) -> None:
    os.makedirs(files.root)
    for full in (True, True, False, False):
        await archive.hold_output(full)
        held = os.listdir(files.root)
        assert held == ([os.path.basename(files.logs_full)] if full else [])


async def test_closing_breaks_off_and_leaves_the_log(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = RunArchive(files)
    attempt = written(files, 15_000_000)
    go_on, asked, at_work = archive._go_on, itertools.count(), threading.Event()

    def in_the_middle() -> bool:
        # However fast it is: it is not done before it is closed.
        if next(asked) == 2:
            at_work.set()
            assert archive._closed.wait(DEADLINE)
        return go_on()

    monkeypatch.setattr(archive, "_go_on", in_the_middle)
    work = asyncio.ensure_future(archive.compress([attempt]))
    await wait_for(at_work.is_set, "it does not begin")
    assert len(names(files)) == 2, "half of it is there"
    await archive.close()
    assert await work == 0
    assert names(files) == [files.log_name(attempt)]


async def test_the_thread_gives_way_to_others(archive: RunArchive) -> None:
    # Whoever runs the tests may have told all of them to give way.
    before = os.getpriority(os.PRIO_PROCESS, 0)
    found = archive._packing.submit(os.getpriority, os.PRIO_PROCESS, 0)
    assert await asyncio.wrap_future(found) == max(10, before)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


# -- trees


def test_what_is_broken_off_can_be_taken_up_again(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for number in range(10):
        (tree / "sub" / str(number)).touch()
    (tree / MARK).touch()
    left = iter(range(5))
    with pytest.raises(StoppedError):
        remove_tree(str(tree), last=MARK, go_on=lambda: next(left, None) is not None)
    assert 0 < len(os.listdir(tree / "sub")) < 10
    with pytest.raises(StoppedError):
        size_on_disk(str(tree), lambda: False)
    remove_tree(str(tree), last=MARK)
    assert not tree.exists()


def test_removing_never_follows_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stay")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "to-directory").symlink_to(outside)
    (tree / "to-file").symlink_to(outside / "precious")
    (tree / "dangling").symlink_to("nowhere")
    (tree / "hard").hardlink_to(outside / "precious")
    os.mkfifo(tree / "fifo")
    size_on_disk(str(tree))
    remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "precious").read_text() == "stay"
    link = tmp_path / "link"
    link.symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        remove_tree(str(link))
    assert (outside / "precious").exists()
    remove_tree(str(tmp_path / "not-there"))


def test_any_depth_is_measured_and_removed(tmp_path: Path) -> None:
    """Deeper than the longest path that the system takes: what is down there counts, and goes."""
    tree = tmp_path / "tree"
    tree.mkdir()
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("directory", dir_fd=fd)
        below = os.open("directory", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    os.write(file, bytes(5_000_000))
    os.close(file)
    os.close(fd)
    assert size_on_disk(str(tree)) >= 5_000_000
    remove_tree(str(tree))
    assert not tree.exists()


def test_a_mark_goes_last(tmp_path: Path) -> None:
    """Whoever is interrupted leaves something that can be recognised."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / MARK).touch()
    (tree / "sub" / MARK).touch()
    remove_tree(str(tree), last=MARK)
    assert not tree.exists()


AS_SOMEBODY = """
import os, sys
from toband.supervise.files.run_directories import remove_tree
path = sys.argv[1]
if os.geteuid() == 0:
    os.chown(path, 65534, 65534)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.makedirs(path + "/tree/locked/inner")
open(path + "/tree/locked/inner/file", "w").close()
open(path + "/tree/mark", "w").close()
for name in ("tree/locked/inner", "tree/locked"):
    os.chmod(path + "/" + name, 0)
if sys.argv[2] == "own":
    remove_tree(path + "/tree", last="mark")
    print(os.listdir(path))
"""


def somebody(path: Path, what: str) -> str:
    # Away from directories that only the owner of the test may enter.
    path.mkdir(mode=0o777)
    let_others_enter(path)
    done = subprocess.run(
        [sys.executable, "-c", AS_SOMEBODY, str(path), what],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_modes_that_a_step_set_are_no_obstacle(tmp_path: Path) -> None:
    assert somebody(tmp_path / "s", "own") == "[]\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have files of two users")
def test_files_of_another_user_are_told_and_the_rest_goes(tmp_path: Path) -> None:
    somebody(tmp_path / "s", "leave")
    script = (
        "import os, sys\n"
        "from toband.supervise.files.run_directories import remove_tree\n"
        "os.setgroups([]); os.setgid(65533); os.setuid(65533)\n"
        "try: remove_tree(sys.argv[1], last='mark')\n"
        "except OSError as error: print(error.strerror)"
    )
    tree = tmp_path / "s" / "tree"
    os.chown(tree, 65533, 65533)
    (tree / "mine").touch()
    done = subprocess.run([sys.executable, "-c", script, str(tree)], check=True, capture_output=True, text=True)
    assert done.stdout == "Operation not permitted\n"
    assert sorted(os.listdir(tree)) == ["locked", "mark"]
    remove_tree(str(tree), last="mark")
    assert not tree.exists()
