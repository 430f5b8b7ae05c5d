"""Which links are followed on the way to a directory, and where no directory for files can be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("links and owners of POSIX", allow_module_level=True)

from toband.supervise.shim import trusted_path
from toband.supervise.shim.trusted_path import (
    ForbiddenLocationError,
    UntrustedLinkError,
    locate,
    open_beneath,
    open_directory,
)

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users are root's business")


@pytest.fixture(params=["at once", "step by step"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `openat2`, and as where there is none."""
    if request.param == "step by step":
        monkeypatch.setattr(trusted_path, "_open_at_once", lambda *_: None)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """Identifies the current directory."""
    before = os.getcwd()
    yield tmp_path.resolve()
    os.chdir(before)


def opened(path: Path | str, *, make: bool = False) -> str:
    """Where it is; the descriptor is of what is there."""
    found = open_directory(str(path), make=make)
    try:
        assert os.path.samestat(os.fstat(found.fd), os.stat(found.path))
    finally:
        os.close(found.fd)
    return found.path


def test_links_of_ones_own_are_followed(here: Path) -> None:
    (here / "real/inner").mkdir(parents=True)
    (here / "one").symlink_to("real")
    (here / "two").symlink_to(here / "one")
    (here / "up").symlink_to("real/inner/..")
    for path in ("one/inner", "two/inner", "up/inner", "real/../one/./inner/", "two//inner"):
        assert opened(f"{here}/{path}") == f"{here}/real/inner"
    assert opened("/") == "/"


def test_what_is_missing_is_made_or_said(here: Path) -> None:
    (here / "link").symlink_to("real")
    (here / "file").touch()
    with pytest.raises(FileNotFoundError, match="link/a"):
        opened(here / "link/a/b")
    with pytest.raises(NotADirectoryError, match="file/a"):
        opened(here / "file/a", make=True)
    assert locate(f"{here}/link/a/../b") == f"{here}/real/b"
    assert opened(here / "link/a/b", make=True) == f"{here}/real/a/b"


def test_links_in_a_circle_end(here: Path) -> None:
    (here / "a").symlink_to("b")
    (here / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        opened(here / "a")


@as_root
@pytest.mark.parametrize(("owner", "mode"), [(OTHER, 0o755), (0, 0o777), (0, 0o775), (0, 0o1777), (OTHER, 0o700)])
def test_a_link_where_others_can_write_is_refused(here: Path, owner: int, mode: int) -> None:
    shared = here / "shared"
    (shared / "inner").mkdir(parents=True)
    (shared / "real").mkdir()
    (shared / "link").symlink_to("real")
    (shared / "inner/link").symlink_to("../real")
    (here / "trusted").symlink_to("shared/link")
    shared.chmod(mode)
    os.chown(shared, owner, owner)
    for path in ("shared/link", "shared/./link", "trusted"):
        with pytest.raises(UntrustedLinkError, match=f"{shared}/link is a link in a directory"):
            opened(here / path)
        with pytest.raises(UntrustedLinkError):
            opened(here / path / "more", make=True)
    assert opened(shared / "real") == f"{shared}/real"
    if mode & 0o1000:
        # Others can neither move nor replace it there.
        assert opened(shared / "inner/link/../real") == f"{shared}/real"
    else:
        # Root's own, and yet another user may have put it there.
        with pytest.raises(UntrustedLinkError, match="inner/link"):
            opened(shared / "inner/link")


@as_root
def test_an_access_list_lets_others_write_too(here: Path) -> None:
    from toband.supervise.shim import acl

    (here / "real").mkdir()
    (here / "link").symlink_to("real")
    acl.allow(str(here), OTHER, acl.PASS)
    assert opened(here / "link") == f"{here}/real"
    acl.allow(str(here), OTHER, acl.WRITE)
    with pytest.raises(UntrustedLinkError):
        opened(here / "link")


@pytest.mark.parametrize(
    "path",
    [
        *("/proc", "/proc/self", "/proc/self/cwd", "/proc/self/root/tmp", "/proc/1", "/sys"),
        *(
            "/sys/fs/cgroup",
            "/dev",
            "/dev/fd/0",
            "/./proc",
            "//proc/",
            "/tmp/../proc",
            "/dev/shm/..",
        ),
    ],
)
def test_where_the_system_shows_itself_is_no_directory(here: Path, path: str) -> None:
    if not Path("/proc/self").exists() or not Path("/dev/shm").exists():
        pytest.skip("another system")
    (here / "link").symlink_to(path)
    for given in (path, here / "link"):
        for call in (opened, locate):
            with pytest.raises(ForbiddenLocationError, match="belongs to the system"):
                call(str(given))
        with pytest.raises(ForbiddenLocationError):
            trusted_path.enter(str(given), guarded=False)
    assert os.getcwd() != "/proc"


def test_shared_memory_is_an_ordinary_directory() -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("another system")
    assert opened("/dev/shm") == locate("/dev/shm") == os.path.realpath("/dev/shm")


def test_it_is_entered(here: Path) -> None:
    (here / "real").mkdir()
    (here / "link").symlink_to("real")
    trusted_path.enter(f"{here}/link", guarded=False)
    assert os.getcwd() == f"{here}/real"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        trusted_path.enter(f"{here}/nowhere", guarded=True)


def test_nothing_leads_out_from_below(here: Path) -> None:
    (here / "top/a/b").mkdir(parents=True)
    (here / "top/link").symlink_to("a")
    top = open_directory(str(here / "top")).fd
    try:
        inner = open_beneath(top, "a/b")
        assert os.path.samestat(os.fstat(inner), os.stat(here / "top/a/b"))
        os.close(inner)
        for path in ("link", "link/b"):
            with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
                open_beneath(top, path)
        with pytest.raises(FileNotFoundError):
            open_beneath(top, "a/c/d")
    finally:
        os.close(top)


def test_a_null_character_does_not_end_a_path(here: Path) -> None:
    with pytest.raises(ValueError, match="null"):
        opened(f"{here}\0/more")
