import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelRun, pauseRun, resumeRun } from "~/api/actions";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { toast } from "~/parts/toasts";
import { runMessages } from "./messages";
import { RetryDialog } from "./RetryDialog";
import type { WholeRun } from "./runQueries";

/** The name that people type to confirm, and that commands accept. */
export function runName(run: WholeRun): string {
  return `${run.workflow}#${run.number}`;
}

export function RunActions({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const queries = useQueryClient();
  const [open, setOpen] = useState<"cancel" | "retry">();
  const close = () => setOpen(undefined);
  if (!useMay("operator")) return null;

  async function changePause() {
    try {
      await (run.paused_at ? resumeRun(run.id) : pauseRun(run.id));
      await queries.invalidateQueries({ queryKey: ["run", run.id] });
    } catch (error) {
      toast((error as Error).message, true);
    }
  }

  if (run.finished_at) {
    return (
      <>
        <button type="button" className="button" onClick={() => setOpen("retry")}>
          {t("retry")}
        </button>
        {open === "retry" ? <RetryDialog run={run} onClose={close} /> : null}
      </>
    );
  }
  return (
    <>
      {run.cancel_requested_at ? null : (
        <button type="button" className="button" onClick={() => void changePause()}>
          {run.paused_at ? t("resume") : t("pause")}
        </button>
      )}
      <button type="button" className="button" onClick={() => setOpen("cancel")}>
        {run.cancel_requested_at ? t("cancel_again") : t("cancel")}
      </button>
      {open === "cancel" ? (
        <ConfirmDialog
          title={t("cancel_title", { name: runName(run) })}
          action={t("cancel_action")}
          name={runName(run)}
          danger
          onConfirm={async () => {
            await cancelRun(run.id);
            toast(t("cancelling", { name: runName(run) }));
          }}
          onClose={close}
        >
          <p>{run.cancel_requested_at ? t("cancel_again_text") : t("cancel_text")}</p>
        </ConfirmDialog>
      ) : null}
    </>
  );
}
