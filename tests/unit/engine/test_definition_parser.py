"""Where the texts of definitions are read."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from doubles.sandbox import InlineSandbox
from toban.definition import parse
from toband.engine.definitions.definition_parser import DefinitionParser, is_small
from toband.ports import OverLimitError

_Result = TypeVar("_Result")
TEXT = "name: a\ndescription: d\nsteps: {a: {run: x}}\n"
LONG = TEXT + "# " + "x" * 20_000 + "\n"


class Failing(InlineSandbox):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def call(self, function: Callable[..., _Result], *args: Any, key: str, seconds: float) -> _Result:
        raise self._error


@pytest.mark.parametrize(
    ("text", "small"),
    [
        (TEXT, True),
        (TEXT.encode(), True),
        (LONG, False),
        ("run: a && b 2>&1 & wait; c &", True),
        ("run: rm *.txt", True),
        ("a: &a {x: 1}\nb: {<<: *a}\n", False),
        ("[&a 1,&b 2]", False),
        ("&a x", False),
        (b"\xff &a x", False),
    ],
)
def test_small_texts_repeat_nothing(text: str | bytes, small: bool) -> None:
    assert is_small(text) is small
    assert not is_small(text, LONG)


async def test_small_texts_are_read_here_and_others_elsewhere() -> None:
    sandbox = InlineSandbox()
    parser = DefinitionParser(sandbox)
    assert await parser.parse(TEXT, "f") == parse(TEXT, "f")
    assert sandbox.asked == []
    assert await parser.parse(LONG, "f") == parse(LONG, "f")
    assert await parser.parse(TEXT, "f", {"j": LONG}) == parse(TEXT, "f", {"j": LONG})
    assert sandbox.asked == ["parse", "parse"]
    parser.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OverLimitError("it took longer than 30 s"),
            "cannot read the definition: it took longer than 30 s; simplify or split it",
        ),
        (
            OSError(errno.EAGAIN, "Resource temporarily unavailable"),
            "cannot read the definition: Resource temporarily unavailable; try again",
        ),
    ],
)
async def test_what_cannot_be_read_has_a_problem_that_says_so(error: Exception, message: str) -> None:
    parser = DefinitionParser(Failing(error))
    (problem,) = (await parser.parse(LONG, "f")).errors
    assert (problem.message, problem.file) == (message, "f")
    parser.close()
