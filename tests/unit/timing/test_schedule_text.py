from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban.definition.timing.due import describe
from toban.definition.timing.schedule_spec import Schedule
from toban.definition.timing.schedule_text import describe_in


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/1 * * * *", "cron */1 * * * *"),
        ("*/7 * * * *", "cron */7 * * * *"),
        ("@hourly", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("0,30 * * * *", "cron 0,30 * * * *"),
        ("0 */6 * * *", "every 6 hours"),
        ("0 */5 * * *", "cron 0 */5 * * *"),
        ("30 */6 * * *", "every day at 00:30, 06:30, 12:30 and 18:30"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 * * * * *", "every minute"),
        ("0 */20 * * * *", "every 20 minutes"),
        ("@daily", "every day at 00:00"),
        ("0 3 * * *", "every day at 03:00"),
        ("15 0 3 * * *", "every day at 03:00:15"),
        ("0 9,15 * * *", "every day at 09:00 and 15:00"),
        ("0,30 9-17 * * *", "cron 0,30 9-17 * * *"),
        ("0 15 * * mon-fri", "every weekday at 15:00"),
        ("0 15 * * 1-5", "every weekday at 15:00"),
        ("@weekly", "every Sunday at 00:00"),
        ("0 9 * * 0,mon,wed", "every Monday, Wednesday and Sunday at 09:00"),
        ("0 9 * * */2", "every Tuesday, Thursday, Saturday and Sunday at 09:00"),
        ("0 9 * * tue#2", "on the 2nd Tuesday of every month at 09:00"),
        ("0 9 * * friL,1#3,mon#1", "on the 1st Monday, 3rd Monday and last Friday of every month at 09:00"),
        ("0 9 * * mon,fri#2", "cron 0 9 * * mon,fri#2"),
        ("@monthly", "on day 1 of every month at 00:00"),
        ("0 9 1,15 * *", "on day 1 and 15 of every month at 09:00"),
        ("0 18 L * *", "on the last day of every month at 18:00"),
        ("0 18 15,L * *", "on day 15 and the last of every month at 18:00"),
        ("@yearly", "every year on 1 January at 00:00"),
        ("0 9 24 dec *", "every year on 24 December at 09:00"),
        ("0 9 1 1,7 *", "cron 0 9 1 1,7 *"),
        ("0 9 * 7 *", "cron 0 9 * 7 *"),
        ("0 9 13 * fri", "cron 0 9 13 * fri"),
        ("0 9 1-20 * *", "cron 0 9 1-20 * *"),
        ("0 9 L 2 *", "cron 0 9 L 2 *"),
        ("*/5 * * * mon", "cron */5 * * * mon"),
    ],
)
def test_crontab_expressions(cron: str, words: str) -> None:
    assert describe(Schedule(cron=cron)) == words
    assert describe(Schedule(cron=cron, timezone="Asia/Tokyo")) == f"{words} Asia/Tokyo"


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(cron="@reboot", timezone="UTC"), "once per boot of the machine"),
        (Schedule(every=900), "every 15m"),
        (Schedule(every=5400, timezone="Asia/Tokyo"), "every 1h30m"),
        (Schedule(at=datetime(2026, 12, 1, 9, 0, tzinfo=UTC)), "once at 2026-12-01 09:00+00:00"),
        (
            Schedule(
                every=60,
                start=datetime(2026, 1, 1, tzinfo=UTC),
                end=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
                max_occurrences=10,
            ),
            "every 1m, from 2026-01-01 00:00+00:00, until 2026-01-02 03:04:05+00:00, 10 times at most",
        ),
        (Schedule(cron="0 3 * * *", max_occurrences=1), "every day at 03:00, once at most"),
    ],
)
def test_other_schedules(schedule: Schedule, words: str) -> None:
    assert describe(schedule) == words


def test_on_the_clocks_of_a_zone() -> None:
    at = datetime(2026, 12, 1, 0, 0, tzinfo=UTC)
    once = describe_in(Schedule(at=at, max_occurrences=3), "Asia/Tokyo")
    assert once == "once at 2026-12-01 09:00+09:00 Asia/Tokyo"
    daily = describe_in(Schedule(cron="0 3 * * *", max_occurrences=3), "Asia/Tokyo")
    assert daily == "every day at 03:00 Asia/Tokyo"
    assert describe_in(Schedule(every=900), "Asia/Tokyo") == "every 15m"
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    for wrong, zone in ((last, "Asia/Tokyo"), (at, "No/Where")):
        with pytest.raises(ValueError, match="cannot tell"):
            describe_in(Schedule(at=wrong), zone)
