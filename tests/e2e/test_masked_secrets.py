"""A run whose steps do everything with their secrets that reveals them: no trace is left, in any form, anywhere."""

from __future__ import annotations

import base64
import json
import os
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.command import Toban
from helpers.daemon import Daemon, run_state, running_daemon, step_states
from helpers.gate import Gate
from helpers.wait import wait_until

VALUE = "pä/s+w? \"o'r&d\\<$>~*9"
LINES = ("TUlJRXZRSUJBREFOQmdrcWhraUc5", "c2VjcmV0IGxpbmUgdHdv")
PEM = "-----BEGIN KEY-----\n" + "\n".join(LINES) + "\n-----END KEY-----\n"
PARAM = "p4rameter-of-the-run"
NAME = "n4me-of-an-artifact"

LOUD = r"""
import base64, json, os, pathlib, subprocess, sys, traceback, urllib.parse
value, pem, param, name = (os.environ[key] for key in ("VALUE", "PEM", "PARAM", "NAME"))
for text in (value, param, name):
    raw = text.encode()
    print(text)
    for at in range(len(raw) + 1):
        os.write(1, b"two " + raw[:at])
        os.write(1, raw[at:] + b" writes\n")
    for before in ("", "x", "xy"):
        print(base64.b64encode((before + text).encode()).decode(), base64.urlsafe_b64encode(raw).decode())
    print(base64.encodebytes(b"x" * 50 + raw).decode(), flush=True)
    print(urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text), json.dumps({"p": text}), raw.hex())
    print(f"::progress 1/2 with {text} in it", flush=True)
    print(f"::log level=error with {text} in it", file=sys.stderr, flush=True)
print(pem, "\n".join(f"  {line}" for line in pem.splitlines()), json.dumps(pem), sep="\n")
tree = pathlib.Path("tree")
for each in (name, base64.b64encode(param.encode()).decode(), urllib.parse.quote(value, safe="")):
    (tree / each).mkdir(parents=True)
    (tree / each / f"{each}.txt").write_text("harmless")
(tree / "link").symlink_to(f"{name}/{name}.txt")
with open(os.environ["TOBAN_OUTPUT"], "a") as file:
    file.write(f"found={value}\n{name}={param}\n")
print("whole", os.environ["TOBAN_ATTEMPT"], os.stat(os.environ["TOBAN_SECRET_FILES"] + "/key").st_mode & 0o777)
if os.environ["TOBAN_ATTEMPT"] == "1":
    raise KeyError(value, param)
"""
CALLS = r"""
import json, os, subprocess
def toban(*arguments, given=None):
    done = subprocess.run(["toban", *arguments], input=given, text=True, capture_output=True, timeout=60)
    print(done.stdout, done.stderr)
with open(os.environ["GATE"]) as gate:
    gate.readline()
value, name = os.environ["VALUE"], os.environ["NAME"]
toban("emit", "FOUND", "-d", "@-", "--dedupe-key", name, given=json.dumps({"a": [value, {name: value}], "b": name}))
params = json.dumps({"password": value, "note": f"is {value}"})
toban("run", "child", "--params-file", "-", "--label", f"of={name}", "--wait", given=params)
os.makedirs("late")
open(f"late/{name}", "w").close()
"""
USES = {
    "VALUE": "{{ secrets.value }}",
    "PEM": "{{ secrets.pem }}",
    "NAME": "{{ secrets.name }}",
    "PARAM": "{{ params.password }}",
}


def define(daemon: Daemon, name: str, steps: object, **fields: object) -> None:
    text = json.dumps({"name": name, "description": "x", "steps": steps, **fields})
    Toban(daemon)("apply", "-", stdin=text)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "s", environment={"TOBAN_LOG_LEVEL": "debug"}) as running:
        toban = Toban(running)
        for name, value in (("value", VALUE), ("pem", PEM), ("name", NAME)):
            toban("secrets", "set", name, "--workflows", "*", stdin=value)
        yield running


