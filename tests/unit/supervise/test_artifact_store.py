"""Artifacts: collected from workspaces and placed into others, with real files, linked and copied."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import os
import stat
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.wait import wait_for
from toban.definition import Output
from toband.domain.run_model import Artifact
from toband.masker import Masker
from toband.ports import ArtifactError, Collect, Placement, StoppedError
from toband.supervise.artifacts import file_copy
from toband.supervise.artifacts.artifact_store import CHUNK, ArtifactFiles
from toband.supervise.files.file_budget import Budget, FileLimits
from toband.supervise.files.run_directories import remove_tree
from toband.supervise.files.run_files import RunFiles
from toband.supervise.files.safe_directory import SafeDirectory

posix = pytest.mark.skipif(sys.platform == "win32", reason="links and modes of POSIX")


class Scene:
    """A workspace, a context directory, and what does the work."""

    def __init__(self, root: Path, link: bool | None) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.context = root / "state" / "runs" / "run" / "context"
        self.workspace.mkdir()
        self.context.mkdir(parents=True)
        self.files = ArtifactFiles(RunFiles(str(root / "state" / "runs")), link=link)

    def write(self, path: str, text: str = "x", *, mode: int | None = None) -> Path:
        made = self.workspace / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text, "utf-8")
        if mode is not None:
            made.chmod(mode)
        return made

    async def collect(self, *paths: str, **how: Any) -> tuple[Artifact, ...]:
        """With the names out, out-1, …"""
        optional = how.pop("optional", False)
        outputs = [
            Output(name=f"out-{number}" if number else "out", path=path, optional=optional)
            for number, path in enumerate(paths)
        ]
        what = {"context": str(self.context), "folder": "build", "workspace": str(self.workspace)}
        return await self.files.collect(Collect(**(what | how), outputs=outputs))

    async def place(self, *placements: Placement, own: bool = True) -> None:
        await self.files.place(str(self.workspace), placements, own=own)

    def kept(self, folder: str = "build") -> dict[str, str]:
        return contents(self.context / folder)

    async def download(self, artifact: Artifact, path: str = "") -> bytes:
        pieces = [each async for each in self.files.read(str(self.context), artifact, path)]
        assert all(0 < len(piece) <= CHUNK for piece in pieces)
        return b"".join(pieces)


def contents(directory: Path) -> dict[str, str]:
    """The text of every file, and where links lead, by path; directories that are empty end with a slash."""
    found = {}
    for here, directories, names in os.walk(directory):
        for name in (*directories, *names):
            path = Path(here, name)
            shown = path.relative_to(directory).as_posix()
            if path.is_symlink():
                found[shown] = f"-> {path.readlink().as_posix()}"
            elif path.is_file():
                found[shown] = path.read_text("utf-8")
            elif not any(path.iterdir()):
                found[f"{shown}/"] = ""
    return found


def same_file(one: Path, other: Path) -> bool:
    return os.path.samefile(one, other)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory of another file system."""
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system")
    with tempfile.TemporaryDirectory(dir=other) as made:
        yield Path(made)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, None)
    yield made
    await made.files.close()


