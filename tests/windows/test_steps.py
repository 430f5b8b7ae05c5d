"""Steps on Windows, from the API to the process and back: results, bytes, names, ends of whole trees."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows: scripts/test-windows", allow_module_level=True)

import os
import subprocess

from helpers.wait import wait_until
from toban.v1 import run_pb2
from windows.machine import (
    DEADLINE,
    ERR,
    OUT,
    PYTHON,
    SAY,
    WAIT,
    Daemon,
    Process,
    alive,
    cause_name,
    process_state,
    run_state,
    seen,
    step,
    written,
)

pytestmark = pytest.mark.timeout(400)

TREE = (
    SAY
    + """
import subprocess, time
if sys.argv[2] != "0":
    own = [sys.executable, "-c", os.environ["CODE"], sys.argv[1], str(int(sys.argv[2]) - 1)]
    child = subprocess.Popen(own, creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)
say(sys.argv[1] + sys.argv[2], str(os.getpid()))
if sys.argv[2] == os.environ.get("LEAVE"):
    while not os.path.exists(sys.argv[1] + "0"):
        time.sleep(0.01)
    sys.exit(0)
time.sleep(600)
"""
)


def tree(daemon: Daemon, name: str) -> list[Process]:
    """Waits until a step, its child and its grandchild are there."""
    return [seen(int(written(daemon.work / f"{name}{number}"))) for number in "210"]


def test_a_cmd_step(shared: Daemon) -> None:
    text = "echo hello& echo oops 1>&2& exit /b 3"
    run = shared.run("cmd", {"name": "greet", "job_type": "cmd", "target": text})
    assert run_state(run) == "FAILED"
    assert run.steps[0].exit_code == 3
    assert shared.logged(run.id, "greet") == {OUT: b"hello\r\n", ERR: b"oops \r\n"}


def test_bytes_are_kept_as_they_were_printed(shared: Daemon) -> None:
    code = "import os; os.write(1, bytes(range(256)) * 3); os.write(2, b'\\r\\n\\x1a\\n')"
    binary = f"import msvcrt; msvcrt.setmode(1, 0x8000); msvcrt.setmode(2, 0x8000); {code}"
    run = shared.run("bytes", step("print", binary))
    assert run_state(run) == "SUCCEEDED"
    assert shared.logged(run.id, "print") == {OUT: bytes(range(256)) * 3, ERR: b"\r\n\x1a\n"}


def test_much_output_on_both_streams(shared: Daemon) -> None:
    code = """
import sys
for number in range(20000):
    sys.stdout.buffer.write(b"%06d out %s\\n" % (number, b"x" * 40))
    sys.stderr.buffer.write(b"%06d err\\n" % number)
"""
    run = shared.run("much", step("print", code))
    printed = shared.logged(run.id, "print")
    assert printed[OUT] == b"".join(b"%06d out %s\n" % (n, b"x" * 40) for n in range(20000))
    assert printed[ERR] == b"".join(b"%06d err\n" % n for n in range(20000))
    execution = shared.executions(run.id)["print"]
    assert (execution.stdout_log_bytes, execution.stderr_log_bytes) == tuple(
        len(printed[stream]) for stream in (OUT, ERR)
    )


def test_standard_input(shared: Daemon) -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data)"
    text = "日本語 ü\nline\n" + "0123456789abcde\n" * 20_000
    run = shared.run("input", step("read", code, stdin=text))
    assert run_state(run) == "SUCCEEDED", shared.logged(run.id, "read")
    assert shared.logged(run.id, "read")[OUT] == text.encode()
    # One that never reads it is not waited for.
    run = shared.run("unread", step("leave", "pass", stdin=text))
    assert run_state(run) == "SUCCEEDED"
    run = shared.run("none", step("read", code))
    assert (run_state(run), shared.logged(run.id, "read")[OUT]) == ("SUCCEEDED", b"")


def test_artifacts(shared: Daemon) -> None:
    write = "open('kept.txt', 'w').write('kept')"
    show = "print(open('given').read(), end='')"
    first = step("make", write, outputs=[{"name": "kept", "path": "kept.txt"}])
    inputs = [{"from": "make", "artifact": "kept", "as": "given"}]
    run = shared.run("artifacts", first, step("use", show, inputs=inputs))
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert shared.logged(run.id, "use")[OUT] == b"kept"


def test_arguments_environment_and_workspace(shared: Daemon) -> None:
    code = """
