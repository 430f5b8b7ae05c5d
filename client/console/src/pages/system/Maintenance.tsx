import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { collectGarbage, setDraining } from "~/api/actions";
import type { Schemas } from "~/api/client";
import { useLanguage, useMessages } from "~/i18n/messages";
import { ConfirmDialog } from "~/parts/ConfirmDialog";
import { bytesText } from "~/parts/timeText";
import { toast } from "~/parts/toasts";
import { systemMessages } from "./messages";

/** Drain, resume, and the removal of what has passed retention. */
export function Maintenance({ draining }: { draining: boolean }) {
  const t = useMessages(systemMessages);
  const language = useLanguage();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const [garbage, setGarbage] = useState<Schemas["CollectGarbageResponse"]>();

  async function drain(wanted: boolean) {
    await setDraining(wanted);
    toast(t(wanted ? "drained" : "resumed"));
    await queries.invalidateQueries({ queryKey: ["system"] });
  }

  const told = async (work: () => Promise<unknown>) => {
    try {
      await work();
    } catch (error) {
      toast((error as Error).message, true);
    }
  };

  return (
    <>
      <button
        type="button"
        className="button"
        onClick={() => void told(async () => setGarbage(await collectGarbage(true)))}
      >
        {t("collect")}
      </button>
      {draining ? (
        <button type="button" className="button primary" onClick={() => void told(() => drain(false))}>
          {t("resume")}
        </button>
      ) : (
        <button type="button" className="button" onClick={() => setAsking(true)}>
          {t("drain")}
        </button>
      )}
      {asking ? (
        <ConfirmDialog
          title={t("drain_title")}
          action={t("drain")}
          danger
          onConfirm={() => drain(true)}
          onClose={() => setAsking(false)}
        >
          <p>{t("drain_text")}</p>
        </ConfirmDialog>
      ) : null}
      {garbage ? (
        <ConfirmDialog
          title={t("collect_title")}
          action={t("collect")}
          danger
          onConfirm={async () => {
            const done = await collectGarbage(false);
            toast(t("collected", { n: done.run_count, size: bytesText(done.bytes, language) }));
            await queries.invalidateQueries();
          }}
          onClose={() => setGarbage(undefined)}
        >
          <p>{t("collect_text", { n: garbage.run_count, size: bytesText(garbage.bytes, language) })}</p>
        </ConfirmDialog>
      ) : null}
    </>
  );
}
