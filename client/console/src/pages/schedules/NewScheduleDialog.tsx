import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useDeferredValue, useId, useState } from "react";
import { createSchedule } from "~/api/actions";
import { type Schedule, timeInWordsQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { Time } from "~/parts/Time";
import { VIEWER_ZONE } from "~/parts/timeText";
import { toast } from "~/parts/toasts";
import { schedulesMessages } from "./messages";

type Action = NonNullable<Schedule["action"]>;

const ACTIONS: readonly Action[] = ["reminder", "escalate", "auto_close", "follow_up", "check_progress", "workflow"];

export function NewScheduleDialog({ onClose }: { onClose: () => void }) {
  const t = useMessages(schedulesMessages);
  const queries = useQueryClient();
  const [subject, setSubject] = useState("");
  const [words, setWords] = useState("");
  const [timezone, setTimezone] = useState(VIEWER_ZONE);
  const [action, setAction] = useState<Action | "">("");
  const [workflow, setWorkflow] = useState("");
  const id = useId();
  return (
    <ConfirmDialog
      title={t("new")}
      action={t("create")}
      onConfirm={async () => {
        await createSchedule({ subject, words, timezone, action, workflow });
        toast(t("created", { name: subject }));
        await queries.invalidateQueries({ queryKey: ["schedules"] });
      }}
      onClose={onClose}
    >
      <Field id={`${id}-subject`} label={t("subject")}>
        <input
          id={`${id}-subject`}
          className="input"
          required
          maxLength={256}
          placeholder="issue-42"
          autoComplete="off"
          value={subject}
          onChange={(event) => setSubject(event.target.value)}
        />
      </Field>
      <Field id={`${id}-words`} label={t("words")} hint={t("words_hint")}>
        <input
          id={`${id}-words`}
          className="input"
          required
          autoComplete="off"
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
      </Field>
      <Understood words={words} timezone={timezone} />
      <Field id={`${id}-zone`} label={t("zone")}>
        <select
          id={`${id}-zone`}
          className="select"
          value={timezone}
          onChange={(event) => setTimezone(event.target.value)}
        >
          {[...new Set([VIEWER_ZONE, "UTC", ...Intl.supportedValuesOf("timeZone")])].map((zone) => (
            <option key={zone}>{zone}</option>
          ))}
        </select>
      </Field>
      <Field id={`${id}-action`} label={t("action")}>
        <select
          id={`${id}-action`}
          className="select"
          value={action}
          onChange={(event) => setAction(event.target.value as Action | "")}
        >
          <option value="">{t("no_action")}</option>
          {ACTIONS.map((each) => (
            <option key={each} value={each}>
              {t(`action_${each}`)}
            </option>
          ))}
        </select>
      </Field>
      <Field id={`${id}-workflow`} label={t("workflow")}>
        <input
          id={`${id}-workflow`}
          className="input mono"
          autoComplete="off"
          value={workflow}
          onChange={(event) => setWorkflow(event.target.value)}
        />
      </Field>
    </ConfirmDialog>
  );
}

interface FieldProps {
  id: string;
  label: string;
  hint?: string;
  children: React.ReactNode;
}

function Field({ id, label, hint, children }: FieldProps) {
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children}
      {hint ? <span className="hint">{hint}</span> : null}
    </div>
  );
}

/** What the words mean, while they are typed. */
function Understood(given: { words: string; timezone: string }) {
  const { words, timezone } = useDeferredValue(given);
  const query = useQuery({ ...timeInWordsQuery(words, timezone), placeholderData: keepPreviousData });
  if (!words.trim()) return null;
  if (query.error) return <p className="notice wait">{query.error.message}</p>;
  const found = query.data;
  if (!found) return null;
  return (
    <div className="notice ok">
      <p>
        <strong>{found.understood}</strong>
      </p>
      <ul>
        {found.due_times.map((at) => (
          <li key={at}>
            <Time at={at} zone={found.timezone} /> · <Time at={at} relative />
          </li>
        ))}
      </ul>
    </div>
  );
}
