"""Every reader gets its corpus and a moment of new inputs. `scripts/fuzz` takes longer; docs/fuzzing.md says more."""

from __future__ import annotations

import sys

import pytest

from fuzz.session import fuzz
from fuzz.settings import SECONDS, SEED
from fuzz.table import TARGETS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers have POSIX limits")


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_too_much_for(name: str) -> None:
    report = fuzz(TARGETS[name], seed=SEED, seconds=SECONDS)
    repeat = f"scripts/fuzz --minutes 1 --target {name} --seed {SEED}"
    print(f"{repeat}: {report.inputs} inputs, {report.outcomes} outcomes")
    if report.finding is not None:
        shown = repr(report.finding.data)[:2000]
        pytest.fail(f"{report.finding.reason}\n\ninput: {shown}\nrepeat it with: {repeat}")
    assert report.inputs >= len(TARGETS[name].inputs())
