"""Runs workers and reports their findings; shared by the tests and `scripts/fuzz`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fuzz.target import Target
from fuzz.worker import FOUND, INPUT
from helpers.processes import kill, users_of

SLACK = 120.0
"""Seconds that a worker may take beyond its time: to start, to finish its last input, to end a daemon."""
SMALL_ENOUGH = 256
"""Bytes of an input below which nobody minds how large it is."""
_REASON_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    data: bytes
    reason: str

    @property
    def kind(self) -> str:
        """The same for inputs that fail in the same way: the name of the exception, or how the worker ended."""
        lines = self.reason.splitlines() or [""]
        shown = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        return shown.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    inputs: int = 0
    outcomes: int = 0
    finding: Finding | None = None


def fuzz(
    target: Target,
    *,
    seed: int,
    seconds: float,
    input_file: Path | None = None,
    grow: Path | None = None,
    table: str = "fuzz.table",
) -> Report:
    """Feeds one target for so long, or with the one input. Leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="tf.", ignore_cleanup_errors=True) as directory:
        work = Path(directory)
        command = [sys.executable, "-m", "fuzz.worker", target.name, "--table", table]
        command += ["--seed", str(seed), "--seconds", str(seconds), "--work", directory]
        command += ["--input", str(input_file)] if input_file else []
        command += ["--grow", str(grow)] if grow else []
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                timeout=seconds + SLACK,
                check=False,
            )
            code, output, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as error:
            code, output, errors = 1, b"", (error.stderr or b"") + b"\nthe worker does not end"
        finally:
            for left in users_of(work):
                kill(left)
        if code == 0:
            # Readers may log; the last line is the summary.
            facts = {} if input_file else json.loads(output.splitlines()[-1])
            return Report(**facts)
        data = input_file.read_bytes() if input_file else _input_of(work)
        return Report(finding=Finding(data=data, reason=_reason(code, errors)))


def smaller(target: Target, finding: Finding, *, seconds: float = 60.0, table: str = "fuzz.table") -> Finding:
    """The finding with as much of its input left out as can be within the time."""
    until = time.monotonic() + seconds
    size = len(finding.data) // 2
    with tempfile.TemporaryDirectory(prefix="tf.") as directory:
        file = Path(directory) / "input"
        while size >= SMALL_ENOUGH // 4 and time.monotonic() < until:
            at = 0
            while at < len(finding.data) and time.monotonic() < until:
                file.write_bytes(finding.data[:at] + finding.data[at + size :])
                found = fuzz(target, seed=0, seconds=0, input_file=file, table=table).finding
                if found is not None and found.kind == finding.kind:
                    finding = found
                else:
                    at += size
            size //= 2
    return finding


def _input_of(work: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return (work / INPUT).read_bytes()
    return b""


def _reason(code: int, errors: bytes) -> str:
    lines = errors.decode(errors="replace").splitlines()
    ended = "" if code == FOUND else f"the worker ended with {code}\n"
    return ended + "\n".join(lines[-_REASON_LINES:])
