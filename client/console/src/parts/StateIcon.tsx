import { type Tone, toneOf } from "./tone";

/** The shape says the same as the colour, for those who cannot tell colours apart. */
const SHAPES: Record<Tone, React.ReactNode> = {
  ok: <path d="M3.2 8.4l3 3 6.600-6.800" fill="none" stroke="currentColor" strokeWidth="2.2" strokeLinecap="round" />,
  bad: <path d="M4 4l8 8M12 4l-8 8" fill="none" stroke="currentColor" strokeWidth="2.2" strokeLinecap="round" />,
  busy: (
    <path
      d="M8 2.200a5.800 5.800 0 1 0 5.800 5.800"
      fill="none"
      stroke="currentColor"
      strokeWidth="2.2"
      strokeLinecap="round"
    />
  ),
  wait: (
    <g fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round">
      <circle cx="8" cy="8" r="6" />
      <path d="M8 4.800v3.400l2.200 1.400" />
    </g>
  ),
  odd: (
    <g fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round">
      <path d="M8 3v6" />
      <path d="M8 12.600v.1" />
    </g>
  ),
  idle: <path d="M4 8h8" fill="none" stroke="currentColor" strokeWidth="2.2" strokeLinecap="round" />,
};

export function StateIcon({ state, size = 13 }: { state: string; size?: number }) {
  const tone = toneOf(state);
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      aria-hidden="true"
      className={state === "running" ? "spin" : undefined}
    >
      {state === "pending" ? SHAPES.wait : SHAPES[tone]}
    </svg>
  );
}