def forms() -> list[bytes]:
    """What must be found nowhere. None of it comes from the code that is tested."""
    found: set[bytes] = {line.encode() for line in LINES}
    for text in (VALUE, PARAM, NAME):
        raw = text.encode()
        found |= {raw, raw.hex().encode(), urllib.parse.quote(text, safe="").encode()}
        found |= {json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
        # Two characters at each end share bits with their neighbours.
        found |= {base64.b64encode(bytes(before) + raw)[4:-4] for before in range(3)}
    return sorted(found)


def traces(daemon: Daemon) -> list[str]:
    """Names and contents of all files below the state directory and of the log, besides what steps themselves wrote."""
    found = []
    paths = [Path(at) / name for at, _, names in os.walk(daemon.state_dir) for name in names]
    for path in (*paths, daemon.log):
        if "work" in path.parts[len(daemon.state_dir.parts) :] or path.is_symlink():
            continue
        data = os.fsencode(path) + b"\n" + (path.read_bytes() if path.is_file() else b"")
        # Programs break what they encode into lines.
        found += [f"{path}: {form!r}" for form in forms() if form in data or form in data.replace(b"\n", b"")]
    return found


def command_lines() -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                data = (process / "cmdline").read_bytes()
            except OSError:
                continue
            found += [f"{process.name}: {data!r}" for form in forms() if form in data]
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="os.mkfifo")
def test_a_run_leaves_no_trace_of_its_secrets(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(str(tmp_path / "gate"))
    for name, text in (("loud.py", LOUD), ("calls.py", CALLS)):
        (tmp_path / name).write_text(text)
    secret = {"password": {"secret": True}}
    given = 'echo "$PARAM" {{ params.note }}; test "$PARAM" != "***"'
    child = {"a": {"run": given, "env": {"PARAM": "{{ params.password }}"}}}
    define(daemon, "child", child, params=secret | {"note": {"default": ""}})
    uses = {"env": USES, "workspace": "{{ run.dir }}"}
    loud = {
        "run": f"rm -rf tree; {sys.executable} -I -X utf8 {tmp_path}/loud.py",
        "secret_files": {"key": "{{ secrets.pem }}"},
        "for_each": [1],
        "max_retries": 1,
        "retry": {"delay": "1ms"},
        "outputs": [{"name": "tree", "path": "tree/"}],
    }
    shown = 'echo "$VALUE" "$PARAM"; echo "found=$VALUE" >> $TOBAN_OUTPUT'
    calls = {
        "run": f"{sys.executable} -I -X utf8 {tmp_path}/calls.py",
        "env": USES | {"GATE": gate.path},
        "outputs": [{"name": "late", "path": "late/"}],
    }
    steps = {
        "loud": uses | loud,
        "looped": uses | {"run": shown, "max_iterations": 2, "completion_check": {"run": shown, "env": USES}},
        "calls": uses | calls,
        "child": {"job_type": "workflow", "target": "child", "kwargs": {"password": "{{ params.password }}"}},
    }
    define(daemon, "reveals", steps, params=secret, **{"finally": {"last": uses | {"run": shown}}})
    seen_by = {"run": f"tr '\\0' '\\n' < /proc/self/environ; read x < {gate.path}2"}
    other = Gate(f"{gate.path}2")
    define(daemon, "innocent", {"a": seen_by})
    innocent = daemon.start_run("innocent")
    neighbour = daemon.wait_started(innocent, "a")

    toban = Toban(daemon)
    given = json.dumps({"password": PARAM})
    texts = [toban("run", "reveals", "--params-file", "-", "--dry-run", stdin=given).out]
    run_id = toban("run", "reveals", "--params-file", "-", "-o", "name", stdin=given).out.strip()
    daemon.wait_started(run_id, "calls")
    wait_until(lambda: step_states(daemon.get_run(run_id))["loud"] == "SUCCEEDED", "it does not succeed")
    assert command_lines() == []
    environ = Path(f"/proc/{neighbour}/environ").read_bytes()
    assert [form for form in forms() if form in environ] == []
    # The next daemon was given no values, and knows what it must not store all the same.
    daemon.kill()
    assert traces(daemon) == []
    daemon.start()
    gate.release_now()
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    other.release_now()
    assert run_state(daemon.wait_run(innocent)) == "SUCCEEDED"

    printed = {step: b"".join(daemon.log_of(run_id, step).values()).decode() for step in ("loud[0]", "calls", "looped")}
    assert printed["loud[0]"].count("two *** writes\n") == 2 * sum(
        len(each.encode()) + 1 for each in (VALUE, PARAM, NAME)
    )
    assert "KeyError" in printed["loud[0]"]
    assert "whole 2 256" in printed["loud[0]"]
    assert printed["looped"] == "*** ***\n"
    assert "emitted FOUND" in printed["calls"]
    assert "child#2 succeeded" in printed["calls"]
    context = daemon.state_dir / "runs" / run_id / "context"
    assert (context / "loud/0/tree/tree/link").read_text() == "harmless"
    assert os.listdir(context / "calls/late/late") == ["***"], "by the daemon that was given no values"
    commands = [
        ("runs", "show", run_id),
        ("runs", "processes", run_id),
        ("runs", "artifacts", run_id),
        ("runs", "watch", run_id),
        ("runs", "list"),
        ("events", "list"),
        ("audit", "list"),
        ("status",),
    ]
    texts += [toban(*command, "-o", "json").out for command in commands]
    texts += [toban(*command).out for command in commands[:3]]
    assert [form for form in forms() for text in texts if form in text.encode()] == []
    assert traces(daemon) == []
    daemon.stop()
    assert traces(daemon) == []
