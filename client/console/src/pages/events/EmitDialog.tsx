import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useDeferredValue, useId, useState } from "react";
import { emitEvent } from "~/api/actions";
import { api, data } from "~/api/client";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { toast } from "~/parts/toasts";
import { eventsMessages } from "./messages";

/** Emits an event, and shows before that what it would start. */
export function EmitDialog({ onClose }: { onClose: () => void }) {
  const t = useMessages(eventsMessages);
  const queries = useQueryClient();
  const [type, setType] = useState("");
  const [payload, setPayload] = useState("{}");
  const typeField = useId();
  const payloadField = useId();
  const bad = problemOf(payload);
  return (
    <ConfirmDialog
      title={t("emit")}
      action={t("emit_action")}
      onConfirm={async () => {
        if (bad) throw new Error(bad);
        await emitEvent(type.trim(), payload);
        toast(t("emitted", { type: type.trim() }));
        await queries.invalidateQueries({ queryKey: ["events"] });
      }}
      onClose={onClose}
    >
      <div className="field">
        <label htmlFor={typeField}>{t("type")}</label>
        <input
          id={typeField}
          className="input mono"
          required
          pattern="\S{1,128}"
          autoComplete="off"
          placeholder="DATA_CHANGED"
          value={type}
          onChange={(event) => setType(event.target.value)}
        />
      </div>
      <div className="field">
        <label htmlFor={payloadField}>{t("payload")}</label>
        <textarea
          id={payloadField}
          className="textarea mono"
          spellCheck={false}
          value={payload}
          onChange={(event) => setPayload(event.target.value)}
        />
        <span className={bad ? "problem" : "hint"}>{bad ? t("payload_bad", { message: bad }) : t("payload_hint")}</span>
      </div>
      {bad || !type.trim() ? null : <Preview type={type.trim()} payload={payload} />}
    </ConfirmDialog>
  );
}

function Preview(given: { type: string; payload: string }) {
  const t = useMessages(eventsMessages);
  const { type, payload } = useDeferredValue(given);
  const found = useQuery({
    queryKey: ["events", "resolve", type, payload],
    queryFn: () => data(api.POST("/api/events/resolve", { body: { type, payload_json: payload } })),
    placeholderData: keepPreviousData,
    retry: false,
  }).data;
  if (!found) return null;
  return (
    <div>
      <h3>{t("preview")}</h3>
      {found.pending ? <p className="notice wait">{found.pending}</p> : null}
      <ul>
        {found.candidates.map((each) => (
          <li key={each.workflow}>
            <strong>{each.workflow}</strong> {t(each.matches ? "would" : "would_not")}
            {each.reason ? <span className="muted"> · {each.reason}</span> : null}
          </li>
        ))}
      </ul>
      <p className="muted">{t("others", { n: found.others })}</p>
    </div>
  );
}

function problemOf(text: string): string {
  try {
    JSON.parse(text || "{}");
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}
