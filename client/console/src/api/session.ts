import { queryOptions, useQuery } from "@tanstack/react-query";
import { api, data, type Schemas } from "./client";
import { Problem } from "./problem";

export type Role = "viewer" | "operator" | "editor" | "admin";
export type Session = Schemas["WhoAmIResponse"];

const ROLES: readonly Role[] = ["viewer", "operator", "editor", "admin"];

/** Who is logged in; null if nobody is. */
export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async (): Promise<Session | null> => {
    try {
      return await data(api.GET("/api/session"));
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 60_000,
});

/** The issuers with whose accounts people can log in here. */
export const loginMethodsQuery = queryOptions({
  queryKey: ["login-methods"],
  queryFn: () => data(api.GET("/api/login")),
  staleTime: Infinity,
});

const OWN_PAGE = { params: { header: { "Toban-Request": "console" } } };

export async function logInWithCode(code: string): Promise<void> {
  await api.POST("/api/session", { ...OWN_PAGE, body: { code } });
}

export async function logInWithToken(token: string): Promise<void> {
  await api.POST("/api/session", { ...OWN_PAGE, body: { token } });
}

export async function logOut(): Promise<void> {
  await api.DELETE("/api/session");
}

/** Whether the caller has at least this role. The server decides; this only hides what would be refused. */
export function useMay(role: Role): boolean {
  const own = useQuery(sessionQuery).data?.identity?.role;
  return ROLES.indexOf(own as Role) >= ROLES.indexOf(role);
}

/** A caller that is limited to some workflows may not look at the daemon as a whole. */
export function useIsNarrowed(): boolean {
  return Boolean(useQuery(sessionQuery).data?.identity?.narrowing);
}
