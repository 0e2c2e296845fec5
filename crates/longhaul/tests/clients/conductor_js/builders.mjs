// Further forms of the builders, the settings of a task that change the flow, and decorated workers.

import assert from "node:assert/strict";
import {
  NonRetryableException,
  TaskHandler,
  doWhileTask,
  forkTask,
  generate,
  joinTask,
  newLoopTask,
  noopLogger,
  simpleTask,
  subWorkflowTask,
  switchTask,
  taskDefinition,
  terminateTask,
  waitTaskDuration,
  worker,
  workflow as definitionOf,
} from "@io-orkes/conductor-javascript";

import { build, client, completed, ended, executor, main, metadata, references, runOf, statuses, taskOf, unique } from "./common.mjs";

async function aLoopOverAList() {
  const body = simpleTask("body", "echo", { item: "${each.output.loopItem}" });
  // The client has no builder for a list.
  const each = { ...doWhileTask("each", "", [body]), items: "${workflow.input.list}" };
  const workflow = await build("each", [each], { rounds: "${each.output.iteration}" });
  const run = await completed(workflow, { list: ["a", null, { c: 1 }] });
  assert.deepEqual(references(run), ["each", "body__1", "body__2", "body__3"]);
  assert.deepEqual(run.tasks.slice(1).map((task) => task.outputData.item), ["a", null, { c: 1 }]);
  assert.deepEqual(run.output, { rounds: 3 });
  assert.deepEqual(references(await completed(workflow, { list: [] })), ["each"]);
}

async function operatorsInsideEachOther() {
  const pick = switchTask("pick", "${loop.output.iteration}", { 1: [simpleTask("one", "echo", {})] }, [simpleTask("other", "echo", {})]);
  const [fork, join] = [forkTask("fork", [pick]), joinTask("join", ["pick"])];
  const run = await completed(await build("nested", [newLoopTask("loop", 2, [fork, join, simpleTask("end", "echo", {})])]));
  const expected = ["loop", "fork__1", "pick__1", "one__1", "join__1", "end__1", "fork__2", "pick__2", "other__2", "join__2", "end__2"];
  assert.deepEqual(references(run).sort(), expected.sort());
  assert.ok(statuses(run).every((status) => status === "COMPLETED"));
}

const failures = new Set();

async function aSubWorkflowIsTriedAgain() {
  const child = await build("child", [simpleTask("c", "once", { key: "${workflow.input.key}" })], { n: "${c.output.n}" });
  const name = unique("call");
  await metadata.registerTask(taskDefinition({ name, retryCount: 1, retryDelaySeconds: 0 }));
  const call = { ...subWorkflowTask("call", child.getName(), 1), name, inputParameters: { key: name } };
  const run = await completed(await build("parent", [call], { n: "${call.output.n}" }));
  assert.deepEqual(statuses(run), ["FAILED", "COMPLETED"]);
  assert.deepEqual(run.output, { n: 5 });
  assert.match(run.tasks[0].reasonForIncompletion, /the first child fails/);
  const children = await Promise.all(run.tasks.map((task) => executor.getWorkflow(task.subWorkflowId, false)));
  assert.deepEqual(children.map((one) => one.status), ["FAILED", "COMPLETED"]);
}

async function optionalTasks() {
  const run = await completed(await build("optional", [simpleTask("may", "fatal", {}, true), simpleTask("last", "echo", {})]));
  assert.deepEqual(statuses(run), ["COMPLETED_WITH_ERRORS", "COMPLETED"]);
}

async function permissiveTasks() {
  const run = await runOf(await build("permissive", [{ ...simpleTask("may", "fatal", {}), permissive: true }, simpleTask("last", "echo", {})]));
  assert.equal(run.status, "FAILED");
  assert.deepEqual(statuses(run), ["FAILED_WITH_TERMINAL_ERROR", "COMPLETED"]);
  assert.match(run.reasonForIncompletion, /no use/);
}

async function delays() {
  const run = await completed(await build("delays", [{ ...simpleTask("t", "echo", {}), startDelay: 1 }, waitTaskDuration("wait", "1s")]));
  // All moments come from the clock of the server.
  assert.ok(taskOf(run, "t").startTime - taskOf(run, "t").scheduledTime >= 1000);
  assert.ok(taskOf(run, "wait").endTime - taskOf(run, "wait").scheduledTime >= 1000);
}

