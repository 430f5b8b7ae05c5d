"""`toban import`: files from crontabs and systemd timers, and the due times of both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from toban.definition import parse

from .conftest import Cli

FROM = ("--from", "2026-10-24T00:00:00+02:00")
BERLIN = ("--timezone", "Europe/Berlin")
TAB = "# Keep it\n30 2 * * * /opt/backup.sh\n"


@pytest.fixture(autouse=True)
def _no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers on every machine."""
    monkeypatch.setattr("toban.cli.args.import_machine.shutil.which", lambda _: None)


@pytest.fixture
def tab(tmp_path: Path) -> Path:
    path = tmp_path / "tab"
    path.write_text(TAB, encoding="utf-8")
    return path


def test_a_crontab_becomes_files_with_due_times_side_by_side(bare: Cli, tab: Path, tmp_path: Path) -> None:
    to = tmp_path / "new" / "flows"
    result = bare("import", "crontab", str(tab), "-O", str(to), "-n", "2", *FROM, *BERLIN)
    assert (result.code, result.err) == (0, "")
    first, note, *times = result.out.splitlines()
    assert first == f"{to / 'backup.yaml'}: backup, from {tab}:2"
    assert "--user" in note
    assert times == [
        "  CRON                       TOBAN",
        "  2026-10-24 02:30:00+02:00  2026-10-24 02:30:00+02:00  same",
        "  2026-10-25 02:30:00+02:00  2026-10-25 02:30:00+02:00  same",
    ]
    parsed = parse((to / "backup.yaml").read_bytes())
    assert parsed.problems == ()


def test_ten_times_on_the_clock_of_this_machine(bare: Cli, tab: Path, tmp_path: Path) -> None:
    result = bare("import", "crontab", str(tab), "-O", str(tmp_path))
    lines = [line for line in result.out.splitlines() if line.endswith("same")]
    assert len(lines) == 10
    assert all("02:30:00+09:00" in line for line in lines)


def test_nothing_is_written_over(bare: Cli, tab: Path, tmp_path: Path) -> None:
    kept = tmp_path / "backup.yaml"
    kept.write_text("mine", encoding="utf-8")
    result = bare("import", "crontab", str(tab), "-O", str(tmp_path))
    assert result.code == 6
    assert "backup.yaml exists" in result.err
    assert "hint: --force" in result.err
    assert kept.read_text(encoding="utf-8") == "mine"
    assert bare("import", "crontab", str(tab), "-O", str(tmp_path), "--force").code == 0
    assert "name: backup" in kept.read_text(encoding="utf-8")


def test_how_to_leave_out_what_has_no_counterpart_is_told(bare: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.timer").write_text("[Timer]\nOnCalendar=daily\n", encoding="utf-8")
    service = "[Service]\nExecStart=/bin/true\nPrivateTmp=yes\n"
    (tmp_path / "job.service").write_text(service, encoding="utf-8")
    timer = str(tmp_path / "job.timer")
    refused = bare("import", "systemd", timer, "-O", str(tmp_path))
    assert refused.code == 7
    assert refused.err.splitlines()[-1] == ("hint: --ignore NAME leaves a directive out; --skip makes this a warning")
    told = bare("import", "systemd", timer, "-O", str(tmp_path), "--ignore", "PrivateTmp")
    assert told.code == 0


def test_what_is_not_taken_over_is_an_error_and_the_rest_is_written(bare: Cli, tab: Path, tmp_path: Path) -> None:
    tab.write_text(TAB + "0~9 * * * * later\n", encoding="utf-8")
    result = bare("import", "crontab", str(tab), "-O", str(tmp_path))
    assert result.code == 7
    first, where, hint = result.err.splitlines()
    assert first == f"toban: cannot import {tab}: 1 entry not imported, 1 imported"
    assert where.startswith(f"  {tab}:3: minute: ")
    assert hint == "hint: --skip makes this a warning"
    assert (tmp_path / "backup.yaml").exists()
    skipped = bare("import", "crontab", str(tab), "-O", str(tmp_path), "--force", "--skip")
    assert skipped.code == 0
    assert skipped.err.startswith(f"toban: warning: not imported: {tab}:3: ")


def test_files_on_standard_output(bare: Cli) -> None:
    text = b"@reboot one\n0 3 * * * two\n"
    result = bare("import", "crontab", "-", "-O", "-", "--user", "alice", stdin=text)
    assert result.code == 0
    names = [document.name for document in parse(result.raw).documents]
    assert names == ["one", "two"]
    assert "one, from <stdin>:1\n" in result.err
    assert "due at each boot of the machine" in result.err
    assert result.err.count("same") == 10
    both = bare("import", "crontab", "-", "-O", "-", "-o", "json", stdin=text)
    assert (both.code, both.out) == (2, "")


def test_for_programs(bare: Cli, tab: Path, tmp_path: Path) -> None:
    where = ("-O", str(tmp_path), "--force")
    tab.write_text(TAB + "nonsense\n", encoding="utf-8")
    data = bare("import", "crontab", str(tab), *where, *FROM, *BERLIN, "-n", "1", "-o", "json").data
    (made,) = data["workflows"]
    assert (made["name"], made["same"]) == ("backup", True)
    assert made["due_there"] == made["due_here"] == ["2026-10-24T00:30:00+00:00"]
    assert [each["source"] for each in data["refused"]] == [f"{tab}:3"]
    assert bare("import", "crontab", str(tab), *where, "-o", "name").out == "backup\n"


def test_the_two_formats_are_not_guessed(bare: Cli, tab: Path, tmp_path: Path) -> None:
    tab.write_text("0 3 * * * root tidy\n", encoding="utf-8")
    where = ("-O", str(tmp_path))
    result = bare("import", "crontab", str(tab), *where)
    assert result.code == 2
    assert "each command begins with a user name" in result.err
    assert "--system" in result.err
    assert bare("import", "crontab", str(tab), "--system", *where).code == 0
    assert "user: root" in (tmp_path / "tidy.yaml").read_text(encoding="utf-8")
    assert bare("import", "crontab", str(tab), "--no-system", *where).code == 0
    assert "run: root tidy" in (tmp_path / "root.yaml").read_text(encoding="utf-8")
    both = bare("import", "crontab", str(tab), "--system", "--user", "x", *where)
    assert (both.code, "--user is for" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--timezone", "Mars/Base"], "--timezone: unknown time zone"),
        (["--from", "soon"], "--from: expected"),
    ],
)
def test_wrong_options(bare: Cli, tab: Path, arguments: list[str], message: str) -> None:
    result = bare("import", "crontab", str(tab), *arguments)
    assert result.code == 2
    assert message in result.err


