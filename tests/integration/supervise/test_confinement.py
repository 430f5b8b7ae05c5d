"""The sandbox of a step: what it holds, and that a step never runs without it."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest

from helpers.steps import shell
from helpers.supervision import RUN, Opener, Place, Supervision, new_attempt
from toban.definition import StepSandbox
from toband.ports import LogKind
from toband.supervise.shim import confinement

NOBODY = "nobody"
FILES = StepSandbox()


def no_landlock() -> str:
    try:
        confinement.landlock_abi()
    except OSError as error:
        return str(error.strerror)
    return ""


needs_landlock = pytest.mark.skipif(no_landlock() != "", reason=no_landlock())
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root takes on another user")


@pytest.fixture(autouse=True)
def closed(place: Place) -> None:
    os.makedirs(place.files.root, 0o700, exist_ok=True)


def environment(supervision: Supervision) -> dict[str, str]:
    return {"TOBAN_PARAMS": supervision.files.params(RUN), "TOBAN_CONTEXT_DIR": supervision.files.context(RUN)}


def left(path: str) -> bool:
    return Path(path).exists()


async def ran(supervision: Supervision, script: str, *arguments: str, sandbox: StepSandbox, user: str = "") -> str:
    attempt = new_attempt()
    env = environment(supervision) | {"TOBAN_OUTPUT": supervision.files.output(attempt)}
    supervision.launch(
        shell(script, *arguments),
        attempt=attempt,
        workspace=supervision.files.work(RUN),
        env=env,
        sandbox=sandbox,
        user=user,
    )
    ended = await supervision.ended(attempt)
    assert not ended.not_started, ended.error
    return supervision.printed(attempt).decode() + supervision.printed(attempt, LogKind.STDERR).decode()


@needs_landlock
@pytest.mark.parametrize("user", ["", pytest.param(NOBODY, marks=needs_root)])
async def test_it_reaches_its_own_files_and_no_others(supervision: Supervision, user: str) -> None:
    outside = supervision.place.path("outside")
    os.mkdir(outside, 0o777)
    os.chmod(outside, 0o777)
    os.chmod(supervision.place.root, 0o755)
    for name in ("readable", "listed", "changed"):
        supervision.place.write(f"outside/{name}", name)
        os.chmod(f"{outside}/{name}", 0o666)
    script = """
cat "$TOBAN_PARAMS" > /dev/null && echo here > file && echo kept > "$TOBAN_CONTEXT_DIR/file"
echo a=1 > "$TOBAN_OUTPUT" && cat file; ls /usr > /dev/null && echo system
for file in "$1/readable" /etc/../root/x /tmp/x; do cat "$file" 2> /dev/null && echo "read $file"; done
for directory in "$1" /tmp /var/tmp /home; do ls "$directory" 2> /dev/null && echo "listed $directory"; done
for file in "$1/readable" "$1/listed" "$1/new" /tmp/x /dev/shm/x /proc/self/oom_score_adj; do
    (echo 0 > "$file") 2> /dev/null && echo "wrote $file"
done
(: >> "$1/listed") 2> /dev/null && echo appended
cat "$1/listed"; echo; echo more >> "$1/changed" && cat "$1/changed"; echo said > /dev/stdout
"""
    sandbox = StepSandbox(read_only=(f"{outside}/listed",), writable=(f"{outside}/changed",))
    printed = await ran(supervision, script, outside, sandbox=sandbox, user=user)
    assert printed == "here\nsystem\nlisted\nchangedmore\nsaid\n"
    assert supervision.place.read("outside/readable") == "readable"


@needs_landlock
async def test_its_processes_gain_and_signal_nothing(supervision: Supervision) -> None:
    script = """
grep NoNewPrivs /proc/self/status | tr -d '\\t'
kill -0 $1 2> /dev/null && echo signalled
kill -0 $$ && echo self
"""
    printed = await ran(supervision, script, str(os.getpid()), sandbox=FILES)
    scoped = confinement.landlock_abi() >= 6
    assert printed == "NoNewPrivs:1\nself\n" if scoped else printed.startswith("NoNewPrivs:1\n")


@needs_landlock
@pytest.mark.parametrize("user", ["", pytest.param(NOBODY, marks=needs_root)])
async def test_it_has_no_network_but_its_own(supervision: Supervision, user: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("127.0.0.1", 0))
        script = """
import os, socket, sys
print(sorted(name for _, name in socket.if_nameindex()), os.getuid())
for kind, port in ((socket.SOCK_STREAM, sys.argv[1]), (socket.SOCK_DGRAM, sys.argv[2])):
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(5)
        try:
            sock.connect(("127.0.0.1", int(port)))
            sock.send(b"x")
            sock.recv(1)
            print("reached")
        except OSError as error:
            print(error.strerror)
"""
        argv = ["/usr/bin/python3", "-I", "-c", script, str(server.getsockname()[1]), str(datagrams.getsockname()[1])]
        attempt = supervision.launch(
            argv, sandbox=StepSandbox(network=False), user=user, workspace=supervision.files.work(RUN)
        )
        ended = await supervision.ended(attempt)
        assert not ended.not_started, ended.error
        datagrams.setblocking(False)
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)
    uid = pwd.getpwnam(user).pw_uid if user else os.geteuid()
    refused = "Connection refused\n"
    assert supervision.printed(attempt).decode() == f"['lo'] {uid}\n{refused}{refused}"


@needs_landlock
@pytest.mark.parametrize("user", ["", pytest.param(NOBODY, marks=needs_root)])
async def test_its_temporary_files_are_its_own(supervision: Supervision, user: str) -> None:
    script = """
cd "$TMPDIR" && mktemp > /dev/null && umask 077 && mkdir inner && echo x > inner/file && pwd
"""
    printed = await ran(supervision, script, sandbox=StepSandbox(private_tmp=True), user=user)
    assert printed.startswith(supervision.files.attempts(RUN))
    assert not left(printed.strip())


@pytest.mark.parametrize("user", ["", pytest.param(NOBODY, marks=needs_root)])
@pytest.mark.parametrize(
    ("failpoint", "sandbox", "reason"),
    [
        ("sandbox.landlock=EOPNOTSUPP", StepSandbox(), "Operation not supported"),
        ("sandbox.network=EPERM", StepSandbox(network=False), "the system allows no network namespace"),
    ],
)
async def test_a_missing_mechanism_refuses_the_step(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, user: str, failpoint: str, sandbox: StepSandbox, reason: str
) -> None:
    monkeypatch.setenv("TOBAN_FAILPOINTS_SPAWNER", failpoint)
    supervision = await opened()
    ended = await supervision.run(
        shell("echo x >> witness"), sandbox=sandbox, user=user, workspace=supervision.files.work(RUN)
    )
    assert ended.not_started
    assert "cannot sandbox it: " in ended.error
    assert reason in ended.error
    assert supervision.witnessed(f"runs/{RUN}/work/witness") == 0


@needs_landlock
async def test_a_listed_path_must_exist(supervision: Supervision) -> None:
    ended = await supervision.run(["true"], sandbox=StepSandbox(read_only=("/no/such/place",)))
    assert ended.not_started
    assert ended.error == "cannot start true: cannot sandbox it: /no/such/place of read_only: No such file or directory"


async def test_new_privileges_are_given_up(supervision: Supervision) -> None:
    attempt = supervision.launch(["grep", "NoNewPrivs", "/proc/self/status"], no_new_privileges=True)
    assert (await supervision.ended(attempt)).exit_code == 0
    assert supervision.printed(attempt).split() == [b"NoNewPrivs:", b"1"]
