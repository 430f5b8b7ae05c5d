import { useLanguage } from "~/i18n/messages";
import { useNow } from "./clock";
import { fullTime, relativeTime, shortTime, VIEWER_ZONE } from "./timeText";

interface Props {
  /** RFC 3339. */
  at: string | null | undefined;
  /** The zone of the schedule, if there is one. */
  zone?: string | null;
  /** `5 minutes ago` instead of the time. */
  relative?: boolean;
}

/** A time in the viewer's zone. The viewer's zone, the schedule's and UTC are one hover away. */
export function Time({ at, zone, relative = false }: Props) {
  const language = useLanguage();
  const now = useNow(relative ? 1000 : 60_000);
  if (!at) return <span className="muted">–</span>;
  const date = new Date(at);
  return (
    <time dateTime={at} title={zonesText(date, language, zone)} className="nowrap number">
      {relative ? relativeTime(date, language, Math.max(now, Date.now())) : shortTime(date, language, now)}
    </time>
  );
}

function zonesText(date: Date, language: "en" | "ja", zone?: string | null): string {
  const zones = new Set([VIEWER_ZONE, zone || VIEWER_ZONE, "UTC"]);
  return [...zones].map((each) => fullTime(date, language, knownZone(each))).join("\n");
}

/** A zone of the daemon's that this browser does not know is shown in UTC. */
function knownZone(zone: string): string {
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return zone;
  } catch {
    return "UTC";
  }
}