import json, os, sys
seen = {"args": sys.argv[1:], "env": os.environ["GREETING"], "here": os.getcwd()}
sys.stdout.buffer.write(json.dumps(seen, ensure_ascii=False).encode())
"""
    place = shared.work / "a b" / "日本語"
    place.mkdir(parents=True)
    given = ["", "a b", 'say "hi"', "back\\slash\\", "%PATH%", "a&b|c^d", "日本語 ü"]
    run = shared.run("words", step("show", code, *given, workspace=str(place), env={"GREETING": "こんにちは ü"}))
    assert run_state(run) == "SUCCEEDED", shared.logged(run.id, "show")
    import json

    assert json.loads(shared.logged(run.id, "show")[OUT]) == {
        "args": given,
        "env": "こんにちは ü",
        "here": str(place),
    }


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (255, 255), (0xC0000005, -1073741819)])
def test_exit_codes(shared: Daemon, code: int, expected: int) -> None:
    program = f"import ctypes; ctypes.windll.kernel32.ExitProcess({code})"
    run = shared.run("codes", step("exit", program))
    assert run_state(run) == ("SUCCEEDED" if code == 0 else "FAILED")
    assert run.steps[0].exit_code == expected
    ending = shared.executions(run.id)["exit"].ending
    assert (cause_name(ending), list(ending.signals), ending.proved_empty) == ("exited", [], True)


def test_names_that_are_devices(shared: Daemon) -> None:
    code = "import os; print(os.environ['TOBAN_STEP'])"
    names = ("con", "nul", "aux", "com1")
    run = shared.run("devices", *(step(name, code) for name in names))
    assert run_state(run) == "SUCCEEDED"
    for name in names:
        assert shared.logged(run.id, name)[OUT] == f"{name}\r\n".encode()


def test_outputs_and_results(shared: Daemon) -> None:
    (shared.work / "sums.py").write_text("def add(a, b):\n    return {'sum': a + b}\n")
    code = "import os; open(os.environ['TOBAN_OUTPUT'], 'a').write('colour=blue\\n')"
    add = {"name": "add", "job_type": "python", "target": "sums:add", "kwargs": {"a": 2, "b": 3}}
    run = shared.run("results", step("tell", code), add)
    assert run_state(run) == "SUCCEEDED", shared.logged(run.id, "add")
    steps = {each.id: each for each in run.steps}
    assert dict(steps["tell"].outputs) == {"colour": "blue"}
    assert steps["add"].result_json.replace(" ", "") == '{"sum":5}'


def test_what_cannot_be_started(shared: Daemon) -> None:
    missing = {"name": "missing", "job_type": "exec", "target": "no-such-program"}
    run = shared.run("missing", missing)
    execution = shared.executions(run.id)["missing"]
    assert execution.error_message.startswith("cannot start no-such-program: ")
    assert execution.error_class == run_pb2.ERROR_CLASS_NON_RETRYABLE
    nowhere = str(shared.work / "nowhere")
    run = shared.run("nowhere", step("go", "", workspace=nowhere))
    execution = shared.executions(run.id)["go"]
    assert f"cannot enter the workspace {nowhere}" in execution.error_message
    run = shared.run("other", step("other", "", user="somebody"))
    execution = shared.executions(run.id)["other"]
    assert execution.error_message == "cannot start it: `user` is not available on Windows"
    assert execution.error_class == run_pb2.ERROR_CLASS_NON_RETRYABLE


def test_a_batch_file_gets_its_arguments_or_none(shared: Daemon) -> None:
    batch = shared.work / "show.bat"
    batch.write_text("@echo [%~1] [%~2]\r\n")
    plain = {"name": "plain", "job_type": "exec", "target": str(batch), "args": ["a b", "c"]}
    run = shared.run("plain", plain)
    assert shared.logged(run.id, "plain")[OUT] == b"[a b] [c]\r\n"
    run = shared.run("unsafe", {**plain, "name": "unsafe", "args": ['" & echo pwned']})
    execution = shared.executions(run.id)["unsafe"]
    assert "it is a batch file" in execution.error_message


def timed_out(daemon: Daemon) -> tuple[run_pb2.Run, str]:
    """A run whose tree was complete when its time was over, and how its processes named their files.

    Three interpreters have to be there by then, and a busy machine may need more time for that.
    """
    for timeout in ("4s", "16s", "64s"):
        name = f"slow-{timeout}-"
        fields = {"env": {"CODE": TREE}, "timeout": timeout, "kill_grace": "0.2s"}
        run = daemon.run("slow", step("slow", TREE, name, "2", **fields))
        if (daemon.work / f"{name}0").exists():
            return run, name
    raise AssertionError("three processes are not started within a minute")


def test_a_timeout_ends_the_whole_tree(shared: Daemon) -> None:
    run, name = timed_out(shared)
    pids = [int((shared.work / f"{name}{each}").read_text()) for each in "210"]
    for pid in pids:
        with pytest.raises(AssertionError, match="no process"):
            seen(pid)
    execution = shared.executions(run.id)["slow"]
    assert process_state(execution) == "TIMED_OUT"
    ending = execution.ending
    assert (cause_name(ending), ending.proved_empty, ending.survivors) == ("timeout", True, 0)
    assert ending.signals[-1] == "JOB"
    assert not execution.HasField("exit_code")
    assert run_state(run) == "FAILED"


def test_a_step_without_output_is_ended(shared: Daemon) -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"
    run = shared.run("silent", step("silent", code, idle_timeout="5s", kill_grace="0.2s"))
    execution = shared.executions(run.id)["silent"]
    assert (process_state(execution), cause_name(execution.ending)) == ("TIMED_OUT", "idle_timeout")
    assert run.error_message == "step silent failed: no output for 5s"


def test_a_cancelled_tree_is_gone(shared: Daemon) -> None:
    run_id = shared.begin("long", step("long", TREE, "long", "2", env={"CODE": TREE}, kill_grace="0.2s"))
    processes = tree(shared, "long")
    shared.client.cancel_run(run_id)
    assert run_state(shared.ended(run_id)) == "CANCELLED"
    assert not any(map(alive, processes))
    ending = shared.executions(run_id)["long"].ending
    assert (cause_name(ending), ending.proved_empty, ending.signals[-1]) == ("cancel", True, "JOB")


def test_what_the_main_process_leaves_is_ended(shared: Daemon) -> None:
    environment = {"CODE": TREE, "LEAVE": "2"}
    run_id = shared.begin("leave", step("leave", TREE, "leave", "2", env=environment, kill_grace="0.2s"))
    run = shared.ended(run_id)
    assert run_state(run) == "SUCCEEDED"
    ending = shared.executions(run_id)["leave"].ending
    assert (cause_name(ending), ending.leftovers, ending.proved_empty) == ("exited", 2, True)
    for number in "10":
        pid = int((shared.work / f"leave{number}").read_text())
        with pytest.raises(AssertionError, match="no process"):
            seen(pid)


def test_a_cancel_that_comes_before_the_process(shared: Daemon) -> None:
    run_id = shared.begin("early", step("early", WAIT + "wait('never')", kill_grace="0.2s"))
    shared.client.cancel_run(run_id)
    assert run_state(shared.ended(run_id)) == "CANCELLED"
    wait_until(lambda: not shared.shims(), "a supervisor outlives its run")


def test_the_command_line_finds_the_daemon(shared: Daemon) -> None:
    environment = {**os.environ, "TOBAN_STATE_DIR": str(shared.state_dir), "NO_COLOR": "1"}
    code = "import sys; from toban.cli import main; sys.exit(main())"

    def toban(*words: str) -> bytes:
        done = subprocess.run(
            [PYTHON, "-X", "utf8", "-c", code, *words],
            env=environment,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert shared.announced()["listen"][0].encode() in toban("system", "info")
    # With the token that only its user can read.
    assert b'"role": "admin"' in toban("whoami", "-o", "json")


def test_one_daemon_per_state_directory(shared: Daemon) -> None:
    second = subprocess.run(
        [PYTHON, "-m", "toband", "--state-dir", str(shared.state_dir)],
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert second.returncode == 1
    assert b"another toband" in second.stderr
    assert shared.client.get_info().pid == shared.announced()["pid"]
