/** One error of a definition or of a request, with its place. */
export interface FieldProblem {
  path?: string;
  line?: number;
  column?: number;
  message: string;
}

interface ProblemBody {
  title?: string;
  detail?: string;
  reason?: string;
  problems?: FieldProblem[];
  violations?: { field: string; description: string }[];
  metadata?: Record<string, string>;
}

/** An answer with an error (RFC 9457), or none at all: then the status is 0. */
export class Problem extends Error {
  readonly status: number;
  /** Such as `RUN_ALREADY_ACTIVE`, as over gRPC. */
  readonly reason: string;
  readonly problems: readonly FieldProblem[];
  readonly metadata: Readonly<Record<string, string>>;

  constructor(status: number, body: ProblemBody = {}) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.name = "Problem";
    this.status = status;
    this.reason = body.reason ?? "";
    const violations = body.violations ?? [];
    this.problems =
      body.problems ?? violations.map(({ field, description }) => ({ path: field, message: description }));
    this.metadata = body.metadata ?? {};
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  try {
    return new Problem(response.status, (await response.json()) as ProblemBody);
  } catch {
    return new Problem(response.status, { title: response.statusText });
  }
}
