"""The editor, and the page of a workflow: what is done there is seen in the daemon."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

from helpers.browser import Site
from helpers.wait import wait_until
from toban.v1 import run_pb2, workflow_pb2

# Runs as text wherever text is taken for markup.
SCRIPT = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
BACKUP = """# ask the data team before changing
name: backup
description: 'Copies the files'   # of all shops
schedule: "0 3 * * *"
steps:
  # the slow one
  - name: copy
    run: echo copied   # no output
    timeout: 5m

  - {name: verify, run: echo verified}
"""


def define(site: Site, source: str) -> None:
    request = workflow_pb2.CreateWorkflowRequest(definition=workflow_pb2.Definition(source=source))
    site.daemon.workflows.CreateWorkflow(request, timeout=60)


def redefine(site: Site, name: str, source: str) -> None:
    workflow = workflow_pb2.Workflow(name=name, definition=workflow_pb2.Definition(source=source))
    site.daemon.workflows.UpdateWorkflow(workflow_pb2.UpdateWorkflowRequest(workflow=workflow), timeout=60)


def stored(site: Site, name: str) -> workflow_pb2.Workflow:
    return site.daemon.workflows.GetWorkflow(workflow_pb2.GetWorkflowRequest(name=name), timeout=60).workflow


def yaml(page: Page) -> Locator:
    return page.get_by_role("textbox", name="YAML")


def yaml_text(page: Page) -> str:
    """The text of the editor; without its last line break."""
    lines = page.locator(".cm-line").all_inner_texts()
    return "\n".join("" if line == "\n" else line for line in lines).rstrip("\n") + "\n"


def write_yaml(page: Page, text: str) -> None:
    yaml(page).click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(text)


def step(page: Page, number: int) -> Locator:
    return page.get_by_role("region", name=f"Step {number}", exact=True)


def test_a_workflow_is_built_in_the_form_and_run(console: Callable[..., Any], site: Site) -> None:
    page = console("/workflows", role="editor").page
    page.get_by_role("link", name="New workflow").click()
    page.get_by_label("Workflow name").fill("daily-sales")
    page.get_by_label("Description").fill("Sums up the sales of a day")
    page.get_by_label("Schedule", exact=True).fill("0 3 * * *")
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    expect(page.get_by_text("every day at 03:00 Asia/Tokyo")).to_be_visible()
    expect(page.get_by_text("Next times:")).to_be_visible()
    step(page, 1).get_by_label("Step name").fill("fetch")
    step(page, 1).get_by_label("Command").fill("echo fetched")
    page.get_by_role("button", name="Add a step").click()
    second = step(page, 2)
    second.get_by_label("Step name").fill("report")
    second.get_by_label("Command").fill("echo reported")
    second.get_by_label("Timeout").fill("5m")
    second.get_by_label("On failure").select_option("continue")
    page.get_by_role("button", name="Move report up").click()
    expect(step(page, 1).get_by_label("Step name")).to_have_value("report")
    page.get_by_role("button", name="Move report down").click()
    expect(page.get_by_text("No problems")).to_be_visible()
    wanted = (
        'name: daily-sales\ndescription: "Sums up the sales of a day"\ntimezone: Asia/Tokyo\nschedule: 0 3 * * *\n'
        "steps:\n  - name: fetch\n    run: echo fetched\n"
        '  - name: report\n    run: "echo reported"\n    timeout: 5m\n    on_failure: continue\n'
    )
    assert yaml_text(page) == wanted
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1, name="daily-sales", exact=True)).to_be_visible()
    assert stored(site, "daily-sales").definition.source == wanted

    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Run").click()
    page.wait_for_url(re.compile("/runs/"))
    run = site.daemon.wait_run(page.url.rsplit("/", 1)[-1])
    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    assert [each.id for each in run.steps] == ["fetch", "report"]


def test_comments_and_order_survive_the_form(console: Callable[..., Any], site: Site) -> None:
    define(site, BACKUP)
    page = console("/workflows/backup/edit", role="editor").page
    step(page, 1).get_by_label("Timeout").fill("10m")
    step(page, 1).get_by_label("Timeout").press("Tab")
    step(page, 1).get_by_label("Command").fill("echo one\necho two")
    page.get_by_label("Description").fill("Copies the shop's files")
    page.get_by_role("button", name="Move verify up").click()
    expect(step(page, 1).get_by_label("Step name")).to_have_value("verify")
    page.keyboard.press("ControlOrMeta+s")
    expect(page.get_by_role("heading", level=1, name="backup", exact=True)).to_be_visible()
    assert stored(site, "backup").definition.source == (
        "# ask the data team before changing\nname: backup\n"
        "description: 'Copies the shop''s files'   # of all shops\n"
        'schedule: "0 3 * * *"\nsteps:\n  - {name: verify, run: echo verified}\n\n'
        "  # the slow one\n  - name: copy\n    run: |- # no output\n      echo one\n      echo two\n    timeout: 10m\n"
    )


def test_a_mistake_in_the_yaml_is_shown_on_its_line(console: Callable[..., Any], site: Site) -> None:
    opened = console("/workflows/new", role="editor", expected={422})
    page = opened.page
    write_yaml(page, "name: wrong\ndescription: x\nsteps:\n  - name: a\n    run: echo\n    timeout: soon\n")
    expect(page.get_by_text("1 problem")).to_be_visible()
    expect(step(page, 1).get_by_text(re.compile("expected a duration"))).to_be_visible()
    marked = page.locator(".cm-lintRange-error")
    expect(marked).to_have_text("soon")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").get_by_text("6:14")).to_be_visible()
    # A kind that does not exist has fields too.
    write_yaml(page, "name: wrong\ndescription: x\nsteps:\n  - name: a\n    job_type: pythn\n    target: x\n")
    expect(step(page, 1).get_by_text(re.compile('did you mean "python"'))).to_be_visible()
    opened.check()
    # Text that is no YAML stops the form, not the editor.
    write_yaml(page, "name: [\n")
    expect(page.get_by_text(re.compile("The YAML cannot be read, line"))).to_be_visible()
    write_yaml(page, "name: right\ndescription: x\nsteps:\n  - name: a\n    run: echo\n")
    expect(page.get_by_text("No problems")).to_be_visible()
    expect(page.get_by_label("Workflow name")).to_have_value("right")


def test_fields_are_completed_from_the_schema(console: Callable[..., Any]) -> None:
    page = console("/workflows/new", role="editor").page
    write_yaml(page, "name: x\nsteps:\n  - name: a\n    run: echo\n    on_fai")
    page.keyboard.press("Control+Space")
    expect(page.get_by_role("option", name=re.compile("^on_failure$"))).to_be_visible()
    write_yaml(page, "name: x\nsteps:\n  - name: a\n    run: echo\n    on_failure: ")
    page.keyboard.press("Control+Space")
    expect(page.get_by_role("option", name="retry")).to_be_visible()


def test_changes_are_not_lost_without_asking(console: Callable[..., Any], site: Site) -> None:
    define(site, "name: guarded\ndescription: x\nsteps:\n  - {name: a, run: echo}\n")
    page = console("/workflows/guarded/edit", role="editor", expected={412}).page
    page.get_by_label("Description").fill("mine")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_label("Description")).to_have_value("mine")
    # Somebody else saves meanwhile.
    changed = stored(site, "guarded").definition.source.replace("description: x", "description: theirs")
    redefine(site, "guarded", changed)
    page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Somebody saved version 2")).to_be_visible()
    expect(dialog.get_by_role("textbox", name="Stored, version 2")).to_contain_text("theirs")
    dialog.get_by_role("button", name="Overwrite with mine").click()
    expect(page.get_by_role("heading", level=1, name="guarded", exact=True)).to_be_visible()
    assert "description: mine" in stored(site, "guarded").definition.source


def test_a_version_is_compared_and_restored(console: Callable[..., Any], site: Site) -> None:
    source = "name: dated\ndescription: x\nsteps:\n  - {name: a, run: echo one}\n"
    define(site, source)
    redefine(site, "dated", source.replace("one", "two"))
    page = console("/workflows/dated?tab=versions", role="editor").page
    expect(page.get_by_role("textbox", name="Version 1")).to_contain_text("echo one")
    expect(page.get_by_role("textbox", name="Version 2")).to_contain_text("echo two")
    page.get_by_role("button", name="Restore version 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    expect(page.get_by_text("Version 1 of dated was restored.")).to_be_visible()
    assert (stored(site, "dated").version, stored(site, "dated").definition.source) == (3, source)


def test_a_run_gets_its_parameters(console: Callable[..., Any], site: Site) -> None:
    define(
        site,
        "name: asked\ndescription: x\nparams:\n  rows: {type: integer, required: true}\n"
        "  mode: {choices: [fast, safe], default: safe}\n  deep: {type: boolean, default: false}\n"
        "  extra: {type: mapping, default: {a: 1}}\nsteps:\n  - {name: a, run: 'echo {{ params.rows }}'}\n",
    )
    page = console("/workflows/asked", role="operator", expected={422}).page
    page.get_by_role("button", name="Run", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("rows").fill("many")
    dialog.get_by_role("button", name="Run").click()
    expect(dialog.get_by_role("alert")).to_contain_text("rows")
    dialog.get_by_label("rows").fill("20")
    dialog.get_by_label("mode").select_option("fast")
    dialog.get_by_label("deep").select_option("true")
    dialog.get_by_label("extra").fill('{"b": [2]}')
    dialog.get_by_role("button", name="Run").click()
    page.wait_for_url(re.compile("/runs/"))
    run = site.daemon.wait_run(page.url.rsplit("/", 1)[-1])
    assert dict(run.params) == {"rows": 20, "mode": "fast", "deep": True, "extra": {"b": [2]}}


def test_a_workflow_is_paused_resumed_and_deleted(console: Callable[..., Any], site: Site) -> None:
    define(site, 'name: passing\ndescription: x\nschedule: "0 3 * * *"\nsteps:\n  - {name: a, run: echo}\n')
    page = console("/workflows/passing", role="editor").page
    page.get_by_role("button", name="Pause schedule").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause schedule").click()
    expect(page.get_by_text("start nothing until you resume it")).to_be_visible()
    assert not stored(site, "passing").enabled
    page.get_by_role("button", name="Resume schedule").click()
    expect(page.get_by_role("button", name="Pause schedule")).to_be_visible()
    assert stored(site, "passing").enabled
    page.get_by_role("button", name="Delete").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Delete")
    expect(confirm).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("passing")
    confirm.click()
    expect(page.get_by_role("heading", level=1, name="Workflows", exact=True)).to_be_visible()
    names = site.daemon.workflows.ListWorkflows(workflow_pb2.ListWorkflowsRequest(), timeout=60).workflows
    assert "passing" not in {each.name for each in names}


def test_a_viewer_sees_no_buttons(console: Callable[..., Any], site: Site) -> None:
    opened = console("/workflows/nightly-batch", role="viewer")
    for name in ("Run", "Delete", "Pause schedule"):
        expect(opened.page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(opened.page.get_by_role("link", name="Edit")).to_have_count(0)
    opened.open("/workflows/nightly-batch/edit")
    expect(opened.page.get_by_role("button", name="Save")).to_have_count(0)
    expect(opened.page.get_by_label("Workflow name")).not_to_be_editable()


def test_script_in_a_definition_stays_text(console: Callable[..., Any], site: Site) -> None:
    text = SCRIPT.replace("'", "''")
    define(
        site,
        f"id: scripted\nname: '{text}'\ndescription: '{text}'\nlabels: {{'k': 'v'}}\n"
        f"steps:\n  - {{id: a, name: '{text}', run: 'echo ok'}}\n",
    )
    site.daemon.run("scripted")
    opened = console("/workflows/scripted", role="editor")
    expect(opened.page.get_by_role("heading", level=1, name=SCRIPT)).to_be_visible()
    expect(opened.page.locator(".graph-node")).to_be_visible()
    opened.open("/workflows/scripted/edit")
    expect(opened.page.get_by_label("Description")).to_have_value(SCRIPT)
    expect(opened.page.locator(".graph-node")).to_be_visible()
    assert opened.page.title() != "taken"
    assert opened.page.locator("img[src=x]").count() == 0
    wait_until(lambda: opened.page.get_by_text("Checking…").count() == 0, "the definition is being checked")
