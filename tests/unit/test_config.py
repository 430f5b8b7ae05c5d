"""Configuration: sources of values, and errors for wrong ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toban.sdk.address import DEFAULT_PORT as CLIENT_PORT
from toband.__main__ import main
from toband.config import Config, ConfigError, load
from toband.config.comparison import changes, with_live_settings
from toband.config.listeners import ListenAddress
from toband.domain.identity import Narrowing, Role

HOME = {"HOME": "/home/somebody"}


def loaded(text: str, tmp_path: Path, environment: dict[str, str], **flags: object) -> Config:
    file = tmp_path / "toband.toml"
    file.write_text(text, encoding="utf-8")
    return load(str(file), environment, flags)


def problems(text: str, tmp_path: Path, environment: dict[str, str], **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, tmp_path, environment, **flags)
    return [str(each) for each in caught.value.problems]


def sources(config: Config) -> dict[str, tuple[object, str]]:
    return {each.key: (each.value, str(each.origin.source)) for each in config.shown()}


def addresses(config: Config) -> list[str]:
    return [each.address for each in config.listen]


OTHERS = {
    "timezone": ("Asia/Tokyo", "default"),
    "calendar": ("", "default"),
    "shell": ("sh", "default"),
    "blackout": ([], "default"),
    "definitions": ([], "default"),
    "definitions_removed": ("disable", "default"),
    "stop_policy": ("detach", "default"),
    "default_run_timeout": ("none", "default"),
    "max_attempts_running": (256, "default"),
    "event_concurrency": (10, "default"),
    "disk_reserve": ("auto", "default"),
    "step_user": ("", "default"),
    "steps.users": (None, "default"),
    "steps.shells": (None, "default"),
    "steps.workspaces": (None, "default"),
    "steps.environment_names": (None, "default"),
    "steps.environment_denied": ([], "default"),
    "steps.environment": ({}, "default"),
    "steps.inherit": ([], "default"),
    "steps.sudo": (False, "default"),
    "cgroup": ("auto", "default"),
    "limits.attempt_log": ("1GiB", "default"),
    "limits.total_logs": ("none", "default"),
    "limits.artifact_bytes": ("100GiB", "default"),
    "limits.artifact_files": (250_000, "default"),
    "limits.artifact_time": ("1h", "default"),
    "limits.artifact_rate": ("1GiB", "default"),
    "limits.message_size": ("4MiB", "default"),
    "limits.connections": (1000, "default"),
    "limits.connection_idle": ("10m", "default"),
    "limits.handshake_time": ("10s", "default"),
    "limits.keepalive": ("1m", "default"),
    "limits.client_time": ("30s", "default"),
    "limits.calls_per_identity": (750, "default"),
    "limits.streams_per_identity": (500, "default"),
    "limits.request_rate": (1000, "default"),
    "limits.request_burst": (4000, "default"),
    "limits.failed_logins": (10, "default"),
    "retention.age": ("90d", "default"),
    "retention.runs": (10_000, "default"),
    "retention.bytes": ("none", "default"),
    "retention.total_runs": ("none", "default"),
    "retention.total_bytes": ("20GiB", "default"),
    "retention.audit": ("400d", "default"),
    "retention.audit_entries": (5_000_000, "default"),
    "log.file_size": ("64MiB", "default"),
    "retention.requests": ("7d", "default"),
    "retention.ledger": ("90d", "default"),
    "retention.ledger_entries": (1000, "default"),
    "retention.events": ("30d", "default"),
    "retention.total_events": (100_000, "default"),
    "retention.tokens": ("90d", "default"),
    "retention.versions": (100, "default"),
    "retention.compress_after": ("10m", "default"),
    "secrets.key_file": ("", "default"),
    "tls.certificate": ("", "default"),
    "tls.key": ("", "default"),
    "tls.client_ca": ("", "default"),
    "tls.client_certificates": ("off", "default"),
    "access.tokens": ([], "default"),
    "access.certificates": ([], "default"),
    "access.issuers": ([], "default"),
    "log.format": ("auto", "default"),
}


@pytest.fixture(autouse=True)
def host_in_tokyo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tzlocal.get_localzone_name", lambda: "Asia/Tokyo")


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    config = load(None, HOME, {})
    state_dir = "/home/somebody/.local/state/toban"
    assert sources(config) == {
        "state_dir": (state_dir, "default"),
        "listen": ([f"unix://{state_dir}/toban.sock"], "default"),
        "database": (f"sqlite:///{state_dir}/toban.db", "default"),
        "stop_deadline": ("10s", "default"),
        "log.level": ("info", "default"),
        "log.file": ("", "default"),
        **OTHERS,
    }


def test_the_state_directory_follows_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    given = load(None, {**HOME, "XDG_STATE_HOME": "/var/x"}, {})
    assert given.state_dir == "/var/x/toban"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert load(None, HOME, {}).state_dir == "/var/lib/toban"


def test_the_daemon_of_the_system_does_not_run_steps_as_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    users = {"toban-step"}

    def user(name: str) -> object:
        if name not in users:
            raise KeyError(name)
        return object()

    monkeypatch.setattr("pwd.getpwnam", user)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    system = {"TOBAN_STATE_DIR": "/var/lib/toban"}
    assert load(None, HOME | system, {}).step_user == "toban-step"
    assert load(None, HOME, {}).step_user == ""
    assert loaded('step_user = ""', tmp_path, system).step_user == ""
    assert loaded('step_user = "www"', tmp_path, system).step_user == "www"
    users.clear()
    assert load(None, HOME | system, {}).step_user == ""


def test_flags_win_over_the_environment_over_the_file(tmp_path: Path) -> None:
    text = """
