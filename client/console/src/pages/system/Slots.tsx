import type { Schemas } from "~/api/client";
import { useMessages } from "~/i18n/messages";
import { Time } from "~/parts/Time";
import { systemMessages } from "./messages";

/** More slots than this are told by their numbers alone. */
const DRAWN = 200;

export function Slots({ system }: { system: Schemas["GetInfoResponse"] }) {
  const t = useMessages(systemMessages);
  const { running_processes: taken, max_attempts_running: most } = system;
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("slots")}</h2>
      </div>
      <dl className="facts card-body">
        <dt>{t("attempts")}</dt>
        <dd>
          {t("attempts_text", { n: taken, max: most })}
          {most <= DRAWN ? (
            <div className="slot-bar" aria-hidden="true">
              {Array.from({ length: most }, (_, index) => (
                <span key={index} className={index < taken ? "taken" : undefined} />
              ))}
            </div>
          ) : null}
        </dd>
        <dt>{t("waiting_attempts")}</dt>
        <dd className="number">{system.waiting_attempts}</dd>
        <dt>{t("active_runs")}</dt>
        <dd className="number">{system.active_runs}</dd>
        <dt>{t("event_runs")}</dt>
        <dd>{t("attempts_text", { n: system.event_runs, max: system.event_concurrency })}</dd>
        <dt>{t("event_waiting")}</dt>
        <dd className="number">{system.event_runs_waiting}</dd>
        <dt>{t("pending_events")}</dt>
        <dd className="number">{system.pending_events}</dd>
        <dt>{t("schedules")}</dt>
        <dd className="number">{system.schedules}</dd>
        <dt>{t("next_due")}</dt>
        <dd>
          <Time at={system.next_due} />
        </dd>
      </dl>
    </section>
  );
}
