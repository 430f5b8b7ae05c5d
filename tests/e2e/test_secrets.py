"""Secrets through a real daemon: what is stored, who may use it, and what a lost key or a crash leaves behind."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import grpc
import pytest

from helpers.command import Toban
from helpers.daemon import Daemon, run_state, running_daemon
from helpers.processes import marked
from helpers.wait import wait_until
from toban.v1 import secret_pb2, secret_pb2_grpc, system_pb2

VALUE = "s3cret of the database"
# Before and after the commit; the unit tests have every point.
POINTS = ("secrets.key_added=kill", "secrets.reencrypted=kill")
LAUNCHES = ("secrets.revealed=kill", "launch.after_send=kill")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with external stores, which are small programs."""
    home = tmp_path_factory.mktemp("config")
    (home / "files").mkdir()
    (home / "files" / "db").write_text(f"{VALUE} in a file\n")
    (home / "files" / "db").chmod(0o600)
    show = script(home / "show", 'printf "%s for %s:%s:%s\\n" "$PREFIX" "$1" "${TOBAN_LOG_FORMAT-clean}" "$2"')
    fail = script(home / "fail", f"echo {VALUE} >&2; exit 3")
    slow = script(home / "slow", "sleep 100 & sleep 100")
    large = script(home / "large", "head -c 100000 /dev/zero | tr '\\0' x")
    binary = script(home / "binary", "printf '\\377\\376abcdefgh'")
    providers = {
        "show": f'command = ["{show}", "{{key}}", "{{name}}"]\nenv = {{PREFIX = "value"}}\ncache = "1h"',
        "fail": f'command = ["{fail}", "{{key}}"]',
        "slow": f'command = ["{slow}", "{{key}}"]\ntimeout = "300ms"\nenv = {{MARK = "{home}-slow"}}',
        "large": f'command = ["{large}", "{{key}}"]',
        "binary": f'command = ["{binary}", "{{key}}"]',
        "gone": 'command = ["/nowhere/vault", "{key}"]',
        "files": f'directory = "{home}/files"',
    }
    file = home / "toband.toml"
    file.write_text("\n".join(f"[secrets.providers.{name}]\n{text}\n" for name, text in providers.items()))
    return file


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Iterator[Daemon]:
    credentials = tmp_path_factory.mktemp("credentials")
    (credentials / "api").write_text(f"{VALUE} of the unit")
    environment = {"CREDENTIALS_DIRECTORY": str(credentials)}
    state = tmp_path_factory.mktemp("d") / "s"
    with running_daemon(state, "--config", str(config), environment=environment) as running:
        yield running


@pytest.fixture
def toban(daemon: Daemon) -> Toban:
    return Toban(daemon)


def secrets(daemon: Daemon) -> secret_pb2_grpc.SecretServiceStub:
    return secret_pb2_grpc.SecretServiceStub(daemon.channel)


def condition(daemon: Daemon) -> str:
    health = daemon.system.GetInfo(system_pb2.GetInfoRequest(), timeout=60).health
    return next((each.detail for each in health.conditions if each.name == "secrets"), "")


def is_gone(path: str) -> bool:
    return not os.path.lexists(path)


def places_of(value: str, directory: Path) -> list[str]:
    """Files below the directory that contain the value, as it is or in base64."""
    forms = [value.encode(), base64.b64encode(value.encode()).rstrip(b"=")[:-1]]
    return [
        str(path)
        for path in directory.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    ]


