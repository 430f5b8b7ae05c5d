const PATHS: Record<string, string> = {
  overview: "M3 3h6v8H3zM11 3h6v5h-6zM11 10h6v7h-6zM3 13h6v4H3z",
  workflows: "M3 3h5v4H3zM12 3h5v4h-5zM7.500 13h5v4h-5zM5.500 7v3h9V7M10 10v3",
  runs: "M6 4l10 6-10 6z",
  approvals: "M4 10.500l4 4 8-9",
  schedules: "M3 5h14v12H3zM3 9h14M7 3v4M13 3v4",
  events: "M11 2L4 11h5l-1 7 7-9h-5z",
  dead_letters: "M3 5h14v11H3zM3 6l7 5 7-5",
  jobs: "M3 7h14v9H3zM7.500 7V4h5v3",
  secrets: "M5 9h10v8H5zM7 9V6.500a3 3 0 0 1 6 0V9",
  access: "M10 2.500l6.500 2.500v4.500c0 4-2.800 6.800-6.500 8-3.700-1.200-6.500-4-6.500-8V5z",
  system: "M3 4h14v5H3zM3 11h14v5H3zM6 6.500h.01M6 13.500h.01",
};

export function NavIcon({ name }: { name: string }) {
  return (
    <svg width="18" height="18" viewBox="0 0 20 20" aria-hidden="true" className="nav-icon">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        strokeWidth="1.6"
        strokeLinejoin="round"
        strokeLinecap="round"
      />
    </svg>
  );
}
