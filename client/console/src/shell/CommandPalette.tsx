import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useId, useState } from "react";
import { runsFoundQuery, workflowsFoundQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { Dialog } from "~/parts/Dialog";
import { StateBadge } from "~/parts/StateBadge";
import { shellMessages } from "./messages";
import { useDestinations } from "./Navigation";

interface Choice {
  key: string;
  group: string;
  text: string;
  detail?: string | undefined;
  state?: string | undefined;
  to: string;
}

/** Everything by keyboard: pages, workflows by name or title, runs by id, name or parameter. */
export function CommandPalette({ onClose }: { onClose: () => void }) {
  const t = useMessages(shellMessages);
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [selected, setSelected] = useState(0);
  const list = useId();
  const choices = useChoices(text.trim());
  const current = Math.min(selected, choices.length - 1);

  function choose(choice: Choice | undefined) {
    if (!choice) return;
    onClose();
    void navigate({ to: choice.to });
  }

  function onKey(event: KeyboardEvent) {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "ArrowDown") setSelected((current + 1) % Math.max(1, choices.length));
    else if (event.key === "ArrowUp") setSelected((current - 1 + choices.length) % Math.max(1, choices.length));
    else if (event.key === "Enter") choose(choices[current]);
    else return;
    event.preventDefault();
  }

  return (
    <Dialog title={t("command_label")} onClose={onClose}>
      <input
        className="input palette-input"
        role="combobox"
        aria-label={t("command_label")}
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={choices[current] ? `${list}-${current}` : undefined}
        autoComplete="off"
        placeholder={t("command")}
        value={text}
        onKeyDown={onKey}
        onChange={(event) => {
          setText(event.target.value);
          setSelected(0);
        }}
      />
      <div id={list} role="listbox" aria-label={t("command_label")} className="palette-list">
        {choices.map((choice, index) => (
          <div
            key={choice.key}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === current}
            className="palette-option"
            onPointerMove={() => setSelected(index)}
            onClick={() => choose(choice)}
          >
            <span>
              <span className="muted">{choice.group} › </span>
              {choice.text}
              {choice.detail ? <span className="muted"> {choice.detail}</span> : null}
            </span>
            {choice.state ? <StateBadge state={choice.state} /> : null}
          </div>
        ))}
      </div>
      {choices.length === 0 ? <p className="muted">{t("command_empty", { text })}</p> : null}
    </Dialog>
  );
}

function useChoices(text: string): Choice[] {
  const t = useMessages(shellMessages);
  const { operate, administer } = useDestinations();
  const mayEdit = useMay("editor");
  const search = { enabled: text !== "", placeholderData: keepPreviousData };
  const workflows = useQuery({ ...workflowsFoundQuery(text), ...search }).data ?? [];
  const runs = useQuery({ ...runsFoundQuery(text), ...search }).data ?? [];

  const pages: Choice[] = [...operate, ...administer].map((each) => ({
    key: each.to,
    group: t("go_to"),
    text: t(each.name),
    to: each.to,
  }));
  if (mayEdit) {
    pages.push({ key: "new", group: t("command_actions"), text: t("new_workflow"), to: "/workflows/new" });
  }
  const wanted = text.toLowerCase();
  const matching = pages.filter((each) => each.text.toLowerCase().includes(wanted) || each.key.includes(wanted));
  if (text === "") return matching;
  return [
    ...matching,
    ...workflows.map((each) => ({
      key: `workflow ${each.name}`,
      group: t("command_workflows"),
      text: each.title || each.name || "",
      detail: each.title && each.title !== each.name ? each.name : undefined,
      to: `/workflows/${encodeURIComponent(each.name ?? "")}`,
    })),
    ...runs.map((each) => ({
      key: `run ${each.id}`,
      group: t("command_runs"),
      text: `${each.workflow_title || each.workflow} #${each.number}`,
      detail: `…${each.id.slice(-12)}`,
      state: each.state ?? undefined,
      to: `/runs/${each.id}`,
    })),
  ];
}
