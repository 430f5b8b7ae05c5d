import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { loginMethodsQuery, logInWithCode, logInWithToken } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { Text } from "~/parts/Text";
import { Preferences } from "./AccountMenu";
import { shellMessages } from "./messages";

/**
 * The code of a link that `toban web` printed, or why a login at an issuer failed: behind the #, so that no server and no
 * log sees it.
 */
function takeFragment(): URLSearchParams {
  const { pathname, search, hash } = window.location;
  const found = new URLSearchParams(hash.slice(1));
  if (found.has("code") || pathname === "/login")
    window.history.replaceState(null, "", pathname === "/login" ? "/" : pathname + search);
  return found;
}

const given = takeFragment();
let code = given.get("code");
const refused = given.get("error");

/** Whether a link was opened that is not used yet: it logs in even if somebody is. */
export function hasCode(): boolean {
  return code !== null;
}

export function LoginPage() {
  const t = useMessages(shellMessages);
  const queries = useQueryClient();
  const issuers = useQuery(loginMethodsQuery).data?.issuers ?? [];
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(hasCode);
  const [codeFailed, setCodeFailed] = useState(false);
  const [error, setError] = useState<unknown>();

  useEffect(() => {
    document.title = "Toban";
    if (code === null) return;
    const once = code;
    code = null;
    logInWithCode(once)
      .then(() => queries.resetQueries())
      .catch(() => setCodeFailed(true))
      .finally(() => setBusy(false));
  }, [queries]);

  async function submit() {
    setBusy(true);
    setError(undefined);
    try {
      await logInWithToken(token.trim());
      await queries.resetQueries();
    } catch (caught) {
      setError(caught);
    }
    setBusy(false);
  }

  return (
    <main className="login">
      <div className="card padded stack login-card">
        <div className="row">
          <img src="/icon.svg" alt="" width="36" height="36" />
          <h1>{t("login_title")}</h1>
        </div>
        <p className={codeFailed ? "notice bad" : "muted"}>
          <Text>{t(codeFailed ? "login_code_used" : "login_link")}</Text>
        </p>
        {refused ? <p className="notice bad">{refused}</p> : null}
        {issuers.map(({ name, url }) => (
          <a key={url} className="button" href={url}>
            {t("login_oidc", { name })}
          </a>
        ))}
        <form
          className="stack"
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <div className="field">
            <label htmlFor="token">{t("login_token")}</label>
            <input
              id="token"
              className="input mono"
              type="password"
              autoComplete="current-password"
              required
              value={token}
              onChange={(event) => setToken(event.target.value)}
            />
            <span className="hint">
              <Text>{t("login_token_hint")}</Text>
            </span>
          </div>
          {error ? <ErrorNotice error={error} /> : null}
          <button type="submit" className="button primary" disabled={busy}>
            {busy ? t("logging_in") : t("login_submit")}
          </button>
        </form>
        <div className="login-preferences">
          <Preferences />
        </div>
      </div>
    </main>
  );
}
