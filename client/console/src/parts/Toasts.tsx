import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { dismiss, useToasts } from "./toasts";

export function Toasts() {
  const t = useMessages(words);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {useToasts().map((each) => (
        <div key={each.id} className={each.bad ? "toast bad" : "toast"}>
          <span>{each.text}</span>
          <button type="button" className="button quiet small" aria-label={t("close")} onClick={() => dismiss(each.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