state_dir = "/srv/file"
stop_deadline = "5s"
default_run_timeout = 90
[log]
level = "warning"
format = "console"
"""
    environment = {"TOBAN_STATE_DIR": "/srv/env", "TOBAN_LOG_LEVEL": "error"}
    config = loaded(text, tmp_path, environment, **{"log.level": "debug", "database": None})
    found = sources(config)
    assert found["state_dir"] == ("/srv/env", "environment")
    assert found["log.level"] == ("debug", "flag")
    assert found["log.format"] == ("console", "file")
    assert found["stop_deadline"] == ("5s", "file")
    assert found["default_run_timeout"] == ("1m30s", "file")
    assert found["listen"] == (["unix:///srv/env/toban.sock"], "default")
    assert found["database"] == ("sqlite:////srv/env/toban.db", "default")
    assert config.stop_deadline == 5.0


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "toband.toml"
    file.write_text('stop_deadline = "7s"\n')
    assert load(None, {**HOME, "TOBAN_CONFIG": str(file)}, {}).stop_deadline == 7.0


def test_an_empty_variable_is_not_set() -> None:
    assert load(None, {**HOME, "TOBAN_LOG_LEVEL": ""}, {}).log_level == "info"


def test_several_addresses() -> None:
    environment = {**HOME, "TOBAN_LISTEN": "unix:///run/a.sock, 127.0.0.1:7000"}
    assert addresses(load(None, environment, {})) == ["unix:///run/a.sock", "127.0.0.1:7000"]
    flags = {"listen": ["127.0.0.1:0", "[::1]:0", "localhost:1"]}
    assert addresses(load(None, environment, flags)) == ["127.0.0.1:0", "[::1]:0", "localhost:1"]


def test_an_address_is_a_text_or_a_table(tmp_path: Path) -> None:
    text = """
