"""Secrets of a step: what it gets, where values are, and where they are not."""

from __future__ import annotations

import os
import pwd
import signal
import stat
from pathlib import Path

import pytest

from helpers.processes import command_of, kill, memory_holds
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


PRINT = """
import array, base64, fcntl, json, os, sys, termios, time, traceback, urllib.parse
value = os.environ["PASSWORD"]
fd = int(sys.argv[1])

def write(data):
    os.write(fd, data)
    unread = array.array("i", [1])
    while unread[0]:
        fcntl.ioctl(fd, termios.FIONREAD, unread)
        time.sleep(0.0005)

raw = value.encode()
for at in range(len(raw) + 1):
    write(b"two " + raw[:at])
    write(raw[at:] + b" writes\\n")
for byte in b"one by one " + raw + b"\\n":
    write(bytes([byte]))
for before in ("", "x", "xy"):
    write(base64.b64encode((before + value).encode()) + b"\\n")
write(base64.urlsafe_b64encode(raw) + b"\\n")
write(urllib.parse.quote(value, safe="").encode() + b"\\n" + urllib.parse.quote_plus(value).encode() + b"\\n")
write(json.dumps({"password": value}).encode() + b"\\n")
write(f"::progress 1/2 with {value} in it\\n".encode())
try:
    raise KeyError(value)
except KeyError:
    write(traceback.format_exc().encode())
with open(os.environ["TOBAN_OUTPUT"], "a") as file:
    file.write(f"found={value}\\n{value}=1\\ntoban.error=refused {value}\\n")
with open(os.environ["TOBAN_RESULT"], "w") as file:
    json.dump({"password": [value, {value: 1}]}, file)
write(raw[:-1])
"""


@pytest.mark.parametrize(("fd", "kind"), [(1, LogKind.STDOUT), (2, LogKind.STDERR)])
async def test_what_a_step_prints_is_masked_before_it_is_stored(
    supervision: Supervision, fd: int, kind: LogKind
) -> None:
    attempt = new_attempt()
    env = {
        "TOBAN_OUTPUT": supervision.files.output(attempt),
        "TOBAN_RESULT": supervision.files.result(attempt),
        "PYTHONIOENCODING": "utf-8",
    }
    supervision.launch([*python(PRINT), str(fd)], attempt=attempt, env=env, secrets=MATERIAL)
    ended = await supervision.ended(attempt)

    printed = supervision.printed(attempt, kind)
    text = printed.decode()
    assert ended.exit_code == 0, text + supervision.printed(attempt, LogKind.STDERR).decode()
    lines = text.splitlines()
    assert lines[: len(VALUE.encode()) + 1] == ["two *** writes"] * (len(VALUE.encode()) + 1)
    assert "one by one ***" in lines
    assert '{"password": "***"}' in lines
    assert lines[-1] == "***", "the beginning of a secret at the end of the output"
    assert ended.progress is not None
    assert ended.progress.message == "with *** in it"
    assert ended.outputs == {"found": "***", "***": "1", "toban.error": "refused ***"}
    assert ended.result == {"password": ["***", {"***": 1}]}
    # What is counted is what is stored.
    stored = len(printed) + len("::progress 1/2 with *** in it\n")
    assert (ended.stdout_bytes, ended.stderr_bytes) == ((stored, 0) if fd == 1 else (0, stored))
    for written in (VALUE, VALUE[:12], "c2VjcmV0", "s3cr3t-v%C3%A4", "s3cr3t-v\\u00e4"):
        assert files_with(supervision.place.root, written) == []
    assert not there(supervision.files.output(attempt))
    assert not there(supervision.files.result(attempt))


async def test_prompts_appear_and_beginnings_of_secrets_wait(supervision: Supervision) -> None:
    gate = supervision.gate()
    script = 'printf "Password: "; read x < "$1"; printf "s3cr3t"; read x < "$1"; printf " of others\n"; exec cat'
    attempt = supervision.launch(shell(script, gate.path), secrets=MATERIAL)
    await wait_for(lambda: supervision.printed(attempt) == b"Password: ", "the prompt does not appear")
    await gate.release()
    await gate.release()
    await supervision.ended(attempt)
    assert supervision.printed(attempt).decode() == "Password: s3cr3t of others\n***\n"


async def test_the_limit_of_a_log_counts_what_is_stored(supervision: Supervision) -> None:
    ended = await supervision.run(
        shell('for i in 1 2 3 4 5; do echo "$PASSWORD"; done'), secrets=MATERIAL, log_limit=10
    )
    assert (ended.stdout_bytes, ended.dropped_bytes) == (10, 10)


async def test_values_are_only_where_they_are_used(supervision: Supervision) -> None:
    """Neither in the spawner, nor in another shim, nor in arguments; its own shim and step have them."""
    gate = supervision.gate()
    attempt = supervision.launch(shell('read x < "$1"', gate.path), secrets=MATERIAL)
    await supervision.started(attempt)
    shim = await supervision.shim(attempt)
    others = [supervision.spawner, *(each for each in await supervision.parked() if each != shim)]
    if os.geteuid() == 0:
        assert memory_holds(shim.pid, VALUE.encode())
        assert not any(memory_holds(each.pid, VALUE.encode()) for each in others)
    assert VALUE not in command_of(shim.pid)
    await gate.release()
    await supervision.ended(attempt)
