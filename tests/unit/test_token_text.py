"""The text of a token."""

from __future__ import annotations

import pytest

from toban.token_text import new_token_text, read_token_text


def test_a_new_token_is_read_back_with_the_same_id_and_digest() -> None:
    made = new_token_text()
    read = read_token_text(made.text)
    assert read == made
    assert read is not None
    assert read.digest == made.digest
    assert len(made.digest) == 64


def test_no_two_tokens_are_the_same() -> None:
    assert len({new_token_text().text for _ in range(100)}) == 100


def test_its_representation_does_not_show_the_secret() -> None:
    made = new_token_text()
    assert made.text not in repr(made)
    assert made.text.rpartition("_")[2] not in f"{made}"


@pytest.mark.parametrize(
    "text",
    ["", "toban", "toban__", "toban_0123456789abcdef_", "toban_0123456789ABCDEF_" + "a" * 43, "Bearer x"],
)
def test_other_texts_are_no_token(text: str) -> None:
    assert read_token_text(text) is None


def test_nothing_may_follow_a_token() -> None:
    assert read_token_text(new_token_text().text + "\n") is None
