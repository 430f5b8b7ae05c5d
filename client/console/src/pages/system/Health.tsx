import type { Schemas } from "~/api/client";
import { useLanguage, useMessages } from "~/i18n/messages";
import { StateBadge } from "~/parts/StateBadge";
import { Time } from "~/parts/Time";
import { bytesText } from "~/parts/timeText";
import { systemMessages } from "./messages";

interface Props {
  system: Schemas["GetInfoResponse"];
  /** The daemon tells such callers little. */
  narrowed: boolean;
}

export function Health({ system, narrowed }: Props) {
  const t = useMessages(systemMessages);
  const language = useLanguage();
  const conditions = system.health?.conditions ?? [];
  const recovery = system.recovery;
  return (
    <section className="card">
      <div className="card-head">
        <h2>{t("status")}</h2>
        <StateBadge state={system.draining ? "draining" : system.health?.status} />
      </div>
      <div className="card-body stack">
        {conditions.length === 0 ? <p>{t("healthy")}</p> : null}
        <ul className="conditions">
          {conditions.map((each) => (
            <li key={each.name}>
              <StateBadge state={each.status} /> <strong>{each.name}</strong>: {each.detail}{" "}
              <span className="muted">
                {t("since")} <Time at={each.since} />
              </span>
            </li>
          ))}
        </ul>
        <dl className="facts">
          <dt>{t("version")}</dt>
          <dd>{system.version}</dd>
          <dt>{t("started")}</dt>
          <dd>
            <Time at={system.started_at} /> · <Time at={system.started_at} relative />
          </dd>
          {narrowed ? null : (
            <>
              <dt>{t("database")}</dt>
              <dd>{system.database === "postgresql" ? "PostgreSQL" : "SQLite"}</dd>
              <dt>{t("state_dir")}</dt>
              <dd className="mono">{system.state_dir}</dd>
              <dt>{t("listen")}</dt>
              <dd className="mono">
                {system.listen.map((each) => (
                  <div key={each}>{each}</div>
                ))}
              </dd>
              {system.load ? (
                <>
                  <dt>{t("load")}</dt>
                  <dd>
                    {t("load_text", {
                      cpu: system.load.cpu.toLocaleString(language, { maximumFractionDigits: 2 }),
                      memory: bytesText(system.load.rss_bytes, language),
                    })}
                  </dd>
                </>
              ) : null}
              {recovery?.finished_at && recovery.runs > 0 ? (
                <>
                  <dt>{t("recovery")}</dt>
                  <dd>
                    {t("recovery_text", {
                      runs: recovery.runs,
                      reattached: recovery.reattached,
                      lost: recovery.lost,
                    })}
                  </dd>
                </>
              ) : null}
            </>
          )}
        </dl>
      </div>
    </section>
  );
}
