import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "~/api/client";
import { useLanguage, useMessages } from "~/i18n/messages";
import { EmptyState } from "~/parts/EmptyState";
import { QueryView } from "~/parts/QueryView";
import { bytesText } from "~/parts/timeText";
import { runMessages } from "./messages";
import { artifactsQuery, type WholeRun } from "./runQueries";

export function ArtifactsTab({ run }: { run: WholeRun }) {
  const t = useMessages(runMessages);
  const query = useQuery(artifactsQuery(run.id));
  return (
    <QueryView query={query}>
      {(found) =>
        found.length === 0 ? (
          <EmptyState title={t("no_artifacts")}>{t("no_artifacts_text")}</EmptyState>
        ) : (
          <ul className="artifacts">
            {found.map((each) => (
              <Artifact key={`${each.step} ${each.artifact?.name}`} runId={run.id} found={each} />
            ))}
          </ul>
        )
      }
    </QueryView>
  );
}

function Artifact({ runId, found }: { runId: string; found: Schemas["StepArtifact"] }) {
  const t = useMessages(runMessages);
  const language = useLanguage();
  const { artifact, step, files } = found;
  if (!artifact) return null;
  const address = `/api/artifacts/${encodeURIComponent(runId)}/${encodeURIComponent(step)}/${encodeURIComponent(artifact.name)}`;
  return (
    <li>
      <div className="row spread">
        <span>
          <strong>{artifact.name}</strong> <span className="muted">{found.step_title || step}</span>{" "}
          {artifact.type ? <span className="chip">{artifact.type}</span> : null}
        </span>
        <span className="row">
          <span className="muted number">
            {artifact.files > 1 ? `${t("files", { n: artifact.files })} · ` : ""}
            {bytesText(artifact.bytes, language)}
          </span>
          <a className="button small" href={address} download>
            {t("download")}
            <span className="visually-hidden"> {artifact.name}</span>
          </a>
        </span>
      </div>
      {files.length > 1 ? (
        <details>
          <summary>{t("files", { n: files.length })}</summary>
          <ul className="files">
            {files.map((file) => (
              <li key={file.path}>
                <a href={`${address}?path=${encodeURIComponent(file.path)}`} download>
                  {file.path}
                </a>{" "}
                <span className="muted number">{bytesText(file.bytes, language)}</span>
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </li>
  );
}