def test_people_set_show_grant_and_delete_secrets(daemon: Daemon, toban: Toban, tmp_path: Path) -> None:
    said = toban("secrets", "set", "cli_db", stdin=f"{VALUE}\n")
    assert said.out == "created cli_db (for no workflow)\n"
    assert "toban secrets grant cli_db" in said.err
    file = tmp_path / "value"
    file.write_text(f"{VALUE} two\n")
    assert toban("secrets", "set", "cli_db", "--file", str(file), "--workflows", "night-*").out.startswith(
        "set version 2 of cli_db"
    )
    assert (
        toban("secrets", "grant", "cli_db", "report", "import-*").out
        == "granted cli_db (for import-*, night-*, report)\n"
    )
    assert "nobody had no grant" in toban("secrets", "revoke", "cli_db", "report", "nobody").err
    shown = toban("secrets", "show", "cli_db", "-o", "json").data
    assert (shown["version"], shown["workflows"], shown["provider"]) == (2, ["import-*", "night-*"], "")
    assert "value" not in shown
    assert [each["name"] for each in toban("secrets", "list", "-o", "json").data] == ["cli_db"]
    assert VALUE not in toban("secrets", "show", "cli_db").out
    assert toban("secrets", "delete", "cli_db").out == "deleted cli_db\n"
    assert "there is no secret 'cli_db'" in toban("secrets", "show", "cli_db", code=5).err
    assert places_of(VALUE, daemon.state_dir) == []
    assert VALUE not in daemon.log.read_text()
    audited = [each for each in toban("audit", "list", "-o", "json").data if each["target"] == "cli_db"]
    assert [each["method"].partition("/")[2] for each in reversed(audited)] == [
        "SetSecret",
        "SetSecret",
        "GrantSecret",
        "RevokeSecretGrant",
        "DeleteSecret",
    ]
    assert audited[2]["detail"] == "workflows=report+import-*; version 2, for import-*, night-*, report"


def test_bad_values_are_refused_with_the_reason(toban: Toban, tmp_path: Path) -> None:
    for name, stdin, reason in (
        ("short", "12345\n", "fewer than 6 characters"),
        ("large", "x" * 70000, "more than 64 KiB"),
        ("a-b", VALUE, "a letter or _, then up to 63 letters"),
    ):
        assert reason in toban("secrets", "set", name, stdin=stdin, code=2).err
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe secret")
    assert "not UTF-8" in toban("secrets", "set", "binary", "--file", str(file), code=2).err
    assert "cannot read" in toban("secrets", "set", "none", "--file", str(tmp_path / "no"), code=2).err
    assert (
        "--provider-key needs --provider"
        in toban("secrets", "set", "none", "--provider-key", "x", stdin=VALUE, code=2).err
    )
    assert "known: binary, credential" in toban("secrets", "set", "x", "--provider", "nowhere", code=2).err
    assert "begin with '-'" in toban("secrets", "set", "x", "--provider", "show", "--provider-key=-x", code=2).err
    assert (
        "name of a file" in toban("secrets", "set", "x", "--provider", "files", "--provider-key", "../db", code=2).err
    )
    assert (
        "name of a file"
        in toban("secrets", "set", "x", "--provider", "credential", "--provider-key", "toban-secrets-key", code=2).err
    )


def test_the_configuration_is_shown_without_values(toban: Toban) -> None:
    said = toban("system", "config", "-o", "json").out
    assert "secrets.providers.show" in said
    (found,) = (each for each in json.loads(said) if each["key"] == "secrets.providers.show")
    assert json.loads(found["value_json"])["env"] == {"PREFIX": "***"}
    assert found["source"] == "file"


def test_a_lost_key_makes_secrets_unavailable_and_nothing_else(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "s") as daemon:
        toban = Toban(daemon)
        toban("secrets", "set", "db", "--workflows", "uses", stdin=VALUE)
        define(daemon, "uses", {"a": {"run": "true", "env": {"X": "{{ secrets.db }}"}}})
        define(daemon, "sealed", {"a": {"run": "true"}}, params={"password": {"secret": True}})
        key = daemon.state_dir / "secrets.key"
        kept = key.read_bytes()
        assert key.stat().st_mode & 0o777 == 0o600
        daemon.stop()
        key.unlink()
        daemon.start()
        found = wait_until(lambda: condition(daemon), "the daemon does not report the lost key")
        assert str(key) in found
        assert "does not exist" in found
        failed = toban("secrets", "set", "other", stdin=VALUE, code=6).err
        assert "restore that file" in failed
        state, error, _ = outcome(daemon, "uses")
        assert (state, "restore that file" in error) == ("FAILED", True)
        assert "restore that file" in refused(lambda: daemon.start_run("sealed", password=VALUE))
        assert run_state(daemon.run("sealed")) == "SUCCEEDED"
        assert [each["name"] for each in toban("secrets", "list", "-o", "json").data] == ["db"]
        assert not key.exists()
        key.write_bytes(kept)
        key.chmod(0o600)
        assert run_state(daemon.run("uses")) == "SUCCEEDED"
        assert condition(daemon) == ""


