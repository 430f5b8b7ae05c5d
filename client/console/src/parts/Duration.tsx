import { useLanguage } from "~/i18n/messages";
import { useNow } from "./clock";
import { durationText } from "./timeText";

interface Props {
  from: string | null | undefined;
  /** Absent: it goes on. */
  to?: string | null | undefined;
}

/** How long something took, or has taken so far. */
export function Duration({ from, to }: Props) {
  const language = useLanguage();
  const now = useNow(to ? 3_600_000 : 1000);
  if (!from) return <span className="muted">–</span>;
  const end = to ? Date.parse(to) : now;
  return <span className="nowrap number">{durationText((end - Date.parse(from)) / 1000, language)}</span>;
}
