import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { QueryView } from "~/parts/QueryView";
import { type Workflow, workflowQuery } from "~/pages/workflow/workflowApi";
import { Editor } from "./Editor";

const NEW = `name: my-workflow
description: ""
steps:
  - name: step-1
    run: echo hello
`;

/** The editor of a new definition, or of a stored one. */
export function EditorPage() {
  const { workflowId } = useParams({ strict: false });
  return workflowId ? <Stored key={workflowId} name={workflowId} /> : <Editor initial={NEW} />;
}

function Stored({ name }: { name: string }) {
  const query = useQuery({ ...workflowQuery(name), staleTime: 0 });
  return <QueryView query={query}>{(workflow) => <Opened workflow={workflow} />}</QueryView>;
}

/** Later versions do not change what is being edited: saving finds out. */
function Opened({ workflow }: { workflow: Workflow }) {
  const [opened] = useState(workflow);
  return <Editor initial={opened.definition?.source ?? ""} stored={opened} />;
}