async function aTypeOfTheUser() {
  const run = await completed(await build("typed", [{ name: "mine", taskReferenceName: "mine", type: "MY_TYPE", inputParameters: { n: 1 } }]));
  assert.equal(run.tasks[0].taskType, "MY_TYPE");
  assert.deepEqual(run.output, { by: "type", n: 1 });
}

async function anEndBeforeTheEnd() {
  const end = terminateTask("end", "COMPLETED", "early");
  end.inputParameters.workflowOutput = { n: "${workflow.input.n}" };
  const run = await completed(await build("early", [end, simpleTask("never", "echo", {})]), { n: 3 });
  assert.deepEqual([references(run), run.output, run.reasonForIncompletion], [["end"], { n: 3 }, "early"]);
}

async function valuesOfTheDefinition() {
  const workflow = (await build("values", [simpleTask("t", "echo", { n: "${workflow.input.n}" })]))
    .inputTemplate({ n: 21 })
    .variables({ first: "yes" })
    .outputParameters({ n: "${t.output.n}", first: "${workflow.variables.first}" });
  await workflow.register(true);
  assert.deepEqual((await completed(workflow)).output, { n: 21, first: "yes" });
  assert.deepEqual((await completed(workflow, { n: 1 })).output, { n: 1, first: "yes" });
}

async function generatedDefinitions() {
  const name = unique("generated");
  const script = function () {
    return $.a + 2;
  };
  const tasks = [
    { type: "INLINE", name: "sum", taskReferenceName: "sum", inputParameters: { a: 40, expression: () => script } },
    { type: "FORK_JOIN", taskReferenceName: "fork", forkTasks: [[simpleTask("a", "echo", { n: "${sum.output.result}" })]] },
    simpleTask("last", "echo", {}),
  ];
  // The generator sends the text of the function, and adds a join on nothing after the fork.
  await executor.registerWorkflow(true, generate({ name, tasks, outputParameters: { n: "${a.output.n}" } }));
  const run = await ended(await executor.startWorkflow({ name, version: 1 }));
  assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
  assert.deepEqual(run.output, { n: 42 });
  assert.deepEqual(run.tasks.map((task) => task.taskType).sort(), ["FORK", "INLINE", "JOIN", "echo", "echo"]);
  const plain = definitionOf(unique("plain"), [simpleTask("a", "echo", { n: 1 })]);
  await executor.registerWorkflow(true, plain);
  assert.deepEqual((await ended(await executor.startWorkflow({ name: plain.name, version: 1 }))).output, { n: 1 });
}

async function decoratedWorkers() {
  const name = unique("decorated");
  const taskDef = { retryCount: 7, timeoutSeconds: 60, responseTimeoutSeconds: 30 };
  const settings = { taskDefName: name, pollInterval: 10, registerTaskDef: true, taskDef };
  worker(settings)(async ({ inputData }) => ({ status: "COMPLETED", outputData: { n: inputData.n + 1 } }), { kind: "method", name });
  const handler = new TaskHandler({ client, logger: noopLogger, scanForDecorated: true });
  await handler.startWorkers();
  const run = await completed(await build("decorated", [simpleTask("t", name, { n: 1 })]));
  assert.deepEqual(run.output, { n: 2 });
  assert.equal((await metadata.getTask(name)).retryCount, 7);
  await handler.stopWorkers();
}

await main(
  {
    echo: async ({ inputData }) => ({ status: "COMPLETED", outputData: { ...inputData } }),
    MY_TYPE: async ({ inputData }) => ({ status: "COMPLETED", outputData: { by: "type", ...inputData } }),
    fatal: async () => {
      throw new NonRetryableException("no use");
    },
    once: async ({ inputData: { key } }) => {
      if (failures.has(key)) return { status: "COMPLETED", outputData: { n: 5 } };
      failures.add(key);
      throw new NonRetryableException("the first child fails");
    },
  },
  [
    aLoopOverAList,
    operatorsInsideEachOther,
    aSubWorkflowIsTriedAgain,
    optionalTasks,
    permissiveTasks,
    delays,
    aTypeOfTheUser,
    anEndBeforeTheEnd,
    valuesOfTheDefinition,
    generatedDefinitions,
    decoratedWorkers,
  ],
);
