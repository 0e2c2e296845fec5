// A key of the configuration: the client exchanges it for a token and works with it; a worker's key may not do what operators do.

import assert from "node:assert/strict";
import { MetadataClient, TaskHandler, WorkflowExecutor, noopLogger, simpleTask, taskDefinition } from "@io-orkes/conductor-javascript";

import { connect, eventually, refused } from "./common.mjs";

const SECRET = "a-secret-for-the-tests";
const operator = await connect({ keyId: "operator", keySecret: SECRET });
const worker = await connect({ keyId: "worker", keySecret: SECRET });

// The worker registers its task and polls; the operator registers the workflow and runs it.
await new MetadataClient(worker).registerTask(taskDefinition({ name: "guarded" }));
const handler = new TaskHandler({
  client: worker,
  logger: noopLogger,
  scanForDecorated: false,
  workers: [{ taskDefName: "guarded", execute: async () => ({ status: "COMPLETED", outputData: { ok: true } }), pollInterval: 10 }],
});
await handler.startWorkers();
const executor = new WorkflowExecutor(operator);
const definition = { name: "guarded", version: 1, tasks: [simpleTask("only", "guarded", {})], timeoutSeconds: 0 };
await executor.registerWorkflow(true, definition);
const id = await executor.startWorkflow({ name: "guarded", version: 1, input: {} });
const run = await eventually("the end of the run", async () => {
  const found = await executor.getWorkflow(id, true);
  return found.status !== "RUNNING" && found;
});
assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
await refused(/may not do this/, new WorkflowExecutor(worker).startWorkflow({ name: "guarded", version: 1 }));
await refused(/may not do this/, new MetadataClient(worker).unregisterWorkflow("guarded", 1));
await handler.stopWorkers();
console.log("ok keys");
process.exit(0);