listen = [
  "unix:///run/a.sock",
  { address = "unix:///run/b.sock", role = "editor", group = "toban" },
  { address = "unix:///run/c.sock", role = "none", mode = "0666" },
  "tcp://127.0.0.1:7000",
  { address = "127.0.0.1:7001", role = "viewer" },
  { address = "tls://[::]:7233", client_certificates = "required" },
]
"""
    assert loaded(text, tmp_path, HOME).listen == (
        ListenAddress(address="unix:///run/a.sock", role=Role.ADMIN, mode=0o600),
        ListenAddress(address="unix:///run/b.sock", role=Role.EDITOR, mode=0o660, group="toban"),
        ListenAddress(address="unix:///run/c.sock", role=None, mode=0o666),
        ListenAddress(address="127.0.0.1:7000", role=None),
        ListenAddress(address="127.0.0.1:7001", role=Role.VIEWER),
        ListenAddress(address="tls://[::]:7233", role=None, client_certificates="required"),
    )
    shown, _ = sources(loaded(text, tmp_path, HOME))["listen"]
    assert shown == [
        "unix:///run/a.sock",
        {"address": "unix:///run/b.sock", "role": "editor", "mode": "0660", "group": "toban"},
        {"address": "unix:///run/c.sock", "role": "none", "mode": "0666"},
        "127.0.0.1:7000",
        {"address": "127.0.0.1:7001", "role": "viewer"},
        {"address": "tls://[::]:7233", "role": "none", "client_certificates": "required"},
    ]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("/run/a.sock", "unix:///run/a.sock"),
        ("unix:/run/a.sock", "unix:///run/a.sock"),
        ("UNIX:///run/a.sock", "unix:///run/a.sock"),
        ("tls://toban.example.org", f"tls://toban.example.org:{CLIENT_PORT}"),
        ("TLS://Toban.Example.org:443/", "tls://toban.example.org:443"),
        ("tls://*:7233", "tls://0.0.0.0:7233"),
        ("tls://:07233", "tls://0.0.0.0:7233"),
        ("tls://[::]", f"tls://[::]:{CLIENT_PORT}"),
        ("tcp://localhost", f"localhost:{CLIENT_PORT}"),
        ("TCP://LOCALHOST:0", "localhost:0"),
        ("tcp://127.0.0.2:7000/", "127.0.0.2:7000"),
        (" [::1]:7000 ", "[::1]:7000"),
        ("tls://h:1,", "tls://h:1"),
    ],
)
def test_an_address_in_the_spellings_of_people(text: str, same: str) -> None:
    (listener,) = load(None, {**HOME, "TOBAN_LISTEN": text}, {}).listen
    assert listener.address == same
    assert (listener.role is Role.ADMIN) == same.startswith("unix://")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('{ role = "admin" }', "expected an `address`"),
        ('{ address = "unix:///a", colour = 1 }', "unknown key `colour` (known: address, "),
        ('{ address = "unix:///a", role = "root" }', "unix:///a: role: found 'root', expected one of viewer"),
        ('{ address = "unix:///a", mode = "rw" }', "expected a mode such as"),
        ('{ address = "127.0.0.1:0", mode = "0600" }', "only a socket (unix:///path) has a mode"),
        ('{ address = "tls://h:1", role = "admin" }', "an address with TLS always requires a credential"),
        ('{ address = "unix:///a", client_certificates = "off" }', "only an address with TLS"),
        ('"tcp://0.0.0.0:7000"', "use tls://0.0.0.0:7000"),
        ('"tls://7233"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('"https://h:1"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT; with TLS it is tls://h:1"),
        ('"7233"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('"tls://"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('"tls://user@h:1"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('"tls://h:1/path"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('"tls://[x]:1"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('"tls://::1:7233"', "an IPv6 address is written in brackets, as in tls://[::1]:7233"),
        ('"tls://h:65536"', "a port is at most 65535"),
        ('":7233"', "use tls://0.0.0.0:7233"),
        ('"*:7233"', "use tls://0.0.0.0:7233"),
        ('"unix://run/a.sock"', "expected the absolute path of a socket as in unix:///run/toban.sock"),
        ('"unix:a.sock"', "expected the absolute path of a socket as in unix:///run/toban.sock"),
        ('"unix:///run/"', "expected the absolute path of a socket as in unix:///run/toban.sock"),
        ('{ address = "tls://h", client_certificates = "optional" }', "listen on a second address with"),
        ("7", "expected text"),
    ],
)
def test_wrong_addresses(tmp_path: Path, entry: str, problem: str) -> None:
    (found,) = problems(f"listen = [{entry}]", tmp_path, HOME)
    assert problem in found


def test_the_daemon_of_the_system_has_a_socket_for_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("grp.getgrnam", lambda name: name)
    assert load(None, HOME, {}).listen == (
        ListenAddress(address="unix:///var/lib/toban/admin.sock", role=Role.ADMIN, mode=0o600),
        ListenAddress(address="unix:///var/lib/toban/toban.sock", role=Role.EDITOR, mode=0o660, group="toban"),
    )
    own = load(None, HOME, {"state_dir": "/srv/own"})
    assert own.listen == (ListenAddress(address="unix:///srv/own/toban.sock", role=Role.ADMIN, mode=0o600),)


DIGEST = "0123456789abcdef" * 4


def test_access_is_read_from_the_file(tmp_path: Path) -> None:
    text = f"""
