"""Templates in running steps: values arrive as they are, and never become code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.daemon import Daemon, error_class, process_state, run_state, step_states, steps_of
from toban.v1 import run_pb2

OUT = run_pb2.LOG_STREAM_STDOUT


def printed(daemon: Daemon, run: run_pb2.Run, step: str) -> str:
    assert steps_of(run)[step].state == run_pb2.STEP_STATE_SUCCEEDED, (run.error_message, run.steps)
    return daemon.log_of(run.id, step).get(OUT, b"").decode()


def test_everything_in_scope_can_be_used(daemon: Daemon) -> None:
    daemon.apply("""
name: scope
description: x
params:
  day: {type: string, default: friday}
  n: {type: integer, default: 20}
env: {REGION: "{{ params.day }}-tokyo"}
steps:
  - name: make-it
    run: |
      echo "one two"; echo oops >&2
      echo "path=/tmp/a b" >> "$TOBAN_OUTPUT"
      exit 3
    success_codes: [3]
  - name: call
    job_type: python
    target: json:loads
    args: ['{"rows": 5, "tags": ["x"]}']
  - name: use
    job_type: exec
    target: printf
    args:
      - '%s\\n'
      - "{{ params.day }} {{ params.n + 1 }}"
      - "{{ run.id }} {{ run.workflow }} {{ run.number }} {{ run.trigger }}"
      - "{{ env.REGION }}"
      - '{{ steps["make-it"].stdout }}'
      - '{{ steps["make-it"].stderr }}'
      - '{{ steps["make-it"].exit_code }} {{ steps["make-it"].status }}'
      - '{{ steps["make-it"].outputs.path }}'
      - "{{ steps.call.result.rows }} {{ steps.call.result.tags[0] }}"
      - "{{ steps.call.result }}"
      - "{{ params.n > 10 ? 'many' : 'few' }}"
""")
    run = daemon.run("scope")
    assert printed(daemon, run, "use").split("\n")[:-1] == [
        "friday 21",
        f"{run.id} scope 1 api",
        "friday-tokyo",
        "one two",
        "oops",
        "3 SUCCEEDED",
        "/tmp/a b",
        "5 x",
        '{"rows":5,"tags":["x"]}',
        "many",
    ]


def test_the_base_directory_is_known_to_templates(daemon: Daemon, tmp_path: Path) -> None:
    text = """
name: %s
description: x
env: {BASE: "{{ run.base_dir }}"}
steps:
  - {name: tell, run: 'echo "$BASE" {{ run.base_dir }}/x', workspace: "{{ run.base_dir }}", when: run.base_dir != ''}
  - {name: each, run: 'echo {{ item }}', for_each: "[run.base_dir]"}
"""
    for name, base_dir in (("with-base", str(tmp_path)), ("without-base", "")):
        daemon.apply(text % name, base_dir)
        run = daemon.run(name)
        # Without the directory of a file it is where such a run works.
        base = base_dir or str(daemon.state_dir / "runs" / run.id / "work")
        assert printed(daemon, run, "tell") == f"{base} {base}/x\n"
        assert printed(daemon, run, "each[0]") == f"{base}\n"


HOSTILE = [
    "$(touch {marker})",
    "`touch {marker}`",
    "; touch {marker}",
    "'; touch {marker}; '",
    '"; touch {marker}; "',
    "\n touch {marker}\n",
    "&& touch {marker} #",
    "EOF\ntouch {marker}\ncat <<EOF",
    "a\\' ; touch {marker}",
    "${{IFS}}touch{marker}",
    "-n",
    "* ?",
    "日本\t\\n",
]


@pytest.fixture(scope="module")
def shells(daemon: Daemon) -> None:
    daemon.apply("""
name: shells
description: x
overlap: allow
params: {v: {type: string, required: true}}
steps:
  - name: word
    run: printf '%s|' {{ params.v }} before-{{ params.v }}-after
  - name: document
    run: |
      cat <<EOF
      {{ params.v }}
      EOF
  - name: argument
    run: printf '%s|' "$1" "$#"
    args: ["{{ params.v }}"]
  - name: environment
    run: printf '%s|' "$VALUE"
    env: {VALUE: "{{ params.v }}"}
  - name: assignment
    run: x={{ params.v }}; printf '%s|' "$x"
  - name: printed
    run: printf '%s' {{ params.v }}
  - name: twice
    run: printf '%s|' {{ steps.printed.stdout }}
  - name: exec
    job_type: exec
    target: printf
    args: ["%s|", "{{ params.v }}"]