@pytest.fixture(params=["linked", "copied"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """Inputs are linked, and copied."""
    made = Scene(tmp_path, request.param == "linked")
    yield made
    await made.files.close()


def refusal(text: str) -> contextlib.AbstractContextManager[Any]:
    return pytest.raises(ArtifactError, match=text)


# -- keeping


async def test_a_file_a_directory_and_a_pattern(scene: Scene) -> None:
    scene.write("src/feature.ts", "code")
    scene.write("logs/b.txt", "bb")
    scene.write("logs/a.txt", "a")
    scene.write("logs/other.md")
    found = await scene.collect("src/feature.ts", "logs", "logs/*.txt", "./src/")
    assert found == (
        Artifact(name="out", path="build/out/src/feature.ts", files=1, bytes=4),
        Artifact(name="out-1", path="build/out-1/logs", files=3, bytes=4),
        Artifact(name="out-2", path="build/out-2", files=2, bytes=3),
        Artifact(name="out-3", path="build/out-3/src", files=1, bytes=4),
    )
    assert scene.kept() == {
        "out/src/feature.ts": "code",
        "out-1/logs/a.txt": "a",
        "out-1/logs/b.txt": "bb",
        "out-1/logs/other.md": "x",
        "out-2/logs/a.txt": "a",
        "out-2/logs/b.txt": "bb",
        "out-3/src/feature.ts": "code",
    }


async def test_copies_do_not_change_with_the_workspace(scene: Scene) -> None:
    made = scene.write("report", "first")
    await scene.collect("report")
    made.write_text("second")
    assert scene.kept() == {"out/report": "first"}
    (artifact,) = await scene.collect("report")
    assert scene.kept() == {"out/report": "second"}
    assert artifact.bytes == 6


async def test_instances_have_folders_of_their_own(scene: Scene) -> None:
    scene.write("report", "x")
    (artifact,) = await scene.collect("report", folder="build/3")
    assert artifact.path == "build/3/out/report"
    assert [each.path for each in await scene.files.files(str(scene.context), artifact)] == ["report"]


async def test_every_iteration_is_kept_and_the_latest_has_its_own_name(scene: Scene) -> None:
    scene.write("src/a", "one")
    scene.write("src/gone", "one")
    await scene.collect("src", iteration=1, final=False)
    (scene.workspace / "src" / "gone").unlink()
    scene.write("src/a", "two")
    (artifact,) = await scene.collect("src", iteration=2)
    assert artifact.path == "build/out/src"
    assert scene.kept() == {
        "iteration-1/out/src/a": "one",
        "iteration-1/out/src/gone": "one",
        "iteration-2/out/src/a": "two",
        "out/src/a": "two",
    }


async def test_what_is_missing(scene: Scene) -> None:
    with refusal(r'output "out" is missing: there is no report\.html in .*workspace'):
        await scene.collect("report.html")
    with refusal(r'output "out" is missing: nothing in .* fits \*\.txt; output "out-1" is'):
        await scene.collect("*.txt", "b")
    with refusal('output "out" is missing: there is no file/ in'):
        scene.write("file")
        await scene.collect("file/")
    assert not (scene.context / "build" / "out").exists()
    assert await scene.collect("report.html", optional=True) == ()
    (kept,) = await scene.collect("report.html", "file", final=False, iteration=1)
    assert kept.name == "out-1"


async def test_what_is_missing_now_is_not_there_from_before(scene: Scene) -> None:
    made = scene.write("report", "old")
    await scene.collect("report")
    made.unlink()
    await scene.collect("report", optional=True)
    assert scene.kept() == {}


async def test_nothing_is_replaced_when_something_is_missing(scene: Scene) -> None:
    made = scene.write("a", "old")
    await scene.collect("a")
    made.write_text("new")
    with refusal("missing"):
        await scene.collect("a", "b")
    assert scene.kept() == {"out/a": "old"}


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "a/../../secret", "..", "a\0b"])
async def test_paths_that_lead_out(scene: Scene, path: str) -> None:
    (scene.root / "secret").write_text("secret")
    with refusal('cannot keep output "out": .* it must stay in the workspace'):
        await scene.collect(path)


async def test_the_whole_workspace_without_the_context_in_it(scene: Scene) -> None:
    scene.write("a", "x")
    scene.context = scene.workspace / "context"
    for _ in range(2):
        (artifact,) = await scene.collect(".")
        assert artifact == Artifact(name="out", path="build/out", files=1, bytes=1)
        assert scene.kept() == {"out/a": "x"}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", {"a.txt", "b1.log", "sub/c.txt", "sub/.hidden", "sub/deep/d.txt", "empty/"}),
        ("*.txt", {"a.txt"}),
        ("b?.log", {"b1.log"}),
        ("[ab]*", {"a.txt", "b1.log"}),
        ("[!ab]*/*.txt", {"sub/c.txt"}),
        ("**/*.txt", {"a.txt", "sub/c.txt", "sub/deep/d.txt"}),
        ("sub/**", {"sub/c.txt", "sub/deep/d.txt"}),
        ("**", {"a.txt", "b1.log", "sub/c.txt", "sub/deep/d.txt", "empty/"}),
        ("**/**/d.txt", {"sub/deep/d.txt"}),
        (".*", {".env"}),
        ("sub/.h*", {"sub/.hidden"}),
        ("*/", {"sub/c.txt", "sub/.hidden", "sub/deep/d.txt", "empty/"}),
        ("sub/*/", {"sub/deep/d.txt"}),
    ],
)
async def test_patterns(scene: Scene, pattern: str, expected: set[str]) -> None:
    for path in ("a.txt", "b1.log", ".env", "sub/c.txt", "sub/.hidden", "sub/deep/d.txt"):
        scene.write(path)
    (scene.workspace / "empty").mkdir()
    await scene.collect(pattern)
    assert set(scene.kept("build/out")) == expected


@posix
async def test_a_file_keeps_what_may_be_executed_and_loses_what_may_be_written(
    scene: Scene,
) -> None:
    scene.write("tool", mode=0o775)
    scene.write("private", mode=0o600)
    scene.write("odd", mode=0o642)
    await scene.collect("tool", "private", "odd")
    modes = [
        stat.S_IMODE((scene.context / "build" / name).stat().st_mode)
        for name in ("out/tool", "out-1/private", "out-2/odd")
    ]
    assert modes == [0o555, 0o400, 0o440]


