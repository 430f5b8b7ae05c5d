"""The verdict on an attempt: the table is complete, free of contradictions, and is what the code decides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from toband.supervise.launch.verdict import AttemptFileState, Verdict, judge

VALUES = {
    "database": ("STARTING", "RUNNING"),
    "told": ("nothing", "claimed"),
    "file": tuple(AttemptFileState),
    "supervisor": ("gone", "lives"),
}
CASES: list[dict[str, str]] = YAML(typ="safe").load(
    Path(__file__).with_name("verdict_cases.yaml").read_text(encoding="utf-8")
)


def situations() -> Iterator[dict[str, str]]:
    for values in product(*VALUES.values()):
        yield dict(zip(VALUES, values, strict=True))


def applies(case: dict[str, str], situation: dict[str, str]) -> bool:
    return all(case[name] in ("any", value) for name, value in situation.items())


@pytest.mark.parametrize("situation", list(situations()), ids=lambda each: " ".join(each.values()))
def test_each_situation_has_one_verdict_and_it_is_the_one_that_is_given(
    situation: dict[str, str],
) -> None:
    (verdict,) = {case["verdict"] for case in CASES if applies(case, situation)}
    begun = situation["database"] == "RUNNING" or situation["told"] == "claimed"
    given = judge(
        begun=begun,
        file=AttemptFileState(situation["file"]),
        supervised=situation["supervisor"] == "lives",
    )
    assert given == verdict
    if given is Verdict.LAUNCH_AGAIN:
        assert not begun, "what may have begun would begin twice"


def test_every_case_applies_to_something() -> None:
    assert all(any(applies(case, each) for each in situations()) for case in CASES)
