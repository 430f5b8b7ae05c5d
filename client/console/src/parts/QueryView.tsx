import type { ReactNode } from "react";
import { ErrorNotice } from "./ErrorNotice";
import { Loading } from "./Loading";

interface Query<T> {
  data: T | undefined;
  error: unknown;
  refetch: () => unknown;
}

/** Loading, failed, or what the query answered. Older data stays in view when a refresh fails. */
export function QueryView<T>({ query, children }: { query: Query<T>; children: (data: T) => ReactNode }) {
  if (query.data !== undefined) return children(query.data);
  if (query.error) return <ErrorNotice error={query.error} onRetry={() => void query.refetch()} />;
  return <Loading />;
}