@posix
async def test_links_in_what_is_kept(scene: Scene) -> None:
    scene.write("tree/a", "a")
    scene.write("shared/deep/b", "b")
    tree = scene.workspace / "tree"
    (tree / "sub").mkdir()
    (tree / "sub" / "up").symlink_to("../a")
    (tree / "round").symlink_to("../tree/sub")
    (tree / "absolute").symlink_to(tree / "a")
    (tree / "later").symlink_to("not/there/yet")
    (tree / "file").symlink_to("../shared/deep/b")
    (tree / "directory").symlink_to("../shared")
    (scene.workspace / "shared" / "own").symlink_to("deep")
    (scene.workspace / "shared" / "back").symlink_to("../tree/a")
    (artifact,) = await scene.collect("tree")
    assert scene.kept("build/out/tree") == {
        "a": "a",
        "sub/up": "-> ../a",
        "round": "-> sub",
        "absolute": "-> a",
        "later": "-> not/there/yet",
        "file": "b",
        "directory/deep/b": "b",
        "directory/own": "-> deep",
        "directory/back": "-> ../a",
    }
    assert (artifact.files, artifact.bytes) == (3, 3)


@posix
async def test_the_path_itself_may_be_a_link_inside(scene: Scene) -> None:
    scene.write("builds/7/report", "seven")
    (scene.workspace / "latest").symlink_to("builds/7")
    (scene.workspace / "current").symlink_to(scene.workspace / "latest" / "report")
    found = await scene.collect("latest", "latest/report", "current", "lat*/rep*")
    assert [each.path for each in found] == [
        "build/out/latest",
        "build/out-1/latest/report",
        "build/out-2/current",
        "build/out-3",
    ]
    assert scene.kept() == {
        "out/latest/report": "seven",
        "out-1/latest/report": "seven",
        "out-2/current": "seven",
        "out-3/latest/report": "seven",
    }


@posix
@pytest.mark.parametrize(
    ("link", "target", "path", "named"),
    [
        ("report", "/etc/passwd", "report", "report is a link to /etc/passwd"),
        ("tree/x", "../../secret", "tree", "tree/x is a link to ../../secret"),
        ("tree", "..", "tree/secret", r"tree is a link to \.\."),
        ("tree/x", "/etc", "**", "tree/x is a link to /etc"),
        ("a", "b", "a", "a leads in a circle"),
        ("tree/x", "../gone", "tree", "tree/x is a link to nothing"),
        ("tree/x", "..", "tree", "tree/x leads in a circle"),
    ],
)
async def test_links_that_lead_out_or_nowhere(scene: Scene, link: str, target: str, path: str, named: str) -> None:
    (scene.root / "secret").write_text("secret")
    made = scene.workspace / link
    made.parent.mkdir(exist_ok=True)
    made.symlink_to(target)
    if target == "b":
        (scene.workspace / "b").symlink_to("a")
    with refusal(f'cannot keep output "out": {named}'):
        await scene.collect(path)
    assert "secret" not in scene.kept("").values()


@posix
@pytest.mark.parametrize("path", ["tree/pipe", "tree", "tree/*"])
async def test_special_files_are_refused_and_not_waited_for(scene: Scene, path: str) -> None:
    scene.write("tree/a")
    os.mkfifo(scene.workspace / "tree" / "pipe")
    with refusal('cannot keep output "out": tree/pipe is a named pipe'):
        await scene.collect(path)


@posix
async def test_a_link_that_appears_meanwhile_is_not_followed(scene: Scene) -> None:
    """Whoever exchanges a directory for a link after it was looked at gains nothing."""
    scene.write("tree/a", "mine")
    (scene.root / "outside").mkdir()
    (scene.root / "outside" / "a").write_text("secret")
    with SafeDirectory(str(scene.workspace)) as inside:
        assert inside.resolve("tree/a") == "tree/a"
        os.rename(scene.workspace / "tree", scene.workspace / "moved")
        (scene.workspace / "tree").symlink_to("../outside")
        fd = inside.open_file("tree/a")
        assert os.read(fd, 100) == b"mine"
        os.close(fd)
        assert inside.names("moved") == ["a"]
        with pytest.raises(NotADirectoryError):
            inside.open_file("tree/a")


async def test_what_an_interrupted_collection_left_is_gone_after_the_next(scene: Scene) -> None:
    left = scene.context / "build" / ".toban-new-out"
    left.mkdir(parents=True)
    (left / "half").write_text("ha")
    scene.write("a")
    await scene.collect("a")
    assert scene.kept() == {"out/a": "x"}


