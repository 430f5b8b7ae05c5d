"""The name of a browser for people, from what it says about itself, such as `Firefox on Linux`."""

from __future__ import annotations

from typing import Final

# Most browsers name others too: the first that is found counts.
_BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_name(agent: str) -> str:
    """From the header User-Agent; what is no known browser is named as it names itself, without control characters."""
    browser = next((name for sign, name in _BROWSERS if sign in agent), "")
    system = next((name for sign, name in _SYSTEMS if sign in agent), "")
    if browser:
        return f"{browser} on {system}" if system else browser
    return "".join(each for each in agent if each.isprintable()).strip()
