import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { upcomingQuery, type WorkflowSummary } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { schedulesMessages } from "./messages";
import { WhyDialog } from "./WhyDialog";

/** The next due time of each workflow and job, the earliest first. */
export function Upcoming() {
  const t = useMessages(schedulesMessages);
  const w = useMessages(words);
  const query = useQuery(upcomingQuery);
  const [asked, setAsked] = useState<WorkflowSummary>();
  const columns: Column<WorkflowSummary>[] = [
    {
      key: "name",
      header: w("workflow"),
      cell: (each) => (
        <Link to="/workflows/$workflowId" params={{ workflowId: each.name }} className="main">
          {each.title || each.name}
        </Link>
      ),
    },
    { key: "next", header: w("next"), cell: (each) => <Time at={each.next_due} zone={each.next_due_zone} /> },
    { key: "in", header: t("in_time"), cell: (each) => <Time at={each.next_due} relative /> },
    { key: "zone", header: t("zone"), labelled: true, cell: (each) => each.next_due_zone },
    {
      key: "why",
      header: "",
      className: "fit end",
      cell: (each) => (
        <button
          type="button"
          className="button small"
          aria-label={t("why_name", { name: each.title || each.name })}
          onClick={() => setAsked(each)}
        >
          {t("why")}
        </button>
      ),
    },
  ];
  return (
    <section className="card">
      <QueryView query={query}>
        {({ due, complete }) => (
          <>
            {due.length > 0 ? (
              <DataTable label={t("upcoming")} columns={columns} rows={due} rowKey={(each) => each.name} />
            ) : (
              <EmptyState
                title={t("upcoming_empty")}
                command={'schedule: every weekday at 7:30\nschedule: "0 3 * * *"'}
              >
                {t("upcoming_empty_text")}
              </EmptyState>
            )}
            {complete ? null : <p className="table-foot">{t("upcoming_part")}</p>}
          </>
        )}
      </QueryView>
      {asked ? (
        <WhyDialog workflow={asked.name} title={asked.title || asked.name} onClose={() => setAsked(undefined)} />
      ) : null}
    </section>
  );
}