async def test_without_exchange_a_directory_is_replaced_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SafeDirectory, "_exchange", lambda *_: False)
    for text in ("one", "two"):
        scene.write("a", text)
        await scene.collect("a")
        assert scene.kept() == {"out/a": text}


async def test_a_collection_that_fails_leaves_what_was_there(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write("tree/a", "one")
    await scene.collect("tree")
    scene.write("tree/b", "two")

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_copy, "copy", full)
    with pytest.raises(OSError, match="No space"):
        await scene.collect("tree")
    assert scene.kept() == {"out/tree/a": "one"}


async def test_it_is_on_disk_before_it_has_its_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, put = os.fsync, SafeDirectory.put

    def noted_put(self: SafeDirectory, new: str, path: str) -> None:
        done.append(f"put {path}")
        put(self, new, path)

    def noted_fsync(fd: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(SafeDirectory, "put", noted_put)
    scene.write("tree/a")
    scene.write("tree/b")
    await scene.collect("tree")
    if sys.platform == "win32":
        assert done == ["file", "file", "put build/out"]
    else:
        assert done == [
            "directory",
            "file",
            "file",
            "directory",
            "directory",
            "put build/out",
            "directory",
        ]


async def test_closing_breaks_off(scene: Scene) -> None:
    scene.write("a")
    await scene.files.close()
    with pytest.raises(StoppedError):
        await scene.collect("a")
    assert scene.kept() == {}


async def test_a_workspace_that_is_gone(scene: Scene) -> None:
    scene.workspace.rmdir()
    with refusal("cannot keep the outputs: there is no directory"):
        await scene.collect("a")
    with refusal("cannot lay out the inputs: there is no directory"):
        await scene.place(Placement(path="a", source=None))


@posix
async def test_secrets_in_names_are_masked_and_contents_are_not(scene: Scene) -> None:
    masker = Masker(["s3cret-name", "an/other-one"])
    for name in (
        "plain",
        "s3cret-name",
        b"s3cret-name".hex(),
        "a s3cret-name.txt",
        "deep/s3cret-name/s3cret-name/file",
    ):
        scene.write(f"tree/{name}", "has s3cret-name in it")
    (scene.workspace / "tree" / "link").symlink_to("deep/s3cret-name/s3cret-name/file")
    (kept,) = await scene.collect("tree/", masker=masker)
    found = scene.kept()
    assert set(found) == {
        f"out/tree/{path}" for path in ("plain", "a ***.txt", "***", "***-2", "deep/***/***/file", "link")
    }
    assert set(found.values()) == {"has s3cret-name in it", "-> deep/***/***/file"}
    assert (kept.path, kept.files) == ("build/out/tree", 5)
    assert await scene.download(kept, "tree/a ***.txt") == b"has s3cret-name in it"
    scene.write("split/an/other-one")
    with refusal("a secret is spread over names of directories"):
        await scene.collect("split/", masker=masker)


async def test_a_context_directory_that_cannot_be_one(scene: Scene) -> None:
    scene.write("a")
    blocked = scene.root / "file"
    blocked.write_text("x")
    for path in (blocked, blocked / "context"):
        with refusal("cannot keep the outputs: .*file"):
            await scene.collect("a", context=str(path))
        with refusal("cannot reuse the artifacts: .*file"):
            await scene.files.adopt(str(path), {"build": str(scene.context)})
        with pytest.raises(OSError, match="file"):
            scene.files.note(str(path), "_workflow.json", {})


@posix
async def test_what_a_step_put_in_the_way_is_not_followed(scene: Scene) -> None:
    outside = scene.root / "outside"
    outside.mkdir()
    scene.write("a")
    (scene.context / "build").symlink_to(outside)
    with refusal("cannot keep the outputs: .*Not a directory"):
        await scene.collect("a")
    with pytest.raises(NotADirectoryError):
        scene.files.note(str(scene.context), "build/_meta.json", {})
    assert list(outside.iterdir()) == []


@posix
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() != 0, reason="needs root")
async def test_nothing_is_kept_in_what_belongs_to_another_user(scene: Scene) -> None:
    scene.write("a")
    (scene.context / "build").mkdir()
    os.chown(scene.context / "build", 65534, 65534)
    with refusal("cannot keep the outputs: .*build: it belongs to user 65534"):
        await scene.collect("a")
    with pytest.raises(PermissionError):
        scene.files.note(str(scene.context), "build/_meta.json", {})


@posix
async def test_kept_directories_can_be_removed_with_the_run(scene: Scene) -> None:
    scene.write("tree/sub/a")
    (scene.workspace / "tree" / "sub").chmod(0o555)
    try:
        await scene.collect("tree")
    finally:
        (scene.workspace / "tree" / "sub").chmod(0o755)
    remove_tree(str(scene.context))
    assert not scene.context.exists()


