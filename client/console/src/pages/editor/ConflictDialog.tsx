import { useState } from "react";
import { useMessages } from "~/i18n/messages";
import { Dialog } from "~/parts/Dialog";
import { YamlDiff } from "~/parts/code/YamlDiff";
import type { Workflow } from "~/pages/workflow/workflowApi";
import { editorMessages } from "./messages";

interface Props {
  stored: Workflow;
  mine: string;
  onOverwrite: () => Promise<void>;
  onReload: (stored: Workflow) => void;
  onClose: () => void;
}

/** The definition has changed while it was edited: shows how, and what can be done. */
export function ConflictDialog({ stored, mine, onOverwrite, onReload, onClose }: Props) {
  const t = useMessages(editorMessages);
  const [busy, setBusy] = useState(false);
  const { version } = stored;
  return (
    <Dialog title={t("conflict_title", { name: stored.title || stored.name })} onClose={onClose} wide>
      <p>{t("conflict_text", { version })}</p>
      <YamlDiff
        before={stored.definition?.source ?? ""}
        after={mine}
        beforeName={t("theirs", { version })}
        afterName={t("mine")}
      />
      <div className="dialog-foot">
        <button type="button" className="button" onClick={onClose}>
          {t("keep")}
        </button>
        <button type="button" className="button" onClick={() => onReload(stored)}>
          {t("reload")}
        </button>
        <button
          type="button"
          className="button danger"
          disabled={busy}
          onClick={() => {
            setBusy(true);
            void onOverwrite().finally(() => setBusy(false));
          }}
        >
          {t("overwrite")}
        </button>
      </div>
    </Dialog>
  );
}
