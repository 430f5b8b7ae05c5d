"""Names of time zones, as the IANA database has them."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

# Files beside the database that are not zones of it: they differ between machines.
_NO_ZONES = frozenset({"Factory", "localtime"})
_LONGEST_NAME = 100


def check_zone(name: str) -> str:
    """The name, if there is such a zone; raises ValueError with what to write.

    Names are case-sensitive, even on systems that would find the file of another spelling.
    """
    if name in _zones():
        try:
            ZoneInfo(name)
        except (OSError, ValueError) as error:
            raise ValueError(f'cannot read the time zone "{name}": {error}') from error
        return name
    hint = "write a name of the IANA database, such as Asia/Tokyo or UTC"
    if len(name) <= _LONGEST_NAME:
        spelled = {zone.casefold(): zone for zone in _zones()}
        close = get_close_matches(name.casefold().replace(" ", "_"), spelled, n=1, cutoff=0.75)
        if close:
            hint = f'did you mean "{spelled[close[0]]}"?'
    shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    raise ValueError(f'unknown time zone "{shown}": {hint}')


def forget_zones() -> None:
    """Reads the database of zones again, the next time that each is needed."""
    ZoneInfo.clear_cache()
    _zones.cache_clear()


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones()) - _NO_ZONES
