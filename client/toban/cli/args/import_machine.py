"""Facts about this machine for an import: its time zone, its users, and due times from systemd-analyze."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from toban.importers.import_model import ImportProblem

if TYPE_CHECKING:
    from toban.importers.systemd_calendar import Calendar

_LOCALTIME: Final = "/etc/localtime"
_ELAPSES: Final = re.compile(
    r"^\s*(?:Next elapse|Iter\. #\d+|Iteration #\d+): \w+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\s*$",
    re.MULTILINE,
)
_UNREADABLE: Final = "Failed to parse calendar"
_PATIENCE: Final = 10.0


def machine_zone() -> str:
    """The name of the machine's time zone; UTC if unknown."""
    from toban.definition.timing.zones import check_zone

    linked = os.path.realpath(_LOCALTIME).partition("/zoneinfo/")[2]
    for name in (os.environ.get("TZ", "").lstrip(":"), linked):
        if name:
            try:
                return check_zone(name)
            except ValueError:
                continue
    return "UTC"


def home_of(user: str) -> str:
    """The home directory of a user, or of the current user for ''; '' if there is no such user."""
    if not user:
        home = os.path.expanduser("~")
        return home if home != "~" else ""
    if sys.platform != "win32":
        import pwd

        try:
            return pwd.getpwnam(user).pw_dir
        except KeyError:
            pass
    return ""


def is_user(name: str) -> bool:
    """Whether there is such a user; root always exists."""
    return name == "root" or bool(home_of(name))


def calendar_times(calendar: Calendar, zone: ZoneInfo) -> Callable[[datetime, int], list[datetime]]:
    """Due times of a calendar expression: from systemd-analyze if it is installed, else computed here.

    The returned function raises ImportProblem if systemd cannot read the expression.
    """
    program = shutil.which("systemd-analyze")
    own = calendar.times(zone)
    if program is None:
        return own

    def first(after: datetime, count: int) -> list[datetime]:
        asked = _ask_systemd(program, f"{calendar.text}{_zone_of(calendar, zone)}", after, count)
        if asked is not None:
            return asked
        if _cannot_parse(program, calendar.text):
            raise ImportProblem(f'systemd cannot read the expression "{calendar.text}"')
        return own(after, count)

    return first


def _zone_of(calendar: Calendar, zone: ZoneInfo) -> str:
    return "" if calendar.zone else f" {zone.key}"


def _ask_systemd(program: str, text: str, after: datetime, count: int) -> list[datetime] | None:
    """None if it fails, as versions without --base-time do."""
    base = f"--base-time=@{int(after.timestamp())}"
    done = _analyze(program, f"--iterations={count}", base, text)
    if done is None or done.returncode:
        return None
    return [datetime.fromisoformat(at).replace(tzinfo=UTC) for at in _ELAPSES.findall(done.stdout)]


def _cannot_parse(program: str, text: str) -> bool:
    """Whether systemd cannot parse the expression; asked without a zone, which it may not know."""
    done = _analyze(program, text)
    return done is not None and done.returncode != 0 and _UNREADABLE in done.stderr


def _analyze(program: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            [program, "calendar", *arguments],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
            # All times in UTC, and in the words that are looked for.
            env={"PATH": os.environ.get("PATH", ""), "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
