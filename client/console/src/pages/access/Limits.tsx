import type { Schemas } from "~/api/client";
import { useMessages } from "~/i18n/messages";
import { accessMessages } from "./messages";

/** The workflows that an identity is limited to. */
export function Limits({ narrowing }: { narrowing: Schemas["Narrowing"] | undefined }) {
  const t = useMessages(accessMessages);
  if (!narrowing) return t("unlimited");
  const labels = Object.entries(narrowing.labels).map(([key, value]) => `${key}=${value}`);
  return <span className="mono">{[...narrowing.workflows, ...labels].join(", ")}</span>;
}
