from __future__ import annotations

from collections.abc import Callable

import pytest

from toban.definition import Problem, Workflow, parse
from toban.definition.expressions.templates import MAX_EXPRESSION_BYTES, parse_template

Read = Callable[[str], Workflow]
Errors = Callable[[str | bytes], list[Problem]]
Error = Callable[[str | bytes], Problem]

HEAD = """\
name: a
description: d
params:
  day: {default: today}
  n: {type: integer, default: 1}
  rate: {type: number, default: 1}
  flag: {type: boolean, default: true}
  names: {type: list, default: []}
  opts: {type: mapping, default: {}}
  maybe: {type: integer}
  with-hyphen: {default: x}
  in: {default: reserved word}
env: {HOST: localhost}
steps:
  fetch: {run: x}
  apply-repo-a: {run: x, depends_on: [fetch]}
  side: {run: x}
"""
FIRST_COLUMN = len('  last: {job_type: exec, target: x, args: ["{{ ') + 1


def definition(expression: str) -> str:
    quoted = expression.replace("\\", "\\\\").replace('"', '\\"')
    args = f'args: ["{{{{ {quoted} }}}}"]'
    return f"{HEAD}  last: {{job_type: exec, target: x, {args}, depends_on: [apply-repo-a]}}\n"


@pytest.mark.parametrize(
    "expression",
    [
        "params.day",
        "params['day']",
        'params["with-hyphen"] + "x"',
        "params.in + params.day",
        "params.n + 1",
        "params.rate * 2.0",
        "params.flag ? 'a' : 'b'",
        "params.names.map(item, item)",
        "params.names.filter(check, check != '').size()",
        "params.names.map(run, run.x)",
        "params.opts.key.deeper",
        "has(params.opts.key)",
        "params.maybe == null ? 0 : params.maybe + 1",
        "run.id + run.workflow + run.trigger + string(run.number) + run.scope + run.retry_of",
        "run.dir + '/x'",
        "env.HOST + ':80'",
        "steps.fetch.stdout.contains('x')",
        'steps["apply-repo-a"].stdout',
        "steps['apply-repo-a'].exit_code + steps.fetch.exit_code",
        "steps.fetch.result.list[0].name",
        "steps.fetch.outputs.key",
        "steps.fetch.outputs['a-key'].size()",
        "steps.fetch.status == 'SUCCEEDED'",
        "{'a': {'b': 1}}",
        "'}}' + '{{'",
        "[1, 'two', null, 3.5]",
        "params.day // a comment",
        "r'\\d' + params.day",
        "'''it's''' + params.day",
        "params",
        "params[run.id]",
        "'day' in params && size(params) > 1",
        "event",
        "event['pay' + 'load']",
        "run",
        "run.base_dir + '/x'",
    ],
)
def test_what_a_template_may_say(expression: str, workflow: Read) -> None:
    workflow(definition(expression))


@pytest.mark.parametrize(
    ("expression", "offset", "message"),
    [
        ("params.dya", 0, 'unknown parameter "dya": did you mean "day"?'),
        ("1 + params.zzzz", 4, 'unknown parameter "zzzz" (known: day, n, rate'),
        ("params + 1", 7, "type error: + cannot be applied to (map(string, dyn), int)"),
        ("env", 0, "env is not a value: write env.<NAME>"),
        ("base_dir", 0, 'unknown name "base_dir": write run.base_dir'),
        ("steps.fetch", 0, "steps is not a value: write steps.<id>.<field>"),
        ("steps.fecth.stdout", 0, 'unknown step "fecth": did you mean "fetch"?'),
        ("steps.fetch.stdotu", 0, 'unknown field "stdotu" of step "fetch": did you mean "stdout"?'),
        ("steps.side.stdout", 0, 'step "side" does not come before "last": add it to depends_on'),
        ("steps.last.stdout", 0, 'step "last" refers to itself'),
        ("run.idd", 0, 'unknown field "idd" of run: did you mean "id"?'),
        ("run.schedule", 0, 'unknown field "schedule" of run: did you mean "scheduled_at"?'),
        ("env.HSOT", 0, '"HSOT" is not in the env of the workflow: did you mean "HOST"?'),
        ("secrets.key", 0, "a secret may be used in env, stdin and secret_files only"),
        ("event + ''", 6, "type error: + cannot be applied to (map(string, dyn), string)"),
        ("event.paylaod", 0, 'unknown field "paylaod" of event: did you mean "payload"?'),
        ("event.nothing", 0, 'unknown field "nothing" of event (known: id, type, payload,'),
        ("event.nothing", 0, ": for a field of its payload write event.payload.nothing"),
        ("event.depth + ''", 12, "type error: + cannot be applied to (int, string)"),
        ("event.type.x", 10, "type error: a value of type string has no fields"),
        ("run.scheduled_at + 1", 17, "type error: + cannot be applied to (string, int)"),
        ("run.missed + 1", 11, "type error: + cannot be applied to (list"),
        ("item", 0, "item has a value only in steps with for_each"),
        ("params.names.map(i, item)", 20, "item has a value only in steps with for_each"),
        ("iteration + 1", 0, "iteration has a value only in steps with a completion_check"),
        ("check.stdout", 0, "check has a value only in steps with a completion_check"),
        ("check", 0, "check is not a value: write check.<field>"),
        ("params.day + 1", 11, "type error: + cannot be applied to (string, int)"),
        ("params.n + 1.5", 9, "type error: + cannot be applied to (int, double)"),
        ("params['with-hyphen'] + 1", 22, "type error: + cannot be applied to (string, int)"),
        ("params.day.foo", 10, "type error: a value of type string has no fields"),
        ("size(params.n)", 4, "type error: size( ) cannot be applied to (int)"),
        ("params.n ? 1 : 2", 9, "type error: ? : cannot be applied to (int, int, int)"),
        ("params.flag && params.n", 12, "type error: && cannot be applied to (bool, int)"),
        ("has(params.day)", 4, "has() argument must be a field selection"),
        ("params.n == 'x' && params.flag", 9, "type error: == cannot be applied to (int, string)"),
        (
            "nothing.here",
            7,
            'unknown name "nothing.here": a template knows params, run, event, env',
        ),
        ("upper(params.day)", 5, 'unknown function "upper"'),
        ("params.n +", 11, "syntax error: unexpected the end of the expression"),
        ("params.n params.n", 9, "syntax error: unexpected"),
        ("1 + ((", 7, "syntax error"),
        (
            "timestamp('2026-01-01T00:00:00Z')",
            0,
            "gives a timestamp: turn it into text with string",
        ),
        ("b'x'", 0, "gives a bytes"),
        ("raw(params.day)", -3, "raw( ) inserts text into a script"),
        ("1 + raw(params.day)", 4, "raw( ) must be the whole template"),
        ("toban_s0", 0, 'the name "toban_s0" is reserved'),
        ("(" * 40 + "1" + ")" * 40, 0, "the expression is refused"),
        ("1" + " + 1" * 100, 0, "nested too deeply"),
        ("", -3, "the template is empty"),
    ],
)
def test_what_is_wrong_is_found_with_its_column(expression: str, offset: int, message: str, error: Error) -> None:
    found = error(definition(expression))
    assert message in found.message
    assert (found.line, found.path) == (18, "steps.last.args[0]")
    # The end of an expression is reported at the next visible character, the closing brace.
    assert found.column == FIRST_COLUMN + offset


