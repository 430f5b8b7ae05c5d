import ELK, { type ElkNode } from "elkjs/lib/elk-api";
import workerUrl from "elkjs/lib/elk-worker.min.js?url";
import { useEffect, useState } from "react";

/** A step, or whatever else depends on others. */
export interface GraphNode {
  id: string;
  title: string;
  /** A second line, such as the kind of the step. */
  note?: string | undefined;
  /** A word of an enum of the API, such as `running`: gives the colour and the sign. */
  state?: string | undefined;
  dependsOn: readonly string[];
}

export interface Placed {
  x: number;
  y: number;
}

export const NODE_WIDTH = 190;
export const NODE_HEIGHT = 58;

const OPTIONS = {
  "elk.algorithm": "layered",
  "elk.direction": "RIGHT",
  "elk.layered.spacing.nodeNodeBetweenLayers": "56",
  "elk.spacing.nodeNode": "20",
  "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
  "elk.separateConnectedComponents": "true",
};

let worker: InstanceType<typeof ELK> | undefined;

/** Positions are computed beside the page, so that a large graph does not stop it. */
function elk(): InstanceType<typeof ELK> {
  worker ??= new ELK({ workerFactory: () => new Worker(workerUrl) });
  return worker;
}

async function place(nodes: readonly GraphNode[], direction: Direction): Promise<Map<string, Placed>> {
  const known = new Set(nodes.map((each) => each.id));
  const graph: ElkNode = {
    id: "\0root",
    layoutOptions: { ...OPTIONS, "elk.direction": direction },
    children: nodes.map((each) => ({ id: each.id, width: NODE_WIDTH, height: NODE_HEIGHT })),
    edges: nodes.flatMap((each) =>
      each.dependsOn
        .filter((from) => known.has(from) && from !== each.id)
        .map((from) => ({ id: `${from}\0${each.id}`, sources: [from], targets: [each.id] })),
    ),
  };
  const laid = await elk().layout(graph);
  return new Map((laid.children ?? []).map((each) => [each.id, { x: each.x ?? 0, y: each.y ?? 0 }]));
}

export type Direction = "RIGHT" | "DOWN";

/** The positions of the nodes; those of the last graph until a changed one is placed. */
export function useLayout(nodes: readonly GraphNode[], direction: Direction): Map<string, Placed> | undefined {
  const [placed, setPlaced] = useState<Map<string, Placed>>();
  const shape = JSON.stringify(nodes.map((each) => [each.id, each.dependsOn]));
  useEffect(() => {
    let current = true;
    const wanted = (JSON.parse(shape) as [string, string[]][]).map(([id, dependsOn]) => ({ id, title: id, dependsOn }));
    void place(wanted, direction).then((found) => {
      if (current) setPlaced(found);
    });
    return () => {
      current = false;
    };
  }, [shape, direction]);
  return placed;
}
