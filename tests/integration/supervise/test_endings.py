"""How a step ends by itself, and how it cannot even begin."""

from __future__ import annotations

import os
import re
import signal
from datetime import UTC, timedelta

import pytest

from helpers.steps import python, shell
from helpers.supervision import RUN, Opener, Supervision, new_attempt
from toband.domain.attempt_model import TreeCause
from toband.ports import LogKind


async def test_a_step_that_does_nothing_ends_with_a_whole_record(supervision: Supervision) -> None:
    clock = supervision.launcher._clock
    before = clock.now()
    ended = await supervision.run(["true"])
    after = clock.now()

    assert (ended.exit_code, ended.signal, ended.not_started, ended.error) == (0, None, False, "")
    assert ended.ending.cause is TreeCause.EXITED
    assert ended.ending.proved_empty
    assert (ended.ending.signals, ended.ending.leftovers, ended.ending.survivors) == ((), 0, 0)
    assert (ended.stdout_bytes, ended.stderr_bytes) == (0, 0)
    assert ended.pid is not None
    assert ended.pid > 0
    assert ended.started_at.tzinfo is UTC
    assert ended.finished_at.tzinfo is UTC
    slack = timedelta(milliseconds=1)
    assert before - slack <= ended.started_at <= ended.finished_at <= after + slack
    assert ended.resources.user_time >= 0
    assert supervision.launcher.running() == 0


@pytest.mark.parametrize("code", [1, 3, 126, 127, 255])
async def test_the_exit_code_is_the_steps_own(supervision: Supervision, code: int) -> None:
    ended = await supervision.run(shell(f"exit {code}"))

    assert (ended.exit_code, ended.signal, ended.not_started) == (code, None, False)
    assert ended.ending.cause is TreeCause.EXITED
    assert ended.ending.proved_empty


async def test_a_shell_that_does_not_find_its_command_was_started(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("/nonexistent/command"))
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.not_started) == (127, False)
    assert ended.stderr_bytes > 0


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_step_killed_by_somebody_else_reports_the_signal(
    supervision: Supervision, signum: signal.Signals
) -> None:
    ended = await supervision.run(shell(f"kill -{int(signum)} $$"))

    assert (ended.exit_code, ended.signal) == (None, int(signum))
    assert ended.ending.cause is TreeCause.EXITED
    assert ended.ending.signals == ()


async def test_an_attempt_that_lasts_is_reported_as_started(supervision: Supervision) -> None:
    gate = supervision.gate()
    attempt = supervision.launch(shell('read x < "$1"; exit 4', gate.path))
    started = await supervision.started(attempt)
    assert supervision.launcher.running() == 1
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (started.pid, started.started_at) == (ended.pid, ended.started_at)
    assert started.started_at.tzinfo is UTC
    assert ended.exit_code == 4
    assert len(supervision.events_of(attempt)) == 2


