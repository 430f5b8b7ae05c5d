"""A session finds planted faults, saves them, and generates the same inputs for the same seed."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fuzz import planted_targets
from fuzz.attempt_targets import FILES
from fuzz.findings import grow_corpus, keep_finding
from fuzz.mutation import mutated_frames, mutated_json
from fuzz.session import Finding, Report, fuzz, smaller
from fuzz.table import TARGETS
from fuzz.target import expect_type
from toband.supervise.shim import frames

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers have POSIX limits")


def planted(name: str, seconds: float = 1.0) -> Report:
    target = planted_targets.TARGETS[name]
    return fuzz(target, seed=7, seconds=seconds, table="fuzz.planted_targets")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raises", "KeyError: 'planted'"),
        ("nests", "RecursionError"),
        ("hangs", "Timeout"),
        ("crashes", "the worker ended with -6"),
        ("eats", "MiB of memory"),
        ("eats-all", "MemoryError"),
        ("burns", "of processor time"),
        ("keeps", "MiB of memory more at input"),
        ("leaves-open", "61 descriptors more at input"),
    ],
)
def test_a_planted_fault_is_found(fault: str, reason: str) -> None:
    # A session ends with its finding; growth takes hundreds of inputs, which is long on a busy machine.
    finding = planted(fault, seconds=30.0).finding
    assert finding is not None
    assert reason in finding.reason
    assert finding.data


def test_a_reader_without_a_fault_passes() -> None:
    report = planted("is-right", seconds=0.2)
    assert report.finding is None
    assert report.inputs > 1
    assert report.outcomes == 3


def test_a_finding_is_made_smaller_and_stays_the_same() -> None:
    large = Finding(data=b"x" * 700 + b"needle" + b"y" * 1300, reason="Traceback\nLookupError: found")
    found = smaller(planted_targets.TARGETS["needle"], large, table="fuzz.planted_targets")
    assert b"needle" in found.data
    assert 100 <= len(found.data) < 400
    assert found.kind == "LookupError"


def test_a_finding_is_kept_with_a_note_and_only_small_inputs_grow_the_corpus(
    tmp_path: Path,
) -> None:
    path = keep_finding("boot", b"\0bad", "KeyError: 'x'", 4711, tmp_path)
    grow_corpus([b"small", b"x" * 10_000], tmp_path / "boot")
    assert path.read_bytes() == b"\0bad"
    note = path.with_suffix(".note").read_text()
    assert "KeyError: 'x'" in note
    assert f"scripts/fuzz --target boot --input {path}" in note
    assert len(list((tmp_path / "boot").iterdir())) == 3


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_gives_the_same_inputs_again(name: str) -> None:
    target = TARGETS[name]
    samples = target.inputs()
    assert samples, "it has nothing to begin with"

    def drawn() -> list[bytes]:
        random = Random(11)
        return [target.mutate(random, random.choice(samples), samples) for _ in range(50)]

    assert drawn() == drawn()
    assert len(set(drawn())) > 25, "it makes the same again and again"


def test_most_mutated_frames_have_right_checksums() -> None:
    sample = FILES[0]
    random = Random(3)
    made = [mutated_frames(random, sample, ()) for _ in range(300)]
    whole = [data for data in made if frames.scan(data).end == len(data)]
    assert 200 < len(whole) < 300


def test_mutated_json_is_json_mostly_and_of_other_types() -> None:
    random = Random(5)
    kinds = set()
    for _ in range(500):
        data = mutated_json(random, b'{"a": {"b": [1, "x"]}}', ())
        try:
            kinds.add(type(json.loads(data)))
        except (ValueError, RecursionError) as error:
            kinds.add(type(error))
    assert kinds >= {dict, list, str, int, float, RecursionError, json.JSONDecodeError}


@dataclass(frozen=True)
class Thing:
    count: int
    at: datetime | None = None
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (True, int),
        (2**63, int),
        (float("nan"), float),
        ("\ud83d", str),
        ({"a": 1}, dict[str, str]),
        (Thing(count=1, names=("a", 2)), Thing),  # type: ignore[arg-type]
        (Thing(count=1, at=datetime(2026, 1, 1)), Thing),  # noqa: DTZ001
        ({1: 2}, Any),
    ],
)
def test_a_value_of_another_type_is_not_accepted(value: Any, declared: Any) -> None:
    with pytest.raises((AssertionError, UnicodeEncodeError)):
        expect_type(value, declared)
    expect_type(Thing(count=1, at=datetime.now(UTC), names=("a",)), Thing | None)
