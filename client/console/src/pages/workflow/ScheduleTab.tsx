import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import type { Schemas } from "~/api/client";
import { firesQuery, whyQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { FireTable } from "~/pages/schedules/FireTable";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { workflowMessages } from "./messages";
import { dueTimesQuery, type Workflow } from "./workflowApi";

type DueTime = Schemas["DueTime"];

export function ScheduleTab({ workflow }: { workflow: Workflow }) {
  const t = useMessages(workflowMessages);
  if (workflow.schedules.length === 0) {
    return (
      <section className="card">
        <EmptyState title={t("due_empty")} command={'schedule: "0 3 * * *"\ntimezone: Asia/Tokyo'}>
          {t("due_empty_text")}
        </EmptyState>
      </section>
    );
  }
  return (
    <>
      <DueTimes workflow={workflow} />
      <Why workflow={workflow.name} />
    </>
  );
}

function DueTimes({ workflow }: { workflow: Workflow }) {
  const t = useMessages(workflowMessages);
  const query = useQuery(dueTimesQuery(workflow.name));
  const columns: Column<DueTime>[] = [
    { key: "yours", header: t("due_yours"), cell: (each) => <Time at={each.due_at} zone={each.timezone} /> },
    {
      key: "local",
      header: t("due_local"),
      cell: (each) => (
        <span className="number">
          {each.local.slice(0, 19)} <span className="sub">{each.timezone}</span>
        </span>
      ),
    },
    { key: "in", header: "", className: "fit", cell: (each) => <Time at={each.due_at} relative /> },
    {
      key: "schedule",
      header: t("due_schedule"),
      cell: (each) => workflow.schedules[each.schedule_index] ?? String(each.schedule_index + 1),
    },
    { key: "mark", header: t("due_change"), cell: (each) => <Marks due={each} /> },
  ];
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("due_title")}</h2>
      </div>
      <QueryView query={query}>
        {(found) =>
          found.due_times.length ? (
            <DataTable
              label={t("due_title")}
              columns={columns}
              rows={found.due_times}
              rowKey={(each) => `${each.due_at} ${each.schedule_index}`}
            />
          ) : (
            <EmptyState title={t("never_due")} />
          )
        }
      </QueryView>
    </section>
  );
}

function Marks({ due }: { due: DueTime }) {
  const t = useMessages(workflowMessages);
  const delayed = due.start_at && due.start_at !== due.due_at;
  return (
    <span className="row">
      {due.change ? <span className="badge tone-wait">{t(due.change)}</span> : null}
      {due.blackout ? <span className="badge tone-bad">{t("blackout")}</span> : null}
      {delayed ? (
        <span className="sub">
          → <Time at={due.start_at} />
        </span>
      ) : null}
    </span>
  );
}

function Why({ workflow }: { workflow: string }) {
  const t = useMessages(workflowMessages);
  const [at, setAt] = useState("");
  const field = useId();
  const query = useQuery({
    ...whyQuery(workflow, at ? new Date(at).toISOString() : ""),
    placeholderData: keepPreviousData,
  });
  const fires = useInfiniteQuery(firesQuery(workflow));
  const lines = at ? (query.data?.fires ?? []) : (fires.data?.pages.flatMap((page) => page.fires) ?? []);
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("why")}</h2>
        <div className="row">
          <label htmlFor={field} className="muted">
            {t("why_at")}
          </label>
          <input
            id={field}
            className="input why-at"
            type="datetime-local"
            value={at}
            onChange={(event) => setAt(event.target.value)}
          />
        </div>
      </div>
      <div className="why-text">
        <QueryView query={query}>
          {(found) =>
            found.sentences.length ? (
              <ul className="stack tight">
                {found.sentences.map((each) => (
                  <li key={each}>{each}</li>
                ))}
              </ul>
            ) : (
              <p className="muted">{t("why_empty")}</p>
            )
          }
        </QueryView>
      </div>
      {lines.length ? (
        <FireTable fires={lines} hasMore={!at && fires.hasNextPage} onMore={() => void fires.fetchNextPage()} />
      ) : null}
    </section>
  );
}
