"""Short ways to a workflow and to the problems of a text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import Problem, Workflow, parse


@pytest.fixture(scope="session")
def workflow() -> Callable[[str], Workflow]:
    def read(text: str) -> Workflow:
        parsed = parse(text)
        assert parsed.ok, "\n".join(map(str, parsed.errors))
        assert len(parsed.documents) == 1
        found = parsed.documents[0].workflow
        assert found is not None
        return found

    return read


@pytest.fixture(scope="session")
def errors() -> Callable[[str | bytes], list[Problem]]:
    def read(text: str | bytes) -> list[Problem]:
        parsed = parse(text, "x.yaml")
        assert not parsed.ok
        for document in parsed.documents:
            assert document.workflow is None or len(parsed.documents) > 1
        return list(parsed.errors)

    return read


@pytest.fixture(scope="session")
def error(errors: Callable[[str | bytes], list[Problem]]) -> Callable[[str | bytes], Problem]:
    """The one and only error of a text."""

    def read(text: str | bytes) -> Problem:
        found = errors(text)
        assert len(found) == 1, "\n".join(map(str, found))
        return found[0]

    return read