[tls]
certificate = "tls/server.crt"
[access.tokens.ci]
role = "operator"
digest = "{DIGEST}"
workflows = ["nightly-*"]
expires = 2027-01-31
[[access.certificates]]
subject_cn = "build-*"
role = "viewer"
labels = {{ team = "ops" }}
[[access.issuers]]
issuer = "https://idp.example/realm"
name = "keycloak"
audience = "toban"
jwks_file = "/etc/toban/jwks.json"
name_claim = "email"
rules = [{{ claims = {{ groups = "ops" }}, role = "editor" }}]
"""
    config = loaded(text, tmp_path, HOME)
    assert config.tls.certificate == str(tmp_path / "tls/server.crt")
    (token,) = config.access_tokens
    assert (token.name, token.digest, token.grant.role) == ("ci", DIGEST, Role.OPERATOR)
    assert token.grant.narrowing == Narrowing(workflows=("nightly-*",))
    assert token.expires_at == datetime(2027, 1, 31, tzinfo=UTC)
    (certificate,) = config.access_certificates
    assert certificate.subject_cn == "build-*"
    assert certificate.grant.narrowing == Narrowing(labels=(("team", "ops"),))
    (issuer,) = config.access_issuers
    assert (issuer.label, issuer.audience, issuer.name_claim) == ("keycloak", "toban", "email")
    assert issuer.rules[0].claims == (("groups", "ops"),)
    assert DIGEST not in str(config.shown())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[access.tokens]\nci = 5", "[access.tokens.ci]: found 5, expected a table"),
        ('[access.tokens.ci]\nrole = "admin"', "[access.tokens.ci]: needs `digest`"),
        ('[access.tokens.ci]\nrole = "admin"\ndigest = "abc"', "expected the 64 digits"),
        (f'[access.tokens.ci]\nrole = "root"\ndigest = "{DIGEST}"', "expected one of viewer, operator, editor, admin"),
        (f'[access.tokens."c i"]\nrole = "admin"\ndigest = "{DIGEST}"', "found the name 'c i'"),
        (f'[access.tokens.ci]\nrole = "admin"\ndigest = "{DIGEST}"\nexpires = "soon"', "expected a time such as"),
        (f'[access.tokens.ci]\nrole = "admin"\ndigest = "{DIGEST}"\nuid = 0', "unknown key `uid` (known: digest, "),
        (f'[access.tokens.ci]\nrole = "admin"\ndigest = "{DIGEST}"\nworkflows = "x"', "expected names or patterns"),
        ('[[access.certificates]]\nrole = "admin"', "rule 1: needs `subject_cn` or `san`"),
        ('[[access.issuers]]\nissuer = "i"\naudience = "a"\nrules = []', "either `jwks_file` or `jwks_url`"),
        (
            '[[access.issuers]]\nissuer = "i"\naudience = "a"\nrules = []\njwks_url = "http://idp.example/keys"',
            "without TLS the keys could be replaced on the way",
        ),
        (
            '[[access.issuers]]\nissuer = "i"\naudience = "a"\nrules = []\njwks_file = "/k"\nname = "token"',
            "'token' is reserved",
        ),
        (
            '[[access.issuers]]\nissuer = "i"\naudience = "a"\njwks_file = "/k"\nrules = [{ role = "admin" }]',
            "issuer 1: rule 1: needs `claims`",
        ),
    ],
)
def test_wrong_access(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = problems(text, tmp_path, HOME)
    assert problem in found


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = """
colour = "blue"
state_dir = 5
listen = "0.0.0.0:7000"
database = "mysql://user:secret@host/db"
stop_deadline = "soon"
[log]
level = "loud"
shape = "round"
[retention]
days = 3
"""
    environment = {"TOBAN_LOG_FORMAT": "xml"}
    found = problems(text, tmp_path, environment, default_run_timeout="0s")
    file = f"{tmp_path}/toband.toml"
    starts = [
        f"{file}:2: unknown key `colour`",
        f"{file}:3: state_dir: found 5, expected text",
        f"{file}:4: listen: refusing to listen on '0.0.0.0:7000'",
        f"{file}:5: database: found 'mysql://user:***@host/db'",
        f"{file}:6: stop_deadline: ",
        f"{file}:8: log.level: found 'loud', expected one of debug, info, warning, error",
        f"{file}:9: unknown key `log.shape`",
        f"{file}:11: unknown key `retention.days`",
        "TOBAN_LOG_FORMAT: found 'xml', expected one of auto, console, json",
        "--default-run-timeout: must be greater than zero",
    ]
    assert len(found) == len(starts)
    for problem, start in zip(found, starts, strict=True):
        assert problem.startswith(start)
        assert "secret" not in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("state_dir = ", "it is not TOML"),
        ('state_dir = "a"\nstate_dir = "b"\n', "it is not TOML"),
        ("listen = []", "expected addresses"),
        ("listen = {a = 1}", "unknown key `listen.a`"),
        ('log = "debug"', "unknown key `log`"),
        ("listen = [1]", "expected text"),
        ('listen = "unix://relative.sock"', "expected the absolute path of a socket"),
        ('listen = "7000"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('listen = "127.0.0.1:70000"', "a port is at most 65535"),
        ('listen = "127.0.0.1:²"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('listen = "127.0.0.1:-1"', "expected unix:///path, tls://HOST:PORT or 127.0.0.1:PORT"),
        ('listen = ":7000"', "use tls://0.0.0.0:7000"),
        ('listen = "[::]:7000"', "refusing to listen"),
        ('listen = "example.com:7000"', "refusing to listen"),
        ("stop_deadline = true", "expected a duration"),
        ("stop_deadline = -1", "negative"),
        ("stop_deadline = 0", "greater than zero"),
        ('database = "/var/lib/toban.db"', "expected sqlite:///path"),
        ("[log]\nlevel = [1]", "expected one of"),
        ("[log]\nfile = 7", "expected text"),
        ('state_dir = ""', "must name a directory"),
        ('timezone = "Mars/Base"', "expected a name such as Asia/Tokyo"),
        ('timezone = "Asia"', "expected a name such as Asia/Tokyo"),
        ('timezone = "../etc/passwd"', "expected a name such as Asia/Tokyo"),
        ('timezone = ""', "expected a name such as Asia/Tokyo"),
        ("timezone = 9", "expected text"),
        ('blackout = "every night"', "expected a blackout window"),
        ('blackout = ["0 25 * * sun/2h"]', "hour"),
        ("blackout = 5", 'expected windows such as ["0 2 * * sun/2h"]'),
        ("blackout = [5]", "expected text"),
        ("definitions = 5", 'expected paths such as ["/etc/toban/workflows"]'),
        ("definitions = [5]", "expected text"),
        ('definitions = [""]', "must name a directory"),
        ('definitions_removed = "keep"', "expected one of disable, delete"),
        (f"event_concurrency = {'9' * 5000}", "it is not TOML"),
        (f"event_concurrency = 0x{'f' * 5000}", "found a number with too many digits, expected a whole number"),
        ("event_concurrency = 2147483648", "expected a whole number from 1 to 2147483647"),
        (f"state_dir = {'[' * 5000}", "it is nested too deeply"),
        ('state_dir = "a\\u0000b"', "expected a path without a NUL character"),
        (f"cgroup = '{'x' * 5000}'", "x…, expected one of auto, off"),
        ("#" * (1024 * 1024 + 1), "it is larger than 1MiB"),
    ],
)
def test_wrong_values(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = problems(text, tmp_path, HOME)
    assert problem in found
    assert str(tmp_path / "toband.toml") in found


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(str(tmp_path / "absent.toml"), HOME, {})
    (tmp_path / "latin.toml").write_bytes(b'state_dir = "\xff"\n')
    with pytest.raises(ConfigError, match="it is not TOML"):
        load(str(tmp_path / "latin.toml"), HOME, {})


def test_a_socket_path_must_fit() -> None:
    exact = "/" + "x" * 106
    assert addresses(load(None, HOME, {"listen": [f"unix://{exact}"]})) == [f"unix://{exact}"]
    for path in (exact + "x", "/" + "日" * 40):
        with pytest.raises(ConfigError, match="allows at most 107"):
            load(None, HOME, {"listen": [f"unix://{path}"]})
    with pytest.raises(ConfigError, match="contains a comma"):
        load(None, HOME, {"state_dir": "/srv/a,b"})
    with pytest.raises(ConfigError, match=r"by default in the state directory.*choose a shorter"):
        load(None, HOME, {"state_dir": "/srv/" + "x" * 100})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:se%40cret@host/db", "postgresql://me:***@host/db"),  # not a secret: an example
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me:me@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?password=hidden", "postgresql://host/db?password=***"),
        ("sqlite:////srv/a.db", "sqlite:////srv/a.db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    config = load(None, HOME, {"database": url})
    assert config.database == url
    assert sources(config)["database"] == (shown, "flag")


def test_the_database_is_in_the_state_directory_whatever_its_name_is() -> None:
    config = load(None, HOME, {"state_dir": "/srv/50%25 a?b#c"})
    assert config.database == "sqlite:////srv/50%2525%20a%3Fb%23c/toban.db"


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    config = load(None, HOME, {"state_dir": "below/../s", "log.file": "~/toband.log"})
    assert config.state_dir == f"{tmp_path}/s"
    assert config.log_file == "/home/somebody/toband.log"


# -- the command


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("TOBAN_"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("bare")
def test_check_config_prints_every_value_with_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "toband.toml"
    file.write_text('stop_deadline = "3s"\n[log]\nfile = "/var/log/日本.log"\n')
    monkeypatch.setenv("TOBAN_LOG_LEVEL", "debug")
    flags = ["--state-dir", "/srv/s", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:1"]
    assert main(["--config", str(file), "--check-config", *flags]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    found = {}
    for line in shown.out.splitlines():
        setting, _, source = line.rpartition("    # ")
        key, _, value = setting.partition(" = ")
        found[key] = (json.loads(value), source.partition(";")[0].partition(" ")[0])
    assert found == {
        "state_dir": ("/srv/s", "flag"),
        "listen": (["127.0.0.1:0", "127.0.0.1:1"], "flag"),
        "database": ("sqlite:////srv/s/toban.db", "default"),
        "stop_deadline": ("3s", "file"),
        "log.level": ("debug", "environment"),
        "log.file": ("/var/log/日本.log", "file"),
        **OTHERS,
    }


@pytest.mark.usefixtures("bare")
def test_wrong_configuration_is_one_line_per_problem_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "toband.toml"
    file.write_text("a = 1\nb = 2\n")
    for more in ([], ["--check-config"]):
        assert main(["--config", str(file), "--log-level", "loud", *more]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        lines = shown.err.splitlines()
        assert len(lines) == 3
        assert all(line.startswith("toband: ") for line in lines)
        assert lines[2].startswith("toband: --log-level: ")


@pytest.mark.parametrize("flag", ["--stat", "--unknown", "extra"])
def test_flags_that_do_not_exist_are_a_matter_of_usage(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([flag])
    assert caught.value.code == 2
    assert "usage: toband" in capsys.readouterr().err


def test_limits_and_what_switches_them_off(tmp_path: Path) -> None:
    text = """
