import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { logOut, sessionQuery } from "~/api/session";
import { LANGUAGES, type Language, setLanguage, useLanguage, useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { shellMessages } from "./messages";
import { setTheme, type Theme, useTheme } from "./theme";

/** Language and colours, in the menu and on the login page. */
export function Preferences() {
  const t = useMessages(shellMessages);
  const chosen = useLanguage();
  const theme = useTheme();
  return (
    <>
      <div className="field">
        <label htmlFor="language">{t("language")}</label>
        <select
          id="language"
          className="select"
          value={chosen}
          onChange={(event) => setLanguage(event.target.value as Language)}
        >
          {Object.entries(LANGUAGES).map(([code, name]) => (
            <option key={code} value={code} lang={code}>
              {name}
            </option>
          ))}
        </select>
      </div>
      <div className="field">
        <label htmlFor="theme">{t("theme")}</label>
        <select id="theme" className="select" value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
          <option value="system">{t("theme_system")}</option>
          <option value="light">{t("theme_light")}</option>
          <option value="dark">{t("theme_dark")}</option>
        </select>
      </div>
    </>
  );
}

export function AccountMenu() {
  const t = useMessages(shellMessages);
  const w = useMessages(words);
  const queries = useQueryClient();
  const identity = useQuery(sessionQuery).data?.identity;
  const [open, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  useClosing(frame, open, () => setOpen(false));
  const role = wordKey("role_", identity?.role);

  async function leave() {
    await logOut();
    queries.setQueryData(sessionQuery.queryKey, null);
    queries.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });
  }

  return (
    <div className="account" ref={frame}>
      <button type="button" className="button quiet account-button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
          <circle cx="10" cy="7" r="3.5" fill="none" stroke="currentColor" strokeWidth="1.6" />
          <path
            d="M3.500 17c1-3.500 3.500-5 6.500-5s5.500 1.500 6.500 5"
            fill="none"
            stroke="currentColor"
            strokeWidth="1.6"
          />
        </svg>
        <span className="visually-hidden">{t("account")}</span>
        {role ? <span className="account-role">{w(role)}</span> : null}
      </button>
      {open ? (
        <div className="account-panel card padded stack">
          <div>
            <p className="muted">{t("logged_in_as")}</p>
            <p>
              <strong>{identity?.name}</strong>
              {role ? <span className="muted"> · {w(role)}</span> : null}
            </p>
            {identity?.narrowing ? <p className="muted">{t("limited")}</p> : null}
          </div>
          <Preferences />
          <button type="button" className="button" onClick={() => void leave()}>
            {t("log_out")}
          </button>
        </div>
      ) : null}
    </div>
  );
}

/** Closes a panel with Escape, and with a click or the focus elsewhere. */
function useClosing(frame: React.RefObject<HTMLElement | null>, open: boolean, close: () => void) {
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!frame.current?.contains(event.target as Node)) close();
    };
    const onEscape = (event: KeyboardEvent) => {
      if (event.key === "Escape") {
        close();
        frame.current?.querySelector("button")?.focus();
      }
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    document.addEventListener("keydown", onEscape);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
      document.removeEventListener("keydown", onEscape);
    };
  });
}