def test_every_wrong_reference_of_an_expression_is_reported(errors: Errors) -> None:
    found = errors(definition("params.x1 + steps.x2.stdout + run.x3"))
    columns = [problem.column - FIRST_COLUMN for problem in found]
    assert columns == [0, 12, 30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ params.n", '"{{" without "}}"'),
        ("{{ 'open }}", "add the closing quote"),
        ("{{ " + "1 + " * MAX_EXPRESSION_BYTES + "1 }}", "longer than 8 KiB"),
    ],
)
def test_templates_that_do_not_end_well(text: str, message: str) -> None:
    (fault,) = parse_template(text).faults
    assert message in fault.message


def test_texts_around_templates_stay(workflow: Read) -> None:
    template = parse_template("a {{ params.x }}{{ params.y }} b {{ '}}' }}")
    shown = [part if isinstance(part, str) else part.source.strip() for part in template.parts]
    assert shown == ["a ", "params.x", "params.y", " b ", "'}}'"]
    assert template.whole is None
    assert parse_template("{{ params.x }}").whole is not None


def test_templates_in_the_env_of_the_workflow(errors: Errors) -> None:
    found = errors(
        "name: a\nparams: {p: {default: x}}\n"
        "env: {A: '{{ params.p }}{{ run.id }}{{ event.id }}', B: '{{ env.A }}', C: '{{ steps.s.stdout }}'}\n"
        "steps: {s: {run: x, env: {D: '{{ env.A }}', E: '{{ env.D }}'}}}"
    )
    assert [(problem.path, problem.message.split(":")[0]) for problem in found] == [
        ("env.B", "the workflow's own env may use params, run, event and secrets only, not env"),
        ("env.C", "the workflow's own env may use params, run, event and secrets only, not steps"),
        ("steps.s.env.E", '"D" is not in the env of the workflow (known'),
    ]


WRONG = "params.nope"


@pytest.mark.parametrize(
    "body",
    [
        "run: echo {{ params.nope }}",
        "run: 'it''s '' {{ params.nope }}'",
        'run: "tab \\t \\x41 \\u3042 \\/ \\_ {{ params.nope }}"',
        'run: "folded\n      over \\\n      lines {{ params.nope }}"',
        "run: plain\n      over {{ 1 }}\n      lines {{ params.nope }}",
        "run: |\n      one\n\n      あ two {{ params.nope }}\n      three",
        "run: |-2 # comment {{\n        one\n      two {{\n         params.nope }}",
        "run: >\n      folded\n      text {{ params.nope }}\n\n      more",
        "run: &anchor !!str 'x {{ params.nope }}'",
        "run: x\n    args: [a, {b: ['{{ 1 + 1 }} {{ params.nope }}']}]",
        '"run": "x \U0001f600 {{ \'\U0001f600\' + params.nope }}"',
    ],
)
def test_positions_inside_every_style_of_text(body: str, error: Error) -> None:
    text = f"name: a\ndescription: d\nsteps:\n  s:\n    {body}\n"
    before = text[: text.index(WRONG)]
    found = error(text)
    assert "unknown parameter" in found.message
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert (found.line, found.column) == (line, column)


def test_an_alias_is_reported_where_its_text_stands(error: Error) -> None:
    text = "name: a\nenv: {X: &x '{{ params.nope }}'}\nsteps: {s: {run: x, env: {Y: *x}}}"
    parsed = parse(text)
    assert {(problem.line, problem.column) for problem in parsed.errors} == {(2, 17)}
