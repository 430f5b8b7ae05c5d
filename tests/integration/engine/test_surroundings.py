"""The surroundings of a step: its environment, its directory, and its output files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from helpers.daemon import Daemon, error_class, run_state, steps_of
from helpers.processes import command_of
from helpers.refusal import refused
from toban.v1 import run_pb2

OUT = run_pb2.LOG_STREAM_STDOUT


def environment_of(daemon: Daemon, run: run_pb2.Run, step: str = "only") -> dict[str, str]:
    printed = daemon.log_of(run.id, step)[OUT].decode()
    return dict(line.split("=", 1) for line in printed.split("\0") if line)


def test_the_environment_is_the_documented_one_and_nothing_else(daemon: Daemon) -> None:
    daemon.apply("""
name: environment
description: x
params: {day: {type: string, default: friday}}
env: {SHARED: workflow, OVERRIDDEN: workflow}
steps:
  - {name: only, job_type: exec, target: env, args: ["-0"], env: {OWN: step, OVERRIDDEN: step}}
""")
    run = daemon.run("environment")
    found = environment_of(daemon, run)
    own = {name: value for name, value in found.items() if name.startswith("TOBAN_")}
    attempts = f"{daemon.state_dir}/runs/{run.id}/attempts/"
    assert own.pop("TOBAN_OUTPUT").startswith(attempts)
    assert len(own.pop("TOBAN_ATTEMPT_TOKEN")) >= 32
    params = Path(own.pop("TOBAN_PARAMS"))
    assert json.loads(params.read_text()) == {"day": "friday"}
    context = own.pop("TOBAN_CONTEXT_DIR")
    assert os.path.isdir(context)
    command_line = json.loads(own.pop("TOBAN_CLI"))
    assert subprocess.run([*command_line, "--version"], check=False, timeout=60).returncode == 0
    assert own == {
        "TOBAN_RUN_ID": run.id,
        "TOBAN_WORKFLOW": "environment",
        "TOBAN_STEP": "only",
        "TOBAN_ATTEMPT": "1",
        "TOBAN_SERVER": daemon.socket,
    }
    rest = {name: value for name, value in found.items() if not name.startswith("TOBAN_")}
    assert rest.pop("HOME")
    assert rest.pop("USER") == rest.pop("LOGNAME")
    assert rest == {
        "SHARED": "workflow",
        "OVERRIDDEN": "step",
        "OWN": "step",
        "PATH": f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{daemon.state_dir}/bin",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }


def test_a_step_may_set_its_own_path_and_language(daemon: Daemon) -> None:
    daemon.apply("""
name: own-path
description: x
env: {PATH: /nowhere}
steps:
  - {name: only, job_type: exec, target: env, args: ["-0"], env: {PATH: /usr/bin:/bin, LANG: ja_JP.UTF-8}}
""")
    found = environment_of(daemon, daemon.run("own-path"))
    assert (found["PATH"], found["LANG"]) == ("/usr/bin:/bin", "ja_JP.UTF-8")


def test_files_fill_the_environment(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# of all steps\nexport A=all\nB='all of it # $HOME'\nPATH=/usr/bin:/bin\nSHARED=file\n"
    )
    daemon.apply(
        """
name: env-files
description: x
env: {SHARED: workflow}
env_file: .env
defaults:
  env_file: {path: local.env, optional: true}
  outputs: [{name: none, path: none, optional: true}]
steps:
  - {name: first, job_type: exec, target: env, args: ["-0"], env: {OWN: step}}
  - {name: change, run: 'printf "%s\\n" A=changed OWN=file > "$HERE/local.env"', env: {HERE: "{{ run.base_dir }}"}}
  - {name: second, job_type: exec, target: env, args: ["-0"], env: {OWN: step}}
  - {name: python, job_type: python, target: "os:getenv", args: [B]}
