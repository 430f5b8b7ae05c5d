import { Link } from "@tanstack/react-router";
import type { Event } from "~/api/queries";
import { useMessages } from "~/i18n/messages";
import { eventsMessages } from "./messages";

/** Who emitted an event: the run and step, if it was one. */
export function SourceText({ event }: { event: Event }) {
  const t = useMessages(eventsMessages);
  if (event.source === "step") {
    return (
      <Link to="/runs/$runId" params={{ runId: event.source_run }}>
        {t("source_step")} {event.source_step}
      </Link>
    );
  }
  if (event.source === "daemon") return t("source_daemon");
  return event.caller || t("source_client");
}
