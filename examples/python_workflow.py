"""A workflow written in Python: functions as steps, whose results are arguments of later steps.

`toban apply examples/python_workflow.py` stores it, `python examples/python_workflow.py` prints it as YAML. The daemon
gets that definition; it never calls the function of the workflow.
"""

from __future__ import annotations

from typing import Annotated, Literal

from toban.workflow import add_step, finally_steps, item, step, workflow


@step(timeout="20s")
def count(words: str) -> dict[str, int]:
    return {word: len(word) for word in words.split()}


@step(max_retries=2)
def shout(word: str, *, mark: str = "!") -> str:
    print(word.upper() + mark)
    return word.upper()


@workflow(name="python-workflow", title="Defined in Python", labels={"kind": "example"}, timeout="1m")
def python_workflow(
    words: Annotated[str, "Words to count and shout"] = "one two three",
    mood: Literal["calm", "loud"] = "loud",
) -> None:
    """Counts the letters of words, shouts each of them, and reports."""
    letters = count(words)
    shouted = shout.with_options(id="shout-all", for_each=["a", "b"], when="params.mood == 'loud'")(item)
    add_step("report", run=f"echo {words}: {letters}; echo shouted {shouted}")
    with finally_steps():
        add_step("tidy", run=f"echo done, in a {mood} mood")


if __name__ == "__main__":
    print(python_workflow.to_yaml())