async def test_read_only_files_can_be_removed(scene: Scene) -> None:
    scene.write("tree/a")
    await scene.collect("tree")
    remove_tree(str(scene.context))
    assert not scene.context.exists()


# -- limits


def deep(directory: Path, levels: int) -> None:
    """A tree that no path reaches the bottom of."""
    directory.mkdir(parents=True)
    fd = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@posix
async def test_a_deep_tree_is_refused_with_the_reason(scene: Scene) -> None:
    """Its path is longer than any that the kernel takes."""
    deep(scene.workspace / "tree", 3000)
    try:
        for path in (".", "tree", "**", "tree/**/*.txt"):
            began = time.monotonic()
            with refusal('cannot keep output "out": .* is more than 256 directories deep'):
                await scene.collect(path)
            with refusal("cannot see whether .* changes: .*more than 256 directories deep"):
                await scene.files.fingerprint(str(scene.workspace), path)
            assert time.monotonic() - began < 10, path
    finally:
        remove_tree(str(scene.workspace))


@posix
async def test_a_tree_within_the_limit_is_kept_and_laid_out(scene: Scene) -> None:
    deep(scene.workspace / "tree", 240)
    bottom = "/".join(["tree", *["d"] * 240, "file"])
    scene.write(bottom, "deep")
    (artifact,) = await scene.collect("tree")
    await scene.place(Placement(path="again", source=source(scene, artifact.path)), own=False)
    assert (scene.workspace / bottom.replace("tree", "again", 1)).read_text() == "deep"
    assert await scene.download(artifact) == b"deep"


@posix
async def test_a_path_that_is_too_deep_is_refused(scene: Scene) -> None:
    with refusal("more than 256 directories deep"):
        await scene.collect("a/" * 5000 + "b")


async def test_outputs_that_are_more_than_the_limits(scene: Scene) -> None:
    limits = FileLimits(bytes=1_000_000, files=20)
    scene.files = ArtifactFiles(RunFiles(str(scene.root / "state" / "runs")), limits=limits)
    scene.write("a", "x" * 600_000)
    scene.write("b", "x" * 600_000)
    await scene.collect("a")
    with refusal(r"cannot keep the outputs out, out-1: it has more than 1000000 of data \(limits.artifact_bytes\)"):
        await scene.collect("a", "b")
    assert scene.kept() == {"out/a": "x" * 600_000}
    with refusal(r"cannot see whether \* changes: it has more than .*limits.artifact_bytes"):
        await scene.files.fingerprint(str(scene.workspace), "*")
    for number in range(30):
        scene.write(f"many/{number}")
    for path in ("many", "many/*", "**"):
        with refusal(r"cannot keep output .* 20 files and directories \(limits.artifact_files\)"):
            await scene.collect(path)
    await scene.files.close()


@posix
@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="needs SEEK_DATA")
async def test_holes_are_kept_as_holes(scene: Scene) -> None:
    made = scene.write("sparse", "data")
    try:
        os.truncate(made, 10 * 1024**4)
    except OSError as error:
        pytest.skip(f"no file of 10 TiB here: {error}")
    began = time.monotonic()
    before = await scene.files.fingerprint(str(scene.workspace), "sparse")
    (artifact,) = await scene.collect("sparse")
    await scene.place(Placement(path="again", source=source(scene, artifact.path)), own=False)
    assert before == await scene.files.fingerprint(str(scene.workspace), "sparse")
    assert time.monotonic() - began < 10
    assert artifact.bytes == 10 * 1024**4
    for path in (scene.context / artifact.path, scene.workspace / "again"):
        assert path.stat().st_size == 10 * 1024**4
        assert path.stat().st_blocks * 512 < 1_000_000
    scene.write("sparse-2").unlink()
    os.link(made, scene.workspace / "sparse-2")
    with refusal("cannot keep the outputs out: it has more than 16TiB, counted with the holes"):
        await scene.collect("sparse*")


@posix
async def test_a_collection_that_is_cancelled_stops_and_leaves_what_was_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write("a", "old")
    await scene.collect("a")
    scene.write("a", "new")
    begun = threading.Event()

    def slow(source: int, target: int, budget: Budget, **_: object) -> int:
        begun.set()
        while True:
            budget.check()

    monkeypatch.setattr(file_copy, "copy", slow)
    task = asyncio.ensure_future(scene.collect("a"))
    await wait_for(begun.is_set, "it does not copy")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_for(lambda: not scene.files._workers.busy, "it still copies")
    assert scene.kept() == {"out/a": "old"}


# -- laying out


