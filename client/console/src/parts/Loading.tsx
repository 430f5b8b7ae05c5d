import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";

export function Loading() {
  const t = useMessages(words);
  return (
    <div className="loading" role="status">
      <span className="visually-hidden">{t("loading")}</span>
      <div className="bar" />
      <div className="bar" />
      <div className="bar" />
    </div>
  );
}
