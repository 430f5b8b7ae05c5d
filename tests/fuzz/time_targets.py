"""Readers of times: words, crontab expressions, blackouts, durations, sizes; and imports from other schedulers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from fuzz.mutation import words_of
from fuzz.target import Check, Target, expect_type
from toban.definition import Schedule, format_duration, format_size, parse_duration, parse_size
from toban.definition.timing.blackouts import parse_blackout, stretch_at
from toban.definition.timing.cron import parse_cron
from toban.definition.timing.due import occurrences
from toban.definition.timing.phrases.phrase import PhraseError, interpret
from toban.importers.crontab_drafts import import_crontab
from toban.importers.import_model import ImportProblem, WorkflowDraft
from toban.importers.systemd_timers import import_timer
from toban.importers.workflow_writer import written

NOW = datetime(2026, 11, 18, 2, 0, tzinfo=UTC)
TOKYO, BERLIN = ZoneInfo("Asia/Tokyo"), ZoneInfo("Europe/Berlin")


def _text(data: bytes) -> str:
    """Lone surrogates stay what they are: JSON can hold them."""
    try:
        return data.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return data.decode(errors="replace")


@contextlib.contextmanager
def _words(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """A phrase is a time to come, or is refused with a reason that can be shown."""
        try:
            found = interpret(_text(data), now=NOW, zone=TOKYO)
        except PhraseError as error:
            return str(error).rpartition(": ")[0]
        for due in islice(occurrences(found.schedule, zone=TOKYO, after=NOW, stored_at=NOW), 3):
            assert due.at > NOW
        expect_type(found.text, str, "text")
        return "recurring" if found.recurring else "once"

    yield check


@contextlib.contextmanager
def _cron(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """A crontab expression, blackout, duration or size is read, or refused with the reason."""
        text = _text(data)
        outcomes = []
        with contextlib.suppress(ValueError):
            parse_cron(text)
            last = NOW
            dues = occurrences(Schedule(cron=text), zone=BERLIN, after=NOW, stored_at=NOW)
            for due in islice(dues, 5):
                assert due.at > last
                last = due.at
            outcomes.append("cron")
        with contextlib.suppress(ValueError):
            stretch_at(parse_blackout(text), BERLIN, NOW)
            outcomes.append("blackout")
        with contextlib.suppress(ValueError):
            seconds = parse_duration(text)
            expect_type(seconds, float, "seconds")
            format_duration(seconds)
            outcomes.append("duration")
        with contextlib.suppress(ValueError):
            size = parse_size(text)
            expect_type(size, int, "size")
            format_size(size)
            outcomes.append("size")
        return " ".join(outcomes)

    yield check


def _home(user: str) -> str:
    return f"/home/{user or 'me'}"


def _write(draft: WorkflowDraft) -> str:
    try:
        made = written(draft, after=NOW, count=3)
    except ImportProblem as problem:
        return str(problem)
    expect_type(made.text, str, "text")
    return f"same={made.same}"


@contextlib.contextmanager
def _crontab(work: Path) -> Iterator[Check]:
    def check(data: bytes) -> str:
        """Each line of a crontab becomes a workflow or is refused."""
        text = data.decode(errors="replace")
        outcomes = []
        for system in (False, True):
            found = import_crontab(text, file="crontab", system=system, zone="Europe/Berlin", home=_home)
            outcomes += [_write(draft) for draft in found.drafts[:20]]
            outcomes += [refused.reason for refused in found.refused[:2]]
        return "; ".join(outcomes)

    yield check


@contextlib.contextmanager
def _timer(work: Path) -> Iterator[Check]:
    units = work / "etc/systemd/system"
    units.mkdir(parents=True)

    def check(data: bytes) -> str:
        """A timer and its service become a workflow, or every directive without a counterpart is named."""
        timer, _, service = data.partition(b"=====\n")
        (units / "a.timer").write_bytes(timer)
        (units / "a.service").write_bytes(service)
        try:
            draft = import_timer("a.timer", root=str(work), zone="Europe/Berlin", home=_home)
        except ImportProblem as problem:
            expect_type(str(problem), str, "problem")
            return str(problem)
        return _write(draft)

    yield check


_CRONTAB = b"""\
# backups
MAILTO=me
PATH=/bin
*/10 2-4 * * mon-fri /usr/bin/backup --all > /dev/null 2>&1
@reboot sleep 60 && start
0 0 1 * * mail -s x%hello%world
"""
_TIMER = b"""\
[Unit]
Description=a
[Timer]
OnCalendar=Mon..Fri *-*-* 02:00:00
RandomizedDelaySec=5min
Persistent=true
=====
[Service]
Type=oneshot
User=nobody
Environment=A=1 "B=two words"
ExecStart=/bin/sh -c 'echo $A' ; /bin/true
TimeoutStartSec=1h 30min
MemoryMax=512M
"""
_BOOT_TIMER = b"""\
[Timer]
OnBootSec=10min
OnUnitActiveSec=1d
Unit=a.service
=====
[Service]
ExecStart=-/usr/bin/x %i %%
"""

TARGETS = (
    Target(
        name="words",
        reads="times in words, English and Japanese",
        samples=tuple(
            phrase.encode()
            for phrase in (
                "tomorrow at 9am",
                "every weekday at 18:30",
                "in 2 hours and 30 minutes",
                "every 15 minutes",
                "on the last day of the month at noon",
                "2026-12-24T18:00:00+09:00",
                "next friday 5pm deploy",
                "明日の午前9時",
                "毎週月曜日の18時半",
                "3時間後",
                "毎月末日の正午",
                "15分ごとに",
            )
        ),
        mutate=words_of(
            "every",
            "at",
            "in",
            "on",
            "the",
            "next",
            "last",
            "day",
            "month",
            "year",
            "monday",
            "noon",
            "midnight",
            "am",
            "pm",
            "and",
            "half",
            "first",
            "99999999999",
            "0",
            "-1",
            "31",
            "february",
            "毎日",
            "時",
            "分",
            "後",
            "前",
            "半",
            "午後",
            "月末",
            "来週",
            "十二",
            "１２",
            ":",
            "T",
            "Z",
            "+99:99",
            ",",
            "until",
        ),
        opened=_words,
    ),
    Target(
        name="cron",
        reads="crontab expressions, blackouts, durations, sizes",
        samples=(
            b"*/5 * * * *",
            b"0 30 2 29 2 *",
            b"15 4 1,15 jan-mar sun",
            b"0 2 * * sun/2h",
            b"1h30m",
            b"1.5GiB",
            b"90s",
        ),
        mutate=words_of(
            "*",
            "/",
            "-",
            ",",
            "L",
            "W",
            "#",
            "?",
            "@daily",
            "@reboot",
            "60",
            "0",
            "31",
            "feb",
            "sat",
            "7",
            "999999999",
            "1e10",
            "d",
            "h",
            "m",
            "s",
            "w",
            "ms",
            "KiB",
            "B",
            ".",
            "inf",
            "nan",
            "/0",
            "/2h",
            "/99999d",
        ),
        opened=_cron,
    ),
    Target(
        name="crontab",
        reads="crontabs that are imported",
        samples=(_CRONTAB, b"17 * * * * root cd / && run-parts --report /etc/cron.hourly\n"),
        mutate=words_of(
            "*",
            "%",
            "\\%",
            "@daily",
            "@",
            "=",
            '"',
            "'",
            "\n",
            "CRON_TZ=Asia/Tokyo\n",
            "CRON_TZ=",
            "/0",
            "-",
            "{{",
            "}}",
            "\\",
        ),
        opened=_crontab,
    ),
    Target(
        name="timer",
        reads="systemd timers and services that are imported",
        samples=(_TIMER, _BOOT_TIMER),
        mutate=words_of(
            "[Timer]",
            "[Service]",
            "\n",
            "=",
            "\\\n",
            "OnCalendar=",
            "*-*-*",
            "..",
            "/",
            "~",
            "weekly",
            "UTC",
            ",",
            ":",
            "Unit=",
            "ExecStart=",
            "ExecStartPre=",
            "@",
            "-",
            "+",
            "!",
            "%",
            "%n",
            "$",
            "${",
            '"',
            "'",
            "\\x",
            "\\u",
            ";",
            "infinity",
            "1y",
            "99999999999999999999",
            "Nice=",
            "User=",
            "WorkingDirectory=",
            "2147483648",
        ),
        opened=_timer,
    ),
)