def source(scene: Scene, path: str) -> str:
    return str(scene.context / path)


async def test_files_and_directories_are_laid_out(either: Scene) -> None:
    scene = either
    scene.write("raw.json", "{}")
    scene.write("tree/sub/a", "a")
    await scene.collect("raw.json", "tree")
    await scene.place(
        Placement(path="raw", source=source(scene, "build/out/raw.json")),
        Placement(path="deep/in/code", source=source(scene, "build/out-1/tree")),
        Placement(path="absent", source=None),
        Placement(path="none", source=None, directory=True),
    )
    assert contents(scene.workspace) == {
        "raw.json": "{}",
        "tree/sub/a": "a",
        "raw": "{}",
        "deep/in/code/sub/a": "a",
        "absent": "",
        "none/": "",
    }
    linked = same_file(scene.workspace / "raw", scene.context / "build/out/raw.json")
    assert linked is scene.files._placing.link


async def test_laying_out_again_gives_the_same(either: Scene) -> None:
    scene = either
    scene.write("raw.json", "{}")
    scene.write("tree/a", "a")
    await scene.collect("raw.json", "tree")
    placements = [
        Placement(path="raw", source=source(scene, "build/out/raw.json")),
        Placement(path="code", source=source(scene, "build/out-1/tree")),
        Placement(path="absent", source=None),
    ]
    for own in (True, False, False, True):
        await scene.place(*placements, own=own)
        assert contents(scene.workspace)["code/a"] == "a"
    assert not list(scene.workspace.glob(".toban*"))


async def test_without_links_it_is_copied(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    scene.files = ArtifactFiles(RunFiles(str(scene.root / "state" / "runs")), link=True)
    scene.write("raw.json", "{}")
    await scene.collect("raw.json")
    monkeypatch.setattr(os, "link", refuse)
    await scene.place(Placement(path="raw", source=source(scene, "build/out/raw.json")))
    assert (scene.workspace / "raw").read_text() == "{}"
    await scene.files.close()


@posix
async def test_another_file_system(tmp_path: Path, elsewhere: Path) -> None:
    scene = Scene(tmp_path, link=True)
    scene.workspace = elsewhere
    scene.write("raw.json", "{}")
    (artifact,) = await scene.collect("raw.json")
    await scene.place(Placement(path="raw", source=source(scene, artifact.path)))
    assert (scene.workspace / "raw").read_text() == "{}"
    context = scene.workspace / "context"
    await scene.files.adopt(str(context), {"build": str(scene.context)})
    assert contents(context) == {"build/out/raw.json": "{}"}
    await scene.files.close()


async def test_in_its_own_directory_a_run_replaces_what_is_there(either: Scene) -> None:
    scene = either
    scene.write("a", "new")
    await scene.collect("a")
    scene.write("raw", "old")
    scene.write("code/old", "old")
    await scene.place(
        Placement(path="raw", source=source(scene, "build/out/a")),
        Placement(path="code", source=source(scene, "build/out/a")),
    )
    assert contents(scene.workspace) == {"a": "new", "raw": "new", "code": "new"}


async def test_elsewhere_only_what_was_laid_out_before_is_replaced(either: Scene) -> None:
    scene = either
    for text in ("one", "two"):
        scene.write("a", text)
        scene.write("tree/x", text)
        await scene.collect("a", "tree")
        await scene.place(
            Placement(path="raw", source=source(scene, "build/out/a")),
            Placement(path="code", source=source(scene, "build/out-1/tree")),
            own=False,
        )
        assert (scene.workspace / "raw").read_text() == text
        assert (scene.workspace / "code" / "x").read_text() == text
    scene.write("a", "three")
    scene.write("tree/x", "three")
    await scene.collect("a", "tree")
    (scene.workspace / "code" / "mine").write_text("precious")
    with refusal(r"cannot lay out the input code in .*: something else is there already; remove"):
        await scene.place(Placement(path="code", source=source(scene, "build/out-1/tree")), own=False)
    assert (scene.workspace / "code" / "mine").read_text() == "precious"
    (scene.workspace / "raw").chmod(0o600)
    (scene.workspace / "raw").unlink()
    scene.write("raw", "precious")
    with refusal("something else is there"):
        await scene.place(Placement(path="raw", source=source(scene, "build/out/a")), own=False)
    assert (scene.workspace / "raw").read_text() == "precious"


async def test_elsewhere_what_is_the_same_is_left_alone(either: Scene) -> None:
    """The step that made the file, and the one that needs it, often share a directory."""
    scene = either
    made = scene.write("raw", "{}")
    scene.write("tree/a", "a")
    await scene.collect("raw", "tree")
    before = made.stat().st_ino
    for _ in range(2):
        await scene.place(
            Placement(path="raw", source=source(scene, "build/out/raw")),
            Placement(path="tree", source=source(scene, "build/out-1/tree")),
            own=False,
        )
    assert made.stat().st_ino == before
    made.write_text("[]")
    with refusal("something else is there"):
        await scene.place(Placement(path="raw", source=source(scene, "build/out/raw")), own=False)


@pytest.mark.parametrize("path", ["/tmp/x", "../x", "", ".", "a/../../x"])
async def test_inputs_stay_in_the_workspace(scene: Scene, path: str) -> None:
    with refusal("cannot lay out the input"):
        await scene.place(Placement(path=path, source=None))
    assert not (scene.root / "x").exists()


@posix
async def test_links_on_the_way_to_an_input(scene: Scene) -> None:
    (scene.workspace / "real").mkdir()
    (scene.workspace / "inner").symlink_to("real")
    (scene.workspace / "outer").symlink_to("..")
    (scene.workspace / "input").symlink_to("../elsewhere")
    await scene.place(Placement(path="inner/raw", source=None), Placement(path="input", source=None))
    assert (scene.workspace / "real" / "raw").read_text() == ""
    assert not (scene.workspace / "input").is_symlink()
    assert not (scene.root / "elsewhere").exists()
    with refusal(r"cannot lay out the input outer/raw: outer is a link to \.\."):
        await scene.place(Placement(path="outer/raw", source=None))
    scene.write("file")
    with refusal("cannot lay out the input file/raw in"):
        await scene.place(Placement(path="file/raw", source=None))


async def test_a_source_that_is_gone(scene: Scene) -> None:
    for path in ("build/out/raw", "no/such/place"):
        with refusal("cannot lay out the input raw: .* is gone"):
            await scene.place(Placement(path="raw", source=source(scene, path)))


@posix
async def test_links_are_laid_out_as_they_were_kept(either: Scene) -> None:
    scene = either
    scene.write("tree/a", "a")
    (scene.workspace / "tree" / "b").symlink_to("../tree/a")
    await scene.collect("tree")
    await scene.place(Placement(path="in", source=source(scene, "build/out/tree")))
    assert contents(scene.workspace / "in") == {"a": "a", "b": "-> a"}


@posix
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() != 0, reason="needs root")
async def test_what_root_does_to_an_input_does_not_reach_what_was_kept(scene: Scene) -> None:
    scene.write("raw.json", "{}")
    await scene.collect("raw.json")
    await scene.place(Placement(path="raw", source=source(scene, "build/out/raw.json")))
    (scene.workspace / "raw").write_text("spoilt")
    assert scene.kept() == {"out/raw.json": "{}"}