def test_a_crontab_that_is_not_text(bare: Cli, tab: Path) -> None:
    tab.write_bytes(b"# fine\n0 3 * * * \xff\n")
    result = bare("import", "crontab", str(tab))
    assert (result.code, "line 2 is not UTF-8" in result.err) == (2, True)


def test_timers_of_systemd(bare: Cli, tmp_path: Path) -> None:
    units = tmp_path / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    (units / "tidy.timer").write_text("[Timer]\nOnCalendar=02:30\n", encoding="utf-8")
    service = units / "tidy.service"
    service.write_text("[Service]\nExecStart=/bin/tidy\nPrivateTmp=yes\n", encoding="utf-8")
    given = ("import", "systemd", "tidy.timer", "--root", str(tmp_path), "-O", str(tmp_path))
    refused = bare(*given)
    assert refused.code == 7
    assert "  tidy.timer: tidy.service: no counterpart: PrivateTmp=yes" in refused.err.splitlines()
    assert not (tmp_path / "tidy.yaml").exists()
    result = bare(*given, "--ignore", "PrivateTmp", "-n", "2", *FROM, *BERLIN)
    assert (result.code, result.err) == (0, "")
    assert "as root" in result.out.splitlines()[1]
    assert result.out.splitlines()[2:] == [
        "  SYSTEMD                    TOBAN",
        "  2026-10-24 02:30:00+02:00  2026-10-24 02:30:00+02:00  same",
        "  2026-10-25 02:30:00+02:00  2026-10-25 02:30:00+02:00  same",
    ]
    assert parse((tmp_path / "tidy.yaml").read_bytes()).ok


def test_times_that_differ_are_told(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.timer").write_text("[Timer]\nOnCalendar=02:30\n", encoding="utf-8")
    (tmp_path / "a.service").write_text("[Service]\nExecStart=/bin/a\n", encoding="utf-8")
    monkeypatch.setattr("toban.cli.args.import_machine.calendar_times", lambda *_: lambda *_: [])
    given = ("import", "systemd", str(tmp_path / "a.timer"), "-O", str(tmp_path))
    result = bare(*given, "-n", "1")
    assert result.code == 0
    assert "DIFFERENT" in result.out
    assert "warning: a: due times differ from those in systemd" in result.err


def test_an_expression_that_systemd_cannot_read_is_refused(
    bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.timer").write_text("[Timer]\nOnCalendar=02:30\n", encoding="utf-8")
    (tmp_path / "a.service").write_text("[Service]\nExecStart=/bin/a\n", encoding="utf-8")
    program = tmp_path / "systemd-analyze"
    program.write_text("#!/bin/sh\necho Failed to parse calendar specification >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("toban.cli.args.import_machine.shutil.which", lambda _: str(program))
    result = bare("import", "systemd", str(tmp_path / "a.timer"), "-O", str(tmp_path / "new"))
    assert result.code == 7
    assert 'a.timer: systemd cannot read the expression "02:30"' in result.err
    assert not (tmp_path / "new").exists()


def test_a_directory_is_no_crontab(bare: Cli, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(TAB, encoding="utf-8")
    result = bare("import", "crontab", str(tmp_path))
    assert result.code == 2
    first, hint = result.err.splitlines()
    assert first == f"toban: cannot import {tmp_path}: is a directory"
    assert hint == f"hint: give one file at a time, such as {tmp_path / 'NAME'}"


def test_a_crontab_that_is_not_there(bare: Cli, tmp_path: Path) -> None:
    result = bare("import", "crontab", str(tmp_path / "none"))
    assert result.code == 2
    assert result.err == f"toban: cannot import {tmp_path / 'none'}: No such file or directory\n"


def test_a_crontab_without_entries_is_told(bare: Cli, tab: Path, tmp_path: Path) -> None:
    tab.write_text("# nothing\nMAILTO=me\n", encoding="utf-8")
    result = bare("import", "crontab", str(tab), "-O", str(tmp_path / "new"))
    assert (result.code, result.out) == (0, "")
    assert result.err == f"{tab} has no entries\n"
    assert not (tmp_path / "new").exists()


def test_a_file_where_the_directory_should_be(bare: Cli, tab: Path, tmp_path: Path) -> None:
    where = tmp_path / "flows"
    where.write_text("mine", encoding="utf-8")
    result = bare("import", "crontab", str(tab), "-O", str(where))
    assert result.code == 2
    first, hint = result.err.splitlines()
    assert first == f"toban: cannot import {tab}: {where} is not a directory"
    assert hint == "hint: -O names the directory of the files; it is created if missing"
    below = bare("import", "crontab", str(tab), "-O", str(where / "below"))
    assert below.code == 2
    assert f"cannot write {where / 'below'}: " in below.err