stop_policy = "wait"
max_attempts_running = 3
disk_reserve = "1GiB"
cgroup = "off"
default_run_timeout = "none"
[limits]
attempt_log = "none"
total_logs = "10GiB"
artifact_bytes = "1GiB"
artifact_files = 1000
artifact_time = "10m"
artifact_rate = "none"
[retention]
age = "none"
runs = "none"
bytes = "64MiB"
total_runs = 7
compress_after = "1h"
"""
    config = loaded(text, tmp_path, {**HOME, "TOBAN_RETENTION_TOTAL_BYTES": "none"})
    assert (config.stop_policy, config.max_attempts_running, config.cgroup) == ("wait", 3, "off")
    assert (config.disk_reserve, config.default_run_timeout) == (1 << 30, None)
    assert (config.attempt_log_limit, config.total_log_limit) == (None, 10 << 30)
    assert (config.artifact_bytes, config.artifact_files) == (1 << 30, 1000)
    assert (config.artifact_time, config.artifact_rate) == (600, None)
    assert (config.keep_age, config.keep_runs, config.keep_bytes) == (None, None, 64 << 20)
    assert (config.keep_total_runs, config.keep_total_bytes) == (7, None)
    assert config.compress_after == 3600
    assert loaded("disk_reserve = 0", tmp_path, HOME).disk_reserve == 0


def test_wrong_limits_are_all_named(tmp_path: Path) -> None:
    text = """
