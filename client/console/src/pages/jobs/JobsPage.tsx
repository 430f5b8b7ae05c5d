import { useInfiniteQuery } from "@tanstack/react-query";
import { workflowSummariesQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { WorkflowTable } from "~/pages/workflows/WorkflowTable";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { jobsMessages } from "./messages";

const EXAMPLE = 'jobs:\n  notify:\n    run: echo "$1"\n\ntoban apply jobs.yaml';

export function JobsPage() {
  const t = useMessages(jobsMessages);
  const query = useInfiniteQuery(workflowSummariesQuery({ kind: "job" }));
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <section className="card">
        <QueryView query={query}>
          {(pages) => {
            const jobs = pages.pages.flatMap((page) => page.summaries);
            if (jobs.length === 0) {
              return (
                <EmptyState title={t("empty_title")} command={EXAMPLE}>
                  {t("empty")}
                </EmptyState>
              );
            }
            return (
              <WorkflowTable
                label={t("title")}
                summaries={jobs}
                hasMore={query.hasNextPage}
                onMore={() => void query.fetchNextPage()}
              />
            );
          }}
        </QueryView>
      </section>
    </div>
  );
}
