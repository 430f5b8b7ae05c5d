"""Every command against a real daemon: `-o json` follows the schema that `toban schema` prints, and `-q` adds nothing.

With `-q` a command that succeeds writes its result to standard output, and nothing but warnings to standard error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.command import Said, Toban
from helpers.daemon import running_daemon
from helpers.json_output import check_output
from helpers.wait import wait_until
from toban.cli.command_line import PROGRAM
from toban.cli.render.output_schema import VERBS, output_schema
from toban.cli.syntax import Command, Group
from toban.cli.syntax.parameters import parameters

WORKFLOWS = """
jobs:
  upload: {description: A job., run: 'true'}
---
name: good
description: Has parameters, an artifact and a schedule.
schedule: '0 3 * * *'
params: {rows: {type: integer, default: 5}, rate: {type: number, default: 0.5}}
steps:
  make: {run: 'echo made > made.txt; echo hello', workspace: '{{ run.dir }}', outputs: [{name: made, path: made.txt}]}
---
name: bad
description: Fails for good.
labels: {team: data}
steps: {only: {run: 'exit 3', on_failure: retry, max_retries: 1, retry: {delay: 0s}}}
---
name: asks
description: Waits for a person.
steps: {gate: {job_type: approval}}
---
name: hears
description: Is started by events.
on: ORDER_PAID
steps: {only: {run: 'true'}}
"""


ONCE = {
    *(
        "init",
        "import crontab",
        "import systemd",
        "run",
        "jobs run",
        "emit",
        "schedule",
        "workflows delete",
        "jobs delete",
    ),
    *(
        "workflows restore",
        "jobs restore",
        "runs cancel",
        "runs approve",
        "runs delete",
        "runs retry",
        "runs artifacts",
    ),
    *("dead-letters discard", "dead-letters requeue", "schedules cancel", "system drain", "system resume"),
    *("secrets grant", "secrets revoke", "secrets delete", "hooks create", "hooks delete"),
    *("access init", "tokens create", "tokens revoke", "sessions create", "sessions revoke", "restore"),
    *("context add", "context rename", "context remove", "context show"),
}
"""Commands that do not do the same, or not say the same, when they are repeated."""
ELSEWHERE = ("service ", "system migrate-store")
"""They need a systemd, or a daemon that is stopped: test_service.py and test_migrate_store.py check what they write."""


class Checked:
    """Runs commands, checks what they write, and remembers which it has run."""

    def __init__(self, toban: Toban) -> None:
        self.toban = toban
        self.seen: set[str] = set()
        self.tables: set[str] = set()

    def __call__(self, verb: str, *arguments: str, lines: bool = False, **options: Any) -> Any:
        said: Said = self.toban(*verb.split(), *arguments, "-q", "-o", "json", **options)
        self.quiet(said, options)
        if verb not in ONCE:
            self.table(verb, *arguments, **options)
        found = [json.loads(line) for line in said.out.splitlines()] if lines else [said.data]
        assert found, said.err
        for each in found:
            check_output(verb, each)
        self.seen.add(verb)
        return found if lines else found[0]

    def table(self, verb: str, *arguments: str, **options: Any) -> str:
        """Writes for people."""
        said = self.toban(*verb.split(), *arguments, "-q", **options)
        self.quiet(said, options)
        self.tables.add(verb)
        return said.out

    def quiet(self, said: Said, options: dict[str, Any]) -> None:
        others = [line for line in said.err.splitlines() if not line.startswith("toban: warning: ")]
        assert not others or options.get("code"), others


@pytest.fixture(scope="module")
def toban(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toban]:
    with running_daemon(tmp_path_factory.mktemp("json") / "state") as daemon:
        yield Toban(daemon)


def test_every_command(toban: Toban, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "config"))
    check = Checked(toban)
    definitions(check, tmp_path)
    runs(check, tmp_path)
    events_and_schedules(check)
    the_daemon(check, tmp_path)
    access(check, tmp_path)
    secrets(check)
    contexts(check)
    quietly(check, tmp_path)
    removals(check)
    verbs = {verb for verb in VERBS if not verb.startswith(ELSEWHERE)}
    assert check.seen == verbs
    assert check.tables == verbs - {"events watch"}


def definitions(check: Checked, tmp_path: Path) -> None:
    assert check("init", "mine", "--dir", str(tmp_path))["files"] == [str(tmp_path / "mine.yaml")]
    assert {each["outcome"] for each in check("apply", "-", stdin=WORKFLOWS)} == {"created"}
    assert check("apply", "-", "--dry-run", stdin=WORKFLOWS)[0]["dry_run"] is True
    assert check("validate", "-", stdin="name: x\n", code=7)[0]["line"] == 1
    assert [each["name"] for each in check("workflows list")] == ["asks", "bad", "good", "hears"]
    shown = check("workflows show", "good")
    assert (shown["version"], shown["enabled"]) == (1, True)
    check("workflows show", "good", "--version", "1")
    check("workflows disable", "good")
    check("workflows enable", "good")
    assert check("workflows next", "good")[0]["schedule_index"] == 0
    check("jobs list")
    check("jobs show", "upload")
    check("jobs disable", "upload")
    check("jobs enable", "upload")
    check("apply", "-", stdin=WORKFLOWS.replace("echo hello", "echo good day").replace("A job.", "One job."))
    for noun, name in (("workflows", "good"), ("jobs", "upload")):
        assert [each["version"] for each in check(f"{noun} versions", name)] == [2, 1]
        assert check(f"{noun} diff", name)["from"] == 1
        assert check(f"{noun} restore", name, "1")["version"] == 3
    crontab = tmp_path / "crontab"
    crontab.write_text("0 3 * * * true\n@nonsense true\n")
    check("import crontab", str(crontab), "--to", str(tmp_path / "imported"), "--skip")
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "backup.timer").write_text("[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n")
    (tmp_path / "units" / "backup.service").write_text("[Service]\nExecStart=/bin/true\n")
    check("import systemd", str(tmp_path / "units" / "backup.timer"), "--to", str(tmp_path / "timers"))


def runs(check: Checked, tmp_path: Path) -> None:
    plan = check("run", "good", "--dry-run")
    assert plan["steps"][0]["id"] == "make"
    done = check("run", "good", "-p", "rows=7", "--wait")
    assert (done["state"], done["params"], done["number"]) == ("succeeded", {"rate": 0.5, "rows": 7}, 1)
    assert done["steps"][0]["skip_reason"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", done["finished_at"])
    assert check("run", "good", "--follow", lines=True)[-1]["run"]["state"] == "succeeded"
    assert check("jobs run", "upload", "--wait")["state"] == "succeeded"
    assert check("run", "bad", "--wait", code=1)["state"] == "failed"
    assert check("runs retry", "bad", "--wait", code=1)["number"] == 2
    assert check("runs list", "--workflow", "good")[0]["state"] == "succeeded"
    assert check("runs show", "good#1")["number"] == 1
    assert check("runs watch", "good#1", lines=True)[-1]["run"]["state"] == "succeeded"
    *lines, end = check("logs", "good#1", lines=True)
    assert ([each["text"] for each in lines], lines[0]["level"]) == (["hello\n"], None)
    assert end == {"end": {"run_state": "succeeded", "complete": True}}
    (process,) = check("runs processes", "good#1")
    assert (process["state"], process["exit_code"]) == ("completed", 0)
    assert isinstance(process["stdout_log_bytes"], int)
    assert check("processes list", "--workflow", "bad")[0]["state"] == "failed"
    check("processes show", process["id"])
    assert check("runs artifacts", "good#1")[0]["artifact"]["bytes"] == 5
    assert check("runs artifacts", "good#1", "--download", "made", "-O", str(tmp_path / "made"))["bytes"] == 5
    check("run", "asks")
    wait_until(lambda: check("runs show", "asks#1")["waiting_for"] == "approval", "it does not wait")
    check("runs pause", "asks#1")
    check("runs resume", "asks#1")
    check("runs approve", "asks#1")
    check("run", "asks")
    assert check("runs cancel", "asks#2", "--wait")["state"] == "cancelled"
    check("runs pin", "good#1")
    check("runs unpin", "good#1")
    first, second = check("dead-letters list")
    check("dead-letters show", first["id"])
    assert check("dead-letters discard", first["id"])[0]["state"] == "discarded"
    assert check("dead-letters requeue", second["id"], "--wait", code=1)["workflow"] == "bad"
    shown = check("runs show", "bad#2")
    assert check("runs show", shown["id"][-12:])["number"] == 2
    assert check("dead-letters show", first["id"][-12:])["id"] == first["id"]
    assert check("processes show", process["id"][-12:])["id"] == process["id"]
    planned = check("runs retry", "--failed", "--workflow", "bad", "--dry-run")
    assert {each["outcome"] for each in planned} == {"planned"}
    assert "bad#1" not in {each["run"] for each in planned}, "it was retried before"
    assert check("runs pin", "--workflow", "good", "--until", "1h", "--yes") == []
    deleted = check("runs delete", "--workflow", "bad", "--failed", "--yes")
    assert [(each["run"], each["outcome"]) for each in deleted][:2] == [("bad#1", "done"), ("bad#2", "done")]
    assert check("runs list", "--workflow", "bad") == []
    again = check("runs cancel", "good#1", "asks#1", code=6)
    assert [each["outcome"] for each in again] == ["failed", "failed"]
    assert check("runs delete", "good#1")[0]["run"] == "good#1"


def events_and_schedules(check: Checked) -> None:
    emitted = check("emit", "ORDER_PAID", "-d", '{"order": 7}', "--wait")
    assert (emitted["created"], emitted["all_ended"], emitted["payload_bytes"]) == (True, True, 11)
    check("emit", "OTHER")
    assert check("events list", "--type", "ORDER_PAID")[0]["id"] == emitted["id"]
    check("events show", emitted["id"])
    assert check("events resolve", "ORDER_PAID")["candidates"][0]["workflow"] == "hears"
    found = check("backfill", "good", "--from", "2026-01-01T00:00Z", "--to", "2026-01-03T00:00Z", "--dry-run")
    assert [each["due_at"] for each in found] == ["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]
    check("why", "good")
    check("why", "good", "--ledger")
    check("schedule", "every day at 15:00", "--dry-run")
    made = check("schedule", "every day at 15:00", "--subject", "issue-1", "--action", "reminder")
    assert (made["state"], made["action"], made["occurrences"]) == ("active", "reminder", 0)
    check("schedules list")
    check("schedules show", made["id"])
    assert check("schedules cancel", made["id"])[0]["state"] == "cancelled"
    assert check("schedules cancel", "--subject", "issue-1")["cancelled"] == 0
    hook = check("hooks create", "shop", "--event", "ORDER_PAID", "--form", "hmac", "-p", "order=body.id")
    assert (hook["hook"]["form"], hook["hook"]["params"]) == ("hmac", {"order": "body.id"})
    assert [each["name"] for each in check("hooks list")] == ["shop"]
    assert check("hooks show", "shop") == hook["hook"]
    assert check("hooks delete", "shop") == [{"name": "shop", "outcome": "deleted"}]
    check.table("hooks create", "shop", "--event", "ORDER_PAID")
    check.table("hooks delete", "shop")


def the_daemon(check: Checked, tmp_path: Path) -> None:
    assert "good" in [each["name"] for each in check("status")["summaries"]]
    check("status", "good")
    assert check("top", "--once")["running_runs"] == 0
    check("locks list")
    check("locks release", "db")
    assert check("secrets set", "db_password", stdin="sesame-open\n")["name"] == "db_password"
    check("secrets grant", "db_password", "good")
    check("secrets revoke", "db_password", "good")
    assert [each["name"] for each in check("secrets list")] == ["db_password"]
    check("secrets show", "db_password")
    check("secrets rotate-key")
    check("secrets delete", "db_password")
    check("system info")
    check("system config")
    check("system gc", "--dry-run")
    assert {each["status"] for each in check("system doctor")} <= {"ok", "warning", "info"}
    assert check("system drain") == {"draining": True, "changed": True}
    assert check("system resume") == {"draining": False, "changed": True}
    check("system reload")
    path = str(tmp_path / "backup.tar.gz")
    assert check("backup", path)["runs"] > 0
    assert check("restore", path, "--state-dir", str(tmp_path / "restored"))["runs"] > 0
    check.table("restore", path, "--state-dir", str(tmp_path / "again"))


def access(check: Checked, tmp_path: Path) -> None:
    assert check("whoami")["identity"]["role"] == "admin"
    assert check("access show")["doors"][0]["role"] == "admin"
    made = check("access init", "--dir", str(tmp_path / "tls"), "--host", "localhost")
    assert len(made["files"]) == 6
    check.table("access init", "--dir", str(tmp_path / "tls2"), "--host", "localhost")
    assert len(check("access renew", "--dir", str(tmp_path / "tls"))["files"]) == 4
    created = check("tokens create", "ci", "--role", "viewer", "--workflows", "x-*", "--expires", "1d")
    assert created["text"].startswith(f"toban_{created['token']['id']}_")
    assert [each["name"] for each in check("tokens list")] == ["ci"]
    assert check("tokens revoke", "ci")[0]["state"] == "revoked"
    check.table("tokens create", "cd", "--role", "viewer")
    check.table("tokens revoke", "cd")
    session = check("sessions create", "browser", "--role", "viewer", "--expires", "1h")
    assert session["text"].startswith(f"toban_{session['session']['id']}_")
    assert [each["label"] for each in check("sessions list")] == ["browser"]
    assert check("sessions revoke", session["session"]["id"])[0]["role"] == "viewer"
    check.table("sessions create")
    last = check("sessions list")[0]["id"]
    check.table("sessions revoke", last)
    newest = check("audit list")[0]
    assert (newest["method"], newest["target"]) == ("AccessService/RevokeSession", last)
    assert check("audit show", str(newest["sequence"])) == newest
    assert check("audit verify")["last_sequence"] >= newest["sequence"]


def secrets(check: Checked) -> None:
    check("secrets set", "password", stdin="six characters\n")
    assert [each["name"] for each in check("secrets list")] == ["password"]
    check("secrets grant", "password", "good")
    assert check("secrets show", "password")["name"] == "password"
    check("secrets revoke", "password", "good")
    check("secrets rotate-key")
    check("secrets delete", "password")


def contexts(check: Checked) -> None:
    check("context add", "prod")
    check("context use", "prod")
    assert check("context use", "--none") is None
    check("context list")
    check("context show", "prod")
    check("context rename", "prod", "production")
    check("context remove", "production")


def quietly(check: Checked, tmp_path: Path) -> None:
    """For people, what is not repeated above."""
    check.table("init", "other", "--dir", str(tmp_path))
    check.table("import crontab", str(tmp_path / "crontab"), "--to", str(tmp_path / "again"), "--skip")
    check.table("import systemd", str(tmp_path / "units" / "backup.timer"), "--to", str(tmp_path / "again"))
    assert re.fullmatch(r"good#\d+ succeeded after .*\n", check.table("run", "good", "--wait"))
    check.table("runs artifacts", "good")
    check.table("jobs run", "upload", "--wait")
    check.table("run", "asks")
    check.table("runs approve", "asks")
    check.table("run", "asks")
    check.table("runs cancel", "asks", "--wait")
    check.table("run", "bad", "--wait", code=1)
    check.table("runs retry", "bad", "--wait", code=1)
    letters = check("dead-letters list")
    check.table("dead-letters discard", letters[0]["id"])
    check.table("dead-letters requeue", letters[1]["id"])
    check.table("runs delete", check("runs list", "--workflow", "good")[0]["id"])
    check.table("emit", "ORDER_PAID", "--wait")
    check.table("schedule", "every day at 16:00", "--subject", "issue-2", "--action", "reminder")
    check.table("schedules cancel", "--subject", "issue-2")
    for noun, name in (("workflows", "good"), ("jobs", "upload")):
        check.table(f"{noun} restore", name, "2")
    check.table("system drain")
    check.table("system resume")
    check.table("context add", "quiet")
    check.table("context show", "quiet")
    check.table("context rename", "quiet", "silent")
    check.table("context remove", "silent")
    check.table("secrets set", "other", stdin="sesame-close\n")
    check.table("secrets grant", "other", "good")
    check.table("secrets revoke", "other", "good")
    check.table("secrets delete", "other")
    check.toban("apply", "-", stdin="name: gone\ndescription: x\nsteps: {a: {run: 'true'}}\n")
    check.table("workflows delete", "gone")
    check.toban("apply", "-", stdin="jobs: {gone: {description: x, run: 'true'}}\n")
    check.table("jobs delete", "gone")


def removals(check: Checked) -> None:
    check("workflows delete", "asks")
    check("jobs delete", "upload")
    # It ends only when it is interrupted; test_events_cli does that.
    check.seen.add("events watch")


def test_the_schemas_are_those_of_the_commands_with_an_output() -> None:
    found = set()
    for name in PROGRAM.entries:
        if PROGRAM.entries[name].words:
            continue
        match PROGRAM.load(name):
            case Group() as group:
                found |= {f"{name} {verb}" for verb, command in group.commands.items() if has_output(command)}
            case command:
                found |= {name} if has_output(command) else set()
    assert found == set(VERBS)


def has_output(command: Command) -> bool:
    return any(each.name == "output" for each in parameters(command.function))


def test_yaml_has_the_same_data(toban: Toban) -> None:
    from ruamel.yaml import YAML

    toban("apply", "-", stdin="name: same\ndescription: x\nsteps: {a: {run: 'true'}}\n")
    for verb in (["workflows", "show", "same"], ["system", "config"]):
        shown = YAML(typ="safe").load(toban(*verb, "-o", "yaml").out)
        assert json.loads(json.dumps(shown)) == toban(*verb, "-o", "json").data


@pytest.mark.parametrize("kind", ["shell", "python", "schedule"])
def test_a_first_workflow_runs_as_it_is(toban: Toban, tmp_path: Path, kind: str) -> None:
    toban("init", f"first-{kind}", "--kind", kind, "--dir", str(tmp_path))
    toban("apply", str(tmp_path / f"first-{kind}.yaml"))
    assert toban("run", f"first-{kind}", "--wait", "-o", "json").data["state"] == "succeeded"


def test_schema_of_an_unknown_command(toban: Toban) -> None:
    assert toban("schema", "runs", "list").data == output_schema("runs list")
    said = toban("schema", "runs", "lst", code=2)
    assert "runs lst is no command with -o json" in said.err
    assert "did you mean runs list" in said.err