stop_policy = "kill"
max_attempts_running = 0
disk_reserve = "much"
cgroup = true
[limits]
attempt_log = 0
total_logs = "1 elephant"
[retention]
age = "soon"
runs = -1
bytes = 1.5
"""
    found = problems(text, tmp_path, {**HOME, "TOBAN_RETENTION_TOTAL_RUNS": "all"})
    keys = ["stop_policy", "max_attempts_running", "disk_reserve", "cgroup", "limits.attempt_log"]
    keys += ["limits.total_logs", "retention.age", "retention.runs", "retention.bytes"]
    for key, problem in zip(keys, found, strict=False):
        assert f": {key}: " in problem, (key, problem)
    assert found[-1].startswith("TOBAN_RETENTION_TOTAL_RUNS: found 'all', expected a whole number")
    assert len(found) == len(keys) + 1


def test_the_time_zone_and_blackout_windows(tmp_path: Path) -> None:
    text = 'timezone = "Europe/Berlin"\nblackout = ["0 2 * * sun/2h", "30 4 1 * */15m"]\n'
    config = loaded(text, tmp_path, HOME)
    assert config.timezone == "Europe/Berlin"
    assert config.blackout == ("0 2 * * sun/2h", "30 4 1 * */15m")
    environment = {**HOME, "TOBAN_TIMEZONE": "UTC", "TOBAN_BLACKOUT": "0 1,2 * * */5m; @daily/1h"}
    config = loaded(text, tmp_path, environment)
    found = sources(config)
    assert found["timezone"] == ("UTC", "environment")
    assert found["blackout"] == (["0 1,2 * * */5m", "@daily/1h"], "environment")


def test_where_definitions_are_read_from(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b.yaml")
    text = f"definitions = ['{first}', '{second}', '{first}']\ndefinitions_removed = 'delete'\n"
    config = loaded(text, tmp_path, HOME)
    assert config.definitions == (first, second)
    assert config.definitions_removed == "delete"
    environment = {**HOME, "TOBAN_DEFINITIONS": os.pathsep.join((second, first))}
    config = loaded(text, tmp_path, environment)
    assert sources(config)["definitions"] == ([second, first], "environment")


def test_a_relative_path_in_the_file_is_below_the_directory_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    text = "state_dir = 'state'\ndefinitions = ['workflows', '../shared']\nlog.file = 'toband.log'\n"
    config = loaded(text, tmp_path, HOME)
    assert config.state_dir == str(tmp_path / "state")
    assert config.definitions == (str(tmp_path / "workflows"), str(tmp_path.parent / "shared"))
    assert config.log_file == str(tmp_path / "toband.log")
    config = loaded(text, tmp_path, {**HOME, "TOBAN_DEFINITIONS": "workflows"})
    assert config.definitions == (str(elsewhere / "workflows"),)


@pytest.mark.parametrize("name", ["", "Mars/Base", None])
def test_a_host_without_a_known_time_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    monkeypatch.setattr("tzlocal.get_localzone_name", lambda: name)
    assert load(None, HOME, {}).timezone == "UTC"

    def raises() -> str:
        raise LookupError("no such zone")

    monkeypatch.setattr("tzlocal.get_localzone_name", raises)
    assert load(None, HOME, {}).timezone == "UTC"


def test_the_sizes_of_locks(tmp_path: Path) -> None:
    config = loaded("[locks]\ndb = 3\ngpu = 2\n", tmp_path, {"TOBAN_LOCKS": "gpu=4, disk-1=1"})
    assert config.locks == {"db": 3, "gpu": 4, "disk-1": 1}
    found = sources(config)
    assert found["locks.db"] == (3, "file")
    assert found["locks.gpu"] == (4, "environment")
    text = "[locks]\ndb = 0\n'a b' = 1\n"
    wrong = problems(text, tmp_path, {"TOBAN_LOCKS": "gpu"})
    assert [problem.removeprefix(f"{tmp_path / 'toband.toml'}:") for problem in wrong] == [
        f"2: locks.db: found 0, expected a whole number from 1 to {2**31 - 1}",
        '3: locks.a b: "a b" is not a valid name: use a letter or digit, then up to 63 letters, digits, _ or -',
        f"TOBAN_LOCKS: found '', expected a whole number from 1 to {2**31 - 1}",
    ]


def test_a_start_loads_nothing_that_only_some_daemons_need() -> None:
    """It would stay in the memory of a daemon that reads no definition, or has neither secrets nor certificates."""
    heavy = {"pydantic", "holidays", "cel_expr_python", "cryptography", "jwt", "rich"}
    load = "import sys, toband.__main__; toband.__main__._load_structlog(); import toband.app.application"
    code = f"{load}; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


WITH_NESTED = (
    """