def test_a_launch_with_secrets_survives_a_kill(tmp_path: Path) -> None:
    """Before the supervisor has the values, and after: they are in no file that stays, and the step runs once."""
    with running_daemon(tmp_path / "s") as daemon:
        Toban(daemon)("secrets", "set", "db", "--workflows", "*", stdin=VALUE)
        out = tmp_path / "out"
        script = f'echo "$X"; echo "$X $(cat $TOBAN_SECRET_FILES/key) $TOBAN_SECRET_FILES" >> {out}'
        uses = {"env": {"X": "{{ secrets.db }}"}, "secret_files": {"key": "{{ secrets.db }}"}}
        define(daemon, "uses", {"a": {"run": script, **uses}})
        for point in LAUNCHES:
            daemon.stop()
            daemon.start({"TOBAN_FAILPOINTS": point})
            run_id = daemon.start_run("uses")
            daemon.wait()
            assert places_of(VALUE, daemon.state_dir) == []
            daemon.start()
            assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
            (line,) = out.read_text().splitlines()
            out.unlink()
            said, _, directory = line.rpartition(" ")
            assert said == f"{VALUE} {VALUE}"
            assert b"".join(daemon.log_of(run_id).values()) == b"***\n"
            wait_until(partial(is_gone, directory), "its files are left")
            assert places_of(VALUE, daemon.state_dir) == []


def test_rotation_survives_a_kill(tmp_path: Path) -> None:
    """Whatever remains in the key file, it opens the database."""
    with running_daemon(tmp_path / "s") as daemon:
        toban = Toban(daemon)
        toban("secrets", "set", "db", stdin=VALUE)
        key = daemon.state_dir / "secrets.key"
        daemon.stop()
        for point in POINTS:
            # Its start ends what the one before it could not.
            daemon.start({"TOBAN_FAILPOINTS": point})
            # Only who has the key can store another secret.
            toban("secrets", "set", "other", stdin=VALUE)
            assert condition(daemon) == ""
            with pytest.raises(grpc.RpcError):
                secrets(daemon).RotateSecretsKey(secret_pb2.RotateSecretsKeyRequest(), timeout=60)
            daemon.wait()
        daemon.start()
        toban("secrets", "rotate-key")
        assert len([line for line in key.read_text().splitlines() if not line.startswith("#")]) == 1
        assert places_of(VALUE, daemon.state_dir) == []


def define(daemon: Daemon, name: str, steps: Mapping[str, object], **fields: object) -> None:
    daemon.apply(json.dumps({"name": name, "description": "x", **fields, "steps": steps}))


def outcome(daemon: Daemon, workflow: str, **params: str) -> tuple[str, str, str]:
    """The state of a run, its error, and what its step wrote to a file, which nothing masks."""
    run = daemon.run(workflow, **params)
    return run_state(run), run.error_message, run.id


