from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban.definition import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 65536),
        ("512MiB", 2**29),
        ("2GiB", 2**31),
        ("1.5TiB", 3 * 2**39),
        ("1.5 KiB", 1536),
        ("100", 100),
        ("100B", 100),
        (7, 7),
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        ("8388607.9999990463256835937500TiB", 2**63 - 2**20),
    ],
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64KB", "64kib", "-1", "1.3B", "KiB", "1KiB ", "٥KiB", "9" * 99, -5, True, 1.5])
def test_other_sizes_are_refused_with_what_to_write(text: str | int) -> None:
    with pytest.raises(ValueError, match=r"write 64KiB, 512MiB, 2GiB or a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize("size", [2**63, "8388608TiB", "9" * 60])
def test_sizes_beyond_what_can_be_kept_are_refused(size: str | int) -> None:
    with pytest.raises(ValueError, match="larger than 8 EiB"):
        parse_size(size)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1000, "1000"),
        (1024, "1KiB"),
        (1536, "1536"),
        (3 * 2**29, "1536MiB"),
        (2**50, "1024TiB"),
    ],
)
def test_sizes_are_formatted_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


def test_a_negative_size_has_no_text() -> None:
    with pytest.raises(ValueError, match="not negative"):
        format_size(-1)


@given(st.integers(0, 2**63 - 1) | st.integers(0, 2**23 - 1).map(lambda n: n << 40))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size
