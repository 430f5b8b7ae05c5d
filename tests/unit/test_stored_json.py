"""JSON from a disk: read like input."""

from __future__ import annotations

import pytest

from toband import stored_json


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        "NaN",
        "[-Infinity]",
        "1e999",
        '{"a": -1e99908}',
        pytest.param("[" * 20_000, id="deep list"),
        pytest.param('{"a":' * 20_000, id="deep map"),
        pytest.param("9" * 5000, id="long number"),
    ],
)
def test_what_no_answer_could_carry_is_refused(data: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        stored_json.parse(data)


def test_other_values_are_read() -> None:
    assert stored_json.parse('{"a": [1, -2.5e3, null, "x"]}') == {"a": [1, -2500.0, None, "x"]}
    with pytest.raises(ValueError, match="not an object"):
        stored_json.parse_object("[]")
