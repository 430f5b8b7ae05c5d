"""Large values in files beside the log, and changed files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toband.domain.attempt_model import Attempt, AttemptState
from toband.engine.execution.dispatcher import PASSING
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.run_files import RunFiles

ATTEMPT = Attempt(
    id="a",
    run_id="r",
    step="s",
    number=1,
    ordinal=0,
    token="t" * 32,
    state=AttemptState.RUNNING,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs"))
    os.makedirs(files.attempts("r"))
    return files


def test_what_is_kept_is_read(files: RunFiles) -> None:
    values = ValueFiles(files)
    values.spill(ATTEMPT, {"k": [1, 2.5, None]}, {"name": "Zoë"})
    assert values.load(ATTEMPT) == ({"k": [1, 2.5, None]}, {"name": "Zoë"})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"result": 1}',
        b'{"result": 1, "outputs": [1]}',
        b'{"result": 1, "outputs": {"a": 1}}',
        b'{"result": NaN, "outputs": {}}',
        b"[" * 100_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_damaged_file_is_an_error_that_does_not_pass(files: RunFiles, text: bytes) -> None:
    """A run that needs it must not read it again and again."""
    Path(files.values(ATTEMPT)).write_bytes(text)
    with pytest.raises(OSError, match="damaged") as raised:
        ValueFiles(files).load(ATTEMPT)
    assert raised.value.errno not in PASSING
