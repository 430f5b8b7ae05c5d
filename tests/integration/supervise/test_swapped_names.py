"""Another user swaps names in a tight loop while root places inputs and collects outputs, a thousand times."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.supervision import Place
from helpers.wait import wait_until
from toban.definition import Output
from toband.ports import ArtifactError, Collect, Placement
from toband.supervise.artifacts import context_directory
from toband.supervise.artifacts.workspace_inputs import Ledger, Placing
from toband.supervise.files.file_budget import Budget, FileLimits
from toband.supervise.files.run_directories import remove_tree
from toband.supervise.files.safe_directory import SafeDirectory
from toband.supervise.shim import acl, trusted_path

TRIES = 1000
NOBODY = "nobody"
OUTSIDE = "of root's, and outside"
INSIDE = "of root's, and inside"
# What each attacker does over and over, in the run's directory; it is asked to end by closing its input.
HEAD = """
import os, select, sys
os.setgroups([]); os.setgid({gid}); os.setuid({uid})
os.chdir({work!r})
outside = {outside!r}
def go_on():
    return not select.select([0], [], [], 0)[0]
def attempt(call, *given):
    try:
        return call(*given)
    except OSError:
        return None
print("ready", flush=True)
"""
# Root's file takes the name under which root has just made its own.
GIVEN_AWAY = """
while go_on():
    for _ in range(200):
        attempt(os.rename, "secret", ".toban-new-data")
        if os.path.lexists("data"):
            attempt(os.rename, "data", "taken")
"""
# A directory that root fills is moved away, and a link to root's stands there.
MOVED = """
number = 0
while go_on():
    for _ in range(200):
        number = (number + 1) % 100
        if attempt(os.rename, ".toban-new-tree", f"moved-{number}") is None:
            attempt(os.symlink, outside, ".toban-new-tree")
"""
# The workspace is a directory, and then a link.
WORKSPACE = """
os.mkdir("sub"); os.symlink(outside, "link")
while go_on():
    for _ in range(200):
        attempt(os.rename, "sub", "real"); attempt(os.rename, "link", "sub")
        attempt(os.rename, "sub", "link"); attempt(os.rename, "real", "sub")
"""
# The output is a file, then a link; its directory is one, then a link.
OUTPUT = """
os.makedirs("made/out"); open("made/out/data", "w").write("harmless")
os.symlink(outside, "elsewhere"); os.symlink(outside + "/data", "made/out/link")
while go_on():
    for _ in range(200):
        attempt(os.rename, "made/out/data", "made/out/file")
        attempt(os.rename, "made/out/link", "made/out/data")
        attempt(os.rename, "made/out/data", "made/out/link")
        attempt(os.rename, "made/out/file", "made/out/data")
        attempt(os.rename, "made/out", "made/real"); attempt(os.rename, "elsewhere", "made/out")
        attempt(os.rename, "made/out", "elsewhere"); attempt(os.rename, "made/real", "made/out")
