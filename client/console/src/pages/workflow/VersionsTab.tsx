import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { Loading } from "~/parts/Loading";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { workflowMessages } from "./messages";
import { restoreVersion, versionQuery, versionsQuery, type Workflow, type WorkflowVersion } from "./workflowApi";

const YamlDiff = lazy(async () => ({ default: (await import("~/parts/code/YamlDiff")).YamlDiff }));

export function VersionsTab({ workflow }: { workflow: Workflow }) {
  const t = useMessages(workflowMessages);
  const query = useInfiniteQuery(versionsQuery(workflow.name));
  const search = useSearch({ from: "/workflows/$workflowId" });
  const to = search.to ?? workflow.version;
  const from = search.from ?? (to > 1 ? to - 1 : to);
  return (
    <div className="stack">
      <section className="card">
        <QueryView query={query}>
          {(pages) => (
            <VersionTable
              workflow={workflow}
              versions={pages.pages.flatMap((page) => page.versions)}
              compared={[from, to]}
              hasMore={query.hasNextPage}
              onMore={() => void query.fetchNextPage()}
            />
          )}
        </QueryView>
      </section>
      <section className="card padded stack" aria-label={t("diff", { from, to })}>
        <h2>{from === to ? t("definition") : t("diff", { from, to })}</h2>
        <Difference workflow={workflow.name} from={from} to={to} />
      </section>
    </div>
  );
}

interface TableProps {
  workflow: Workflow;
  versions: readonly WorkflowVersion[];
  compared: [number, number];
  hasMore: boolean;
  onMore: () => void;
}

function VersionTable({ workflow, versions, compared, ...paging }: TableProps) {
  const t = useMessages(workflowMessages);
  const queries = useQueryClient();
  const navigate = useNavigate({ from: "/workflows/$workflowId" });
  const mayEdit = useMay("editor");
  const [restored, setRestored] = useState<number>();
  const name = workflow.title || workflow.name;
  const columns: Column<WorkflowVersion>[] = [
    {
      key: "version",
      header: t("version"),
      cell: (each) => (
        <span className="row">
          <strong className="number">{each.version}</strong>
          {each.version === workflow.version ? <span className="chip">{t("current")}</span> : null}
          {compared.includes(each.version) ? <span className="chip tone-chip-busy">{t("compared")}</span> : null}
        </span>
      ),
    },
    { key: "stored", header: t("stored_at"), cell: (each) => <Time at={each.created_at} /> },
    {
      key: "actions",
      header: "",
      className: "fit end",
      cell: (each) => (
        <span className="row version-actions">
          <button
            type="button"
            className="button small"
            aria-label={`${t("compare")}: ${t("version")} ${each.version}`}
            onClick={() =>
              void navigate({
                search:
                  each.version === workflow.version
                    ? { tab: "versions" }
                    : { tab: "versions", from: each.version, to: workflow.version },
                replace: true,
              })
            }
          >
            {t("compare")}
          </button>
          {mayEdit && each.version !== workflow.version ? (
            <button
              type="button"
              className="button small"
              aria-label={t("restore_name", { version: each.version })}
              onClick={() => setRestored(each.version)}
            >
              {t("restore")}
            </button>
          ) : null}
        </span>
      ),
    },
  ];
  return (
    <>
      <DataTable
        label={t("versions")}
        columns={columns}
        rows={versions}
        rowKey={(each) => String(each.version)}
        {...paging}
      />
      {restored ? (
        <ConfirmDialog
          title={t("restore_title", { version: restored })}
          action={t("restore")}
          onConfirm={async () => {
            await restoreVersion(workflow, restored);
            toast(t("restore_done", { version: restored, name }));
            await queries.invalidateQueries({ queryKey: ["workflows"] });
            void navigate({ search: { tab: "versions" }, replace: true });
          }}
          onClose={() => setRestored(undefined)}
        >
          <p>{t("restore_text")}</p>
        </ConfirmDialog>
      ) : null}
    </>
  );
}

function Difference({ workflow, from, to }: { workflow: string; from: number; to: number }) {
  const t = useMessages(workflowMessages);
  const before = useQuery(versionQuery(workflow, from));
  const after = useQuery(versionQuery(workflow, to));
  return (
    <QueryView query={before}>
      {(old) => (
        <QueryView query={after}>
          {(now) =>
            from === to ? (
              <pre className="log-text" tabIndex={0}>
                {now.definition?.source}
              </pre>
            ) : (
              <Suspense fallback={<Loading />}>
                <YamlDiff
                  before={old.definition?.source ?? ""}
                  after={now.definition?.source ?? ""}
                  beforeName={`${t("version")} ${from}`}
                  afterName={`${t("version")} ${to}`}
                />
              </Suspense>
            )
          }
        </QueryView>
      )}
    </QueryView>
  );
}
