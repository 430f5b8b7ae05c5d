import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "~/api/client";
import { eventChainQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { StateBadge } from "~/parts/StateBadge";
import { eventsMessages } from "./messages";
import "./chain.css";

type Chain = Schemas["GetEventChainResponse"];
type ChainRun = Schemas["ChainRun"];
type Event = Schemas["Event"];

/** What an event started, and what followed from that, as a tree from left to right. */
export function EventChain({ id }: { id: string }) {
  const t = useMessages(eventsMessages);
  const chain = useQuery(eventChainQuery(id)).data;
  const [first] = chain?.events ?? [];
  if (!chain || !first || chain.runs.length === 0) return null;
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("chain")}</h2>
        {chain.truncated ? <span className="muted">{t("chain_part")}</span> : null}
      </div>
      <section className="chain" aria-label={t("chain")} tabIndex={0}>
        <ul>
          <EventNode event={first} chain={chain} here />
        </ul>
      </section>
    </section>
  );
}

interface EventNodeProps {
  event: Event;
  chain: Chain;
  /** The event whose page this is. */
  here?: boolean;
}

function EventNode({ event, chain, here = false }: EventNodeProps) {
  const runs = chain.runs.filter((run) => run.event_id === event.id);
  return (
    <li>
      <div className={here ? "chain-node here" : "chain-node"}>
        {here ? (
          <strong className="mono">{event.type}</strong>
        ) : (
          <Link to="/events/$eventId" params={{ eventId: event.id }} className="mono">
            {event.type}
          </Link>
        )}
        {event.state === "resolved" ? null : <StateBadge state={event.state} title={event.reason || undefined} />}
      </div>
      {runs.length > 0 ? (
        <ul>
          {runs.map((run) => (
            <RunNode key={run.run_id} run={run} chain={chain} />
          ))}
        </ul>
      ) : null}
    </li>
  );
}

function RunNode({ run, chain }: { run: ChainRun; chain: Chain }) {
  const [root] = chain.events;
  const events = chain.events.filter((event) => event.source_run === run.run_id && event !== root);
  return (
    <li>
      <div className="chain-node">
        <Link to="/runs/$runId" params={{ runId: run.run_id }}>
          {run.workflow} #{run.number}
        </Link>
        <StateBadge state={run.state} />
      </div>
      {events.length > 0 ? (
        <ul>
          {events.map((event) => (
            <EventNode key={event.id} event={event} chain={chain} />
          ))}
        </ul>
      ) : null}
    </li>
  );
}
