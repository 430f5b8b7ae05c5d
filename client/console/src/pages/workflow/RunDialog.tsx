import { useNavigate } from "@tanstack/react-router";
import { startRun } from "~/api/actions";
import { useMessages } from "~/i18n/messages";
import { workflowsMessages } from "~/pages/workflows/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { toast } from "~/parts/toasts";

/** Starts a run, and opens it. */
export function RunDialog({ workflow, onClose }: { workflow: string; onClose: () => void }) {
  const t = useMessages(workflowsMessages);
  const navigate = useNavigate();
  return (
    <ConfirmDialog
      title={t("params_title", { name: workflow })}
      action={t("run")}
      onConfirm={async () => {
        const run = await startRun(workflow);
        toast(t("started", { name: workflow, number: String(run.number) }));
        void navigate({ to: "/runs/$runId", params: { runId: run.id } });
      }}
      onClose={onClose}
    />
  );
}
