import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { firesQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { FireTable } from "./FireTable";
import { schedulesMessages } from "./messages";

export function FireLedger({ workflow }: { workflow: string }) {
  const t = useMessages(schedulesMessages);
  const navigate = useNavigate({ from: "/schedules" });
  const query = useInfiniteQuery(firesQuery(workflow));
  return (
    <section className="card">
      <div className="card-head filters">
        <SearchField
          label={t("filter_workflow")}
          value={workflow}
          onChange={(text) =>
            void navigate({ search: { view: "ledger", ...(text ? { workflow: text } : {}) }, replace: true })
          }
        />
      </div>
      <QueryView query={query}>
        {(pages) => {
          const fires = pages.pages.flatMap((page) => page.fires);
          if (fires.length === 0) return <EmptyState title={t("fires_empty")}>{t("fires_empty_text")}</EmptyState>;
          return <FireTable fires={fires} hasMore={query.hasNextPage} onMore={() => void query.fetchNextPage()} />;
        }}
      </QueryView>
    </section>
  );
}
