export type Tone = "ok" | "bad" | "busy" | "wait" | "odd" | "idle";

const TONES: Record<string, Tone> = {
  succeeded: "ok",
  completed: "ok",
  done: "ok",
  ok: "ok",
  resolved: "ok",
  active: "ok",
  valid: "ok",
  enabled: "ok",
  fired: "ok",
  started: "ok",
  requeued: "ok",
  repaired: "ok",
  failed: "bad",
  lost: "bad",
  refusing: "bad",
  refused: "bad",
  broken: "bad",
  cut: "bad",
  open: "bad",
  timed_out: "odd",
  incomplete: "odd",
  caught_up: "odd",
  running: "busy",
  starting: "busy",
  checking: "busy",
  ready: "wait",
  waiting: "wait",
  paused: "wait",
  approval: "wait",
  cancelling: "wait",
  degraded: "wait",
  warning: "wait",
  draining: "wait",
};

/** The colour of a state; states that need no attention have none. */
export function toneOf(state: string): Tone {
  return TONES[state] ?? "idle";
}
