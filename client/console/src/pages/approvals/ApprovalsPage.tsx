import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { decideApproval } from "~/api/actions";
import { type Approval, approvalsQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { RunLink } from "~/parts/RunLink";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { approvalsMessages } from "./messages";

const EXAMPLE = "steps:\n  release: {job_type: approval, depends_on: [test]}";

interface Decision {
  approval: Approval;
  approve: boolean;
}

export function ApprovalsPage() {
  const t = useMessages(approvalsMessages);
  const query = useQuery(approvalsQuery);
  const [decision, setDecision] = useState<Decision>();
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <section className="card">
        <QueryView query={query}>
          {(found) =>
            found.approvals.length > 0 ? (
              <Table approvals={found.approvals} onDecide={setDecision} />
            ) : (
              <EmptyState title={t("empty_title")} command={EXAMPLE}>
                {t("empty")}
              </EmptyState>
            )
          }
        </QueryView>
      </section>
      {query.data && !query.data.complete ? <p className="notice wait">{t("incomplete")}</p> : null}
      {decision ? <DecisionDialog {...decision} onClose={() => setDecision(undefined)} /> : null}
    </div>
  );
}

function Table({ approvals, onDecide }: { approvals: Approval[]; onDecide: (decision: Decision) => void }) {
  const t = useMessages(approvalsMessages);
  const w = useMessages(words);
  const mayDecide = useMay("operator");
  const columns: Column<Approval>[] = [
    { key: "run", header: w("run"), cell: ({ run }) => <RunLink run={run} /> },
    {
      key: "step",
      header: w("step"),
      labelled: true,
      cell: ({ step }) => (
        <>
          {step.title || step.id} {step.title !== step.id ? <code className="sub">{step.id}</code> : null}
        </>
      ),
    },
    {
      key: "approvers",
      header: t("approvers"),
      labelled: true,
      cell: ({ step }) => (step.approvers.length > 0 ? step.approvers.join(", ") : t("anybody")),
    },
    {
      key: "waiting",
      header: t("waiting"),
      labelled: true,
      className: "fit",
      cell: ({ run, step }) => <Time at={step.started_at ?? run.created_at} relative />,
    },
  ];
  if (mayDecide) {
    columns.push({
      key: "action",
      header: "",
      className: "fit end",
      cell: (approval) => {
        const name = nameOf(approval);
        return (
          <span className="row nowrap">
            <button
              type="button"
              className="button small primary"
              aria-label={t("approve_name", { name })}
              onClick={() => onDecide({ approval, approve: true })}
            >
              {t("approve")}
            </button>
            <button
              type="button"
              className="button small"
              aria-label={t("reject_name", { name })}
              onClick={() => onDecide({ approval, approve: false })}
            >
              {t("reject")}
            </button>
          </span>
        );
      },
    });
  }
  return (
    <DataTable
      label={t("title")}
      columns={columns}
      rows={approvals}
      rowKey={({ run, step }) => `${run.id} ${step.id}`}
    />
  );
}

function nameOf({ run, step }: Approval): string {
  return `${run.workflow_title || run.workflow} #${run.number} › ${step.title || step.id}`;
}

function DecisionDialog({ approval, approve, onClose }: Decision & { onClose: () => void }) {
  const t = useMessages(approvalsMessages);
  const queries = useQueryClient();
  const [note, setNote] = useState("");
  const field = useId();
  const name = nameOf(approval);
  return (
    <ConfirmDialog
      title={t(approve ? "approve_name" : "reject_name", { name })}
      action={t(approve ? "approve" : "reject")}
      danger={!approve}
      onConfirm={async () => {
        await decideApproval(approval.run.id, approval.step.id, approve, note);
        toast(t(approve ? "approved" : "rejected", { name }));
        await queries.invalidateQueries({ queryKey: ["runs"] });
      }}
      onClose={onClose}
    >
      <div className="field">
        <label htmlFor={field}>{t("note")}</label>
        <textarea
          id={field}
          className="textarea"
          maxLength={1000}
          value={note}
          onChange={(event) => setNote(event.target.value)}
        />
        <span className="hint">{t("note_hint")}</span>
      </div>
    </ConfirmDialog>
  );
}
