"""Random workflows with random faults: the daemon's rules and their naive interpreter agree on the outcome.

`TOBAN_TEST_EXAMPLES` sets how many are tried, and makes them new ones each time.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from .case_player import ends_of, simulate
from .case_reader import CLASSES
from .case_reducer import smallest
from .naive import Interpreter

EXAMPLES = int(os.environ.get("TOBAN_TEST_EXAMPLES", "0"))
common = settings(
    max_examples=EXAMPLES or 80,
    derandomize=not EXAMPLES,
    database=None,
    phases=[Phase.generate],
    verbosity=Verbosity.quiet,  # the case is told in a smaller form
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

OUTCOMES: list[int | str] = [
    *[0] * 60,
    *[1, 1, 1, 3, 75, 78, 127],
    *["slow", "slow", "hang", "hang_ignoring_term", "lost", "lost_unproved", "nostart", "void"],
    *["limit", "outside", "killed", "missing", "missing", "same", "same", "same"],
    *["FATAL", "NON_RETRYABLE", "RETRYABLE_RATE_LIMIT", "RETRYABLE_TRANSIENT"],
]
CHECKS: list[int | str] = [
    *[0, 0, 0, 75, 75, 75, 75, 75, 1, 1, 1, 78],
    *["slow", "hang", "lost", "void", "killed", "nostart", "RETRYABLE_RATE_LIMIT"],
]
CHILDREN: list[int | str] = [
    *[0] * 3,
    *["slow", "slow", "hang", "child_failed", "child_cancelled", "child_timed_out"],
]
NOT_OF_THESE = ("outputs", "success_codes", "error_classes", "idle_timeout")
"""What neither an approval nor a child run has."""
PLAIN: dict[str, Any] = {}
SHAPES = [
    *[PLAIN] * 5,
    *[{"when": text} for text in ("false", "true", "1/0 == 1")],
    *[{"for_each": text} for text in ("[]", "[1, 2]", "[1/0]")],
    *[{"for_each": "[1, 2, 3]", "max_parallel": most} for most in (1, 2)],
    *[{"success_codes": codes} for codes in ([0, 3], [3])],
    *[{"error_classes": {3: kind, 78: "RETRYABLE_TRANSIENT"}} for kind in CLASSES],
    *[{"outputs": [{"name": "o", "path": "o"}]}] * 4,
    *[{"idle_timeout": idle} for idle in (2.7, 5.3)],
]
LOOP = {"completion_check": {}, "max_iterations": 3, "on_iterations_exhausted": "continue"}
KINDS = [
    *[PLAIN] * 5,
    *[LOOP, LOOP | {"max_iterations": 2}, LOOP | {"on_iterations_exhausted": "abort"}],
    *[LOOP | {"stop_when_unchanged": "o", "max_iterations": 4}],
    *[LOOP | {"interval": interval} for interval in (1.7, 4.3)],
    *[{"job_type": "workflow"}, {"job_type": "approval"}],
    *[{"job_type": "wait", "wait": wait} for wait in ({"for": 4.3}, {"event": "x"})],
]
RETRIES = [
    *[PLAIN, PLAIN, {"max_retries": 1}, {"max_retries": 2, "retry": {"delay": 2.5, "backoff": 3}}],
    *[{"max_retries": 2, "retry": {"on": on}} for on in (["RETRYABLE_RATE_LIMIT"], [3])],
]
POLICIES = [
    *[{"on_failure": policy} for policy in ("continue",) * 6 + ("skip",) * 3 + ("abort",)],
    *[
        {"on_failure": "retry", "on_failure_exhausted": policy}
        for policy in ("continue",) * 6 + ("skip",) * 3 + ("abort",)
    ],
]
# One draw of each for a step: what is made of them is worked out below, which is a good deal faster.
STEPS = st.tuples(
    st.lists(st.integers(1, 12), max_size=3),
    st.sampled_from(SHAPES),
    st.sampled_from(KINDS),
    st.sampled_from(RETRIES),
    st.sampled_from(POLICIES),
    st.sampled_from(["fail", "rerun"]),
    st.sampled_from([3, 8, 20]),
    st.lists(st.integers(0, 2**16), max_size=8),
    st.lists(st.integers(0, 2**16), max_size=8),
)
SELDOM = st.sampled_from([0, 0, 0, 0, 1])
CASES = st.tuples(
    st.integers(1, 60).flatmap(lambda count: st.lists(STEPS, min_size=count, max_size=count)),
    st.none() | st.integers(1, 4),
    SELDOM.flatmap(lambda yes: st.lists(st.integers(500, 90_000), min_size=yes, max_size=yes)),
    SELDOM.flatmap(lambda yes: st.lists(st.integers(-1000, 90_000), min_size=yes, max_size=yes)),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 10_000)), max_size=1),
    st.sampled_from([0, 0, 0, 1, 2, 5]),
    SELDOM,
    st.booleans(),
    st.sampled_from([0, 0, 1, 2, 4]),
    st.sampled_from([4, 20, 300]),
)


def spread(name: str, number: int) -> float:
    """Between one and two seconds, and never the same: what happens at the same time has no promised order."""
    return 1 + zlib.crc32(f"{name}/{number}".encode()) % 999_983 / 999_983


def made(drawn: Any) -> dict[str, Any]:
    """A case, as the table would have it."""
    parts, concurrency, timeouts, cancels, pauses, restarts, scoped, gentle, finally_steps, finally_timeout = drawn
    first = max(1, len(parts) - finally_steps)  # those from here on are of `finally`
    steps: dict[str, dict[str, Any]] = {}
    outcomes: dict[str, list[int | str]] = {}
    events: dict[float, str] = {}
    for number, (back, shape, kind, retries, policy, lost, timeout, said, checked) in enumerate(parts):
        name = f"s{number}"
        spec = steps[name] = shape | kind | retries | policy | {"on_lost": lost}
        if gentle:
            # Nothing but the end of time ends such a run early.
            spec |= {key: "continue" for key in spec if spec[key] == "abort"}
            spec.setdefault("on_iterations_exhausted", "continue")
        least = first if number >= first else 0
        spec["depends_on"] = sorted({f"s{number - each}" for each in back if number - each >= least})
        # Nothing would ever end a step that hangs for ever.
        spec["timeout"] = timeout + spread(name, 0)
        if "job_type" in spec:
            spec = steps[name] = {key: spec[key] for key in spec if key not in NOT_OF_THESE}
        if "completion_check" in spec and number % 2:
            spec["completion_check"] = {"timeout": 2 + spread(f"{name}.check", 0)}
        names = [f"{name}[{n}]" for n in range(3)] if "for_each" in spec else [name]
        for place, each in enumerate(names):
            mine = said[place::3] if len(names) > 1 else said
            if spec.get("job_type") == "approval":
                moment = sum(mine) % 300 / 10 + spread(each, 0) / 1e4
                if mine:
                    events[moment] = f"{'reject' if mine[0] % 4 == 0 else 'approve'} {each}"
                continue
            if spec.get("job_type") == "wait":
                if mine and "event" in spec["wait"]:
                    events[sum(mine) % 300 / 10 + spread(each, 0) / 1e4] = f"come {each}"
                continue
            words = CHILDREN if "job_type" in spec else OUTCOMES
            outcomes[each] = [words[word % len(words)] for word in mine]
            if gentle:
                outcomes[each] = [1 if word == "FATAL" else word for word in outcomes[each]]
            if "completion_check" in spec:
                mine = checked[place::3] if len(names) > 1 else checked
                outcomes[f"{each}.check"] = [CHECKS[word % len(CHECKS)] for word in mine]
    for moment in cancels:
        events[moment / 1000 + 3e-5] = "cancel"
        events[moment / 1000 + 2 + 4e-5] = "replace" if moment % 3 else "cancel"
        events[moment / 1000 + 5 + 4e-5] = "cancel"
    for moment, length in pauses:
        events[moment / 1000 + 5e-5] = "pause"
        events[(moment + length) / 1000 + 7e-5] = "resume"
    last = {name: steps.pop(name) for name in list(steps)[first:]}
    case = {"steps": steps, "finally": last, "outcomes": outcomes, "events": events, "restart_every": restarts}
    case["concurrency"] = concurrency
    case["finally_timeout"] = finally_timeout + spread("finally", 0)
    case["scope"] = [name for name in steps if not scoped or spread(name, 1) < 1.7]
    case["timeout"] = timeouts[0] / 1000 if timeouts else None
    return case


def differs(case: dict[str, Any]) -> str:
    """How the two readings of the rules differ; `` if they do not, or if their times have no promised order."""
    interpreter = Interpreter(case, spread)
    try:
        expected = interpreter.play()
    except (AssertionError, ValueError):
        return ""  # it never ends, or makes no sense
    try:
        simulator = simulate(case, spread)
        found = ends_of(simulator)
        assert not simulator.live, "a process was left behind"
        assert simulator.forgotten == 1, "it never came to an end"
    except ValueError:
        return ""
    except AssertionError as error:
        return f"a rule is broken: {error}"
    same = found == expected or interpreter.ties
    return "" if same else f"found {found}\nexpected {expected}"


@pytest.mark.timeout(0 if EXAMPLES else 180)
@common
@given(CASES)
def test_both_come_to_the_same_ends(drawn: Any) -> None:
    case = made(drawn)
    if differs(case):
        small = smallest(case, lambda less: bool(differs(less)))
        pytest.fail(f"{small}\n{differs(small)}")
