// Starts a run of the workflow "greeting", follows its log, cancels it, and handles errors.
//
//     node build/src/client.js unix:///run/toband/toban.sock
//     TOBAN_TOKEN=toban_… node build/src/client.js 127.0.0.1:7070
//     TOBAN_TOKEN=toban_… TOBAN_CA=ca.crt node build/src/client.js toban.example.org:7233

import { credentials, InterceptingCall, type Interceptor, loadPackageDefinition, type requestCallback } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

import { errorInfo, violations } from "./errors";
import type { ProtoGrpcType } from "../gen/run";
import type { Struct } from "../gen/google/protobuf/Struct";
import type { CancelRunResponse__Output } from "../gen/toban/v1/CancelRunResponse";
import type { LogEnd__Output } from "../gen/toban/v1/LogEnd";
import type { Run__Output } from "../gen/toban/v1/Run";
import type { RunServiceClient } from "../gen/toban/v1/RunService";
import type { StartRunResponse__Output } from "../gen/toban/v1/StartRunResponse";
import type { StreamLogsResponse__Output } from "../gen/toban/v1/StreamLogsResponse";

const WORKFLOW = "greeting";
const CALL_MS = 60_000;
const FOLLOW_MS = 120_000;

// The options that the types in gen/ were generated with.
const loaded = loadSync("toban/v1/run.proto", {
  includeDirs: [resolve(__dirname, "../../../../../proto")],
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { toban } = loadPackageDefinition(loaded) as unknown as ProtoGrpcType;

const within = (ms: number) => ({ deadline: Date.now() + ms });

function call<T>(method: (callback: requestCallback<T>) => void): Promise<T> {
  return new Promise((answer, fail) => method((error, value) => (error ? fail(error) : answer(value!))));
}

function struct(values: Record<string, string | number | boolean>): Struct {
  const fields = Object.entries(values).map(([name, value]) => {
    if (typeof value === "string") return [name, { stringValue: value }];
    if (typeof value === "number") return [name, { numberValue: value }];
    return [name, { boolValue: value }];
  });
  return { fields: Object.fromEntries(fields) };
}

async function start(runs: RunServiceClient, workflow: string, params: Struct): Promise<Run__Output> {
  const started = await call<StartRunResponse__Output>((callback) =>
    runs.startRun({ workflow, params }, within(CALL_MS), callback),
  );
  return started.run!;
}

async function cancel(runs: RunServiceClient, id: string, reason = ""): Promise<void> {
  await call<CancelRunResponse__Output>((callback) => runs.cancelRun({ id, reason }, within(CALL_MS), callback));
}

// Prints each line of the log when it arrives, and passes it on. Returns when the run has ended.
async function follow(runs: RunServiceClient, id: string, got: (line: string) => Promise<void>): Promise<LogEnd__Output> {
  const stream = runs.streamLogs({ runId: id, follow: true, streams: ["LOG_STREAM_STDOUT"] }, within(FOLLOW_MS));
  // A record may end within a line or a character.
  const parts = new Map<string, Buffer>();
  for await (const message of stream as AsyncIterable<StreamLogsResponse__Output>) {
    if (message.end) {
      for (const [step, part] of parts) if (part.length > 0) console.log(`${step} | ${part}`);
      return message.end;
    }
    const { step, records } = message.chunk!;
    let text = Buffer.concat([parts.get(step) ?? Buffer.alloc(0), ...records.map((record) => record.data)]);
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
      const line = `${step} | ${text.toString("utf8", 0, end)}`;
      text = text.subarray(end + 1);
      console.log(line);
      await got(line);
    }
    parts.set(step, text);
  }
  throw new Error("the log has no end");
}

// Prints the error of a call if it has the reason, and returns its metadata. Fails otherwise.
async function refused(attempt: Promise<unknown>, reason: string): Promise<{ [key: string]: string }> {
  let failure: unknown;
  try {
    await attempt;
  } catch (error) {
    failure = error;
  }
  const info = errorInfo(failure);
  if (info?.domain !== "toban" || info.reason !== reason) {
    throw new Error(`expected ${reason}, got: ${failure ?? "success"}`);
  }
  console.log("refused:", reason);
  for (const { field, description } of violations(failure)) console.log(`  ${field}: ${description}`);
  return info.metadata;
}

async function greet(runs: RunServiceClient): Promise<void> {
  await refused(start(runs, "no-such-workflow", struct({})), "WORKFLOW_NOT_FOUND");
  await refused(start(runs, WORKFLOW, struct({ times: "many" })), "INVALID_PARAMS");

  const run = await start(runs, WORKFLOW, struct({ name: "Ada", times: 2 }));
  console.log("started a run of", run.workflow);
  const { run_id: active } = await refused(start(runs, WORKFLOW, struct({ name: "Grace" })), "RUN_ALREADY_ACTIVE");
  if (active !== run.id) throw new Error(`the active run is ${active}, not ${run.id}`);

  const end = await follow(runs, run.id, async (line) => {
    if (line.startsWith("wait | ")) await cancel(runs, run.id, "greeted enough");
  });
  console.log("ended:", end.runState, "complete:", end.complete);

  await refused(cancel(runs, run.id), "RUN_ALREADY_TERMINAL");
}

// Sends the token with each call.
function bearer(token: string): Interceptor {
  return (options, next) =>
    new InterceptingCall(next(options), {
      start(metadata, listener, begin) {
        metadata.set("authorization", `Bearer ${token}`);
        begin(metadata, listener);
      },
    });
}

function connect(address: string): RunServiceClient {
  const { TOBAN_CA: ca, TOBAN_TOKEN: token } = process.env;
  const transport = ca ? credentials.createSsl(readFileSync(ca)) : credentials.createInsecure();
  return new toban.v1.RunService(address, transport, { interceptors: token ? [bearer(token)] : [] });
}

async function main(): Promise<void> {
  const address = process.argv[2];
  if (process.argv.length !== 3 || !address) {
    console.error("usage: node build/src/client.js ADDRESS");
    process.exitCode = 2;
    return;
  }
  const runs = connect(address);
  try {
    await greet(runs);
  } catch (error) {
    console.error("greeting:", error);
    process.exitCode = 1;
  } finally {
    runs.close();
  }
}

void main();
