// Workers, the executor and the clients of metadata, tasks and schemas.

import assert from "node:assert/strict";
import { MetadataClient, TaskManager, WorkflowExecutor, humanTask, noopLogger, simpleTask, taskDefinition } from "@io-orkes/conductor-javascript";

import {
  batch,
  build,
  client,
  completed,
  connect,
  ended,
  eventually,
  execute,
  executor,
  main,
  metadata,
  references,
  refused,
  schemas,
  taskOf,
  tasks,
  unique,
} from "./common.mjs";

const wild = {
  text: "grüße, мир, 世界, 🚀, \u0000 and \"quotes\"",
  nulls: [null, { deep: { deeper: null } }, [[null]]],
  null: null,
  numbers: [0, -1, 1.5, 9007199254740991],
  empty: { list: [], object: {}, text: "" },
};

const MEGABYTE = "ü".repeat(500_000);

async function values() {
  const workflow = await build("values", [simpleTask("echo", "echo", { value: "${workflow.input.value}" })], {
    value: "${echo.output.value}",
  });
  const run = await completed(workflow, { value: wild });
  assert.deepEqual(run.output, { value: wild });
  assert.deepEqual(run.input, { value: wild });
}

async function largeOutputs() {
  const workflow = await build("large", [simpleTask("large", "large", {}), simpleTask("echo", "echo", { value: "${large.output.value}" })], {
    value: "${echo.output.value}",
  });
  const run = await completed(workflow);
  for (const { value } of [run.output, taskOf(run, "large").outputData, taskOf(run, "echo").inputData]) assert.ok(value === MEGABYTE);
}

async function aRunStepByStep() {
  // The server is open: it has no tokens, and the client goes on without one.
  const open = await connect({ keyId: "any", keySecret: "any" });
  const [definitions, runs] = [new MetadataClient(open), new WorkflowExecutor(open)];
  const [task, name] = [unique("greet"), unique("hello")];
  await definitions.registerTask(taskDefinition({ name: task }));
  const greet = simpleTask("greet_ref", task, { n: "${workflow.input.n}" });
  const outputParameters = { g: "${greet_ref.output.result}" };
  await definitions.registerWorkflowDef({ name, version: 1, tasks: [greet], outputParameters, timeoutSeconds: 0 }, true);
  assert.deepEqual(await batch(task, 1), []);
  const id = await runs.startWorkflow({ name, version: 1, input: { n: "x" } });
  const [given] = await batch(task, 1);
  assert.deepEqual([given.workflowInstanceId, given.status, given.inputData], [id, "IN_PROGRESS", { n: "x" }]);
  assert.deepEqual([given.taskType, given.taskDefName, given.referenceTaskName], [task, task, "greet_ref"]);
  assert.deepEqual([given.seq, given.pollCount, given.retryCount, given.responseTimeoutSeconds], [1, 1, 0, 600]);
  assert.equal(await runs.updateTask(given.taskId, id, "COMPLETED", { result: "hi x" }), given.taskId);
  const run = await runs.getWorkflow(id, true);
  assert.deepEqual([run.status, run.output, references(run)], ["COMPLETED", { g: "hi x" }, ["greet_ref"]]);
  const found = await runs.search(0, 10, `workflowId="${id}"`, "*");
  assert.deepEqual([found.totalHits, found.results[0].workflowId], [1, id]);
}

async function inProgress() {
  const run = await completed(await build("progress", [simpleTask("slow", "slow", {})]));
  assert.equal(run.tasks.length, 1);
  assert.equal(run.tasks[0].pollCount, 3);
  assert.equal(run.tasks[0].outputData.round, 3);
}

async function executions() {
  const workflow = await build("executions", [simpleTask("echo", "echo", { n: "${workflow.input.n}" }), humanTask("ask")]);
  const whole = await build("whole", [simpleTask("echo", "echo", { n: "${workflow.input.n}" })]);
  const run = await execute(whole, { n: 1 });
  assert.equal(run.status, "COMPLETED");
  assert.equal(run.output.n, 1);
  assert.equal(run.targetWorkflowId, run.workflowId);
  const waiting = await execute(workflow, { n: 2 }, { until: "echo", requestId: "request-1" });
  assert.equal(waiting.requestId, "request-1");
  assert.equal(taskOf(waiting, "echo").status, "COMPLETED");
  const status = await executor.getWorkflowStatus(waiting.workflowId, true, true);
  assert.equal(status.status, "RUNNING");
  await executor.updateTaskByRefName("ask", waiting.workflowId, "COMPLETED", { done: true });
  assert.equal((await ended(waiting.workflowId)).status, "COMPLETED");
}

