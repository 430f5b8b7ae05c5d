import {
  Background,
  Controls,
  type Edge,
  Handle,
  type Node,
  type NodeProps,
  Position,
  ReactFlow,
  useReactFlow,
  useStore,
} from "@xyflow/react";
import { createContext, useContext, useEffect, useMemo, useRef } from "react";
import { messages, useMessages } from "~/i18n/messages";
import { wordKey, words } from "~/i18n/words";
import { Loading } from "~/parts/Loading";
import { StateIcon } from "~/parts/StateIcon";
import { toneOf } from "~/parts/tone";
import { type Direction, type GraphNode, NODE_HEIGHT, NODE_WIDTH, useLayout } from "./layout";
import "@xyflow/react/dist/base.css";
import "./graph.css";

const texts = messages({
  en: { after: "after {steps}", zoom_in: "Zoom in", zoom_out: "Zoom out", fit: "Show all of it" },
  ja: { after: "{steps}の後", zoom_in: "拡大", zoom_out: "縮小", fit: "全体を表示" },
});

interface Props {
  label: string;
  nodes: readonly GraphNode[];
  selected?: string | undefined;
  onSelect?: ((id: string) => void) | undefined;
  direction?: Direction | undefined;
}

type StepNode = Node<{ step: GraphNode; direction: Direction }, "step">;

const Chosen = createContext<{ selected?: string | undefined; onSelect?: ((id: string) => void) | undefined }>({});
const FIT = { padding: 0.12, maxZoom: 1 };
const NODE_TYPES = { step: StepBox };

/** The steps of a workflow and what they depend on, to look at and to choose one. */
export function StepGraph({ label, nodes, selected, onSelect, direction = "RIGHT" }: Props) {
  const t = useMessages(texts);
  const placed = useLayout(nodes, direction);
  const frame = useRef<HTMLElement>(null);
  const shown = useMemo(() => {
    return nodes.flatMap((step): StepNode[] => {
      const position = placed?.get(step.id);
      if (!position) return [];
      return [
        { id: step.id, type: "step", position, width: NODE_WIDTH, height: NODE_HEIGHT, data: { step, direction } },
      ];
    });
  }, [nodes, placed, direction]);
  const edges = useMemo(() => edgesOf(nodes), [nodes]);
  const choice = useMemo(() => ({ selected, onSelect }), [selected, onSelect]);
  return (
    <section className="graph" aria-label={label} ref={frame}>
      {placed ? (
        <Chosen value={choice}>
          <ReactFlow
            key={[...placed.keys()].join("\0")}
            nodes={shown}
            edges={edges}
            nodeTypes={NODE_TYPES}
            fitView
            fitViewOptions={FIT}
            minZoom={0.05}
            maxZoom={1.6}
            nodesDraggable={false}
            nodesConnectable={false}
            nodesFocusable={false}
            edgesFocusable={false}
            elementsSelectable={false}
            zoomOnScroll={false}
            preventScrolling={false}
            onlyRenderVisibleElements={nodes.length > 150}
            disableKeyboardA11y
          >
            <Background gap={22} />
            <Controls showInteractive={false} aria-label={label} />
            <FitToSize />
            <ControlNames frame={frame} zoomIn={t("zoom_in")} zoomOut={t("zoom_out")} fit={t("fit")} />
          </ReactFlow>
        </Chosen>
      ) : (
        <Loading />
      )}
    </section>
  );
}

function edgesOf(nodes: readonly GraphNode[]): Edge[] {
  const known = new Set(nodes.map((each) => each.id));
  return nodes.flatMap((step) =>
    step.dependsOn
      .filter((from) => known.has(from))
      .map((from) => ({
        id: `${from}\0${step.id}`,
        source: from,
        target: step.id,
        animated: step.state === "running",
      })),
  );
}

function StepBox({ data: { step, direction } }: NodeProps<StepNode>) {
  const { selected, onSelect } = useContext(Chosen);
  const t = useMessages(texts);
  const w = useMessages(words);
  const state = wordKey("", step.state);
  const inner = (
    <>
      <span className="graph-title">
        {step.state ? <StateIcon state={step.state} /> : null}
        <span>{step.title}</span>
      </span>
      {step.note ? <span className="graph-note">{step.note}</span> : null}
      <span className="visually-hidden">
        {state && !step.note?.includes(w(state)) ? ` ${w(state)}` : null}
        {step.dependsOn.length ? ` ${t("after", { steps: step.dependsOn.join(", ") })}` : null}
      </span>
    </>
  );
  const className = `graph-node tone-${toneOf(step.state ?? "")}${step.state ? " has-state" : ""}`;
  return (
    <>
      <Handle type="target" position={direction === "RIGHT" ? Position.Left : Position.Top} />
      {onSelect ? (
        <button
          type="button"
          className={`nodrag nopan ${className}`}
          aria-pressed={selected === step.id}
          title={step.title}
          onClick={() => onSelect(step.id)}
        >
          {inner}
        </button>
      ) : (
        <div className={className} title={step.title}>
          {inner}
        </div>
      )}
      <Handle type="source" position={direction === "RIGHT" ? Position.Right : Position.Bottom} />
    </>
  );
}

/** Shows all of it again when there is more or less room, as beside a panel that was opened. */
function FitToSize() {
  const width = useStore((state) => state.width);
  const { fitView } = useReactFlow();
  const first = useRef(width);
  useEffect(() => {
    if (width !== first.current) void fitView(FIT);
    first.current = width;
  }, [width, fitView]);
  return null;
}

interface Names {
  frame: React.RefObject<HTMLElement | null>;
  zoomIn: string;
  zoomOut: string;
  fit: string;
}

/** Names the buttons of the graph in the chosen language. */
function ControlNames({ frame, zoomIn, zoomOut, fit }: Names) {
  useEffect(() => {
    const names: [string, string][] = [
      [".react-flow__controls-zoomin", zoomIn],
      [".react-flow__controls-zoomout", zoomOut],
      [".react-flow__controls-fitview", fit],
    ];
    for (const [selector, name] of names) {
      const button = frame.current?.querySelector(selector);
      button?.setAttribute("aria-label", name);
      button?.setAttribute("title", name);
    }
  });
  return null;
}
