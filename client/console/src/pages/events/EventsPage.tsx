import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { type Event, eventsQuery } from "~/api/queries";
import { useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { type Column, DataTable } from "~/parts/DataTable";
import { EmptyState } from "~/parts/EmptyState";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { SearchField } from "~/parts/SearchField";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { EmitDialog } from "./EmitDialog";
import { eventsMessages } from "./messages";
import { SourceText } from "./SourceText";

export function EventsPage() {
  const t = useMessages(eventsMessages);
  const { types } = useSearch({ from: "/events" });
  const navigate = useNavigate({ from: "/events" });
  const query = useInfiniteQuery(eventsQuery(types?.split(/\s+/).filter(Boolean) ?? []));
  const mayEmit = useMay("operator");
  const [emitting, setEmitting] = useState(false);
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")}>
        {mayEmit ? (
          <button type="button" className="button primary" onClick={() => setEmitting(true)}>
            {t("emit")}
          </button>
        ) : null}
      </PageHead>
      <section className="card">
        <div className="card-head filters">
          <SearchField
            label={t("types")}
            value={types ?? ""}
            onChange={(text) => void navigate({ search: text ? { types: text } : {}, replace: true })}
          />
        </div>
        <QueryView query={query}>
          {(pages) => {
            const events = pages.pages.flatMap((page) => page.events);
            if (events.length === 0) {
              return types ? (
                <EmptyState title={t("none_title")}>{t("none")}</EmptyState>
              ) : (
                <EmptyState
                  title={t("empty_title")}
                  command={'on: [{event: IMAGE_UPLOADED}]\n\ntoban emit IMAGE_UPLOADED -d \'{"file": "cat.jpg"}\''}
                >
                  {t("empty")}
                </EmptyState>
              );
            }
            return <Table events={events} hasMore={query.hasNextPage} onMore={() => void query.fetchNextPage()} />;
          }}
        </QueryView>
      </section>
      {emitting ? <EmitDialog onClose={() => setEmitting(false)} /> : null}
    </div>
  );
}

function Table({ events, hasMore, onMore }: { events: Event[]; hasMore: boolean; onMore: () => void }) {
  const t = useMessages(eventsMessages);
  const w = useMessages(words);
  const columns: Column<Event>[] = [
    {
      key: "type",
      header: t("type"),
      cell: (event) => (
        <Link to="/events/$eventId" params={{ eventId: event.id }} className="main mono">
          {event.type}
        </Link>
      ),
    },
    {
      key: "state",
      header: w("state"),
      className: "fit",
      cell: (event) => <StateBadge state={event.state} title={event.reason || undefined} />,
    },
    { key: "source", header: t("source"), labelled: true, cell: (event) => <SourceText event={event} /> },
    { key: "payload", header: t("payload"), cell: (event) => <code className="clamp sub">{event.payload_json}</code> },
    { key: "started", header: t("started"), labelled: true, cell: (event) => <Started event={event} /> },
    { key: "when", header: w("when"), className: "fit", cell: (event) => <Time at={event.emitted_at} /> },
  ];
  return (
    <DataTable
      label={t("title")}
      columns={columns}
      rows={events}
      rowKey={(event) => event.id}
      hasMore={hasMore}
      onMore={onMore}
    />
  );
}

function Started({ event }: { event: Event }) {
  const t = useMessages(eventsMessages);
  const started = event.runs.filter((each) => each.run_id);
  const [first] = started;
  if (!first) return <span className="muted">{t("nothing")}</span>;
  if (started.length > 1) return t("starts", { n: started.length });
  return (
    <Link to="/runs/$runId" params={{ runId: first.run_id }}>
      {first.workflow}
    </Link>
  );
}
