import { memo, useCallback, useEffect, useMemo, useRef } from "react";
import { useMessages } from "~/i18n/messages";
import type { GraphNode } from "~/parts/graph/layout";
import { StepGraph } from "~/parts/graph/StepGraph";
import { dependenciesOf, type Form, stepKey } from "./document/form";
import { editorMessages } from "./messages";

/** Drawn again only if something in it has changed, which most changes of a text do not. */
const Graph = memo(StepGraph);

interface Props {
  form: Form;
  selected: number | undefined;
  onSelect: (at: number) => void;
}

export function DefinitionGraph({ form, selected, onSelect }: Props) {
  const t = useMessages(editorMessages);
  const drawn = useMemo(() => {
    const dependencies = dependenciesOf(form);
    const seen = new Set<string>();
    return form.steps.flatMap((step, at) => {
      const id = stepKey(step, at);
      if (seen.has(id)) return [];
      seen.add(id);
      const note = step.kind === "shell" ? step.target.split("\n")[0] : step.target || t(`kind_${step.kind}`);
      return [{ id, title: step.title || id, note, dependsOn: dependencies[at] ?? [] }];
    });
  }, [form, t]);
  const shape = JSON.stringify(drawn);
  const nodes = useMemo(() => JSON.parse(shape) as GraphNode[], [shape]);
  const keys = form.steps.map(stepKey);
  const chosen = selected === undefined ? undefined : keys[selected];
  const latest = useRef<(id: string) => void>(() => {});
  useEffect(() => {
    latest.current = (id) => onSelect(keys.indexOf(id));
  });
  const select = useCallback((id: string) => latest.current(id), []);
  return <Graph label={t("graph")} nodes={nodes} selected={chosen} onSelect={select} />;
}
