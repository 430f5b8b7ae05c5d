import { Link, useSearch } from "@tanstack/react-router";
import { useIsNarrowed, useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { PageHead } from "~/parts/PageHead";
import { AuditLog } from "./AuditLog";
import { accessMessages } from "./messages";
import { Sessions } from "./Sessions";
import { Tokens } from "./Tokens";
import { You } from "./You";

const VIEWS = ["you", "sessions", "tokens", "audit"] as const;
export type AccessView = (typeof VIEWS)[number];

const FOR_ADMINS: ReadonlySet<AccessView> = new Set(["tokens", "audit"]);

export function AccessPage() {
  const t = useMessages(accessMessages);
  const search = useSearch({ from: "/access" });
  const isAdmin = useMay("admin");
  const narrowed = useIsNarrowed();
  const views = VIEWS.filter((each) => !FOR_ADMINS.has(each) || (isAdmin && !narrowed));
  const view = views.find((each) => each === search.view) ?? "you";
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")} />
      <nav className="tabs" aria-label={t("title")}>
        {views.map((each) => (
          <Link
            key={each}
            to="/access"
            search={each === "you" ? {} : { view: each }}
            activeOptions={{ exact: true }}
            aria-current={each === view ? "page" : undefined}
          >
            {t(each)}
          </Link>
        ))}
      </nav>
      {view === "you" ? <You /> : null}
      {view === "sessions" ? <Sessions /> : null}
      {view === "tokens" ? <Tokens /> : null}
      {view === "audit" ? <AuditLog filter={search} /> : null}
    </div>
  );
}
