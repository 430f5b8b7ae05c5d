"""The history of runs as the API and the files on disk report it."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from faults.lock_release import released_locks
from helpers.daemon import Daemon, process_state
from toban.v1 import dead_letter_pb2, run_pb2
from toband.supervise.logs.compressed_log import SUFFIX
from toband.supervise.shim import frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """The logs of one run: by step, attempt and stream."""

    streams: Mapping[tuple[str, int, int], bytes]
    complete: bool


class Logs(Protocol):
    def printed(self, run_id: str) -> Printed: ...


class Artifacts(Protocol):
    def content(self, run_id: str, step: str, name: str) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOnDisk:
    """One attempt file: who claimed it, and whether it has an end record."""

    run: str
    step: str
    """As file names have it; see `file_name`."""
    number: int
    token: str
    """Its first characters."""
    void: bool
    shim: tuple[int, int]
    """Pid and start time."""
    ended: bool


@dataclass(slots=True, kw_only=True)
class History:
    runs: dict[str, run_pb2.Run]
    processes: dict[str, list[run_pb2.ProcessExecution]]
    logs: Logs
    artifacts: Artifacts
    letters: dict[str, list[dead_letter_pb2.DeadLetter]] = field(default_factory=dict)
    """By run."""
    files: dict[str, list[AttemptOnDisk]] = field(default_factory=dict)

    def children(self, run_id: str, step: str) -> list[run_pb2.Run]:
        return [run for run in self.runs.values() if (run.parent_run, run.parent_step) == (run_id, step)]


class ApiLogs:
    """Asked for one run at a time: all of them would be a lot to hold."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def printed(self, run_id: str) -> Printed:
        streams: dict[tuple[str, int, int], bytearray] = {}
        complete = False
        for message in self._daemon.chunks(run_id):
            if message.HasField("end"):
                complete = message.end.complete
            chunk = message.chunk
            for record in chunk.records:
                key = (chunk.step, chunk.attempt, record.stream)
                streams.setdefault(key, bytearray()).extend(record.data)
        return Printed(streams={key: bytes(data) for key, data in streams.items()}, complete=complete)


class ApiArtifacts:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def content(self, run_id: str, step: str, name: str) -> bytes:
        request = run_pb2.DownloadArtifactRequest(run_id=run_id, step=step, name=name)
        answers = self._daemon.runs.DownloadArtifact(request, timeout=60)
        return b"".join(answer.data for answer in answers)


def read_history(daemon: Daemon, *, within: float = 120.0) -> History:
    """Waits for the end of every run first; one that ends may have made others."""
    runs: dict[str, run_pb2.Run] = {}
    with released_locks(daemon):
        while new := [run_id for run_id in all_runs(daemon) if run_id not in runs]:
            runs |= {run_id: daemon.wait_run(run_id, within) for run_id in new}
    processes = {run_id: daemon.processes(run_id) for run_id in runs}
    # Only what has no end needs to be looked at on disk.
    lost = [run_id for run_id, found in processes.items() if any(process_state(process) == "LOST" for process in found)]
    return History(
        runs=runs,
        processes=processes,
        logs=ApiLogs(daemon),
        artifacts=ApiArtifacts(daemon),
        letters=all_letters(daemon),
        files={run_id: attempts_on_disk(daemon.state_dir, run_id) for run_id in lost},
    )


def all_runs(daemon: Daemon) -> Sequence[str]:
    found: list[str] = []
    token = ""
    while True:
        request = run_pb2.ListRunsRequest(page_size=1000, page_token=token)
        page = daemon.runs.ListRuns(request, timeout=20)
        found += [run.id for run in page.runs]
        token = page.next_page_token
        if not token:
            return found


def all_letters(daemon: Daemon) -> dict[str, list[dead_letter_pb2.DeadLetter]]:
    found: dict[str, list[dead_letter_pb2.DeadLetter]] = {}
    token = ""
    while True:
        request = dead_letter_pb2.ListDeadLettersRequest(page_size=1000, page_token=token)
        page = daemon.dead_letters.ListDeadLetters(request, timeout=20)
        for letter in page.dead_letters:
            found.setdefault(letter.run_id, []).append(letter)
        token = page.next_page_token
        if not token:
            return found


def attempts_on_disk(state_dir: Path, run_id: str) -> list[AttemptOnDisk]:
    found = []
    for path in sorted((state_dir / "runs" / run_id / "attempts").glob("[!.]*.log*")):
        if not path.name.endswith((".log", f".log{SUFFIX}")):
            continue
        step, number, token = path.name.partition(".log")[0].rsplit(".", 2)
        with _readable(path) as file:
            facts: dict[str, Any] = frames.read_claim(file.fileno()) or {}
            ended = frames.read_end(file.fileno()) is not None
        found.append(
            AttemptOnDisk(
                run=run_id,
                step=step,
                number=int(number),
                token=token,
                void=bool(facts.get("void")),
                shim=(facts.get("pid", 0), facts.get("start", 0)),
                ended=ended,
            )
        )
    return found


def file_name(step: str) -> str:
    """`each[2]` and `loop.check` as they stand in the names of attempt files."""
    return step.replace("[", ".").replace("]", "")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[IO[bytes]]:
    """What the file holds, in a file that is not compressed."""
    with contextlib.ExitStack() as stack:
        plain: IO[bytes] = stack.enter_context(path.open("rb"))
        if path.name.endswith(SUFFIX):
            packed = stack.enter_context(gzip.open(plain))
            plain = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(packed, plain)
            plain.flush()
        yield plain
