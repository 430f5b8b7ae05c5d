import { useEffect, useState } from "react";
import { useMessages } from "~/i18n/messages";
import { type Form, freeStepName, needsId, withWorkflowField } from "./document/form";
import { withNewStep } from "./document/steps";
import { editorMessages } from "./messages";
import type { FieldProblems } from "./problems";
import { ScheduleReading } from "./ScheduleReading";
import { StepCard } from "./StepCard";
import { Problems, TextField } from "./TextField";

interface Props {
  form: Form;
  text: string;
  problems: FieldProblems;
  onChange: (text: string) => void;
  selected: number | undefined;
  readOnly: boolean;
}

/** With more steps than this, each is opened by itself. */
const OPEN_STEPS = 25;
/** At the same time on the page. */
const PAGE_STEPS = 50;
const OWN_FIELDS = ["name", "id", "title", "description", "schedule", "timezone"];

export function DefinitionForm({ form, text, problems, onChange, selected, readOnly }: Props) {
  const t = useMessages(editorMessages);
  const fixed = readOnly || form.error !== undefined;
  const pages = Math.ceil(form.steps.length / PAGE_STEPS);
  const [wanted, setPage] = useState(0);
  const page = Math.max(0, Math.min(wanted, pages - 1));
  useEffect(() => {
    if (selected !== undefined) setPage(Math.floor(selected / PAGE_STEPS));
  }, [selected]);
  const from = page * PAGE_STEPS;
  const shown = form.steps.slice(from, from + PAGE_STEPS).map((step, place) => ({ step, at: from + place }));
  const others = [...problems.workflow].filter(([field]) => !OWN_FIELDS.includes(field)).flatMap(([, each]) => each);
  return (
    <div className="stack">
      {form.error ? (
        <p className="notice bad" role="alert">
          {t("syntax", { line: form.error.line, message: form.error.message })}
        </p>
      ) : null}
      <Basics form={form} text={text} problems={problems} onChange={onChange} readOnly={fixed} />
      {others.length && !form.error ? (
        <div className="notice">
          <Problems problems={others} />
        </div>
      ) : null}
      <section className="stack" aria-label={t("steps")}>
        <div>
          <h2>{t("steps")}</h2>
          {form.stepsKind === "list" ? <p className="muted">{t("steps_hint")}</p> : null}
        </div>
        {pages > 1 ? <StepPages page={page} pages={pages} onPage={setPage} count={form.steps.length} /> : null}
        {shown.map(({ step, at }) => (
          <StepCard
            // The place: a card stays while its step is renamed.
            key={at}
            form={form}
            at={at}
            text={text}
            problems={problems.steps.get(at)}
            onChange={onChange}
            opened={form.steps.length <= OPEN_STEPS || selected === at}
            selected={selected === at}
            readOnly={fixed || !step.editable}
          />
        ))}
        {fixed ? null : (
          <div>
            <button
              type="button"
              className="button"
              onClick={() => {
                onChange(withNewStep(text, freeStepName(form)));
                setPage(Math.floor(form.steps.length / PAGE_STEPS));
              }}
            >
              {t("add_step")}
            </button>
          </div>
        )}
      </section>
    </div>
  );
}

interface PagesProps {
  page: number;
  pages: number;
  count: number;
  onPage: (page: number) => void;
}

function StepPages({ page, pages, count, onPage }: PagesProps) {
  const t = useMessages(editorMessages);
  const last = Math.min((page + 1) * PAGE_STEPS, count);
  return (
    <nav className="row" aria-label={t("pages")}>
      <button type="button" className="button small" disabled={page === 0} onClick={() => onPage(page - 1)}>
        {t("pages_before")}
      </button>
      <span className="number">{t("pages_shown", { from: page * PAGE_STEPS + 1, to: last, count })}</span>
      <button type="button" className="button small" disabled={page >= pages - 1} onClick={() => onPage(page + 1)}>
        {t("pages_after")}
      </button>
    </nav>
  );
}

function Basics({ form, text, problems, onChange, readOnly }: Omit<Props, "selected">) {
  const t = useMessages(editorMessages);
  const set = (key: string) => (value: string) => onChange(withWorkflowField(text, key, value));
  const wrong = (key: string) => problems.workflow.get(key);
  const showsId = form.id !== "" || needsId(form);
  return (
    <section className="card padded stack" aria-label={t("basics")}>
      <h2>{t("basics")}</h2>
      <TextField
        label={t("name")}
        value={form.name}
        onChange={set("name")}
        problems={wrong("name")}
        hint={showsId ? undefined : t("name_hint")}
        readOnly={readOnly}
      />
      {showsId ? (
        <TextField
          label={t("id")}
          value={form.id}
          onChange={set("id")}
          problems={wrong("id")}
          hint={t("id_hint")}
          mono
          readOnly={readOnly}
        />
      ) : null}
      <TextField
        label={t("description")}
        value={form.description}
        onChange={set("description")}
        problems={wrong("description")}
        lines={2}
        readOnly={readOnly}
      />
      <div className="editor-pair">
        {form.schedule === undefined ? (
          <div className="field">
            <span className="label">{t("schedule")}</span>
            <pre className="log-text" tabIndex={0}>
              {form.scheduleSource}
            </pre>
            <Problems problems={wrong("schedule")} />
            <p className="hint">{t("schedule_complex")}</p>
          </div>
        ) : (
          <TextField
            label={t("schedule")}
            value={form.schedule}
            onChange={set("schedule")}
            problems={wrong("schedule")}
            hint={t("schedule_hint")}
            mono
            readOnly={readOnly}
          />
        )}
        <TextField
          label={t("timezone")}
          value={form.timezone}
          onChange={set("timezone")}
          problems={wrong("timezone")}
          hint={t("timezone_hint")}
          readOnly={readOnly}
        />
      </div>
      {form.schedule ? <ScheduleReading text={form.schedule} timezone={form.timezone} /> : null}
    </section>
  );
}
