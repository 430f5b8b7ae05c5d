"""Schedules, time zones and blackout windows of a definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from ruamel.yaml import YAML

from toban.definition import Fold, Gap, Misfire, Problem, Schedule, Workflow, parse
from toban.definition.checks.never_due import run_out
from toban.definition.schema.schedule_fields import MOST_SCHEDULES
from toban.definition.timing.phrases.phrase import PhraseError
from toban.definition.timing.phrases.phrase_schedules import check_words, resolve_words
from toban.definition.timing.schedule_text import describe
from toban.definition.timing.zones import check_zone

Read = Callable[[str], Workflow]
Error = Callable[[str | bytes], Problem]
Errors = Callable[[str | bytes], list[Problem]]

HEAD = "name: w\ndescription: d\n"
STEPS = "\nsteps: {a: {run: x}}\n"
PARAMS = (
    "params: {rows: {type: integer, required: true}, mode: {choices: [fast, safe]}, "
    "ratio: {type: number, default: 1}}\n"
)
JST = timezone(timedelta(hours=9))
TOKYO = ZoneInfo("Asia/Tokyo")
PHRASES: list[dict[str, Any]] = YAML(typ="safe").load(
    (Path(__file__).parents[1] / "timing" / "phrases.yaml").read_text(encoding="utf-8")
)


def test_a_text_is_a_crontab_expression(workflow: Read) -> None:
    found = workflow(f"{HEAD}schedule: '*/5  * * * mon'{STEPS}")
    assert found.schedules == (Schedule(cron="*/5 * * * mon"),)
    assert (found.timezone, found.blackout) == ("", ())


def test_every_field(workflow: Read) -> None:
    found = workflow(
        f"""\
{HEAD}{PARAMS}
schedule:
  cron: "@weekly"
  timezone: Europe/Berlin
  start: 2026-12-01T09:00:00+09:00
  end: 2027-12-01 09:00Z
  max_occurrences: 10
  jitter: 5m
  params: {{rows: 5, mode: fast, ratio: 2}}
  misfire: run_all
  misfire_grace: 1d
  gap: skip
  fold: both
  scope: quick
