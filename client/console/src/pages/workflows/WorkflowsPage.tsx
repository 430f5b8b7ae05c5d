import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { type WorkflowSummary, workflowSummariesQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { RunDialog } from "~/pages/workflow/RunDialog";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { workflowsMessages } from "./messages";
import { WorkflowTable } from "./WorkflowTable";

export function WorkflowsPage() {
  const t = useMessages(workflowsMessages);
  const search = useSearch({ from: "/workflows" });
  const navigate = useNavigate({ from: "/workflows" });
  const query = useInfiniteQuery(workflowSummariesQuery({ text: search.text, kind: search.kind ?? "workflow" }));
  const mayEdit = useMay("editor");
  const mayRun = useMay("operator");
  const [starting, setStarting] = useState<WorkflowSummary>();
  const filtered = Boolean(search.text || search.kind === "job");

  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")}>
        {mayEdit ? (
          <Link to="/workflows/new" className="button primary">
            {t("new")}
          </Link>
        ) : null}
      </PageHead>
      <section className="card">
        <div className="card-head filters">
          <SearchField
            label={t("find")}
            value={search.text ?? ""}
            onChange={(text) =>
              void navigate({ search: (old) => ({ ...old, text: text || undefined }), replace: true })
            }
          />
        </div>
        <QueryView query={query}>
          {(pages) => {
            const summaries = pages.pages.flatMap((page) => page.summaries);
            if (summaries.length === 0) {
              return filtered ? (
                <EmptyState title={t("none_title")}>{t("none")}</EmptyState>
              ) : (
                <EmptyState title={t("empty_title")} command="toban apply examples/hello.yaml">
                  {t("empty")}
                </EmptyState>
              );
            }
            return (
              <WorkflowTable
                label={t("title")}
                summaries={summaries}
                hasMore={query.hasNextPage}
                loadingMore={query.isFetchingNextPage}
                onMore={() => void query.fetchNextPage()}
                {...(mayRun
                  ? {
                      action: (each: WorkflowSummary) => (
                        <button
                          type="button"
                          className="button small"
                          aria-label={t("run_name", { name: each.title || each.name })}
                          onClick={() => setStarting(each)}
                        >
                          {t("run")}
                        </button>
                      ),
                    }
                  : {})}
              />
            );
          }}
        </QueryView>
      </section>
      {starting ? <RunDialog workflow={starting.name} onClose={() => setStarting(undefined)} /> : null}
    </div>
  );
}
