import { useQuery } from "@tanstack/react-query";
import { useConnection } from "~/api/connection";
import { systemQuery } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { shellMessages } from "./messages";

/** What concerns every page: no connection, a daemon that drains or is unhealthy. */
export function Banners() {
  const t = useMessages(shellMessages);
  const connection = useConnection();
  const system = useQuery(systemQuery).data;
  const condition = system?.health?.conditions?.[0];
  return (
    <div className="banners" role="status">
      {connection === "daemon-away" ? <p className="notice wait">{t("away")}</p> : null}
      {connection === "gateway-away" ? <p className="notice wait">{t("gateway_away")}</p> : null}
      {connection === "connected" && system?.draining ? <p className="notice wait">{t("draining")}</p> : null}
      {connection === "connected" && condition ? (
        <p className={condition.status === "refusing" ? "notice bad" : "notice wait"}>
          {t("unhealthy", { detail: condition.detail ?? condition.name ?? "" })}
        </p>
      ) : null}
    </div>
  );
}
