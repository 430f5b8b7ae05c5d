"""Secrets of a step: what it gets, where values are, and where they are not."""

from __future__ import annotations

import os
import pwd
import signal
import stat
from pathlib import Path

import pytest

from helpers.processes import kill
from helpers.steps import python, shell
from helpers.supervision import RUN, Opener, Supervision, new_attempt
from helpers.wait import wait_for
from toban.definition import Resources
from toband.ports import LogKind, SecretMaterial

VALUE = "s3cr3t-välue/with?all&sorts"

MATERIAL = SecretMaterial(
    env={"PASSWORD": VALUE}, stdin=f"{VALUE}\n", files={"key": f"{VALUE}\n", "empty": ""}, masked=[VALUE]
)
SHOW = """
import hashlib, os, stat, sys
place = os.environ["TOBAN_SECRET_FILES"]
texts = [os.environ["PASSWORD"], sys.stdin.read(), open(f"{place}/key").read(), open(f"{place}/empty").read()]
print(*(hashlib.sha256(text.encode()).hexdigest()[:8] if text else "-" for text in texts))
print(*(oct(stat.S_IMODE(os.stat(f"{place}/{name}").st_mode)) for name in (".", "key")), sorted(os.listdir(place)))
print(place)
"""


def places(supervision: Supervision) -> list[str]:
    """The directories of secret files of all attempts, and the links to them."""
    try:
        return os.listdir(supervision.files.secrets)
    except FileNotFoundError:
        return []


def there(path: str) -> bool:
    return os.path.lexists(path)


def target_of(link: str) -> str:
    return os.path.realpath(link)


def files_with(root: str, text: str) -> list[str]:
    paths = [path for path in Path(root).rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path) for path in paths if text.encode() in path.read_bytes()]


@pytest.mark.parametrize("resources", [None, Resources(nice=1)], ids=["spawned", "forked"])
async def test_a_step_gets_them_and_nobody_else(supervision: Supervision, resources: Resources | None) -> None:
    attempt = supervision.launch(python(SHOW), secrets=MATERIAL, resources=resources, env={"PASSWORD": "another"})
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0, supervision.printed(attempt, LogKind.STDERR)
    digests, modes, place = supervision.printed(attempt).decode().splitlines()
    first, second, third, empty = digests.split()
    assert (second, empty) == (third, "-")
    assert first != second
    assert modes == "0o500 0o400 ['empty', 'key']"
    assert not there(place)
    assert files_with(supervision.place.root, "s3cr3t") == []
    supervision.launcher.settle(attempt.token)
    await wait_for(lambda: not places(supervision), "the link is left")


async def test_the_material_has_no_representation_with_values() -> None:
    assert "s3cr3t" not in repr(MATERIAL) + str(MATERIAL)


async def test_a_step_of_another_user_alone_reads_its_files(supervision: Supervision) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root takes on another user")
    nobody = pwd.getpwnam("nobody")
    os.chmod(supervision.files.root, 0o700)
    gate = supervision.gate()
    script = 'cat "$TOBAN_SECRET_FILES/key" >/dev/null && echo "$TOBAN_SECRET_FILES"; read x < "$1"'
    attempt = supervision.launch(
        shell(script, gate.path), workspace=supervision.files.work(RUN), user="nobody", secrets=MATERIAL
    )
    os.chown(gate.path, nobody.pw_uid, nobody.pw_gid)
    await supervision.started(attempt)
    place = await wait_for(lambda: supervision.printed(attempt).decode().strip(), "nothing is printed")
    directory, key = os.stat(place), os.stat(f"{place}/key")
    assert {directory.st_uid, key.st_uid} == {nobody.pw_uid}
    assert (stat.S_IMODE(directory.st_mode), stat.S_IMODE(key.st_mode)) == (0o500, 0o400)
    await gate.release()
    assert (await supervision.ended(attempt)).exit_code == 0
    assert not there(place)


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "on disk"])
async def test_what_a_killed_shim_leaves_is_removed(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    if not in_memory:
        monkeypatch.setattr("toband.supervise.launch.secret_directories.MEMORY", "/nonexistent")
    supervision = await opened()
    # The step adds what it should not, and locks it.
    script = 'cd "$TOBAN_SECRET_FILES"; chmod u+w .; mkdir -p a/b; : > a/b/c; chmod 0 a; pwd; sleep 600'
    attempt = supervision.launch(shell(script), secrets=MATERIAL)
    await supervision.started(attempt)
    place = await wait_for(lambda: supervision.printed(attempt).decode().strip(), "nothing is printed")
    assert place.startswith("/dev/shm/toban-" if in_memory else supervision.files.root)
    kill(await supervision.shim(attempt), signal.SIGKILL)
    await supervision.lost(attempt)
    assert places(supervision) == [attempt.token]
    await supervision.close()

    later = await opened()
    later.launcher.settle_others([attempt.token])
    assert places(later) == [attempt.token]
    latest = await opened()
    latest.launcher.settle_others([])
    await wait_for(lambda: not places(latest), "something is left")
    assert not there(place)


async def test_a_step_that_cannot_start_leaves_none(supervision: Supervision) -> None:
    outside = supervision.place.write("key", "kept")
    for program, material, reason in (
        ("/nonexistent/program", MATERIAL, "No such file or directory"),
        ("true", SecretMaterial(files={"../key": VALUE}), "'../key' is not the name of a file"),
    ):
        attempt = supervision.launch([program], secrets=material)
        ended = await supervision.ended(attempt)
        assert ended.error == f"cannot start {program}: {reason}"
        assert not there(target_of(supervision.files.secret_files(attempt)))
    assert there(outside)


async def test_an_attempt_keeps_its_directory_when_it_is_launched_again(supervision: Supervision) -> None:
    attempt = new_attempt()
    first = supervision.launcher._secrets.directory_for(attempt)
    assert supervision.launcher._secrets.directory_for(attempt) == first
    supervision.launcher.settle(attempt.token)
    await wait_for(lambda: not places(supervision), "the link is left")
