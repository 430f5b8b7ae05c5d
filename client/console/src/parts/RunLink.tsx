import { Link } from "@tanstack/react-router";
import type { Run } from "~/api/queries";

/** The name of a run, such as `nightly #12`, with the title of its workflow if it has one. */
export function RunLink({ run }: { run: Pick<Run, "id" | "workflow" | "workflow_title" | "number"> }) {
  return (
    <Link to="/runs/$runId" params={{ runId: run.id }} className="main">
      {run.workflow_title || run.workflow} <span className="number">#{run.number}</span>
    </Link>
  );
}
