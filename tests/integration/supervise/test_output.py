"""The output of a step is stored byte for byte, however it uses its pipes."""

from __future__ import annotations

import hashlib
import os

from helpers.processes import stat_of
from helpers.steps import PRINTING, printed_by, python, shell
from helpers.supervision import Supervision
from toband.domain.attempt_model import TreeCause
from toband.ports import LogKind
from toband.supervise.shim import frames


async def test_both_streams_are_byte_identical_when_they_alternate(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(python(PRINTING, "seed", "400"))
    ended = await supervision.ended(attempt)

    out, err = printed_by("seed", 400)
    assert supervision.printed(attempt, LogKind.STDOUT) == out
    assert supervision.printed(attempt, LogKind.STDERR) == err
    assert (ended.stdout_bytes, ended.stderr_bytes) == (len(out), len(err))
    assert ended.exit_code == 0


async def test_bytes_that_are_no_text_are_kept(supervision: Supervision) -> None:
    attempt = supervision.launch(shell(r"printf '\0\377\376a\0\n\200'; printf '\377' >&2"))
    await supervision.ended(attempt)

    assert supervision.printed(attempt) == b"\0\xff\xfea\0\n\x80"
    assert supervision.printed(attempt, LogKind.STDERR) == b"\xff"


async def test_sixty_four_megabytes_are_kept(supervision: Supervision) -> None:
    block = "import os; block = bytes(range(256)) * 4096; size = 64\n"
    script = block + (
        "for _ in range(size):\n    data = memoryview(block)\n    while data: data = data[os.write(1, data):]\n"
    )
    attempt = supervision.launch(python(script))
    # All of it is on disk by then.
    ended = await supervision.ended(attempt, 120.0)

    expected = hashlib.sha256()
    for _ in range(64):
        expected.update(bytes(range(256)) * 4096)
    assert ended.stdout_bytes == 64 * 1024 * 1024
    assert _digest(supervision.files.log(attempt)) == expected.digest()
    # What was allocated ahead is given back.
    size = os.stat(supervision.files.log(attempt))
    assert size.st_blocks * 512 < size.st_size + 256 * 1024


async def test_one_line_of_many_megabytes_is_kept(supervision: Supervision) -> None:
    attempt = supervision.launch(shell("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end"))
    await supervision.ended(attempt)

    assert supervision.printed(attempt) == b"x" * 5_000_000 + b"\nend\n"


async def test_a_step_that_closes_its_streams_goes_on_and_costs_nothing(
    supervision: Supervision,
) -> None:
    gate = supervision.gate()
    script = 'echo before; exec 1>&- 2>&-; : > closed; read x < "$1"; exit 5'
    attempt = supervision.launch(shell(script, gate.path))
    shim = await supervision.shim(attempt)
    await supervision.appears("closed")
    await supervision.started(attempt)
    # What it took to come this far says how fast the machine is.
    before = _ticks(shim.pid)
    for _ in range(10):
        # Something that takes a while; meanwhile a shim that spins on a closed pipe would burn a processor.
        await supervision.run(python("pass"))
    assert _ticks(shim.pid) - before <= 0.1 * os.sysconf("SC_CLK_TCK")
    await gate.release()
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (5, TreeCause.EXITED)
    assert supervision.printed(attempt) == b"before\n"


async def test_nobody_waits_for_a_background_child_that_holds_the_pipe(
    supervision: Supervision,
) -> None:
    attempt = supervision.launch(shell("echo out; sleep 600 & exit 4"), grace=600.0)
    ended = await supervision.ended(attempt)

    assert (ended.exit_code, ended.ending.cause) == (4, TreeCause.EXITED)
    assert (ended.ending.leftovers, ended.ending.signals) == (1, ("TERM",))
    assert ended.ending.proved_empty
    assert supervision.printed(attempt) == b"out\n"


async def test_what_was_printed_just_before_the_end_is_there(supervision: Supervision) -> None:
    """The last bytes are in the pipe when the process is gone already."""
    for _ in range(20):
        attempt = supervision.launch(shell("head -c 60000 /dev/zero; printf last >&2"))
        ended = await supervision.ended(attempt)
        assert (ended.stdout_bytes, ended.stderr_bytes) == (60_000, 4)
        assert supervision.printed(attempt, LogKind.STDERR) == b"last"


def _ticks(pid: int) -> int:
    stat = stat_of(pid)
    assert stat is not None
    return stat.cpu_ticks


def _digest(path: str) -> bytes:
    """Of standard output, in bounded memory."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for frame in frames.frames_of(file.fileno()):
            if frame.kind == frames.STDOUT:
                found.update(frame.payload)
    return found.digest()
