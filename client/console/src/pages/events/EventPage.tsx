import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type EventRun, eventQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { EventChain } from "./EventChain";
import { eventsMessages } from "./messages";
import { SourceText } from "./SourceText";

export function EventPage() {
  const t = useMessages(eventsMessages);
  const w = useMessages(words);
  const { eventId } = useParams({ from: "/events/$eventId" });
  const query = useQuery(eventQuery(eventId));
  return (
    <div className="page">
      <PageHead title={query.data?.type ?? t("title")} intro={eventId} />
      <QueryView query={query}>
        {(event) => (
          <>
            <section className="card padded">
              <dl className="facts">
                <dt>{w("state")}</dt>
                <dd>
                  <StateBadge state={event.state} /> <span className="muted">{event.reason}</span>
                </dd>
                <dt>{t("at")}</dt>
                <dd>
                  <Time at={event.emitted_at} />
                </dd>
                <dt>{t("source")}</dt>
                <dd>
                  <SourceText event={event} />
                </dd>
                <dt>{t("depth")}</dt>
                <dd className="number">{event.depth}</dd>
                <dt>{t("sequence")}</dt>
                <dd className="number">{event.sequence}</dd>
                {event.dedupe_key ? (
                  <>
                    <dt>{t("dedupe")}</dt>
                    <dd className="mono">{event.dedupe_key}</dd>
                  </>
                ) : null}
              </dl>
            </section>
            <section className="card">
              <div className="card-head">
                <h2>{t("runs")}</h2>
                <span className="muted">
                  {event.runs.length > 0 ? t(event.all_ended ? "all_ended" : "not_ended") : null}
                </span>
              </div>
              {event.runs.length > 0 ? <Runs runs={event.runs} /> : <p className="quiet-line">{t("runs_none")}</p>}
            </section>
            <EventChain id={eventId} />
            <section className="card padded stack">
              <h2>{t("payload")}</h2>
              <pre className="log-text" tabIndex={0}>
                {indented(event.payload_json)}
              </pre>
            </section>
          </>
        )}
      </QueryView>
    </div>
  );
}

function Runs({ runs }: { runs: EventRun[] }) {
  const t = useMessages(eventsMessages);
  const w = useMessages(words);
  const columns: Column<EventRun>[] = [
    {
      key: "workflow",
      header: w("workflow"),
      cell: (each) =>
        each.run_id ? (
          <Link to="/runs/$runId" params={{ runId: each.run_id }} className="main">
            {each.workflow}
          </Link>
        ) : (
          <span className="main">{each.workflow}</span>
        ),
    },
    {
      key: "state",
      header: w("state"),
      className: "fit",
      cell: (each) =>
        each.run_id ? <StateBadge state={each.run_state} /> : <span className="chip">{t("skipped")}</span>,
    },
    { key: "reason", header: w("reason"), cell: (each) => each.detail || each.reason },
  ];
  return <DataTable label={t("runs")} columns={columns} rows={runs} rowKey={(each) => each.workflow} />;
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
