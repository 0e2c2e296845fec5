// Set-up shared by the scenario programs of the Conductor client for JavaScript.
//
// A scenario is an async function. A program gives its workers and its scenarios to `main`, which runs the scenarios at the same time,
// prints one line each and exits non-zero if any failed. To run one program alone: install @io-orkes/conductor-javascript 4.0.0 in a
// folder, copy these files there, and run `LONGHAUL_URL=http://127.0.0.1:PORT node operators.mjs [SCENARIO]`.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import {
  ConductorWorkflow,
  MetadataClient,
  SchemaClient,
  TaskClient,
  TaskHandler,
  WorkflowExecutor,
  noopLogger,
  orkesConductorClient,
  simpleTask,
  taskDefinition,
} from "@io-orkes/conductor-javascript";

// Longest a scenario may take. Generous, because CI machines stall; never reached when green.
const DEADLINE_MS = 120_000;
const LOOK_INTERVAL_MS = 20;
// How long the server holds a call that waits for a run. The default of 10 s is too short for a machine that stalls.
const WAIT_SECONDS = 60;

export const serverUrl = `${process.env.LONGHAUL_URL}/api`;
export const connect = (settings = {}) => orkesConductorClient({ serverUrl, ...settings }, undefined, noopLogger);
export const client = await connect();
export const executor = new WorkflowExecutor(client);
export const metadata = new MetadataClient(client);
export const tasks = new TaskClient(client);
export const schemas = new SchemaClient(client);

/** Returns a name that no earlier run of this program has used. */
export const unique = (name) => `${name}_${randomUUID().slice(0, 8)}`;

/** Registers a workflow of these tasks and returns it. */
export async function build(name, list, outputs = {}) {
  const workflow = new ConductorWorkflow(executor, unique(name)).add(list).outputParameters(outputs).timeoutSeconds(0);
  await workflow.register();
  return workflow;
}

/** Registers a task and a workflow of it, whose reference is `t`. Returns the name of the task and the workflow. */
export async function oneTask(definition = {}, inputs = {}) {
  const task = unique("task");
  await metadata.registerTask({ ...taskDefinition({ name: task, timeoutSeconds: 0 }), ...definition });
  return { task, workflow: await build("workflow", [simpleTask("t", task, inputs)]) };
}

/** Starts a run and returns the answer of the server, which waits for its end or for what `until` names. */
export const execute = (workflow, input = {}, { until = "", consistency, strategy, requestId = unique("request") } = {}) => {
  const request = { name: workflow.getName(), version: 1, input };
  return executor.executeWorkflow(request, request.name, 1, requestId, until, WAIT_SECONDS, consistency, strategy);
};

/** Returns the tasks of this type that can be polled now. The client polls by hand only with its older resource objects. */
export const batch = (taskType, count = 10, domain = undefined) => client.taskResource.batchPoll(taskType, "by-hand", domain, count, 50);

/** Returns a task of this type. */
export const polled = (taskType, domain = undefined) => eventually(`a task ${taskType}`, async () => (await batch(taskType, 1, domain))[0]);

/** Reports a result for a task that was polled. */
export const report = (task, status, output = {}) => executor.updateTask(task.taskId, task.workflowInstanceId, status, output);

/** Returns the first true value of `look`. */
export async function eventually(what, look) {
  const until = Date.now() + DEADLINE_MS;
  while (Date.now() < until) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, LOOK_INTERVAL_MS));
  }
  throw new Error(`${what} did not happen in time`);
}

/** Returns the run once it has ended. */
export const ended = (id) =>
  eventually(`the end of ${id}`, async () => {
    const run = await executor.getWorkflow(id, true);
    return ["RUNNING", "PAUSED"].includes(run.status) ? undefined : run;
  });

/** Starts a run with this input and returns it once it has ended. */
export const runOf = async (workflow, input = {}) => ended(await workflow.startWorkflow(input));

export const completed = async (workflow, input = {}) => {
  const run = await runOf(workflow, input);
  assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
  return run;
};

export const statuses = (run) => run.tasks.map((task) => task.status);
export const references = (run) => run.tasks.map((task) => task.referenceTaskName);
export const taskOf = (run, reference) => run.tasks.find((task) => task.referenceTaskName === reference);

/** Expects that a call is refused with a message like this one. The client keeps the message of the server and not its status. */
export const refused = (message, call) => assert.rejects(call, { message });

/** Runs the workers and the scenarios. A worker is a function, or an object with a function `execute` and settings of the client. */
export async function main(workers, scenarios) {
  // The client warns at each call of its older resource objects.
  console.warn = () => {};
  const handler = new TaskHandler({
    client,
    logger: noopLogger,
    scanForDecorated: false,
    workers: Object.entries(workers).map(([taskDefName, worker]) => ({
      taskDefName,
      concurrency: 10,
      pollInterval: 10,
      ...(typeof worker === "function" ? { execute: worker } : worker),
    })),
  });
  await handler.startWorkers();
  const chosen = process.argv.slice(2);
  let failed = false;
  const show = async (scenario) => {
    const began = Date.now();
    try {
      await scenario();
      console.log(`ok ${scenario.name} ${Date.now() - began} ms`);
    } catch (error) {
      failed = true;
      console.log(`FAILED ${scenario.name}\n${error.stack}`);
    }
  };
  await Promise.all(scenarios.filter((scenario) => chosen.length === 0 || chosen.includes(scenario.name)).map(show));
  await handler.stopWorkers();
  // Connections of the client may stay open; the process need not.
  process.exit(failed ? 1 : 0);
}
