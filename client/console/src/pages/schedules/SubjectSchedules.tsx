import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { cancelSchedule } from "~/api/actions";
import { type Schedule, schedulesQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { schedulesMessages } from "./messages";
import { NewScheduleDialog } from "./NewScheduleDialog";

interface Props {
  subject: string | undefined;
  ended: boolean | undefined;
}

const EXAMPLE = 'toban schedule "in 3 days at 9am" --subject issue-42 --action reminder';

/** Reminders and the like, for things that another system tracks. */
export function SubjectSchedules({ subject, ended }: Props) {
  const t = useMessages(schedulesMessages);
  const navigate = useNavigate({ from: "/schedules" });
  const queries = useQueryClient();
  const query = useInfiniteQuery(schedulesQuery({ subject, include_ended: ended }));
  const mayEdit = useMay("editor");
  const [creating, setCreating] = useState(false);
  const [cancelling, setCancelling] = useState<Schedule>();
  const search = (changed: Props) =>
    void navigate({
      search: {
        view: "subjects",
        ...(changed.subject ? { subject: changed.subject } : {}),
        ...(changed.ended ? { ended: true } : {}),
      },
      replace: true,
    });
  return (
    <section className="card">
      <div className="card-head filters">
        <SearchField
          label={t("subject_find")}
          value={subject ?? ""}
          onChange={(text) => search({ subject: text, ended })}
        />
        <label className="row check">
          <input
            type="checkbox"
            checked={ended ?? false}
            onChange={(event) => search({ subject, ended: event.target.checked })}
          />
          {t("ended")}
        </label>
        {mayEdit ? (
          <button type="button" className="button primary" onClick={() => setCreating(true)}>
            {t("new")}
          </button>
        ) : null}
      </div>
      <QueryView query={query}>
        {(pages) => {
          const schedules = pages.pages.flatMap((page) => page.schedules);
          if (schedules.length === 0) {
            return (
              <EmptyState title={t("subjects_empty")} command={EXAMPLE}>
                {t("subjects_empty_text")}
              </EmptyState>
            );
          }
          return (
            <Table
              schedules={schedules}
              hasMore={query.hasNextPage}
              onMore={() => void query.fetchNextPage()}
              {...(mayEdit ? { onCancel: setCancelling } : {})}
            />
          );
        }}
      </QueryView>
      {creating ? <NewScheduleDialog onClose={() => setCreating(false)} /> : null}
      {cancelling ? (
        <ConfirmDialog
          title={t("cancel_title", { name: cancelling.subject })}
          action={t("cancel")}
          danger
          onConfirm={async () => {
            await cancelSchedule(cancelling.id);
            toast(t("cancelled", { name: cancelling.subject }));
            await queries.invalidateQueries({ queryKey: ["schedules"] });
          }}
          onClose={() => setCancelling(undefined)}
        >
          <p>{t("cancel_text", { request: cancelling.request })}</p>
        </ConfirmDialog>
      ) : null}
    </section>
  );
}

interface TableProps {
  schedules: Schedule[];
  hasMore: boolean;
  onMore: () => void;
  onCancel?: (schedule: Schedule) => void;
}

function Table({ schedules, onCancel, ...paging }: TableProps) {
  const t = useMessages(schedulesMessages);
  const w = useMessages(words);
  const columns: Column<Schedule>[] = [
    { key: "subject", header: t("subject"), cell: (each) => <span className="main">{each.subject}</span> },
    { key: "state", header: w("state"), className: "fit", cell: (each) => <StateBadge state={each.state} /> },
    {
      key: "request",
      header: t("understood"),
      cell: (each) => (
        <>
          {each.understood}
          {each.request !== each.understood ? <span className="sub"> “{each.request}”</span> : null}
        </>
      ),
    },
    {
      key: "action",
      header: t("action"),
      labelled: true,
      cell: (each) => (
        <>
          {each.action ? t(`action_${each.action}`) : null} {each.workflow_title || each.workflow}
        </>
      ),
    },
    {
      key: "next",
      header: w("next"),
      labelled: true,
      className: "fit",
      cell: (each) => (each.next_due ? <Time at={each.next_due} zone={each.timezone} /> : null),
    },
    {
      key: "count",
      header: t("count"),
      labelled: true,
      className: "fit end",
      cell: (each) => (
        <span className="number">
          {each.occurrences}
          {each.max_occurrences ? ` / ${each.max_occurrences}` : ""}
        </span>
      ),
    },
  ];
  if (onCancel) {
    columns.push({
      key: "cancel",
      header: "",
      className: "fit end",
      cell: (each) =>
        each.state === "active" ? (
          <button
            type="button"
            className="button small"
            aria-label={t("cancel_name", { name: `${each.subject}: ${each.request}` })}
            onClick={() => onCancel(each)}
          >
            {t("cancel")}
          </button>
        ) : null,
    });
  }
  return <DataTable label={t("subjects")} columns={columns} rows={schedules} rowKey={(each) => each.id} {...paging} />;
}