def test_steps_get_secrets_in_env_stdin_and_files(daemon: Daemon, toban: Toban, tmp_path: Path) -> None:
    toban("secrets", "set", "used", "--workflows", "uses-*", stdin=VALUE)
    out = tmp_path / "out"
    script = f"""
        printf '%s\n' "$OWN" "$ALL" "$URL" > {out}
        cat >> {out}
        ls -l $TOBAN_SECRET_FILES | grep -c '^-r-*' >> {out}
        cat $TOBAN_SECRET_FILES/db.pem >> {out}
        echo $TOBAN_SECRET_FILES >> {out}
        echo "the password is $OWN"
        echo "the password is $OWN" >&2
        printf '%s' "$OWN" | base64
    """
    use = {
        "run": script,
        "env": {"OWN": "{{ secrets.used }}", "URL": "db://user:{{ secrets.used }}@{{ params.host }}"},
        "stdin": "in {{ secrets.used }}\n",
        "secret_files": {"db.pem": "pem {{ secrets.used }}\n"},
    }
    other = {"run": 'printf "[%s]" "$OWN"; tr "\\0" "\\n" < /proc/self/environ', "depends_on": ["use"]}
    define(
        daemon,
        "uses-secrets",
        {"use": use, "other": other},
        env={"ALL": "all {{ secrets.used }}"},
        params={"host": {"default": "localhost"}},
    )
    state, error, run_id = outcome(daemon, "uses-secrets")
    assert (state, error) == ("SUCCEEDED", "")
    *lines, directory = out.read_text().splitlines()
    assert lines == [VALUE, f"all {VALUE}", f"db://user:{VALUE}@localhost", f"in {VALUE}", "1", f"pem {VALUE}"]
    assert not Path(directory).exists()
    printed = daemon.log_of(run_id)
    assert b"the password is ***" in b"".join(printed.values())
    assert b"[]" in b"".join(printed.values())
    shown = [
        toban(*command, "-o", "json").out
        for command in (
            ("runs", "show", run_id),
            ("logs", run_id),
            ("runs", "processes", run_id),
            ("workflows", "show", "uses-secrets"),
        )
    ]
    assert [text for text in shown if VALUE in text] == []
    assert places_of(VALUE, daemon.state_dir) == []
    assert VALUE not in daemon.log.read_text()
    found = toban("secrets", "show", "used", "-o", "json").data
    assert found["last_used_by"] == "uses-secrets"
    assert found["last_used_at"]


