import { useState } from "react";
import { useLanguage, useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { Time } from "~/parts/Time";
import { toast } from "~/parts/toasts";
import { runMessages } from "../messages";
import { AnsiText } from "./AnsiText";
import type { LogLine } from "./logLines";

const SHOWN = 20_000;

/** The selected line in full, with its time and where it comes from. */
export function LineDetail({ number, line, onClose }: { number: number; line: LogLine; onClose: () => void }) {
  const t = useMessages(runMessages);
  const w = useMessages(words);
  const language = useLanguage();
  const [shown, setShown] = useState(SHOWN);
  const rest = line.text.length - shown;
  const copy = async (text: string) => {
    await navigator.clipboard.writeText(text);
    toast(w("copied"));
  };
  return (
    <section className="line-detail" aria-label={t("line", { number })}>
      <div className="row spread">
        <span className="row">
          <strong>{t("line", { number })}</strong>
          <Time at={line.at} />
          <span>{`${line.step} #${line.attempt}`}</span>
          <span className="chip">{line.stream}</span>
          {line.text.length > 1000 ? <span className="muted">{t("characters", { n: line.text.length })}</span> : null}
        </span>
        <span className="row">
          <button type="button" className="button small" onClick={() => void copy(line.text)}>
            {t("copy_line")}
          </button>
          <button type="button" className="button small" onClick={() => void copy(window.location.href)}>
            {t("copy_link")}
          </button>
          <button type="button" className="button quiet small" aria-label={w("close")} onClick={onClose}>
            ×
          </button>
        </span>
      </div>
      <pre className="log-text" tabIndex={0} aria-label={t("line", { number })}>
        <AnsiText text={line.text.slice(0, shown)} />
      </pre>
      {rest > 0 ? (
        <button type="button" className="button small" onClick={() => setShown(shown * 2)}>
          {t("show_more", { n: Math.min(rest, shown), rest: rest.toLocaleString(language) })}
        </button>
      ) : null}
    </section>
  );
}