# -- giving to other runs


async def test_another_run_gets_what_was_kept(scene: Scene) -> None:
    scene.write("a", "one")
    await scene.collect("a", iteration=1)
    await scene.collect("a", folder="many/0")
    scene.files.note(str(scene.context), "build/_meta.json", {"stepId": "build"})
    (scene.context / "build" / ".toban-new-out").mkdir()
    second = scene.root / "second"
    for _ in range(2):
        await scene.files.adopt(str(second), {"build": str(scene.context), "many/0": str(scene.context)})
    found = contents(second)
    assert json.loads(found.pop("build/_meta.json")) == {"stepId": "build"}
    assert found == {
        "build/out/a": "one",
        "build/iteration-1/out/a": "one",
        "many/0/out/a": "one",
    }
    assert same_file(second / "build/out/a", scene.context / "build/out/a")
    # It outlives the run that it came from.
    remove_tree(str(scene.context))
    assert (second / "build/out/a").read_text() == "one"


async def test_what_is_gone_cannot_be_taken_over(scene: Scene) -> None:
    with refusal("cannot reuse the artifacts in .*build: it is gone"):
        await scene.files.adopt(str(scene.root / "second"), {"build": str(scene.context)})
    with refusal("it is gone"):
        await scene.files.adopt(str(scene.context), {"build": str(scene.root / "nowhere")})


async def test_runs_that_share_a_context_directory_have_it_already(scene: Scene) -> None:
    scene.write("a", "one")
    await scene.collect("a")
    await scene.files.adopt(str(scene.context), {"build": str(scene.context)})
    assert scene.kept() == {"out/a": "one"}


# -- looking whether something changed


