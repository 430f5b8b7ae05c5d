import { type RefObject, useId } from "react";
import { useLanguage, useMessages } from "~/i18n/messages";
import { runMessages } from "../messages";
import { MOST_FOUND } from "./useFind";

interface Props {
  field: RefObject<HTMLInputElement | null>;
  text: string;
  onText: (text: string) => void;
  found: number;
  place: number;
  onGo: (by: 1 | -1) => void;
}

/** Finds a text in all lines, not only in those that are drawn. Enter goes to the next one, with Shift to the one before. */
export function FindBox({ field, text, onText, found, place, onGo }: Props) {
  const t = useMessages(runMessages);
  const language = useLanguage();
  const id = useId();
  const number = (value: number) => value.toLocaleString(language);
  const total = found >= MOST_FOUND ? `${number(MOST_FOUND)}+` : number(found);
  return (
    <div className="field grow">
      <label htmlFor={id}>{t("find")}</label>
      <div className="find">
        <input
          ref={field}
          id={id}
          type="search"
          className="input"
          autoComplete="off"
          value={text}
          onChange={(event) => onText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") onGo(event.shiftKey ? -1 : 1);
            else if (event.key === "Escape") onText("");
            else return;
            event.preventDefault();
          }}
        />
        {text ? (
          <>
            <span className="muted number nowrap" role="status">
              {found === 0 ? t("nothing_found") : place >= 0 ? `${number(place + 1)} / ${total}` : total}
            </span>
            <button type="button" className="button small" aria-label={t("previous")} onClick={() => onGo(-1)}>
              ↑
            </button>
            <button type="button" className="button small" aria-label={t("following")} onClick={() => onGo(1)}>
              ↓
            </button>
          </>
        ) : null}
      </div>
    </div>
  );
}
