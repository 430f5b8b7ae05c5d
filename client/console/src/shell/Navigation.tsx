import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { approvalsQuery } from "~/api/queries";
import { type Role, useIsNarrowed, useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { shellMessages } from "./messages";
import { NavIcon } from "./NavIcon";
import { ADMINISTER, type Destination, OPERATE } from "./navigation";

/** The pages that the caller may see. */
export function useDestinations(): { operate: Destination[]; administer: Destination[] } {
  const may: Record<Role, boolean> = {
    viewer: useMay("viewer"),
    operator: useMay("operator"),
    editor: useMay("editor"),
    admin: useMay("admin"),
  };
  const narrowed = useIsNarrowed();
  const open = (each: Destination) => may[each.role] && !(each.wholeDaemon && narrowed);
  return { operate: OPERATE.filter(open), administer: ADMINISTER.filter(open) };
}

export function Navigation({ onChosen }: { onChosen?: () => void }) {
  const t = useMessages(shellMessages);
  const { operate, administer } = useDestinations();
  const waiting = useQuery(approvalsQuery).data?.approvals.length ?? 0;
  const item = (each: Destination) => (
    <li key={each.to}>
      <Link
        to={each.to}
        className="nav-link"
        activeOptions={{ exact: each.to === "/", includeSearch: false }}
        {...(onChosen ? { onClick: onChosen } : {})}
      >
        <NavIcon name={each.name} />
        <span>{t(each.name)}</span>
        {each.name === "approvals" && waiting > 0 ? <span className="nav-count">{waiting}</span> : null}
      </Link>
    </li>
  );
  return (
    <nav aria-label={t("navigation")} className="nav">
      <ul>{operate.map(item)}</ul>
      <p className="nav-group">{t("administer")}</p>
      <ul>{administer.map(item)}</ul>
    </nav>
  );
}