def test_a_step_without_a_grant_fails_with_what_to_type(daemon: Daemon, toban: Toban, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    step = {"run": f"touch {ran}", "env": {"X": "{{ secrets.later }}"}, "max_retries": 3, "retry": {"delay": "1ms"}}
    file = tmp_path / "later.yaml"
    file.write_text(
        json.dumps({"name": "later", "description": "x", "on_failure": [], "steps": {"a": step}}).replace(
            '"on_failure": [], ', ""
        )
    )
    said = toban("apply", str(file))
    assert "there is no secret 'later': create it with 'toban secrets set later'" in said.out + said.err
    assert toban("validate", str(file)).err == ""
    for command, reason in (
        ((), "there is no secret 'later'"),
        (("secrets", "set", "later"), "'toban secrets grant later later'"),
        (("secrets", "grant", "later", "late*"), ""),
        (("secrets", "revoke", "later", "late*"), "'toban secrets grant later later'"),
    ):
        if command:
            toban(*command, stdin=VALUE)
        state, error, run_id = outcome(daemon, "later")
        assert (state, reason in error) == ("FAILED" if reason else "SUCCEEDED", True), error
        assert ran.exists() is not bool(reason)
        ran.unlink(missing_ok=True)
        assert len(daemon.processes(run_id)) == 1


def test_values_come_from_other_stores(daemon: Daemon, toban: Toban, config: Path, tmp_path: Path) -> None:
    cases = {
        "show": ("kv/db", "value for kv/db:clean:show"),
        "files": ("db", f"{VALUE} in a file"),
        "credential": ("api", f"{VALUE} of the unit"),
        "fail": ("k", "fail ended with exit code 3"),
        "slow": ("k", "did not end within 300ms"),
        "large": ("k", "more than 64 KiB"),
        "binary": ("k", "not UTF-8"),
        "gone": ("k", "cannot start /nowhere/vault: No such file"),
    }
    for provider, (key, expected) in cases.items():
        toban("secrets", "set", provider, "--provider", provider, "--provider-key", key, "--workflows", "ask-*")
        out = tmp_path / provider
        name = f"ask-{provider}"
        define(daemon, name, {"a": {"run": f'printf %s "$V" > {out}', "env": {"V": f"{{{{ secrets.{provider} }}}}"}}})
        state, error, _ = outcome(daemon, name)
        if state == "SUCCEEDED":
            assert out.read_text() == expected
        else:
            assert expected in error
            assert VALUE not in error
    wait_until(lambda: not marked(f"{config.parent}-slow"), "processes of a provider are left")
    assert VALUE not in daemon.log.read_text()


def test_secret_parameters_are_sealed_and_reach_only_steps(daemon: Daemon, toban: Toban, tmp_path: Path) -> None:
    out = tmp_path / "out"
    params = {"password": {"type": "string", "secret": True}, "day": {}}
    child = {"run": f'printf "%s" "$P" > {out}; echo "child has $P"', "env": {"P": "{{ params.password }}"}}
    define(daemon, "sealed-child", {"a": child}, params={"password": params["password"]})
    define(daemon, "open-child", {"a": {"run": "true"}}, params={"password": {}})
    parent = {
        "show": {"run": "echo {{ params }} {{ params.day }}; cat $TOBAN_PARAMS"},
        "fails": {"run": f"test -e {out}", "depends_on": ["show"]},
        "child": {
            "job_type": "workflow",
            "target": "sealed-child",
            "kwargs": {"password": "{{ params.password }}"},
            "depends_on": ["fails"],
        },
    }
    define(daemon, "sealed", parent, params=params)
    wrong = {"a": {"job_type": "workflow", "target": "open-child", "kwargs": {"password": "{{ params.password }}"}}}
    define(daemon, "sealed-wrong", wrong, params={"password": params["password"]})

    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"password": VALUE, "day": "monday"}))
    first = toban("run", "sealed", "--params-file", str(secret), "--request-id", "r1", "-o", "name").out.strip()
    daemon.wait_run(first)
    assert toban("run", "sealed", "--params-file", str(secret), "--request-id", "r1", "-o", "name").out.strip() == first
    secret.write_text(json.dumps({"password": VALUE + "x", "day": "monday"}))
    assert "already used" in toban("run", "sealed", "--params-file", str(secret), "--request-id", "r1", code=2).err

    out.touch()
    again = toban("retry", first, "-o", "name").out.strip()
    assert run_state(daemon.wait_run(again)) == "SUCCEEDED"
    assert out.read_text() == VALUE
    printed = b"".join(daemon.log_of(first).values())
    assert printed.count(b"***") == 2
    assert dict(daemon.get_run(again).params) == {"password": "***", "day": "monday"}

    state, error, _ = outcome(daemon, "sealed-wrong", password=VALUE)
    assert state == "FAILED"
    assert "gets a secret, but is not secret in open-child" in error
    assert "at least 6 characters" in refused(lambda: daemon.start_run("sealed", password="short"))
    found = [toban("runs", "list", "--param", f"password={each}", "-o", "json").data for each in (VALUE, "***")]
    assert found == [[], []]
    plan = toban("run", "sealed", "--dry-run", "-p", f"password={VALUE}", "-o", "json").out
    texts = [
        toban(*command, "-o", "json").out
        for command in (
            ("runs", "show", again),
            ("runs", "list"),
            ("events", "list"),
            ("logs", again),
            ("runs", "processes", again),
        )
    ]
    assert [text for text in (plan, *texts) if VALUE in text] == []
    assert places_of(VALUE, daemon.state_dir) == []
    assert VALUE not in daemon.log.read_text()

    schedule = ("schedule", "tomorrow at 9am", "--subject", "s", "--workflow", "sealed", "-p", f"password={VALUE}")
    assert "is secret" in toban(*schedule, code=2).err


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as found:
        call()
    return str(found.value.details())


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals there")
def test_a_prompt_asks_twice_and_shows_nothing(daemon: Daemon) -> None:
    import pty

    for second, code in ((VALUE, 0), ("different", 2)):
        pid, terminal = pty.fork()
        if pid == 0:
            arguments = [sys.executable, "-m", "toban.cli", "--server", daemon.socket, "secrets", "set", "typed"]
            os.execv(sys.executable, arguments)
        said = b""
        for prompt, answer in ((b"value: ", VALUE), (b"again: ", second)):
            while prompt not in said:
                said += os.read(terminal, 1000)
            os.write(terminal, f"{answer}\n".encode())
        while True:
            try:
                said += os.read(terminal, 1000)
            except OSError:
                break
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        assert VALUE.encode() not in said
