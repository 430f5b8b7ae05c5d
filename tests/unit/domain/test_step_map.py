"""The map of a run's steps: it is a dict to all who read it, and older ones stay as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toband.domain.run_model import StepRun
from toband.domain.step_map import StepEdit, StepMap

_NAMES = st.integers(0, 200).map("s{}".format)
_CHANGES = st.lists(
    st.tuples(st.integers(0, 10), st.lists(st.tuples(_NAMES, st.integers()), max_size=150)),
    max_size=8,
)


@given(_CHANGES)
def test_it_is_a_dict_that_older_ones_share(
    changes: list[tuple[int, list[tuple[str, int]]]],
) -> None:
    """Each change is made to any of the maps that there are, not only to the newest."""
    maps: list[tuple[StepMap, dict[str, StepRun]]] = [(StepMap(), {})]
    for which, values in changes:
        old, expected = maps[which % len(maps)]
        new = {name: StepRun(id=name, index=value) for name, value in values}
        edit = StepEdit(old)
        for name, step in new.items():
            edit[name] = step
        assert edit.values() == list((expected | new).values())
        maps.append((edit.done(), expected | new))
        for made, wanted in maps:
            assert made == wanted
            assert list(made) == list(wanted)
            assert list(made.values()) == list(made.all()) == list(wanted.values())
            assert len(made) == len(wanted)
            for number in range(0, 201, 7):
                assert made.get(f"s{number}") == wanted.get(f"s{number}")


def test_what_does_not_change_is_shared() -> None:
    steps = StepMap.of({f"s{n}": StepRun(id=f"s{n}", index=n) for n in range(10_000)})
    assert StepMap.of(steps) is steps
    assert steps.changed({}) is steps
    changed = steps.changed({"s5000": StepRun(id="s5000", index=-1)})
    shared = sum(a is b for a, b in zip(steps._chunks, changed._chunks, strict=True))
    assert shared == len(steps._chunks) - 1
    assert steps["s5000"].index == 5000


def test_an_unknown_name_is_a_key_error() -> None:
    old = StepMap.of({"a": StepRun(id="a", index=0)})
    new = old.changed({"b": StepRun(id="b", index=1)})
    assert "b" in new
    assert "b" not in old
    with pytest.raises(KeyError):
        old["b"]
