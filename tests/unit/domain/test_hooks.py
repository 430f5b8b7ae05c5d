"""Hooks: paths, conditions, and the signatures of deliveries."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from toband.domain.hook_model import HookForm, mapped, parse_condition, parse_path, unmet
from toband.domain.hook_signature import SignatureError, check_signature

NOW = datetime(2026, 11, 18, 9, 30, 0, 500_000, tzinfo=UTC)
SECRET = b"It's a Secret to Everybody"
CONTENT = {
    "body": {"a": [{"b": 1}, None], "a-b": True, "x y": "日", "0": "zero", "none": None, "text": "true"},
    "headers": {"x-github-event": "push"},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("body.a[0].b", [1]),
        ("body.a[1]", [None]),
        ("body.a-b", [True]),
        ('body["x y"]', ["日"]),
        ('body["0"]', ["zero"]),
        ("headers.x-github-event", ["push"]),
        ("headers", [CONTENT["headers"]]),
        ("body.none", [None]),
        ("body.none.more", []),
        ("body.a[2]", []),
        ("body.a.b", []),
        ("body[0]", []),
        ('body.a["0"]', []),
        ("body.text[0]", []),
        ("headers.X-GitHub-Event", []),
    ],
)
def test_a_path_finds_a_value_or_none(path: str, values: list[object]) -> None:
    assert list(mapped({"p": path}, CONTENT).values()) == values


@pytest.mark.parametrize("path", ["", "a", "bodyx", "body.", "body..a", "body[-1]", "body[01]", "body['a']", "body.a "])
def test_a_path_that_cannot_be_read(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|read"):
        parse_path(path)


@pytest.mark.parametrize(
    ("condition", "true"),
    [
        ("body.text=true", True),
        ("body.a-b=true", True),
        ("body.a[0].b=1", True),
        ('body["x y"]=日', True),
        ('headers["x-github-event"]=push', True),
        ("body.none=null", True),
        ("body.text=True", False),
        ("body.absent=null", False),
        ("body.absent=", False),
    ],
)
def test_a_condition_compares_texts_and_json(condition: str, true: bool) -> None:
    assert unmet(["body.text=true", condition], CONTENT) == ("" if true else condition)
    parse_condition(condition)


def test_a_value_may_have_any_character() -> None:
    assert parse_condition('body["a=b"]=c=d\n') == (["body", "a=b"], "c=d\n")


def test_the_example_of_github() -> None:
    """From its documentation: what others compute is what we compare with."""
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
    assert check_signature(HookForm.GITHUB, SECRET, headers, b"Hello, World!", NOW) == headers["x-github-delivery"]
    with pytest.raises(SignatureError):
        check_signature(HookForm.GITHUB, SECRET, headers, b"Hello, World?", NOW)
    with pytest.raises(SignatureError):
        check_signature(HookForm.GITHUB, SECRET, {**headers, "x-github-delivery": ""}, b"Hello, World!", NOW)


def plain(signed: bytes, **headers: str) -> dict[str, str]:
    digest = hmac.new(SECRET, signed, sha256).hexdigest()
    return {"x-toban-signature": f"sha256={digest}"} | {f"x-toban-{name}": value for name, value in headers.items()}


@pytest.mark.parametrize(("seconds", "taken"), [(0, True), (-299, True), (299, True), (-301, False), (301, False)])
def test_the_plain_form_has_a_time(seconds: int, taken: bool) -> None:
    at = str(int((NOW + timedelta(seconds=seconds)).timestamp()))
    headers = plain(f"{at}.x".encode(), timestamp=at)
    if taken:
        key = check_signature(HookForm.HMAC, SECRET, headers, b"x", NOW)
        assert headers["x-toban-signature"] == f"sha256={key}"
        return
    with pytest.raises(SignatureError) as error:
        check_signature(HookForm.HMAC, SECRET, headers, b"x", NOW)
    assert error.value.stale


def test_what_is_signed_is_read_in_one_way_only() -> None:
    at = str(int(NOW.timestamp()))
    assert check_signature(
        HookForm.HMAC, SECRET, plain(f"o-1.{at}.x".encode(), timestamp=at, delivery="o-1"), b"x", NOW
    )
    # A body that begins with a time is not the body of a delivery whose id is a time.
    signed = f"{at}.{at}.x".encode()
    assert check_signature(HookForm.HMAC, SECRET, plain(signed, timestamp=at), f"{at}.x".encode(), NOW)
    for wrong in (
        plain(signed, timestamp=at, delivery=at),
        plain(b".x"),
        plain(b"-1.x", timestamp="-1"),
        plain(f"{at}.x".encode(), timestamp=at, delivery="o-1"),
        plain(f"o 1.{at}.x".encode(), timestamp=at, delivery="o 1"),
    ):
        with pytest.raises(SignatureError) as error:
            check_signature(HookForm.HMAC, SECRET, wrong, b"x", NOW)
        assert not error.value.stale