""")


@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_value_is_ever_code(daemon: Daemon, tmp_path: Path, hostile: str) -> None:
    marker = tmp_path / "marker"
    value = hostile.replace("{marker}", str(marker)).replace("{{", "{").replace("}}", "}")
    run = daemon.run("shells", v=value)
    assert run_state(run) == "SUCCEEDED"
    assert printed(daemon, run, "word") == f"{value}|before-{value}-after|"
    assert printed(daemon, run, "document") == f"{value}\n"
    assert printed(daemon, run, "argument") == f"{value}|1|"
    assert printed(daemon, run, "environment") == f"{value}|"
    assert printed(daemon, run, "assignment") == f"{value}|"
    assert printed(daemon, run, "twice") == f"{value.removesuffix(chr(10))}|"
    assert printed(daemon, run, "exec") == f"{value}|"
    assert not marker.exists()


def test_output_that_is_too_large_fails_the_step_that_uses_it(daemon: Daemon) -> None:
    daemon.apply("""
name: too-large
description: x
steps:
  - {name: fits, run: head -c 65536 /dev/zero | tr '\\0' x}
  - {name: large, run: head -c 65537 /dev/zero | tr '\\0' x}
  - {name: uses-fitting, run: 'printf %s {{ steps.fits.stdout }} | wc -c'}
  - {name: uses, run: "echo {{ steps.large.stdout }}", on_failure: continue}
  - {name: status, run: "echo {{ steps.large.status }} {{ steps.uses.exit_code }}"}
""")
    run = daemon.run("too-large")
    assert printed(daemon, run, "uses-fitting").strip() == "65536"
    uses = steps_of(run)["uses"]
    assert step_states(run)["uses"] == "FAILED"
    assert error_class(uses) == "NON_RETRYABLE"
    assert "steps.large.stdout" in uses.reason
    assert "64 KiB" in uses.reason
    assert not uses.HasField("exit_code")
    process = daemon.process_of(run.id, "uses")
    assert (process_state(process), process.pid) == ("FAILED", 0)
    assert process.error_message == uses.reason
    assert error_class(process) == "NON_RETRYABLE"
    assert printed(daemon, run, "status") == "SUCCEEDED -1\n"
    assert daemon.chunks(run.id, step="uses")[-1].end.complete


def test_a_template_that_fails_fails_its_step(daemon: Daemon) -> None:
    daemon.apply("""
name: failing
description: x
params: {n: {type: integer, default: 0}}
steps:
  - {name: divides, run: "echo {{ 1 / params.n }}", on_failure: continue}
  - {name: result, job_type: python, target: "json:loads", args: ['{"a": 1}']}
  - {name: missing, run: "echo {{ steps.result.result.b }}", on_failure: continue}
  - {name: no-output, run: "echo {{ steps.result.outputs.b }}"}
  - {name: never, run: "true"}
""")
    run = daemon.run("failing")
    assert step_states(run) == {
        "divides": "FAILED",
        "result": "SUCCEEDED",
        "missing": "FAILED",
        "no-output": "FAILED",
        "never": "SKIPPED(aborted)",
    }
    for step in ("divides", "missing", "no-output"):
        assert error_class(steps_of(run)[step]) == "NON_RETRYABLE"
        assert steps_of(run)[step].reason.startswith("cannot render")
    assert '"b"' in steps_of(run)["missing"].reason
    assert run.error_message.startswith("step no-output failed: cannot render")


def test_an_argument_that_no_process_can_take_fails_its_step(daemon: Daemon) -> None:
    daemon.apply("""
name: oversized
description: x
params: {v: {type: string, required: true}}
steps: [{name: only, run: "echo {{ params.v }}"}]
""")
    run = daemon.run("oversized", v="x" * 200_000)
    assert run_state(run) == "FAILED"
    assert error_class(run.steps[0]) == "NON_RETRYABLE"
    assert "at most" in run.steps[0].reason
    assert "xxxxxxxxxx" not in run.steps[0].reason


def test_what_a_skipped_or_failed_step_leaves(daemon: Daemon) -> None:
    daemon.apply("""
name: leavings
description: x
steps:
  - {name: bad, run: "echo half; echo k=v >> $TOBAN_OUTPUT; exit 9", on_failure: continue}
  - name: look
    run: echo {{ steps.bad.stdout }} {{ steps.bad.exit_code }} {{ steps.bad.status }} {{ steps.bad.outputs.k }}
  - name: raw
    job_type: python
    target: "json:dumps"
    kwargs: {obj: "{{ steps.bad.outputs }}"}
""")
    run = daemon.run("leavings")
    assert printed(daemon, run, "look") == "half 9 FAILED v\n"
    assert json.loads(json.loads(steps_of(run)["raw"].result_json)) == {"k": "v"}