# a comment = 1
timezone = "Asia/Tokyo"  # listen = [
blackout = [
  "0 2 * * sun/2h",
  "never",
]
[[access.issuers]]
issuer = "i"
audience = "a"
jwks_file = "/k"
rules = [
  { role = "viewer", claims = { groups = "x = {" } },
  { role = "viewer", clams = { groups = "ops" } },
]
[[access.certificates]]
subject_cn = """
    "'''\na\n[log]\n'''"
    """
role = "viewer"
[[access.certificates]]
role = "viewer"
[access.tokens."ci"]
rol = "viewer"
[secrets]
[secrets.providers.vault]
command = ["vault", "{key}"]
timout = "5s"
"""
)


def test_a_problem_has_the_line_of_the_value_that_it_is_about(tmp_path: Path) -> None:
    found = problems(WITH_NESTED, tmp_path, HOME)
    lines = [problem.removeprefix(f"{tmp_path}/toband.toml:").partition(": ") for problem in found]
    assert [(number, text.partition(":")[0]) for number, _, text in lines] == [
        ("4", "blackout"),
        ("14", "access.issuers"),
        ("22", "access.certificates"),
        ("25", "access.tokens"),
        ("29", "secrets.providers"),
    ]
    broken = problems('state_dir = "/a"\n\nlisten = [\n  "x"\n"y"]\n', tmp_path, HOME)
    assert broken == [f"{tmp_path}/toband.toml:5: it is not TOML: Unclosed array"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max_attempt_runing = 5", "did you mean `max_attempts_running`?"),
        ("[log]\nlevle = 'info'", "did you mean `log.level`?"),
        ("[limts]\nattempt_log = '1GiB'", "did you mean `limits.attempt_log`"),
        ("level = 'info'", "did you mean `log.level`, that is `level` in [log]?"),
        ("[steps]\nstop_policy = 'wait'", "`stop_policy` is in no table: write it before the first [table]"),
        ("retention = '90d'", "it is a table, as in [retention]"),
        ("[access.tokens.ci]\nrole = 'admin'\ndigst = 'x'", "unknown key `digst`: did you mean `digest`?"),
        ("[access.tokens.ci]\nrole = 'amdin'\ndigest = '" + DIGEST + "'", "expected one of viewer, operator"),
    ],
)
def test_a_mistyped_key_suggests_the_right_one(tmp_path: Path, text: str, hint: str) -> None:
    (found,) = problems(text, tmp_path, HOME)
    assert hint in found


def test_a_mistyped_variable_is_a_warning() -> None:
    strange = {"TOBAN_MAX_ATTEMPT_RUNNING": "5", "TOBAN_TOKEN_FILE": "/t", "TOBAN_LOG_LEVE": ""}
    (warning,) = load(None, {**HOME, **strange}, {}).warnings
    assert warning == (
        "the variable TOBAN_MAX_ATTEMPT_RUNNING is not a setting: did you mean TOBAN_MAX_ATTEMPTS_RUNNING?"
    )


def test_the_check_explains_where_each_value_came_from(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "toband.toml"
    file.write_text("state_dir = 'state'\n[log]\nlevel = 'debug'\n[locks]\ndb = 3\n")
    environment = {**os.environ, "TOBAN_LOG_LEVEL": "warning", "TOBAN_DISK_RESERVE": "0"}
    command = [sys.executable, "-m", "toband", "--config", str(file), "--log-level", "error", "--check-config"]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    lines = text.splitlines()
    assert f'state_dir = "{tmp_path}/state"    # file {file}:1; a change needs a restart' in lines
    assert f'log.level = "error"    # flag --log-level, overrides TOBAN_LOG_LEVEL, {file}:3' in lines
    assert 'disk_reserve = "0"    # environment TOBAN_DISK_RESERVE' in lines
    assert f"locks.db = 3    # file {file}:5" in lines
    assert 'stop_policy = "detach"    # default' in lines
    done = subprocess.run([*command, "-o", "json"], env=environment, capture_output=True, check=True, timeout=60)
    settings = {each["key"]: each for each in json.loads(done.stdout)["settings"]}
    assert len(settings) == len(lines)
    assert settings["log.level"] == {
        "key": "log.level",
        "value": "error",
        "source": "flag",
        "place": "--log-level",
        "overridden": [
            {"source": "environment", "place": "TOBAN_LOG_LEVEL"},
            {"source": "file", "place": f"{file}:3"},
        ],
        "live": True,
    }
    file.write_text("\nlevel = 3")
    assert main(["--config", str(file), "--check-config", "-o", "json"]) == 2
    (problem,) = json.loads(capfd.readouterr().out)["problems"]
    assert (problem["file"], problem["line"]) == (str(file), 2)


def test_what_a_reload_applies_and_what_stays_as_it_was(tmp_path: Path) -> None:
    before = loaded("stop_policy = 'wait'\nlisten = 'unix:///a'\n[locks]\ndb = 3\ngpu = 2", tmp_path, HOME)
    text = """
listen = "unix:///b"
[locks]
db = 4
[secrets.providers.vault]
command = ["vault", "{key}"]
env = { TOKEN = "hidden" }
"""
    after = loaded(text, tmp_path, HOME)
    found = {each.key: each for each in changes(before, after)}
    assert {key: each.live for key, each in found.items()} == {
        "stop_policy": True,
        "listen": False,
        "locks.db": True,
        "locks.gpu": True,
        "secrets.providers": True,
    }
    assert (found["locks.gpu"].before, found["locks.gpu"].after) == (2, None)
    assert "hidden" not in str(found)
    now = with_live_settings(before, after)
    assert addresses(now) == ["unix:///a"]
    assert (now.stop_policy, now.locks) == ("detach", {"db": 4})
    assert {each.key: str(each.origin) for each in now.shown()}["listen"] == f"file {tmp_path}/toband.toml:2"
    assert [each.key for each in changes(now, after)] == ["listen"]
    assert not changes(now, now)
