"""The names of browsers, for the list of sessions."""

from __future__ import annotations

import pytest

from toban.gateway.browser_name import browser_name

_MOZILLA = "Mozilla/5.0 ({}) AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        (f"{_MOZILLA.format('Windows NT 10.0; Win64; x64')} Chrome/138.0 Safari/537.36", "Chrome on Windows"),
        (f"{_MOZILLA.format('Windows NT 10.0')} Chrome/138.0 Safari/537.36 Edg/138.0", "Edge on Windows"),
        (f"{_MOZILLA.format('Macintosh; Intel Mac OS X 10_15_7')} Version/18.5 Safari/605.1", "Safari on macOS"),
        (f"{_MOZILLA.format('iPhone; CPU iPhone OS 18_5 like Mac OS X')} Safari/604.1", "Safari on iPhone"),
        (f"{_MOZILLA.format('Linux; Android 15')} Chrome/138.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("a\x1b[31m\nb", "a[31mb"),
        ("", ""),
    ],
)
def test_a_browser_has_a_name_for_people(agent: str, name: str) -> None:
    assert browser_name(agent) == name
