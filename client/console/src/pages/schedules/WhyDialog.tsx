import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import { whyQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { Dialog } from "~/parts/Dialog";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { FireTable } from "./FireTable";
import { schedulesMessages } from "./messages";

interface Props {
  workflow: string;
  title: string;
  onClose: () => void;
}

/** Why a workflow did or did not run near a time, in the daemon's words and with the lines of its ledger. */
export function WhyDialog({ workflow, title, onClose }: Props) {
  const t = useMessages(schedulesMessages);
  const w = useMessages(words);
  const [at, setAt] = useState("");
  const field = useId();
  const query = useQuery(whyQuery(workflow, at ? new Date(at).toISOString() : ""));
  return (
    <Dialog title={t("why_name", { name: title })} onClose={onClose} wide>
      <div className="field">
        <label htmlFor={field}>{t("why_at")}</label>
        <input
          id={field}
          className="input"
          type="datetime-local"
          value={at}
          onChange={(event) => setAt(event.target.value)}
        />
      </div>
      <QueryView query={query}>
        {(why) => (
          <>
            <ul className="stack tight">
              {why.sentences.map((sentence) => (
                <li key={sentence}>{sentence}</li>
              ))}
            </ul>
            <dl className="facts">
              <dt>{t("due_before")}</dt>
              <dd>
                <Time at={why.due_before} />
              </dd>
              <dt>{t("due_after")}</dt>
              <dd>
                <Time at={why.due_after} />
              </dd>
            </dl>
            {why.fires.length > 0 ? <FireTable fires={why.fires} /> : null}
          </>
        )}
      </QueryView>
      <div className="dialog-foot">
        <button type="button" className="button" onClick={onClose}>
          {w("close")}
        </button>
      </div>
    </Dialog>
  );
}
