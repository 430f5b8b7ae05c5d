import { QueryClient, QueryClientProvider, useQuery, useQueryClient } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useEffect } from "react";
import { onSessionOver } from "~/api/client";
import { Problem } from "~/api/problem";
import { sessionQuery } from "~/api/session";
import { useStream } from "~/api/stream";
import { ErrorNotice } from "~/parts/ErrorNotice";
import { Loading } from "~/parts/Loading";
import { hasCode, LoginPage } from "./LoginPage";
import { router } from "./routes";

/** What was refused is refused again; only an answer that never came is worth asking for twice. */
function retry(count: number, error: unknown): boolean {
  const status = error instanceof Problem ? error.status : 0;
  return count < 2 && (status === 0 || status === 429 || status >= 500);
}

const queryClient = new QueryClient({
  defaultOptions: { queries: { retry, staleTime: 5_000, refetchOnWindowFocus: true } },
});

export function App() {
  return (
    <QueryClientProvider client={queryClient}>
      <Door />
    </QueryClientProvider>
  );
}

/** The login page, or the console for who is logged in. */
function Door() {
  const queries = useQueryClient();
  const session = useQuery(sessionQuery);
  useEffect(() => onSessionOver(() => queries.setQueryData(sessionQuery.queryKey, null)), [queries]);
  if (hasCode()) return <LoginPage />;
  if (session.data) return <Inside />;
  if (session.data === null) return <LoginPage />;
  if (session.error) {
    return (
      <main className="login">
        <ErrorNotice error={session.error} onRetry={() => void session.refetch()} />
      </main>
    );
  }
  return <Loading />;
}

function Inside() {
  useStream();
  return <RouterProvider router={router} />;
}