async function controls() {
  const workflow = await build("controls", [humanTask("one"), simpleTask("echo", "echo", {})]);
  const id = await workflow.startWorkflow({}, "correlation-1", 5);
  await executor.pause(id);
  assert.equal((await executor.getWorkflow(id, false)).status, "PAUSED");
  await executor.resume(id);
  const run = await executor.getExecution(id);
  assert.equal(run.status, "RUNNING");
  assert.equal(run.correlationId, "correlation-1");
  assert.equal(run.priority, 5);
  const task = await executor.getTask(taskOf(run, "one").taskId);
  assert.equal(task.status, "IN_PROGRESS");
  await executor.updateTask(task.taskId, id, "COMPLETED", { by: "hand" });
  assert.deepEqual(references(await ended(id)), ["one", "echo"]);
  const second = await workflow.startWorkflow({});
  await executor.terminate(second, "enough");
  const ending = await ended(second);
  assert.equal(ending.status, "TERMINATED");
  assert.equal(ending.reasonForIncompletion, "enough");
  await refused(/No such workflow found by id: no-such-run/, executor.getExecution("no-such-run"));
  await refused(/No such workflow defined. name=no_such_workflow/, executor.startWorkflow({ name: "no_such_workflow", version: 1 }));
}

async function definitions() {
  const name = unique("defined");
  await metadata.registerTasks([taskDefinition({ name })]);
  await metadata.updateTask(taskDefinition({ name, description: "second", retryCount: 7 }));
  const stored = await metadata.getTask(name);
  assert.equal(stored.retryCount, 7);
  assert.equal(stored.description, "second");
  assert.ok((await metadata.getAllTaskDefs()).some((one) => one.name === name));
  await metadata.unregisterTask(name);
  await refused(/No such taskType found by name/, metadata.getTask(name));
  const definition = { name: unique("flow"), version: 1, tasks: [simpleTask("a", name, { x: null })], inputParameters: ["a", "b"], timeoutSeconds: 0 };
  await metadata.registerWorkflowDef(definition);
  await refused(/already exists/, metadata.registerWorkflowDef(definition));
  await metadata.registerWorkflowDef({ ...definition, description: "again" }, true);
  const found = await metadata.getWorkflowDef(definition.name, 1);
  assert.equal(found.description, "again");
  assert.deepEqual(found.inputParameters, ["a", "b"]);
  await refused(/Validation failed/, metadata.registerWorkflowDef({ ...definition, name: "", version: 2 }));
  await metadata.unregisterWorkflow(definition.name, 1);
  await refused(/No such workflow found by name/, metadata.getWorkflowDef(definition.name, 1));
}

async function schemaRegistry() {
  const name = unique("schema");
  const data = { $schema: "http://json-schema.org/draft-07/schema#", type: "object", properties: { n: { type: "integer" } } };
  await schemas.registerSchema([{ name, version: 1, type: "JSON", data }]);
  await schemas.registerSchema([{ name, type: "JSON", data: { type: "array" } }], true);
  assert.deepEqual((await schemas.getSchema(name, 1)).data, data);
  assert.equal((await schemas.getSchemaByName(name)).version, 2);
  assert.equal((await schemas.getAllSchemas()).filter((one) => one.name === name).length, 2);
  await schemas.deleteSchema(name, 1);
  await schemas.deleteSchemaByName(name);
  await refused(/No such schema/, schemas.deleteSchemaByName(name));
}

async function taskManager() {
  const name = unique("managed");
  const workflow = await build("manager", [simpleTask("managed", name, {})]);
  const manager = new TaskManager(
    client,
    [{ taskDefName: name, execute: async () => ({ status: "COMPLETED", outputData: { by: "manager" } }) }],
    { logger: noopLogger, options: { pollInterval: 10, concurrency: 2 } },
  );
  manager.startPolling();
  const run = await completed(workflow);
  assert.deepEqual(run.output, { by: "manager" });
  const polls = await eventually("the poll data", async () => {
    const found = await tasks.getTaskPollData(name);
    return found.length > 0 && found;
  });
  assert.equal(polls[0].queueName, name);
  await manager.stopPolling();
}

const attempts = new Map();

await main(
  {
    echo: async (task) => ({ status: "COMPLETED", outputData: { ...task.inputData } }),
    large: async () => ({ status: "COMPLETED", outputData: { value: MEGABYTE } }),
    slow: async (task) => {
      const round = (attempts.get(task.taskId) ?? 0) + 1;
      attempts.set(task.taskId, round);
      if (round < 3) return { status: "IN_PROGRESS", callbackAfterSeconds: 1, outputData: { round } };
      return { status: "COMPLETED", outputData: { round } };
    },
  },
  [values, largeOutputs, aRunStepByStep, inProgress, executions, controls, definitions, schemaRegistry, taskManager],
);