""",
        str(tmp_path),
    )
    run = daemon.run("env-files")
    wanted = ("A", "B", "PATH", "SHARED", "OWN")
    expected = {"A": "all", "B": "all of it # $HOME", "PATH": "/usr/bin:/bin", "SHARED": "workflow", "OWN": "step"}
    first, second = (environment_of(daemon, run, step) for step in ("first", "second"))
    assert {name: first[name] for name in wanted} == expected
    assert {name: second[name] for name in wanted} == {**expected, "A": "changed"}
    assert json.loads(steps_of(run)["python"].result_json) == "all of it # $HOME"
    # No value of a file is in what the daemon knows of the run.
    shown = f"{run} {daemon.processes(run.id)}"
    assert "all of it" not in shown.replace(steps_of(run)["python"].result_json.strip('"'), "")


def test_a_file_of_the_environment_that_is_missing_or_wrong(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(
        """
name: env-missing
description: x
steps:
  - {name: only, run: echo started, env_file: conf/prod.env, max_retries: 2, retry: {delay: 10ms}}
""",
        str(tmp_path),
    )
    path = tmp_path / "conf" / "prod.env"
    for text, message in (
        (None, f"there is no env_file {path}; create it, or mark it as optional"),
        ("A=1\nPASSWORD secret\n", f"the env_file {path}, line 2: expected NAME=VALUE"),
        ("TOBAN_SERVER=unix:///x\n", f"the env_file {path}, line 1: names that begin with TOBAN_ cannot be set"),
    ):
        if text is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        run = daemon.run("env-missing")
        [step] = run.steps
        assert step.reason == f"cannot start /bin/sh: {message}"
        assert (error_class(step), step.attempts) == ("NON_RETRYABLE", 1)
        assert daemon.log_of(run.id) == {}
    path.write_text("A=1")
    assert run_state(daemon.run("env-missing")) == "SUCCEEDED"


def test_a_step_cannot_claim_to_be_another(daemon: Daemon) -> None:
    definition = "name: claims\ndescription: x\nsteps: [{{name: only, run: env, env: {{{}: x}}}}]\n"
    for name in ("TOBAN_RUN_ID", "TOBAN_ATTEMPT_TOKEN", "TOBAN_V1"):
        refusal = refused(lambda name=name: daemon.apply(definition.format(name)))  # type: ignore[misc]
        assert [each.path for each in refusal.problems] == [f"steps.only.env.{name}"]


def test_the_workspace_is_the_runs_own_directory_where_there_is_no_other(daemon: Daemon) -> None:
    daemon.apply("""
name: own-directory
description: x
steps:
  - {name: writes, run: "pwd; echo kept > note"}
  - {name: reads, run: "pwd; cat note"}
""")
    first, second = daemon.run("own-directory"), daemon.run("own-directory")
    for run in (first, second):
        own = f"{daemon.state_dir}/runs/{run.id}/work"
        assert daemon.log_of(run.id, "writes") == {OUT: f"{own}\n".encode()}
        assert daemon.log_of(run.id, "reads") == {OUT: f"{own}\nkept\n".encode()}


def test_the_workspace_is_resolved_against_the_base_directory(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    daemon.apply(
        f"""
name: based
description: x
params: {{where: {{type: string, default: below}}}}
steps:
  - {{name: base, run: pwd}}
  - {{name: relative, run: pwd, workspace: below}}
  - {{name: upwards, run: pwd, workspace: below/../elsewhere}}
  - {{name: absolute, run: pwd, workspace: {elsewhere}}}
  - {{name: template, run: pwd, workspace: "./{{{{ params.where }}}}"}}
