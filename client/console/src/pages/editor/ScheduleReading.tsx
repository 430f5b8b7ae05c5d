import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { timeInWordsQuery } from "~/api/queries";
import { useLanguage, useMessages } from "~/i18n/messages";
import { Time } from "~/parts/Time";
import { cronJapanese } from "./cronJapanese";
import { editorMessages } from "./messages";
import { useSettled } from "./useProblems";

/** What a schedule means, and when it is due next, as the daemon reads it. An error stands at the field already. */
export function ScheduleReading({ text, timezone }: { text: string; timezone: string }) {
  const t = useMessages(editorMessages);
  const language = useLanguage();
  const settled = useSettled(`${text}\0${timezone}`);
  const [wanted = "", zone = ""] = settled.split("\0");
  const query = useQuery({ ...timeInWordsQuery(wanted, zone), placeholderData: keepPreviousData });
  const reading = query.data;
  if (!reading || query.isError) return null;
  const local = language === "ja" ? cronJapanese(wanted) : undefined;
  return (
    <div className="notice schedule-reading" role="status">
      <p>
        <strong>{local ? `${local}(${reading.timezone})` : reading.understood}</strong>
      </p>
      {reading.due_times.length ? (
        <p>
          {t("next_times")}:{" "}
          {reading.due_times.map((each, at) => (
            <span key={each}>
              {at ? " · " : ""}
              <Time at={each} zone={reading.timezone} />
            </span>
          ))}
        </p>
      ) : (
        <p>{t("none_due")}</p>
      )}
    </div>
  );
}
