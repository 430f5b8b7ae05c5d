"""Processes that race for one claim: exactly one wins, and readers never see a partial claim."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time

from helpers.supervision import Place
from toband.supervise.shim import frames
from toband.supervise.shim.attempt_file import claim

RACERS = 4
ROUNDS = 150
RACER = """
import os, sys, time
from toband.supervise.shim.attempt_file import claim
held = None
print("ready", flush=True)
for line in sys.stdin:
    name, start = line.split()
    if held is not None:
        os.close(held)
    while time.monotonic() < float(start):
        pass
    held = claim(sys.argv[1], name, {"format": 1, "pid": os.getpid()})
    print("lost" if held is None else "won", flush=True)
"""
"""Claims at the moment it is told, and holds what it won until the next round."""


def test_of_many_processes_exactly_one_wins(place: Place) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, place.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(RACERS)
    ]
    winners = set()
    try:
        for racer in racers:
            assert _answer(racer) == "ready"
        for number in range(ROUNDS):
            name = f"claim{number}"
            start = time.monotonic() + 0.002
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{name} {start}\n")
                racer.stdin.flush()
            # Looked at as soon as it is there, while its owner is not even done with taking it.
            facts, locked = _first_look(place.path(name))
            answers = [_answer(racer) for racer in racers]
            assert sorted(answers) == ["lost"] * (RACERS - 1) + ["won"]
            assert locked, "a claim could be seen before it was locked"
            assert facts == {"format": 1, "pid": racers[answers.index("won")].pid}
            winners.add(facts["pid"])
        assert sorted(os.listdir(place.root)) == sorted(f"claim{n}" for n in range(ROUNDS))
    finally:
        for racer in racers:
            assert racer.stdin is not None
            assert racer.stdout is not None
            racer.stdin.close()
            racer.wait(30)
            racer.stdout.close()
    # Otherwise it was no race.
    assert len(winners) > 1


def test_of_many_threads_exactly_one_wins(place: Place) -> None:
    """The daemon looks attempts up in threads, and may make the same one void in two of them."""
    for number in range(50):
        barrier = threading.Barrier(4)
        won: list[int | None] = []

        def race(name: str = f"claim{number}") -> None:
            barrier.wait(30)  # noqa: B023
            won.append(claim(place.root, name, {"format": 1}))  # noqa: B023

        threads = [threading.Thread(target=race) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        held = [fd for fd in won if fd is not None]
        for fd in held:
            os.close(fd)
        assert (len(won), len(held)) == (4, 1)
    assert len(os.listdir(place.root)) == 50


def _answer(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def _first_look(path: str) -> tuple[dict[str, object], bool]:
    until = time.monotonic() + 30
    while (found := _look(path)) is None:
        assert time.monotonic() < until, "nobody claims"
    return found


def _look(path: str) -> tuple[dict[str, object], bool] | None:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        facts = frames.read_claim(fd)
        assert facts is not None, "a claim could be seen before it was whole"
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return facts, True
        return facts, False
    finally:
        os.close(fd)
