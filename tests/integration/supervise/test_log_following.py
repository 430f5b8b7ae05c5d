"""Following a log while the step still writes it."""

from __future__ import annotations

import asyncio

from helpers.processes import kill
from helpers.steps import PRINTING, printed_by, python, shell
from helpers.supervision import RUN, Supervision
from helpers.wait import wait_for
from toband.domain.attempt_model import Attempt
from toband.ports import LogKind
from toband.supervise.logs.log_reader import LogReader

SOON = 30.0


async def follow(logs: LogReader, attempt: Attempt, event: asyncio.Event) -> dict[LogKind, bytes]:
    """Reads page after page, and waits to be woken when there is no more, until the log says it is over."""
    found = {LogKind.STDOUT: b"", LogKind.STDERR: b"", LogKind.SYSTEM: b""}
    place = (0, 0)
    while True:
        event.clear()
        page = await logs.read(attempt, *place)
        for piece in page.pieces:
            found[piece.kind] += piece.data
        assert not page.damaged
        if page.over:
            return found
        if (page.offset, page.skip) == place:
            await asyncio.wait_for(event.wait(), SOON)
        place = page.offset, page.skip


async def test_a_follower_gets_all_and_then_the_end(supervision: Supervision) -> None:
    logs = LogReader(supervision.files)
    event = asyncio.Event()
    with logs.watching(RUN, event):
        attempt = supervision.launch(python(PRINTING, "follow", "300"))
        found = await follow(logs, attempt, event)
    logs.close()

    out, err = printed_by("follow", 300)
    assert (found[LogKind.STDOUT], found[LogKind.STDERR]) == (out, err)
    await supervision.ended(attempt)


async def test_a_line_is_there_while_the_step_goes_on(supervision: Supervision) -> None:
    logs = LogReader(supervision.files)
    event = asyncio.Event()
    gates = [supervision.gate(f"gate{number}") for number in range(3)]
    script = 'for gate in "$@"; do echo "at $gate"; read x < "$gate"; done'
    with logs.watching(RUN, event):
        attempt = supervision.launch(shell(script, *(gate.path for gate in gates)))
        offset = 0
        for gate in gates:
            data = b""
            while not data.endswith(b"\n"):
                event.clear()
                page = await logs.read(attempt, offset)
                offset = page.offset
                data += b"".join(piece.data for piece in page.pieces)
                assert not page.over
                if not page.pieces:
                    await asyncio.wait_for(event.wait(), SOON)
            assert data == f"at {gate.path}\n".encode()
            await gate.release()
    logs.close()
    await supervision.ended(attempt)
    assert (await logs.read(attempt, offset)).over


async def test_a_log_of_a_lost_attempt_is_never_over(supervision: Supervision) -> None:
    logs = LogReader(supervision.files)
    attempt = supervision.launch(shell("echo text; exec sleep 600"))
    shim = await supervision.shim(attempt)
    await supervision.started(attempt)
    await wait_for(lambda: supervision.printed(attempt), "nothing was printed")
    kill(shim)
    await supervision.lost(attempt)
    page = await logs.read(attempt, 0)

    assert [piece.data for piece in page.pieces] == [b"text\n"]
    assert not page.over
    assert not (await logs.read(attempt, page.offset)).over
