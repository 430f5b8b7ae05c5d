import { useQuery } from "@tanstack/react-query";
import { systemQuery } from "~/api/queries";
import { useIsNarrowed, useMay } from "~/api/session";
import { useMessages } from "~/i18n/messages";
import { PageHead } from "~/parts/PageHead";
import { QueryView } from "~/parts/QueryView";
import { ConfigTable } from "./ConfigTable";
import { DefinitionFiles } from "./DefinitionFiles";
import { Doctor } from "./Doctor";
import { Health } from "./Health";
import { Locks } from "./Locks";
import { Maintenance } from "./Maintenance";
import { systemMessages } from "./messages";
import { Slots } from "./Slots";
import "./system.css";

export function SystemPage() {
  const t = useMessages(systemMessages);
  const query = useQuery(systemQuery);
  const narrowed = useIsNarrowed();
  const mayMaintain = useMay("admin") && !narrowed;
  return (
    <div className="page">
      <PageHead title={t("title")} intro={t("intro")}>
        {mayMaintain ? <Maintenance draining={query.data?.draining ?? false} /> : null}
      </PageHead>
      <QueryView query={query}>
        {(system) => (
          <>
            <div className="system-columns">
              <Health system={system} narrowed={narrowed} />
              {narrowed ? null : <Slots system={system} />}
            </div>
            {narrowed ? <p className="notice">{t("limited")}</p> : null}
            {narrowed ? null : <Locks />}
            {narrowed ? null : <DefinitionFiles files={system.definition_files} />}
          </>
        )}
      </QueryView>
      {mayMaintain ? <Doctor /> : null}
      {mayMaintain ? <ConfigTable /> : null}
    </div>
  );
}