async def test_fingerprints(scene: Scene) -> None:
    async def look(path: str) -> str:
        return await scene.files.fingerprint(str(scene.workspace), path)

    absent = await look("a")
    assert absent == await look("b/c")
    made = scene.write("a", "1")
    first = await look("a")
    assert first not in (absent, "")
    os.utime(made, (0, 0))
    assert await look("a") == first
    made.write_text("2")
    assert await look("a") != first
    scene.write("tree/x", "1")
    tree = [await look("tree")]
    scene.write("tree/y", "")
    tree.append(await look("tree"))
    os.rename(scene.workspace / "tree" / "y", scene.workspace / "tree" / "z")
    tree.append(await look("tree"))
    (scene.workspace / "tree" / "empty").mkdir()
    tree.append(await look("tree/"))
    if sys.platform != "win32":
        (scene.workspace / "tree" / "x").chmod(0o755)
        tree.append(await look("tree"))
    assert len(set(tree)) == len(tree)
    assert await look("tr*") == tree[-1]
    with refusal(r"cannot see whether \.\./x changes"):
        await look("../x")


# -- notes


async def test_notes_are_whole(scene: Scene) -> None:
    context = str(scene.root / "elsewhere" / "context")
    for status in ("RUNNING", "成功"):
        scene.files.note(context, "_workflow.json", {"status": status})
        scene.files.note(context, "many/3/_meta.json", {"status": status})
        for name in ("_workflow.json", "many/3/_meta.json"):
            assert json.loads(contents(Path(context))[name]) == {"status": status}
    with pytest.raises(TypeError):
        scene.files.note(context, "_workflow.json", {"status": object()})
    assert contents(Path(context)).keys() == {"_workflow.json", "many/3/_meta.json"}


# -- reading


async def test_one_file_is_read_as_it_is(scene: Scene) -> None:
    text = "0123456789" * 20_000
    scene.write("big", text)
    (artifact,) = await scene.collect("big")
    assert await scene.download(artifact) == text.encode()
    assert await scene.download(artifact, "big") == text.encode()
    scene.write("tree/only", "x")
    (artifact,) = await scene.collect("tree")
    assert await scene.download(artifact) == b"x"


async def test_several_files_are_an_archive(scene: Scene) -> None:
    scene.write("tree/a", "a" * 70_000)
    scene.write("tree/sub/日本語", "b")
    scene.write("tree/" + "long/" * 22 + "name", "c", mode=0o755)
    scene.write("tree/empty", "")
    if sys.platform != "win32":
        (scene.workspace / "tree" / "link").symlink_to("a")
    (artifact,) = await scene.collect("tree")
    data = await scene.download(artifact)
    assert len(data) % tarfile.RECORDSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        out = scene.root / "unpacked"
        # Not every 3.11 has filters.
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(out, **safely)
    assert contents(out) == contents(scene.context / "build" / "out")
    stored = await scene.files.files(str(scene.context), artifact)
    assert [(each.path, each.bytes) for each in stored] == [
        ("tree/a", 70_000),
        ("tree/empty", 0),
        ("tree/" + "long/" * 22 + "name", 1),
        ("tree/sub/日本語", 1),
    ]
    assert await scene.download(artifact, "tree/sub/日本語") == b"b"
    (scene.workspace / "none").mkdir()
    (empty,) = await scene.collect("none")
    with tarfile.open(fileobj=io.BytesIO(await scene.download(empty)), mode="r:") as archive:
        assert archive.getnames() == ["none"]


@pytest.mark.parametrize("path", ["b", "tree", "../../_workflow.json", "/etc/passwd", "tree/out", "", "tree/a/x"])
async def test_only_what_is_of_the_artifact_is_read(scene: Scene, path: str) -> None:
    scene.write("tree/a", "a")
    (artifact,) = await scene.collect("tree")
    scene.files.note(str(scene.context), "_workflow.json", {})
    kept = scene.context / "build" / "out" / "tree"
    if path == "tree/out" and sys.platform != "win32":
        (kept / "out").symlink_to("../../../_workflow.json")
    if path == "":
        remove_tree(str(kept.parent))
    with refusal("cannot read"):
        await scene.download(artifact, path)


async def test_a_reader_that_goes_away_leaves_nothing_open(scene: Scene) -> None:
    scene.write("big", "x" * (3 * CHUNK))
    (artifact,) = await scene.collect("big")
    reading = scene.files.read(str(scene.context), artifact, "")
    assert len(await anext(reading)) == CHUNK
    await reading.aclose()  # type: ignore[attr-defined]
    reading = scene.files.read(str(scene.context), artifact, "")
    task = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    # Whoever is still at work closes what it has open. Removing the directory needs that on Windows; elsewhere the
    # fixture counts descriptors.
    await wait_for(lambda: not scene.files._readers.busy, "a reader is still at work")


@pytest.fixture(autouse=True)
def nothing_half_made(tmp_path: Path) -> Iterator[None]:
    yield
    assert [path for path in tmp_path.rglob(".toban-*") if path.name != ".toban-new-out"] == []
