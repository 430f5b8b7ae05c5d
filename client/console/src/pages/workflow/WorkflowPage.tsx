import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { toast } from "~/parts/toasts";
import { workflowMessages } from "./messages";
import { OverviewTab } from "./OverviewTab";
import { RunDialog } from "./RunDialog";
import { ScheduleTab } from "./ScheduleTab";
import { WORKFLOW_TABS, type WorkflowTab } from "./search";
import { VersionsTab } from "./VersionsTab";
import { deleteWorkflow, setEnabled, type Workflow, workflowQuery } from "./workflowApi";
import "./workflow.css";

export function WorkflowPage() {
  const t = useMessages(workflowMessages);
  const { workflowId } = useParams({ from: "/workflows/$workflowId" });
  const { tab = "overview" } = useSearch({ from: "/workflows/$workflowId" });
  const query = useQuery(workflowQuery(workflowId));
  const workflow = query.data;
  const name = workflow?.title || workflowId;
  return (
    <div className="page">
      <PageHead title={name} intro={workflow?.description}>
        {workflow ? <Actions workflow={workflow} name={name} /> : null}
      </PageHead>
      <QueryView query={query}>
        {(found) => (
          <>
            {found.enabled ? null : <p className="notice wait">{t("paused", { name })}</p>}
            <nav className="tabs" aria-label={t("tabs")}>
              {WORKFLOW_TABS.map((each) => (
                <Link
                  key={each}
                  to="/workflows/$workflowId"
                  params={{ workflowId }}
                  search={each === "overview" ? {} : { tab: each }}
                  activeOptions={{ exact: each === "overview", includeSearch: true }}
                >
                  {t(each)}
                </Link>
              ))}
            </nav>
            <Tab tab={tab} workflow={found} />
          </>
        )}
      </QueryView>
    </div>
  );
}

function Tab({ tab, workflow }: { tab: WorkflowTab; workflow: Workflow }) {
  if (tab === "schedule") return <ScheduleTab workflow={workflow} />;
  if (tab === "versions") return <VersionsTab workflow={workflow} />;
  return <OverviewTab workflow={workflow} />;
}

type Asked = "run" | "pause" | "delete";

function Actions({ workflow, name }: { workflow: Workflow; name: string }) {
  const t = useMessages(workflowMessages);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const mayRun = useMay("operator");
  const mayEdit = useMay("editor");
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const change = async (enabled: boolean) => {
    await setEnabled(workflow.name, enabled);
    toast(t(enabled ? "resumed_done" : "paused_done", { name }));
    await queries.invalidateQueries({ queryKey: ["workflows"] });
  };
  const starts = workflow.schedules.length > 0 || workflow.event_types.length > 0;
  return (
    <>
      <Link to="/runs" search={{ workflow: workflow.name }} className="button">
        {t("all_runs")}
      </Link>
      {mayEdit ? (
        <>
          {!workflow.enabled || starts ? (
            <button
              type="button"
              className="button"
              onClick={() => (workflow.enabled ? setAsked("pause") : void change(true).catch(failed))}
            >
              {t(workflow.enabled ? "pause" : "resume")}
            </button>
          ) : null}
          <button type="button" className="button" onClick={() => setAsked("delete")}>
            {t("delete")}
          </button>
          <Link to="/workflows/$workflowId/edit" params={{ workflowId: workflow.name }} className="button">
            {t("edit")}
          </Link>
        </>
      ) : null}
      {mayRun ? (
        <button type="button" className="button primary" onClick={() => setAsked("run")}>
          {t("run")}
        </button>
      ) : null}
      {asked === "run" ? <RunDialog workflow={workflow.name} onClose={close} /> : null}
      {asked === "pause" ? (
        <ConfirmDialog
          title={t("pause_title", { name })}
          action={t("pause")}
          onConfirm={() => change(false)}
          onClose={close}
        >
          <p>{t("pause_text")}</p>
        </ConfirmDialog>
      ) : null}
      {asked === "delete" ? (
        <ConfirmDialog
          title={t("delete_title", { name })}
          action={t("delete")}
          name={workflow.name}
          danger
          onConfirm={async () => {
            await deleteWorkflow(workflow);
            toast(t("delete_done", { name }));
            void queries.invalidateQueries({ queryKey: ["workflows", "summaries"] });
            void navigate({ to: "/workflows" });
          }}
          onClose={close}
        >
          <p>{t("delete_text")}</p>
        </ConfirmDialog>
      ) : null}
    </>
  );
}

function failed(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), true);
}