scopes: {{quick: [a]}}
{STEPS}"""
    )
    assert found.schedules == (
        Schedule(
            cron="0 0 * * 0",
            timezone="Europe/Berlin",
            start=datetime(2026, 12, 1, 9, tzinfo=JST),
            end=datetime(2027, 12, 1, 9, tzinfo=UTC),
            max_occurrences=10,
            jitter=300,
            params={"rows": 5, "mode": "fast", "ratio": 2.0},
            misfire=Misfire.RUN_ALL,
            misfire_grace=86400,
            gap=Gap.SKIP,
            fold=Fold.BOTH,
            scope="quick",
        ),
    )
    assert describe(found.schedules[0]).endswith("10 times at most, scope quick")


def test_calendars(workflow: Read) -> None:
    found = workflow(
        f"""\
{HEAD}calendar: {{country: jp, holidays: [2026-12-29], workdays: ["2026-12-30"]}}
schedule:
  - {{cron: '@daily', calendar: us-ca}}
  - {{cron: '@daily', calendar: {{file: /etc/days}}, business_day: next}}
  - {{cron: '@daily', business_day: -1}}
  - {{when: every business day at 9, calendar: jp}}
  - {{when: 翌営業日}}
{STEPS}"""
    )
    assert found.calendar == {"country": "jp", "holidays": ["2026-12-29"], "workdays": ["2026-12-30"]}
    daily = Schedule(cron="0 0 * * *")
    assert found.schedules == (
        replace(daily, calendar={"country": "us-ca"}, business_day="only"),
        replace(daily, calendar={"file": "/etc/days"}, business_day="next"),
        replace(daily, business_day=-1),
        Schedule(words="every business day at 9", calendar={"country": "jp"}),
        Schedule(words="翌営業日"),
    )
    assert Workflow.from_dict(found.to_dict()) == found


def test_each_way_to_say_when(workflow: Read) -> None:
    found = workflow(
        f"""\
{HEAD}timezone: Asia/Tokyo
blackout: ["0 2 * * sun/2h", "30 12 * * */15m"]
schedule:
  - "@daily"
  - {{every: 15m, timezone: UTC}}
  - {{at: "2026-12-01T09:00:00+0900"}}
  - {{when: 平日の15時}}
  - {{cron: "@reboot"}}
{STEPS}"""
    )
    assert found.timezone == "Asia/Tokyo"
    assert found.blackout == ("0 2 * * sun/2h", "30 12 * * */15m")
    assert found.schedules == (
        Schedule(cron="0 0 * * *", timezone="Asia/Tokyo"),
        Schedule(every=900, timezone="UTC"),
        Schedule(at=datetime(2026, 12, 1, 9, tzinfo=JST), timezone="Asia/Tokyo"),
        Schedule(words="平日の15時", timezone="Asia/Tokyo"),
        Schedule(cron="@reboot", timezone="Asia/Tokyo"),
    )


def test_a_job_has_schedules_that_its_users_do_not_inherit() -> None:
    parsed = parse(
        f"jobs: {{j: {{run: x, schedule: [{{every: 1h}}], timezone: Asia/Tokyo}}}}\n---\n{HEAD}steps: {{s: {{job: j}}}}"
    )
    assert parsed.ok
    job, user = (document.workflow for document in parsed.documents)
    assert job is not None
    assert (job.timezone, job.schedules) == (
        "Asia/Tokyo",
        (Schedule(every=3600, timezone="Asia/Tokyo"),),
    )
    assert user is not None
    assert (user.timezone, user.schedules) == ("", ())


@pytest.mark.parametrize(
    ("text", "path", "column", "message"),
    [
        ("schedule: 0 3 * *", "schedule", 11, "expected 5 or 6 fields, found 4"),
        ("schedule: 0 25 * * *", "schedule", 11, 'hour: found "25": expected 0-23'),
        ("schedule: every day at 9", "schedule", 11, 'in words write {when: "every day at 9"}'),
        ("schedule: {cron: every day at 9}", "schedule.cron", 18, 'in words write {when: "every day at 9"}'),
        ("schedule: 5", "schedule", 11, "expected a crontab expression or a mapping with one of"),
        ("schedule:", "schedule", 1, "the field has no value"),
        ("schedule: []", "schedule", 11, "expected at least one schedule, found none"),
        ("schedule: [[]]", "schedule[0]", 12, "expected a crontab expression or a mapping"),
        ("schedule: ['@daily', '@x']", "schedule[1]", 22, '"@x" is not a known shortcut'),
        (
            f"schedule: [{', '.join(['{every: 1h}'] * (MOST_SCHEDULES + 1))}]",
            *("schedule", 11, "found 101 schedules: at most 100 are allowed"),
        ),
        ("schedule: {}", "schedule", 11, "does not say when: give one of cron, every, at, when"),
        ("schedule: {gap: skip}", "schedule", 11, "does not say when"),
        (
            "schedule: {cron: '@daily', every: 5m}",
            *("schedule.every", 28, '"cron" and "every" both say when: keep one'),
        ),
        (
            "schedule: {every: 1h, scope: quik}\nscopes: {quick: [a]}",
            *("schedule.scope", 30, 'unknown scope "quik": did you mean "quick"?'),
        ),
        ("schedule: {every: 1h, scope: x}", "schedule.scope", 30, 'unknown scope "x": there are no scopes'),
        ("schedule: {cron: '@daily', calendar: xx}", "schedule.calendar", 38, 'unknown country "xx"'),
        (
            "schedule: {cron: '@daily', business_day: none}",
            "schedule.business_day",
            42,
            "expected only, next, previous",
        ),
        ("schedule: {cron: '@daily', business_day: 24}", "schedule.business_day", 42, "or -1 for the last, found"),
        ("schedule: {every: 1h, calendar: jp}", "schedule.calendar", 23, "applies only to local times that repeat"),
        (
            "schedule: {cron: '@reboot', business_day: only}",
            *("schedule.business_day", 29, "applies only to local times that repeat"),
        ),
        ("schedule: {when: in 2 hours, calendar: jp}", "schedule.calendar", 30, "applies only to local times"),
        (
            "schedule: {when: every business day, business_day: next}",
            *("schedule.business_day", 38, "the words say it already: remove it"),
        ),
        ("calendar: {file: x}", "calendar", 11, "expected the absolute path of a file"),
        ("schedule: {corn: x, every: 1h}", "schedule.corn", 12, 'did you mean "cron"?'),
        ("schedule: {cron: x}", "schedule.cron", 18, "expected 5 or 6 fields"),
        ("schedule: {every: x}", "schedule.every", 19, "expected a duration"),
        ("schedule: {every: 10ms}", "schedule.every", 19, "expected an interval of at least 1s"),
        (
            "schedule: {at: 2026-12-01T09:00:00}",
            *("schedule.at", 16, "has no offset from UTC"),
        ),
        ("schedule: {at: 2026-12-01}", "schedule.at", 16, "expected a time, found"),
        ("schedule: {at: 5}", "schedule.at", 16, "expected a time, found the number 5"),
        ("schedule: {at: 2026-02-30T09:00Z}", "schedule.at", 16, "is not a valid date"),
        ("schedule: {at: 0001-01-01T00:00+09:00}", "schedule.at", 16, "is not a valid date"),
        ("schedule: {at: 9999-01-01T00:00Z}", "schedule.at", 16, "a time from 1970 to 9998"),
        (
            "schedule: {every: 1h, start: 2026-12-01T09:00}",
            *("schedule.start", 30, "has no offset from UTC"),
        ),
        (
            "schedule: {every: 1h, start: 2026-12-01T09:00+09:00, end: 2026-11-30T00:00Z}",
            *("schedule.end", 59, "the schedule ends before it starts"),
        ),
        (
            "schedule: {at: 2026-12-01T09:00Z, end: 2026-11-30T00:00Z}",
            *("schedule.at", 16, "would never run"),
        ),
        (
            "schedule: {at: 2026-12-01T09:00Z, start: 2026-12-30T00:00Z}",
            *("schedule.at", 16, "would never run"),
        ),
        ("schedule: {when: sometime}", "schedule.when", 18, '"sometime" is not understood'),
        ("schedule: {when: ''}", "schedule.when", 18, "expected text, found an empty string"),
        (
            "schedule: {when: remind me tomorrow}",
            *("schedule.when", 18, 'only start runs: write the time without "remind me"'),
        ),
        ("schedule: {every: 1h, jitter: 8d}", "schedule.jitter", 31, "expected at most 7d"),
        ("schedule: {every: 1h, misfire: x}", "schedule.misfire", 32, "skip, run_once or run_all"),
        ("schedule: {every: 1h, misfire_grace: -1}", "schedule.misfire_grace", 38, "negative"),
        ("schedule: {every: 1h, max_occurrences: 0}", "schedule.max_occurrences", 40, "at least 1"),
        ("schedule: {every: 1h, gap: skip}", "schedule.gap", 23, 'not apply to "every"'),
        (
            "schedule: {when: every 90 minutes, gap: skip}",
            *("schedule.gap", 36, "not apply to words that mean an interval: remove it"),
        ),
        (
            "schedule: {when: tomorrow at 9, fold: both}",
            *("schedule.fold", 33, "not apply to words that mean a single time: remove it"),
        ),
        ("schedule: {cron: '@reboot', fold: both}", "schedule.fold", 29, 'to "@reboot"'),
        ("schedule: {cron: '@reboot', jitter: 5m}", "schedule.jitter", 29, 'to "@reboot"'),
        ("schedule: {cron: '@daily', gap: x}", "schedule.gap", 33, "expected shift or skip"),
        ("schedule: {every: 1h, params: []}", "schedule.params", 31, "expected a mapping"),
        (
            "schedule: {every: 1h, params: {a: 1}}",
            *("schedule.params.a", 32, 'unknown parameter "a" (it takes no parameters)'),
        ),
        ("schedule: {every: 1h, timezone: x}", "schedule.timezone", 33, 'unknown time zone "x"'),
        ("timezone: asia/tokyo", "timezone", 11, 'did you mean "Asia/Tokyo"?'),
        ("timezone: JST", "timezone", 11, "write a name of the IANA database"),
        ("timezone: Asia", "timezone", 11, 'unknown time zone "Asia"'),
        ("timezone: ../UTC", "timezone", 11, 'unknown time zone "../UTC"'),
        ("timezone: localtime", "timezone", 11, 'unknown time zone "localtime"'),
        ("timezone: 9", "timezone", 11, "expected a string"),
        ("blackout: 0 2 * * sun/2h", "blackout", 11, "write [0 2 * * sun/2h]"),
        ("blackout: []", "blackout", 11, "expected at least one entry"),
        ("blackout: ['0 2 * * sun']", "blackout[0]", 12, "expected a blackout window"),
        ("blackout: ['@reboot/2h']", "blackout[0]", 12, "cannot begin"),
    ],
)
def test_what_is_wrong_is_found(text: str, path: str, column: int, message: str, error: Error) -> None:
    found = error(f"{HEAD}{text}{STEPS}")
    assert (found.line, found.path, found.column) == (3, path, column)
    assert message in found.message


def test_parameters_are_those_of_the_workflow(errors: Errors) -> None:
    found = errors(
        f"{HEAD}{PARAMS}schedule:\n"
        "- '@daily'\n"
        "- {every: 1h, params: {rows: '5', mode: slow}}\n"
        "- {every: 1h, params: {rwos: 1, rows: 1, ratio: null}}\n"
        f"- {{every: 1h, params: {{mode: fast}}}}{STEPS}"
    )
    assert [(problem.line, problem.path, problem.message) for problem in found] == [
        (5, "schedule[0]", found[0].message),
        (6, "schedule[1].params.rows", 'expected an integer, found "5"'),
        (6, "schedule[1].params.mode", 'expected one of "fast", "safe", found "slow"'),
        (7, "schedule[2].params.rwos", 'unknown parameter "rwos": did you mean "rows"?'),
        (7, "schedule[2].params.ratio", "expected a number, found null"),
        (8, "schedule[3]", found[0].message),
    ]
    assert found[0].message == (
        'the parameter "rows" is required, so no run could start: add params: {rows: …} to the schedule'
    )


def test_a_mistake_in_the_parameters_is_told_once(error: Error) -> None:
    assert error(f"{HEAD}params: 5\nschedule: {{every: 1h, params: {{a: 1}}}}{STEPS}").path == ("params")
    wrong = "params: {a: {type: x, required: true}}\nschedule: [{every: 1h}, '@daily']"
    assert error(f"{HEAD}{wrong}{STEPS}").path == "params.a.type"


def test_a_template_in_parameters_of_a_schedule_is_pointed_out() -> None:
    text = "params: {day: {}}\nschedule: {every: 1h, params: {day: '{{ run.scheduled_at }}'}}"
    parsed = parse(f"{HEAD}{text}{STEPS}")
    assert parsed.ok
    (warning,) = parsed.warnings
    assert (warning.path, warning.column) == ("schedule.params.day", 37)
    assert "templates are not evaluated here" in warning.message


def test_words_that_mean_local_times_may_say_what_becomes_of_them(workflow: Read) -> None:
    found = workflow(f"{HEAD}schedule: {{when: every day at 2am, gap: skip, fold: both}}{STEPS}")
    assert (found.schedules[0].gap, found.schedules[0].fold) == (Gap.SKIP, Fold.BOTH)


@pytest.mark.parametrize("window", ["0 0 * * */24h", "* * * * * */2s"])
def test_a_blackout_that_never_ends_is_pointed_out(window: str) -> None:
    parsed = parse(f"{HEAD}blackout: ['0 2 * * */2h', '{window}']{STEPS}")
    assert parsed.ok
    (warning,) = parsed.warnings
    assert (warning.line, warning.path, warning.column) == (3, "blackout[1]", 28)
    assert "schedules never start a run" in warning.message


def test_jobs_take_no_parameters(error: Error) -> None:
    found = error("jobs: {j: {run: x, schedule: {every: 1h, params: {a: 1}}}}")
    assert (found.path, found.message) == (
        "jobs.j.schedule.params.a",
        'unknown parameter "a" (it takes no parameters)',
    )


@pytest.mark.parametrize("name", ["schedule", "timezone", "blackout"])
def test_only_workflows_and_jobs_have_schedules(name: str, error: Error) -> None:
    found = error(f"{HEAD}steps: {{a: {{run: x, {name}: '@daily'}}}}")
    assert (found.path, found.message[:13]) == (f"steps.a.{name}", "unknown field")


def test_jobs_have_no_blackouts_of_their_own(error: Error) -> None:
    assert "unknown field" in error("jobs: {j: {run: x, blackout: ['@daily/1h']}}").message


def test_the_run_tells_when_it_was_due(workflow: Read) -> None:
    arguments = "'{{ run.scheduled_at }}', '{{ run.missed }}', '{{ size(run.missed) }}'"
    found = workflow(f"{HEAD}steps: {{a: {{job_type: exec, target: x, args: [{arguments}]}}}}")
    assert len(found.steps["a"].args) == 3


# Words.


def test_whatever_words_mean_sometime_is_accepted() -> None:
    """No clock is looked at: what is read on one day is read on every day."""
    refused = []
    for group in PHRASES:
        for case in group["understood"]:
            try:
                check_words(case["say"], ZoneInfo(group["zone"]))
            except ValueError as error:
                refused.append(str(error))
    assert refused  # some of them say to do something else
    assert [text for text in refused if "a schedule can only start runs" not in text] == []


@pytest.mark.parametrize(
    "text", ["再来月31日の9時", "来月31日", "this monday at 0:01", "今日の9時", "2025-01-01 09:00"]
)
def test_words_that_need_a_certain_day_are_accepted(text: str) -> None:
    assert check_words(text, TOKYO).schedule.at is not None


@pytest.mark.parametrize("text", ["run it tomorrow at 9", "明日の9時に実行してください"])
def test_words_may_say_that_a_run_starts(text: str) -> None:
    assert check_words(text, TOKYO).rest


def test_words_mean_something_once_it_is_some_time() -> None:
    now = datetime(2026, 11, 16, 10, 20, tzinfo=TOKYO)
    said = Schedule(words="3日後の朝9時", jitter=5, misfire=Misfire.SKIP, params={"a": 1})
    found = resolve_words(said, now=now, zone=TOKYO)
    assert found.at == datetime(2026, 11, 19, 9, tzinfo=TOKYO)
    assert (found.words, found.jitter, found.misfire) == (said.words, 5, Misfire.SKIP)
    assert found.params == {"a": 1}
    later = resolve_words(found, now=now + timedelta(days=1), zone=TOKYO)
    assert later.at == datetime(2026, 11, 20, 9, tzinfo=TOKYO)
    weekly = resolve_words(Schedule(words="毎週月曜9時"), now=now, zone=TOKYO)
    assert (weekly.cron, weekly.at) == ("0 9 * * 1", None)


def test_words_whose_time_has_passed_are_found_when_they_are_stored() -> None:
    now = datetime(2026, 11, 16, tzinfo=TOKYO)
    with pytest.raises(PhraseError, match="has passed"):
        resolve_words(Schedule(words="2025-01-01 09:00"), now=now, zone=TOKYO)


def test_words_that_nobody_has_resolved_are_shown_as_they_are() -> None:
    assert describe(Schedule(words="3日後の朝9時", max_occurrences=1)) == "3日後の朝9時, once at most"


def test_what_is_not_said_in_words_stays_as_it_is() -> None:
    said = Schedule(every=5)
    assert resolve_words(said, now=datetime(2026, 11, 16, tzinfo=UTC), zone=TOKYO) is said


# Stored.


def test_only_what_is_not_as_by_default_is_stored() -> None:
    assert Schedule(cron="0 3 * * *").to_dict() == {"cron": "0 3 * * *"}
    at = datetime(2026, 12, 1, 9, tzinfo=JST)
    assert Schedule(at=at, fold=Fold.BOTH).to_dict() == {
        "at": "2026-12-01T09:00:00+09:00",
        "fold": "both",
    }
    assert Schedule.from_dict({}) == Schedule()


def test_names_of_zones() -> None:
    for name in ("UTC", "Asia/Tokyo", "America/Argentina/Buenos_Aires"):
        assert check_zone(name) == name
    with pytest.raises(ValueError, match='did you mean "America/New_York"'):
        check_zone("America/New York")
    with pytest.raises(ValueError, match="unknown time zone"):
        check_zone("x" * 10_000)
    with pytest.raises(ValueError, match="unknown time zone"):
        check_zone("\udcff\0")


NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def out(text: str) -> list[tuple[str, str]]:
    (document,) = parse(f"{HEAD}{text}{STEPS}").documents
    found = run_out(document, "x.yaml", NOW)
    assert all(problem.warning and problem.file == "x.yaml" for problem in found)
    return [(problem.path, problem.message) for problem in found]


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("at: 2020-01-01T00:00:00Z", "2020-01-01 00:00+00:00 is in the past"),
        ("cron: '0 0 * * *', end: 2020-01-01T00:00:00Z", "its end 2020-01-01 00:00+00:00 is in"),
        ("cron: '@reboot', end: 2020-01-01T00:00:00Z", "its end 2020-01-01 00:00+00:00 is in"),
        ("when: every day at 9, end: 2020-01-01T00:00:00Z", "its end "),
        (
            "cron: '0 0 1 * *', start: 2026-05-03T00:00Z, end: 2026-05-29T00:00Z",
            "no due time is before its end",
        ),
        ("cron: '0 13 * * *', end: 2026-03-02T13:30+01:00, timezone: Europe/Paris", ""),
        ("cron: '0 12 * * *', end: 2026-03-02T13:30Z, timezone: Asia/Tokyo", "no due time is"),
        ("cron: '0 12 * * *', end: 2026-03-02T13:30Z", ""),  # depends on the daemon's zone
        ("every: 1h, end: 2026-03-02T12:30Z", "no due time is before its end"),
        ("every: 1h, start: 2026-03-02T12:10Z, end: 2026-03-02T12:30Z", ""),
        ("at: 2026-03-02T12:00Z", ""),
        ("cron: '@reboot'", ""),
        ("when: tomorrow at 9", ""),
        ("every: 1h", ""),
    ],
)
def test_what_will_never_be_due_is_pointed_out(schedule: str, why: str) -> None:
    found = out(f"schedule: {{{schedule}}}")
    assert [path for path, _ in found] == (["schedule"] if why else [])
    assert all(message.startswith(why) for _, message in found)


def test_schedules_that_have_run_out_are_named_by_their_place() -> None:
    passed = "{at: 2020-01-01T00:00:00Z}"
    assert [path for path, _ in out(f"schedule: ['@daily', {passed}]")] == ["schedule[1]"]
    parsed = parse(f"jobs: {{j: {{run: x, schedule: {passed}}}}}")
    (problem,) = run_out(parsed.documents[0], "x.yaml", NOW)
    assert problem.path == "jobs.j.schedule"
    (wrong,) = parse(f"{HEAD}schedule: {passed}").documents
    assert run_out(wrong, "x.yaml", NOW) == []