"""


class Scene:
    """Directories of a run that no user may write, and a directory of root."""

    def __init__(self, place: Place) -> None:
        files = place.files
        os.chmod(place.root, 0o755)
        files.prepare("run", {})
        self.user = pwd.getpwnam(NOBODY)
        self.work, self.context = Path(files.work("run")), Path(files.context("run"))
        for path in (files.root, files.run("run")):
            acl.allow(path, self.user.pw_uid, acl.PASS)
        for path in (str(self.work), str(self.context)):
            acl.allow(path, self.user.pw_uid, acl.READ | acl.WRITE | acl.PASS)
        self.outside = Path(place.root) / "outside"
        self.outside.mkdir()
        self.file = self.outside / "data"
        self.file.write_text(OUTSIDE)
        self.file.chmod(0o600)
        self.before = self._facts()
        self.placing = Placing(ledger=Ledger(files.placed), link=False, limits=FileLimits())

    def _facts(self) -> tuple[object, ...]:
        facts = self.file.lstat()
        return (
            sorted(os.listdir(self.outside)),
            facts.st_ino,
            facts.st_uid,
            facts.st_mode,
            self.file.read_text(),
        )

    def check(self) -> None:
        """Root's file outside is as it was, and no file that the other user owns has root's text."""
        assert self._facts() == self.before
        for here, _, names in os.walk(self.work.parent):
            for name in names:
                path = Path(here, name)
                if not path.is_symlink() and path.lstat().st_uid != 0:
                    assert "of root's" not in path.read_text(errors="replace"), path

    def place(self, workspace: Path, placement: Placement) -> None:
        self.placing.place(str(workspace), [placement], own=True, budget=Budget(None))

    def input(self, name: str, size: int) -> Placement:
        """An artifact that the other user made, and owns."""
        source = self.context / "fetch" / name / "data"
        source.parent.mkdir(parents=True)
        source.write_bytes(b"x" * size)
        os.chown(source, self.user.pw_uid, self.user.pw_gid)
        if name == "tree":
            os.chown(source.parent, self.user.pw_uid, self.user.pw_gid)
            return Placement(path=name, source=str(source.parent))
        return Placement(path=name, source=str(source))

    @contextmanager
    def attacked(self, script: str) -> Iterator[None]:
        head = HEAD.format(
            uid=self.user.pw_uid,
            gid=self.user.pw_gid,
            work=str(self.work),
            outside=str(self.outside),
        )
        attacker = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", head + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == b"ready\n"
            yield
            assert attacker.poll() is None, "the attacker gave up"
        finally:
            attacker.stdin.close()
            attacker.stdout.close()
            assert attacker.wait(30) == 0


def tries(action: Callable[[], object]) -> int:
    """How often it was done; refusals are fine."""
    done = 0
    for _ in range(TRIES):
        with suppress(ArtifactError, OSError):
            action()
            done += 1
    return done


@pytest.fixture
def scene(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    if os.geteuid() != 0:
        pytest.skip("only root takes on another user")
    # A thousand tries are to take seconds; nothing here is about power cuts.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    os.mkdir(place.files.root, 0o700)
    made = Scene(place)
    yield made
    # The attackers leave names behind that root's temporary files have.
    remove_tree(str(made.work))


def test_root_never_gives_away_a_file_that_was_swapped_in(scene: Scene) -> None:
    """`chown` by name gave the other user root's own file, which it had moved to where root's copy was."""
    data = scene.input("data", 300_000)
    secret = scene.work / "secret"

    def place() -> None:
        if not secret.exists():
            new = scene.work.parent / "secret.new"
            new.write_text(INSIDE)
            new.chmod(0o600)
            new.rename(secret)
        scene.place(scene.work, data)

    with scene.attacked(GIVEN_AWAY):
        tries(place)
    scene.check()


def test_a_file_that_is_swapped_in_while_an_input_is_copied_stays_roots(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, with the swap at the right moment."""
    data = scene.input("data", 1000)
    secret = scene.work / "secret"
    secret.write_text(INSIDE)
    create = SafeDirectory.create_file

    def swapped(self: SafeDirectory, path: str) -> int:
        fd = create(self, path)
        secret.rename(scene.work / ".toban-new-data")
        return fd

    monkeypatch.setattr(SafeDirectory, "create_file", swapped)
    with suppress(ArtifactError, OSError):
        scene.place(scene.work, data)
    scene.check()


def test_root_fills_no_directory_that_was_swapped_in(scene: Scene) -> None:
    tree = scene.input("tree", 1000)
    with scene.attacked(MOVED):
        tries(lambda: scene.place(scene.work, tree))
    scene.check()


def test_root_enters_no_workspace_that_becomes_a_link(scene: Scene) -> None:
    data = scene.input("data", 1000)
    sub = scene.work / "sub"
    what = Collect(
        context=str(scene.context),
        folder="build",
        workspace=str(sub),
        outputs=[Output(name="all", path="data")],
    )
    with scene.attacked(WORKSPACE):
        wait_until(lambda: os.path.lexists(sub), "there is no workspace")
        assert tries(lambda: scene.place(sub, data)) > 0
        tries(lambda: context_directory.collect(what, Budget(FileLimits())))
    scene.check()
    check_kept(scene)


def test_root_keeps_nothing_from_outside(scene: Scene) -> None:
    what = Collect(
        context=str(scene.context),
        folder="build",
        workspace=str(scene.work),
        outputs=[
            Output(name="whole", path="made/"),
            Output(name="one", path="made/out/data", optional=True),
            Output(name="some", path="made/**/d*", optional=True),
        ],
    )

    def collect() -> None:
        context_directory.collect(what, Budget(FileLimits()))
        check_kept(scene)

    with scene.attacked(OUTPUT):
        tries(collect)
    scene.check()
    check_kept(scene)


@pytest.mark.parametrize("protected", [True, False])
def test_root_keeps_no_file_that_another_user_gave_a_second_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, protected: bool
) -> None:
    """Where the kernel lets any user do so; root's own second names are kept."""
    monkeypatch.setattr(trusted_path, "links_protected", lambda: protected)
    (scene.work / "mine").mkdir(mode=0o755)
    for path in ("stolen", "mine/copy"):
        os.link(scene.file, scene.work / path)
    what = Collect(
        context=str(scene.context),
        folder="build",
        workspace=str(scene.work),
        outputs=[Output(name="out", path="mine")],
    )
    assert context_directory.collect(what, Budget(FileLimits()))
    taking = replace(what, outputs=[Output(name="out", path="stolen")])
    if protected:
        assert context_directory.collect(taking, Budget(FileLimits()))
        return
    with pytest.raises(ArtifactError, match="stolen is a file of the daemon's or root's that has another name"):
        context_directory.collect(taking, Budget(FileLimits()))


def check_kept(scene: Scene) -> None:
    for path in (scene.context / "build").rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert OUTSIDE not in path.read_text(), path
