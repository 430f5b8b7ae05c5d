import { useQuery } from "@tanstack/react-query";
import { accessQuery } from "~/api/queries";
import { sessionQuery } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words, wordKey } from "~/i18n/words";
import { QueryView } from "~/parts/QueryView";
import { Time } from "~/parts/Time";
import { Limits } from "./Limits";
import { accessMessages } from "./messages";

export function You() {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const identity = useQuery(sessionQuery).data?.identity;
  const access = useQuery(accessQuery);
  const roleText = (role: string | null | undefined) => {
    const key = role ? wordKey("role_", role) : undefined;
    return key ? w(key) : t("door_none");
  };
  return (
    <>
      {identity ? (
        <section className="card padded">
          <dl className="facts">
            <dt>{t("name")}</dt>
            <dd>
              <strong>{identity.name}</strong>
            </dd>
            <dt>{t("role")}</dt>
            <dd>{roleText(identity.role)}</dd>
            <dt>{t("kind")}</dt>
            <dd>{identity.kind ? t(`kind_${identity.kind}`) : null}</dd>
            <dt>{t("limits")}</dt>
            <dd>
              <Limits narrowing={identity.narrowing} />
            </dd>
            <dt>{t("expires")}</dt>
            <dd>{identity.expires_at ? <Time at={identity.expires_at} /> : t("never")}</dd>
            {identity.aliases.length > 0 ? (
              <>
                <dt>{t("aliases")}</dt>
                <dd>{identity.aliases.join(", ")}</dd>
              </>
            ) : null}
          </dl>
        </section>
      ) : null}
      <section className="card">
        <div className="card-head">
          <h2>{t("doors")}</h2>
        </div>
        <QueryView query={access}>
          {(found) => (
            <div className="card-body stack">
              <dl className="facts">
                {found.doors.map((door) => (
                  <div key={door.address} className="facts-row">
                    <dt className="mono">{door.address}</dt>
                    <dd>{roleText(door.role)}</dd>
                  </div>
                ))}
              </dl>
              <p className={found.steps_share_user ? "notice wait" : "muted"}>
                {found.steps_share_user
                  ? t("shared", { user: found.daemon_user })
                  : t("separated", { user: found.step_user, daemon: found.daemon_user })}
              </p>
            </div>
          )}
        </QueryView>
      </section>
    </>
  );
}
