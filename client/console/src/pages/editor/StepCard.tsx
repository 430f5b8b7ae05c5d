import { useEffect, useId, useRef, useState } from "react";
import { useMessages } from "~/i18n/messages";
import type { CodeProblem } from "~/parts/code/YamlEditor";
import type { Form, StepForm } from "./document/form";
import {
  type StepKind,
  withoutStep,
  withStepField,
  withStepKind,
  withStepList,
  withStepMoved,
  withStepName,
} from "./document/steps";
import { targetField } from "./document/stepFields";
import { editorMessages } from "./messages";
import { Problems, TextField } from "./TextField";
import { WaitsFor } from "./WaitsFor";

const KINDS: readonly StepKind[] = [
  "shell",
  "exec",
  "python",
  "workflow",
  "approval",
  "wait",
  "job",
  "powershell",
  "cmd",
];
const POLICIES = ["abort", "continue", "skip", "retry"] as const;
const OWN_FIELDS = ["name", "target", "args", "timeout", "on_failure", "max_retries", "depends_on", "job_type"];

export interface StepProps {
  form: Form;
  at: number;
  text: string;
  problems: Map<string, CodeProblem[]> | undefined;
  onChange: (text: string) => void;
  readOnly: boolean;
}

interface Props extends StepProps {
  opened: boolean;
  selected: boolean;
}

export function StepCard({ opened, selected, ...props }: Props) {
  const { form, at, text, problems, onChange, readOnly } = props;
  const t = useMessages(editorMessages);
  const step = form.steps[at] as StepForm;
  const card = useRef<HTMLElement>(null);
  const name = step.title || step.name || t("step", { n: at + 1 });
  useEffect(() => {
    if (selected) card.current?.scrollIntoView({ block: "nearest" });
  }, [selected]);
  const others = [...(problems ?? [])].filter(([field]) => !OWN_FIELDS.includes(field)).flatMap(([, each]) => each);
  const wrong = [...(problems?.values() ?? [])].flat().some((each) => !each.warning);
  const [open, setOpen] = useState(opened || wrong);
  useEffect(() => {
    if (opened || wrong) setOpen(true);
  }, [opened, wrong]);
  return (
    <section className={`card step-card${selected ? " chosen" : ""}`} ref={card} aria-label={t("step", { n: at + 1 })}>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary className="step-head">
          <span className="step-number">{t("step", { n: at + 1 })}</span>
          <strong>{step.title || step.name}</strong>
          {wrong ? <span className="badge tone-bad">!</span> : null}
        </summary>
        {open ? (
          <div className="stack step-body">
            {step.editable ? <StepFields {...props} /> : <p className="notice">{t("not_editable")}</p>}
            <Problems problems={others} />
          </div>
        ) : null}
      </details>
      {readOnly && step.editable ? null : (
        <div className="row step-foot">
          <button
            type="button"
            className="button small"
            disabled={at === 0}
            aria-label={t("up_name", { name })}
            onClick={() => onChange(withStepMoved(text, at, -1))}
          >
            ↑ {t("up")}
          </button>
          <button
            type="button"
            className="button small"
            disabled={at === form.steps.length - 1}
            aria-label={t("down_name", { name })}
            onClick={() => onChange(withStepMoved(text, at, 1))}
          >
            ↓ {t("down")}
          </button>
          <button
            type="button"
            className="button small"
            aria-label={t("delete_name", { name })}
            onClick={() => onChange(withoutStep(text, at))}
          >
            {t("delete")}
          </button>
        </div>
      )}
    </section>
  );
}

function StepFields(props: StepProps) {
  const { form, at, text, problems, onChange, readOnly } = props;
  const t = useMessages(editorMessages);
  const step = form.steps[at] as StepForm;
  const wrong = (key: string) => problems?.get(key);
  const field = (key: string, value: string, kind: "text" | "word" = "text") =>
    onChange(withStepField(text, at, key, value, kind));
  const bare = step.kind === "approval" || step.kind === "wait";
  const takesArgs = !bare && step.kind !== "workflow";
  return (
    <>
      <div className="editor-pair">
        <TextField
          label={t("step_name")}
          value={step.name}
          onChange={(value) => onChange(withStepName(text, at, value))}
          problems={wrong("name")}
          readOnly={readOnly}
        />
        <Choice
          label={t("type")}
          value={step.kind}
          options={KINDS.map((each) => [each, t(`kind_${each}`)])}
          onChange={(value) => onChange(withStepKind(text, at, value as StepKind))}
          problems={wrong("job_type")}
          readOnly={readOnly}
        />
      </div>
      {bare ? (
        <p className="muted">{step.kind === "wait" ? t("wait_hint") : null}</p>
      ) : (
        <TextField
          label={t(targetLabel(step.kind))}
          value={step.target}
          onChange={(value) => onChange(targetField(text, at, value))}
          problems={wrong("target")}
          lines={step.kind === "shell" || step.kind === "powershell" ? 1 : undefined}
          mono
          complex={step.complex.has("target")}
          readOnly={readOnly}
        />
      )}
      {takesArgs ? (
        <TextField
          label={t("args")}
          value={step.args.join("\n")}
          onChange={(value) => onChange(withStepList(text, at, "args", value === "" ? [] : value.split("\n")))}
          problems={wrong("args")}
          hint={t("args_hint")}
          lines={1}
          mono
          complex={step.complex.has("args") || step.args.some((each) => each.includes("\n"))}
          readOnly={readOnly}
        />
      ) : null}
      <div className="editor-pair">
        <TextField
          label={t("timeout")}
          value={step.timeout}
          onChange={(value) => field("timeout", value, "word")}
          problems={wrong("timeout")}
          hint={t("timeout_hint")}
          readOnly={readOnly}
        />
        <Choice
          label={t("on_failure")}
          value={step.onFailure === "stop" ? "abort" : step.onFailure}
          options={[
            ["", t("on_failure_default")],
            ...POLICIES.map((each): [string, string] => [each, t(`on_failure_${each}`)]),
          ]}
          onChange={(value) => field("on_failure", value)}
          problems={wrong("on_failure")}
          readOnly={readOnly}
        />
        {step.onFailure === "retry" || step.maxRetries ? (
          <TextField
            label={t("max_retries")}
            value={step.maxRetries}
            onChange={(value) => field("max_retries", value, "word")}
            problems={wrong("max_retries")}
            readOnly={readOnly}
          />
        ) : null}
      </div>
      <WaitsFor {...props} />
    </>
  );
}

/** Also of a kind that does not exist, which the YAML may name. */
function targetLabel(kind: StepKind) {
  if (kind === "python" || kind === "workflow" || kind === "job" || kind === "exec") return `target_${kind}` as const;
  return "target_shell";
}

interface ChoiceProps {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
  problems: readonly CodeProblem[] | undefined;
  readOnly: boolean;
}

function Choice({ label, value, options, onChange, problems, readOnly }: ChoiceProps) {
  const id = useId();
  const known = options.some(([each]) => each === value);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select
        id={id}
        className="select"
        value={value}
        disabled={readOnly}
        onChange={(event) => onChange(event.target.value)}
      >
        {known ? null : <option value={value}>{value}</option>}
        {options.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </select>
      <Problems problems={problems} />
    </div>
  );
}
