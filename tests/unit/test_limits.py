"""Size limits: how sizes are counted, and the errors for values that are too large."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from toban.limits import (
    MAX_ITEMS_BYTES,
    MAX_PARAMS_BYTES,
    MIB,
    SizeError,
    check_items,
    check_params,
    cut,
    weight,
)
from toban.sdk.errors import InvalidArgument
from toban.sdk.message_values import to_struct

_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), _VALUES))
def test_nothing_is_larger_in_a_message_than_it_weighs(values: dict[str, Any]) -> None:
    message = struct_pb2.Struct()
    try:
        message.update(values)
    except UnicodeEncodeError:
        return
    assert message.ByteSize() <= weight(values, 1 << 40)


def test_many_small_values_weigh_what_they_take_up_in_a_message() -> None:
    """As JSON this is 200 kB; a number takes up eleven bytes of a message."""
    assert weight([1] * 100_000, 1 << 40) > 1_100_000


def test_counting_stops_soon_after_the_limit() -> None:
    shared: Any = [0]
    for _ in range(60):
        shared = [shared, shared]  # 2^60 values, if they were counted
    assert weight(shared, 1000) < 2000


def test_parameters_beyond_the_limit_are_refused_by_name() -> None:
    check_params({"a": "x" * (MAX_PARAMS_BYTES - 100)})
    with pytest.raises(SizeError, match=r"1 MiB.*the largest is big\): put large data into a file"):
        check_params({"small": 1, "big": "x" * MAX_PARAMS_BYTES})


def test_items_beyond_the_limit_are_refused() -> None:
    check_items(tuple(range(10_000)))
    check_items(("x" * (MAX_ITEMS_BYTES - 100),))
    with pytest.raises(SizeError, match="4 MiB"):
        check_items(("x" * MIB,) * 4)


def test_the_client_does_not_send_what_the_daemon_would_refuse() -> None:
    with pytest.raises(InvalidArgument, match=r"cannot send the parameters: .*1 MiB"):
        to_struct({"v": "x" * 15_000_000})


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    assert cut("short") == "short"
    text = cut("a" * 1_000_000 + "z" * 1_000_000, 100)
    assert text.startswith("a" * 75)
    assert text.endswith("z" * 25)
    assert "1,999,900 characters left out" in text
