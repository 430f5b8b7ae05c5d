import { useMemo } from "react";
import { useMessages } from "~/i18n/messages";
import { StepGraph } from "~/parts/graph/StepGraph";
import { dependenciesOf, type Form, stepKey } from "./document/form";
import { editorMessages } from "./messages";

interface Props {
  form: Form;
  selected: number | undefined;
  onSelect: (at: number) => void;
}

export function DefinitionGraph({ form, selected, onSelect }: Props) {
  const t = useMessages(editorMessages);
  const nodes = useMemo(() => {
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
  const keys = form.steps.map(stepKey);
  const chosen = selected === undefined ? undefined : keys[selected];
  return <StepGraph label={t("graph")} nodes={nodes} selected={chosen} onSelect={(id) => onSelect(keys.indexOf(id))} />;
}
