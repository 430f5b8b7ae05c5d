"""Moves artifacts between steps: places inputs before a step starts, collects outputs when it has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from toban.definition import Input, Output, is_directory
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.plan import Plan
from toband.domain.run_model import Artifact, Run, StepRun
from toband.engine.execution.launch_spec import LaunchBuilder
from toband.masker import Masker
from toband.ports import Artifacts, Collect, Placement


class ArtifactFlow:
    def __init__(self, launch_builder: LaunchBuilder, artifacts: Artifacts) -> None:
        self._launch_builder = launch_builder
        self._artifacts = artifacts

    async def lay_out(self, plan: Plan, run: Run, attempt: Attempt, *, base_dir: str, workspace: str) -> None:
        """Puts the inputs of a step into its workspace. Raises ArtifactError, OSError.

        Changes that the step made to them stay in later iterations. A retried attempt gets them anew in the run's own
        directory; elsewhere the files may be another user's work by then.
        """
        own = _within(workspace, self._launch_builder.files.work(run.id))
        if attempt.iteration > 1 or (attempt.number > 1 and not own):
            return
        inputs = plan.step(attempt.owner).inputs
        context = self._launch_builder.context(plan, run.id, base_dir)
        wanted = [p for given in inputs for p in _placements(plan, run, given, context)]
        user = self._launch_builder.rules.user_of(plan.step(attempt.owner))
        await self._artifacts.place(workspace, wanted, own=own, run_id=run.id, user=user)

    async def keep(
        self, plan: Plan, run: Run, attempt: Attempt, *, base_dir: str, final: bool, masker: Masker | None = None
    ) -> tuple[tuple[Artifact, ...], str]:
        """A step's outputs, and the fingerprint of the watched files. Raises ArtifactError, RenderError, OSError.

        The masker is for the names of files.
        """
        step = plan.step(attempt.owner)
        rendered = await self._launch_builder.rendered(plan, run, attempt, base_dir=base_dir)
        workspace = self._launch_builder.workspace(run, rendered, base_dir)
        user = self._launch_builder.rules.user_of(step)
        kept: tuple[Artifact, ...] = ()
        if rendered.outputs:
            looping = step.completion_check is not None
            kept = await self._artifacts.collect(
                Collect(
                    run_id=run.id,
                    context=self._launch_builder.context(plan, run.id, base_dir),
                    folder=folder(run.steps[attempt.owner]),
                    workspace=workspace,
                    outputs=rendered.outputs,
                    iteration=attempt.iteration if looping else None,
                    final=final,
                    user=user,
                    masker=masker,
                )
            )
        if attempt.state is not AttemptState.COMPLETED:
            return tuple(replace(each, state=attempt.state) for each in kept), ""
        fingerprint = ""
        if step.stop_when_unchanged == "output":
            fingerprint = await self._artifacts.fingerprint_output(attempt)
        elif step.stop_when_unchanged:
            watched = step.stop_when_unchanged
            fingerprint = await self._artifacts.fingerprint(workspace, watched, run_id=run.id, user=user)
        return kept, fingerprint

    async def take_over(self, plan: Plan, run: Run, *, base_dir: str) -> None:
        """Gives a new run the artifacts of the steps whose results it keeps. Raises ArtifactError, OSError."""
        context = self._launch_builder.context(plan, run.id, base_dir)
        wanted = {
            folder(step): self._launch_builder.context(plan, step.source, base_dir)
            for step in run.steps.values()
            if step.source and step.artifacts
        }
        wanted = {name: source for name, source in wanted.items() if source != context}
        if wanted:
            await self._artifacts.adopt(context, wanted, run_id=run.id)


def folder(step: StepRun) -> str:
    """The directory of a step, or of an instance, inside the context directory."""
    return f"{step.parent}/{step.instance}" if step.parent else step.id


def _placements(plan: Plan, run: Run, given: Input, context: str) -> Iterator[Placement]:
    step = run.steps[given.step]
    output = next(o for o in plan.steps[given.step].outputs if o.name == given.artifact)
    if plan.steps[given.step].for_each is None:
        yield _placement(step, output, given.path, context)
        return
    if not step.instances:
        yield Placement(path=given.path, source=None, directory=True)
    for number in range(step.instances):
        member = run.steps[f"{step.id}[{number}]"]
        yield _placement(member, output, f"{given.path}/{number}", context)


def _placement(step: StepRun, output: Output, path: str, context: str) -> Placement:
    found = next((a for a in step.artifacts if a.name == output.name), None)
    return Placement(
        path=path,
        source=None if found is None else os.path.join(context, *found.path.split("/")),
        directory=is_directory(output.path),
    )


def _within(path: str, directory: str) -> bool:
    """Whether the resolved path is inside: a link may lead out, and so may dots."""
    path, directory = os.path.realpath(path), os.path.realpath(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
