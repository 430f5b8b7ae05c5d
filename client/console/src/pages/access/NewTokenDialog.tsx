import { useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { createToken } from "~/api/actions";
import type { Role } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { words } from "~/i18n/words";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { Dialog } from "~/parts/Dialog";
import { accessMessages } from "./messages";

const ROLES: readonly Role[] = ["viewer", "operator", "editor", "admin"];

/** Creates a token, and then shows its text for the only time. */
export function NewTokenDialog({ onClose }: { onClose: () => void }) {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [workflows, setWorkflows] = useState("");
  const [expires, setExpires] = useState("");
  const [text, setText] = useState("");
  const id = useId();
  if (text) return <MadeToken name={name} text={text} onClose={onClose} />;
  return (
    <ConfirmDialog
      title={t("new_token")}
      action={t("create")}
      onConfirm={async () => {
        const patterns = workflows.split(/\s+/).filter(Boolean);
        const made = await createToken(
          name,
          role,
          patterns,
          expires ? new Date(`${expires}T23:59:59`).toISOString() : "",
        );
        setText(made.text);
        await queries.invalidateQueries({ queryKey: ["tokens"] });
      }}
      onClose={() => {}}
      onCancel={onClose}
    >
      <div className="field">
        <label htmlFor={`${id}-name`}>{t("token_name")}</label>
        <input
          id={`${id}-name`}
          className="input"
          required
          pattern="[A-Za-z0-9._\-]{1,64}"
          autoComplete="off"
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
        <span className="hint">{t("token_name_hint")}</span>
      </div>
      <div className="field">
        <label htmlFor={`${id}-role`}>{t("role")}</label>
        <select
          id={`${id}-role`}
          className="select"
          value={role}
          onChange={(event) => setRole(event.target.value as Role)}
        >
          {ROLES.map((each) => (
            <option key={each} value={each}>
              {w(`role_${each}`)}
            </option>
          ))}
        </select>
      </div>
      <div className="field">
        <label htmlFor={`${id}-workflows`}>{t("workflows")}</label>
        <input
          id={`${id}-workflows`}
          className="input mono"
          autoComplete="off"
          placeholder="nightly-*"
          value={workflows}
          onChange={(event) => setWorkflows(event.target.value)}
        />
      </div>
      <div className="field">
        <label htmlFor={`${id}-expires`}>{t("expires_on")}</label>
        <input
          id={`${id}-expires`}
          className="input"
          type="date"
          value={expires}
          onChange={(event) => setExpires(event.target.value)}
        />
      </div>
    </ConfirmDialog>
  );
}

function MadeToken({ name, text, onClose }: { name: string; text: string; onClose: () => void }) {
  const t = useMessages(accessMessages);
  const w = useMessages(words);
  const [copied, setCopied] = useState(false);
  return (
    <Dialog title={t("token_made", { name })} onClose={onClose}>
      <p className="notice wait">{t("token_once")}</p>
      <pre className="log-text" tabIndex={0}>
        {text}
      </pre>
      <div className="dialog-foot">
        <button
          type="button"
          className="button primary"
          onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
        >
          {w(copied ? "copied" : "copy")}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {w("close")}
        </button>
      </div>
    </Dialog>
  );
}