""",
        str(tmp_path),
    )
    run = daemon.run("based")
    assert run_state(run) == "SUCCEEDED"
    expected = {
        "base": tmp_path,
        "relative": tmp_path / "below",
        "upwards": elsewhere,
        "absolute": elsewhere,
        "template": tmp_path / "below",
    }
    for step, directory in expected.items():
        assert daemon.log_of(run.id, step) == {OUT: f"{directory}\n".encode()}


def test_a_missing_workspace_is_a_step_that_cannot_start(daemon: Daemon, tmp_path: Path) -> None:
    daemon.apply(
        "name: homeless\ndescription: x\nsteps: [{name: only, run: pwd, workspace: absent}]\n",
        str(tmp_path),
    )
    run = daemon.run("homeless")
    assert run_state(run) == "FAILED"
    assert error_class(run.steps[0]) == "NON_RETRYABLE"
    assert f"{tmp_path}/absent" in run.steps[0].reason
    assert not (tmp_path / "absent").exists()


def test_standard_input_is_empty(daemon: Daemon) -> None:
    daemon.apply("name: stdin\ndescription: x\nsteps: [{name: only, run: cat; echo done}]\n")
    assert daemon.log_of(daemon.run("stdin").id) == {OUT: b"done\n"}


def test_outputs_are_what_was_written_for_them(daemon: Daemon) -> None:
    daemon.apply("""
name: outputs
description: x
steps:
  - name: only
    run: |
      echo "plain=value" >> "$TOBAN_OUTPUT"
      echo "equals=a=b=c" >> "$TOBAN_OUTPUT"
      echo "empty=" >> "$TOBAN_OUTPUT"
      echo "twice=first" >> "$TOBAN_OUTPUT"
      echo "twice=second" >> "$TOBAN_OUTPUT"
      echo "arrow=x<<y" >> "$TOBAN_OUTPUT"
      echo "日本=語" >> "$TOBAN_OUTPUT"
      echo "neither" >> "$TOBAN_OUTPUT"
      {
        echo "block<<END"
        echo "one"
        echo "two=2"
        echo ""
        echo "four"
        echo "END"
        echo "open<<NEVER"
        echo "to the end"
      } >> "$TOBAN_OUTPUT"
  - name: none
    run: "true"
  - name: removed
    run: echo a=b > "$TOBAN_OUTPUT"; rm "$TOBAN_OUTPUT"
  - name: reads
    run: printf '%s|' {{ steps.only.outputs.block }} {{ steps.only.outputs["日本"] }}
""")
    run = daemon.run("outputs")
    assert run_state(run) == "SUCCEEDED", run.error_message
    assert dict(steps_of(run)["only"].outputs) == {
        "plain": "value",
        "equals": "a=b=c",
        "empty": "",
        "twice": "second",
        "arrow": "x<<y",
        "日本": "語",
        "block": "one\ntwo=2\n\nfour",
        "open": "to the end",
    }
    assert dict(steps_of(run)["none"].outputs) == {}
    assert dict(steps_of(run)["removed"].outputs) == {}
    assert daemon.log_of(run.id, "reads") == {OUT: "one\ntwo=2\n\nfour|語|".encode()}


def test_the_context_directory_is_shared_by_the_steps_of_a_run(daemon: Daemon) -> None:
    daemon.apply("""
name: context
description: x
steps:
  - {name: writes, run: 'echo shared > "$TOBAN_CONTEXT_DIR/file"'}
  - {name: reads, run: 'cat "$TOBAN_CONTEXT_DIR/file"'}
""")
    run = daemon.run("context")
    assert daemon.log_of(run.id, "reads") == {OUT: b"shared\n"}


def test_the_supervisor_of_a_step_has_its_name_in_the_process_list(daemon: Daemon) -> None:
    daemon.apply("""
name: titled
description: x
steps: [{name: build, run: "cat /proc/$PPID/cmdline"}]
""")
    run = daemon.run("titled")
    assert daemon.log_of(run.id, "build")[OUT].decode().rstrip("\0") == f"toban: titled#{run.number} build"
    (spawner,) = [pid for pid in daemon.children() if "spawner" in command_of(pid)]
    assert command_of(spawner).strip() == "toban: spawner"
