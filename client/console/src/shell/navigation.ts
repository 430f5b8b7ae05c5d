import type { Role } from "~/api/session";
import type { shellMessages } from "./messages";

type Name = keyof (typeof shellMessages)["en"];

export interface Destination {
  to: string;
  name: Name;
  role: Role;
  /** About the daemon as a whole: not for callers that are limited to some workflows. */
  wholeDaemon?: boolean;
}

export const OPERATE: readonly Destination[] = [
  { to: "/", name: "overview", role: "viewer" },
  { to: "/workflows", name: "workflows", role: "viewer" },
  { to: "/runs", name: "runs", role: "viewer" },
  { to: "/approvals", name: "approvals", role: "viewer" },
  { to: "/schedules", name: "schedules", role: "viewer" },
  { to: "/events", name: "events", role: "viewer", wholeDaemon: true },
  { to: "/dead_letters", name: "dead_letters", role: "viewer" },
  { to: "/jobs", name: "jobs", role: "viewer" },
];

export const ADMINISTER: readonly Destination[] = [
  { to: "/secrets", name: "secrets", role: "admin", wholeDaemon: true },
  { to: "/access", name: "access", role: "viewer" },
  { to: "/system", name: "system", role: "viewer" },
];
