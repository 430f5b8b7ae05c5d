// Reads the details of an error of Toban: its reason, and the invalid fields of a request.

import type { ServiceError } from "@grpc/grpc-js";
import { loadSync, type MessageTypeDefinition } from "@grpc/proto-loader";
import { resolve } from "node:path";

import type { BadRequest__Output } from "../gen/google/rpc/BadRequest";
import type { ErrorInfo__Output } from "../gen/google/rpc/ErrorInfo";
import type { Status__Output } from "../gen/google/rpc/Status";

const types = loadSync(resolve(__dirname, "../../google-rpc.proto"), { defaults: true });

function decode<T>(name: string, bytes: Buffer): T {
  return (types[name] as MessageTypeDefinition<object, object>).deserialize(bytes) as T;
}

// Returns the detail of the given type, such as google.rpc.ErrorInfo, if the error has one.
function detail<T>(error: unknown, name: string): T | undefined {
  const [bytes] = (error as Partial<ServiceError>)?.metadata?.get("grpc-status-details-bin") ?? [];
  if (!(bytes instanceof Buffer)) return undefined;
  const found = decode<Status__Output>("google.rpc.Status", bytes).details.find(
    (each) => each.type_url === `type.googleapis.com/${name}`,
  );
  return found && decode<T>(name, found.value);
}

export function errorInfo(error: unknown): ErrorInfo__Output | undefined {
  return detail(error, "google.rpc.ErrorInfo");
}

export function violations(error: unknown): { field: string; description: string }[] {
  return detail<BadRequest__Output>(error, "google.rpc.BadRequest")?.fieldViolations ?? [];
}
