"""The standard input of a step: exactly the given bytes, then the end."""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path

import pytest

from helpers.steps import python, shell
from helpers.supervision import RUN, Supervision, new_attempt
from toban.definition import Resources
from toband.domain.attempt_model import TreeCause
from toband.ports import LogKind

MEBIBYTE = "0123456789abcde\n" * 65536


@pytest.mark.parametrize("resources", [None, Resources(nice=1)], ids=["spawned", "forked"])
@pytest.mark.parametrize("text", ["", "x", "two\nlines\n", 'quotes " \\ 日本語 \0\x7f', MEBIBYTE])
async def test_it_is_read_as_it_was_given(supervision: Supervision, text: str, resources: Resources | None) -> None:
    attempt = supervision.launch(["cat"], stdin=text, resources=resources)
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0
    printed = supervision.printed(attempt)
    assert hashlib.sha256(printed).digest() == hashlib.sha256(text.encode()).digest()


async def test_without_one_it_is_empty(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("cat; readlink /proc/self/fd/0"))
    await supervision.ended(attempt)

    assert supervision.printed(attempt) == b"/dev/null\n"


async def test_a_step_that_never_reads_it_ends_as_any_other(supervision: Supervision) -> None:
    ended = await supervision.run(["true"], stdin=MEBIBYTE)
    assert (ended.exit_code, ended.ending.cause) == (0, TreeCause.EXITED)

    waiting = supervision.launch(shell(": > ready; sleep 600"), stdin=MEBIBYTE)
    await supervision.appears("ready")
    supervision.launcher.stop(waiting)
    assert (await supervision.ended(waiting)).ending.cause is TreeCause.CANCEL


async def test_it_has_no_name_and_cannot_be_changed(supervision: Supervision) -> None:
    script = """
import os, sys
try:
    os.write(0, b"spoilt")
except OSError as error:
    print(error.strerror)
print(os.fstat(0).st_nlink, sys.stdin.read())
"""
    attempt = supervision.launch(python(script), stdin="secret")
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0, supervision.printed(attempt, LogKind.STDERR)
    assert supervision.printed(attempt) == b"Operation not permitted\n0 secret\n"
    names = {supervision.files.claim(attempt), supervision.files.log(attempt)}
    assert set(files_with(supervision.place.root, b"secret")) == names


def files_with(root: str, text: bytes) -> list[str]:
    paths = [path for path in Path(root).rglob("*") if path.is_file()]
    return [str(path) for path in paths if text in path.read_bytes()]


async def test_it_is_there_when_the_daemon_is_not(supervision: Supervision) -> None:
    attempt = supervision.launch(
        shell(": > ready; while [ ! -e go ]; do sleep 0.01; done; cat > copy; : > done"),
        stdin=MEBIBYTE,
    )
    await supervision.appears("ready")
    shim = await supervision.shim(attempt)
    await supervision.close()
    supervision.place.write("go")
    await supervision.appears("done")
    assert supervision.place.read("copy") == MEBIBYTE
    await supervision.shim_gone(shim)


async def test_a_step_of_another_user_reads_it(supervision: Supervision) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root takes on another user")
    try:
        pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("there is no user nobody")
    os.chmod(supervision.files.root, 0o700)
    attempt = new_attempt()
    supervision.launch(
        shell("id -un; cat; cat /dev/stdin | wc -c"),
        attempt=attempt,
        workspace=supervision.files.work(RUN),
        user="nobody",
        stdin="for nobody\n",
    )
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0, supervision.printed(attempt, LogKind.STDERR)
    assert supervision.printed(attempt).decode().splitlines()[:2] == ["nobody", "for nobody"]
