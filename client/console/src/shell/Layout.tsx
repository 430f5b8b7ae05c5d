import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { useMessages } from "~/i18n/messages";
import { Toasts } from "~/parts/Toasts";
import { AccountMenu } from "./AccountMenu";
import { Banners } from "./Banners";
import { CommandPalette } from "./CommandPalette";
import { shellMessages } from "./messages";
import { Navigation } from "./Navigation";

const MAC = navigator.platform.startsWith("Mac");

export function Layout() {
  const t = useMessages(shellMessages);
  const [searching, setSearching] = useState(false);
  const [menu, setMenu] = useState(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const main = useFocusOnNewPage(path);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setSearching(true);
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);

  return (
    <div className="shell">
      <a className="skip" href="#main">
        {t("skip")}
      </a>
      <header className="top">
        <button
          type="button"
          className="button quiet icon menu-button"
          aria-label={t("open_menu")}
          aria-expanded={menu}
          onClick={() => setMenu(!menu)}
        >
          <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
            <path d="M3 5h14M3 10h14M3 15h14" stroke="currentColor" strokeWidth="1.8" />
          </svg>
        </button>
        <Link to="/" className="brand" aria-label="Toban">
          <img src="/icon.svg" alt="" width="26" height="26" />
          <span>Toban</span>
        </Link>
        <button type="button" className="search-button" onClick={() => setSearching(true)}>
          <svg width="16" height="16" viewBox="0 0 20 20" aria-hidden="true">
            <circle cx="8.5" cy="8.500" r="5.500" fill="none" stroke="currentColor" strokeWidth="1.8" />
            <path d="M13 13l4.500 4.500" stroke="currentColor" strokeWidth="1.8" />
          </svg>
          <span>{t("command")}</span>
          <kbd>{MAC ? "⌘K" : "Ctrl K"}</kbd>
        </button>
        <AccountMenu />
      </header>
      <div className={menu ? "side open" : "side"}>
        <Navigation onChosen={() => setMenu(false)} />
      </div>
      <main id="main" className="content" ref={main} tabIndex={-1}>
        <Banners />
        <Outlet />
      </main>
      {searching ? <CommandPalette onClose={() => setSearching(false)} /> : null}
      <Toasts />
    </div>
  );
}

/** Screen readers begin at the content of a page that was just opened. */
function useFocusOnNewPage(path: string) {
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [path]);
  return main;
}