async def test_a_step_gets_its_arguments_environment_and_workspace_as_they_are(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(
        python(
            "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:]))); "
            "os.write(2, os.environb[b'NAME'] + b'|' + os.fsencode(os.getcwd()))",
            "日本語",
            "",
            "a b\n",
            "\udcff",
        ),
        env={"NAME": "値"},
    )
    await supervision.ended(attempt)

    out, err = supervision.printed(attempt), supervision.printed(attempt, LogKind.STDERR)
    assert out == b"\0".join(["日本語".encode(), b"", b"a b\n", b"\xff"])
    assert err == "値|".encode() + os.fsencode(supervision.place.root)


async def test_a_step_inherits_three_descriptors_and_no_signal_settings(opened: Opener) -> None:
    """Not even signals that were ignored when the daemon was started, as with nohup."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        supervision = await opened()
    finally:
        signal.signal(signal.SIGUSR1, before)
    attempt = supervision.launch(shell("ls -l /proc/self/fd; cat /proc/self/status >&2"))
    await supervision.ended(attempt)

    links = re.findall(r"(\d+) -> (\S+)", supervision.printed(attempt).decode())
    # The third one is the directory that ls itself reads.
    assert [fd for fd, target in links if not target.startswith("/proc/")] == ["0", "1", "2"]
    assert dict(links)["0"] == "/dev/null"
    status = supervision.printed(attempt, LogKind.STDERR).decode()
    masks = re.findall(r"(SigBlk|SigIgn|SigCgt):\s+(\w+)", status)
    assert len(masks) == 3
    # The first two real-time signals are the C library's own, and posix_spawn leaves them ignored.
    own_business = 1 << 31 | 1 << 32
    assert [name for name, mask in masks if int(mask, 16) & ~own_business] == []


async def test_what_a_step_writes_to_its_output_file_is_in_its_end(
    supervision: Supervision,
) -> None:
    attempt = new_attempt()
    output, result = supervision.files.output(attempt), supervision.files.result(attempt)
    script = """printf 'name=value\\ntext<<END\\none\\ntwo\\nEND\\n' > "$1"; echo '{"n": [1]}' > "$2" """
    ended = await supervision.run(shell(script, output, result), attempt=attempt)

    assert ended.outputs == {"name": "value", "text": "one\ntwo"}
    assert ended.result == {"n": [1]}


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["toban-no-such-program"], ["toban-no-such-program", "No such file or directory"]),
        (["/nonexistent/program"], ["/nonexistent/program", "No such file or directory"]),
        (["/etc/passwd"], ["/etc/passwd", "Permission denied"]),
        (["/etc"], ["/etc", "Permission denied"]),
        (["true", "x" * (256 * 1024)], ["true", "Argument list too long"]),
        (["true", "a\0b"], ["true", "null"]),
    ],
    ids=["not found", "no such path", "not executable", "directory", "too long", "null byte"],
)
async def test_a_program_that_cannot_be_started_is_named_with_the_reason(
    supervision: Supervision, argv: list[str], named: list[str]
) -> None:
    ended = await supervision.run(argv)

    assert ended.not_started
    assert ended.error.startswith("cannot start ")
    assert all(word in ended.error for word in named), ended.error
    assert (ended.pid, ended.exit_code, ended.signal) == (None, None, None)
    assert ended.started_at <= ended.finished_at


@pytest.mark.parametrize(
    ("workspace", "reason"),
    [("nowhere", "No such file or directory"), ("file", "Not a directory")],
)
async def test_a_workspace_that_cannot_be_entered_is_named(
    supervision: Supervision, workspace: str, reason: str
) -> None:
    supervision.place.write("file")
    path = supervision.place.path(workspace)
    ended = await supervision.run(["true"], workspace=path)

    assert ended.not_started
    assert ended.error == f"cannot start true: cannot enter the workspace {path}: {reason}"


async def test_an_attempt_without_its_directory_never_begins(supervision: Supervision) -> None:
    """Its shim cannot take the claim. That is found void, which makes the directory anew."""
    os.rmdir(supervision.files.attempts(RUN))
    attempt = supervision.launch(shell("echo x >> witness"), attempt=new_attempt(id="a"))
    await supervision.voided(attempt)
    assert supervision.witnessed() == 0
    again = await supervision.run(shell("echo x >> witness"), attempt=new_attempt(id="a"))

    assert again.exit_code == 0
    assert supervision.witnessed() == 1


async def test_a_program_is_looked_up_in_the_path_that_the_step_is_given(
    supervision: Supervision,
) -> None:
    os.mkdir(supervision.place.path("bin"))
    program = supervision.place.write("bin/toban-own-program", "#!/bin/sh\nexit 9\n")
    path = {"PATH": f"{supervision.place.path('bin')}:{os.environ['PATH']}"}

    denied = await supervision.run(["toban-own-program"], env=path)
    assert denied.not_started
    assert "Permission denied" in denied.error
    os.chmod(program, 0o755)
    assert (await supervision.run(["toban-own-program"], env=path)).exit_code == 9
    relative = await supervision.run(["./toban-own-program"], workspace=os.path.dirname(program))
    assert relative.exit_code == 9


async def test_many_attempts_at_once_each_end_once(supervision: Supervision) -> None:
    attempts = [
        supervision.launch(shell('echo "$1"; exit "$1"', str(number)), attempt=new_attempt(f"s{number}"))
        for number in range(60)
    ]
    for number, attempt in enumerate(attempts):
        assert (await supervision.ended(attempt)).exit_code == number
        assert supervision.printed(attempt) == f"{number}\n".encode()
    assert supervision.launcher.running() == 0
