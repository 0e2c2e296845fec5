// Starting, executing and ending runs.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import {
  Consistency,
  ConductorWorkflow,
  ReturnStrategy,
  WorkflowExecutor,
  dynamicForkTask,
  humanTask,
  joinTask,
  simpleTask,
  subWorkflowTask,
  terminateTask,
} from "@io-orkes/conductor-javascript";

import {
  build,
  completed,
  connect,
  ended,
  eventually,
  execute,
  executor,
  main,
  references,
  refused,
  runOf,
  serverUrl,
  taskOf,
  unique,
} from "./common.mjs";

const noop = { name: "noop", taskReferenceName: "noop", type: "NOOP" };
const wait = { name: "wait", taskReferenceName: "wait", type: "WAIT", inputParameters: { question: "${workflow.input.k}" } };

/** Starts a run with this key. */
const keyed = (workflow, key, strategy) => workflow.startWorkflow({}, undefined, undefined, key, strategy);

async function keysOfEachStrategy() {
  const [workflow, other] = [await build("keys", [humanTask("human")]), await build("others", [humanTask("human")])];
  const first = await keyed(workflow, "order-7", "FAIL");
  for (const strategy of ["FAIL", "FAIL_ON_RUNNING", undefined]) {
    await refused(/the idempotency key belongs to run/, keyed(workflow, "order-7", strategy));
  }
  assert.equal(await keyed(workflow, "order-7", "RETURN_EXISTING"), first);
  assert.equal((await executor.getWorkflow(first, false)).idempotencyKey, "order-7");
  assert.notEqual(await keyed(other, "order-7", "FAIL"), first);
  await executor.updateTaskByRefName("human", first, "COMPLETED", {});
  assert.equal((await ended(first)).status, "COMPLETED");
  await refused(/the idempotency key belongs to run/, keyed(workflow, "order-7", "FAIL"));
  assert.equal(await keyed(workflow, "order-7", "RETURN_EXISTING"), first);
  const second = await keyed(workflow, "order-7", "FAIL_ON_RUNNING");
  assert.notEqual(second, first);
  assert.equal(await keyed(workflow, "order-7", "RETURN_EXISTING"), second);
  assert.equal((await executor.search(0, 10, `workflowType=${workflow.getName()}`, "*")).totalHits, 2);
}

async function startsAtTheSameTimeGiveOneRun() {
  const workflow = await build("repeated", [humanTask("human")]);
  const request = { name: workflow.getName(), version: 1, idempotencyKey: "once", idempotencyStrategy: "RETURN_EXISTING" };
  const ids = await Promise.all(executor.startWorkflows(Array(20).fill(request)));
  assert.equal(new Set(ids).size, 1);
  const found = await executor.search(0, 10, `idempotencyKey=once AND workflowType=${workflow.getName()}`, "*");
  assert.equal(found.totalHits, 1);
}

/** Passes requests on to the server, and breaks the connection of the first start after the server has answered it. */
async function breakingProxy() {
  const answers = [];
  const proxy = createServer(async (request, response) => {
    const parts = await request.toArray();
    const headers = { "content-type": "application/json" };
    const answer = await fetch(new URL(request.url, serverUrl), { method: request.method, headers, body: Buffer.concat(parts) });
    const text = await answer.text();
    if (answers.push([answer.status, text]) === 1) return request.socket.destroy();
    response.writeHead(answer.status, { "content-type": "text/plain" }).end(text);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${proxy.address().port}/api`, answers };
}

async function aStartAfterABrokenConnectionGivesOneRun() {
  const workflow = await build("broken", [humanTask("human")]);
  const { url, answers } = await breakingProxy();
  const request = { name: workflow.getName(), version: 1, idempotencyKey: "once", idempotencyStrategy: "RETURN_EXISTING" };
  const id = await new WorkflowExecutor(await connect({ serverUrl: url })).startWorkflow(request);
  assert.deepEqual(answers, [[200, id], [200, id]]);
  assert.equal((await executor.search(0, 10, `workflowType=${workflow.getName()}`, "*")).totalHits, 1);
}

async function formsOfStarting() {
  const workflow = await build("forms", [noop], { n: "${workflow.input.n}" });
  const id = await executor.startWorkflowByName(workflow.getName(), { n: 1 }, 1, "by-name", 9);
  const run = await ended(id);
  assert.deepEqual([run.output, run.correlationId, run.priority], [{ n: 1 }, "by-name", 9]);
  const latest = await executor.startWorkflowByName(workflow.getName(), { n: 2 });
  assert.deepEqual((await ended(latest)).output, { n: 2 });
  // A definition inside the request is not registered.
  const inline = new ConductorWorkflow(executor, unique("inline")).add(noop).outputParameters({ inline: true }).timeoutSeconds(0);
  const started = await executor.startWorkflow({ name: inline.getName(), version: 1, workflowDef: inline.toWorkflowDef() });
  assert.deepEqual((await ended(started)).output, { inline: true });
  await refused(/No such workflow defined/, executor.startWorkflow({ name: inline.getName(), version: 1 }));
  await refused(/priority/, executor.startWorkflow({ name: workflow.getName(), version: 1, priority: 100 }));
}

async function failureWorkflows() {
  const cleanup = await build("cleanup", [noop], { of: "${workflow.input.workflowId}", why: "${workflow.input.reason}", n: "${workflow.input.n}" });
  const failing = (await build("failing", [terminateTask("end", "FAILED", "no stock")])).failureWorkflow(cleanup.getName());
  await failing.register(true);
  const run = await runOf(failing, { n: 5 });
  assert.equal(run.status, "FAILED");
  const followed = await ended(run.output["conductor.failure_workflow"]);
  assert.equal(followed.workflowName, cleanup.getName());
  assert.deepEqual(followed.output, { of: run.workflowId, why: "no stock", n: 5 });
  // A run that an operator terminates does not start it.
  const waiting = (await build("waiting", [humanTask("human")])).failureWorkflow(cleanup.getName());
  await waiting.register(true);
  const id = await waiting.startWorkflow({});
  await executor.terminate(id, "enough");
  assert.equal((await ended(id)).output?.["conductor.failure_workflow"], undefined);
}

async function executeWithEachStrategy() {
  const inner = await build("inner", [simpleTask("a", "echo", {}), wait]);
  const call = { ...subWorkflowTask("call", inner.getName(), 1), inputParameters: { k: "${workflow.input.k}" } };
  const workflow = await build("outer", [call]);
  for (const strategy of Object.values(ReturnStrategy)) {
    for (const consistency of Object.values(Consistency)) {
      const answer = await execute(workflow, { k: 1 }, { strategy, consistency, requestId: `${strategy}-${consistency}` });
      const [target, blocking] = [answer.getTargetWorkflowId(), answer.getWorkflowId()];
      assert.deepEqual([answer.responseType, answer.requestId], [strategy, `${strategy}-${consistency}`]);
      assert.equal(answer.targetWorkflowStatus, "RUNNING");
      const child = taskOf(await executor.getWorkflow(target, true), "call").subWorkflowId;
      if (strategy === ReturnStrategy.TARGET_WORKFLOW) {
        assert.equal(blocking, target);
        assert.deepEqual(references(answer.getWorkflow()), ["call"]);
      } else if (strategy === ReturnStrategy.BLOCKING_WORKFLOW) {
        assert.equal(blocking, child);
        assert.deepEqual(references(answer.getWorkflow()), ["a", "wait"]);
      } else {
        const task = answer.getBlockingTask();
        assert.deepEqual([blocking, task.referenceTaskName, task.taskType, task.status], [child, "wait", "WAIT", "IN_PROGRESS"]);
        assert.deepEqual(task.inputData, { question: 1 });
      }
      await executor.terminate(target, "seen");
    }
  }
}

async function executeUntilATask() {
  const workflow = await build("until", [simpleTask("a", "echo", { n: 1 }), humanTask("human")]);
  const answer = await execute(workflow, {}, { until: "a" });
  assert.equal(answer.status, "RUNNING");
  assert.equal(taskOf(answer, "a").status, "COMPLETED");
  await executor.updateTaskByRefName("human", answer.workflowId, "COMPLETED", {});
  assert.equal((await ended(answer.workflowId)).status, "COMPLETED");
  // The wait ends and the run goes on.
  const request = { name: workflow.getName(), version: 1, input: {} };
  const wanted = [Consistency.DURABLE, ReturnStrategy.TARGET_WORKFLOW];
  const waiting = await executor.executeWorkflow(request, workflow.getName(), 1, unique("request"), "", 1, ...wanted);
  assert.deepEqual([waiting.isRunning(), waiting.signalTimeout], [true, true]);
}

async function aForkOfAThousandBranches() {
  const count = 1000;
  const numbers = [...Array(count).keys()];
  const workflow = await build("fan", [dynamicForkTask("fan", "${workflow.input.tasks}", "${workflow.input.inputs}"), joinTask("join", [])]);
  const run = await completed(workflow, {
    tasks: numbers.map((n) => ({ name: "echo", taskReferenceName: `b${n}`, type: "SIMPLE" })),
    inputs: Object.fromEntries(numbers.map((n) => [`b${n}`, { n }])),
  });
  assert.equal(run.tasks.length, count + 2);
  assert.deepEqual(taskOf(run, "join").outputData, Object.fromEntries(numbers.map((n) => [`b${n}`, { n }])));
}

async function subWorkflowsThreeDeep() {
  let workflow = await build("depth", [simpleTask("t", "echo", { n: "${workflow.input.n}" })], { n: "${t.output.n}" });
  for (let depth = 0; depth < 3; depth++) {
    const call = { ...subWorkflowTask("call", workflow.getName(), 1), inputParameters: { n: "${workflow.input.n}" } };
    workflow = await build("depth", [call], { n: "${call.output.n}" });
  }
  const run = await completed(workflow, { n: 7 });
  assert.deepEqual(run.output, { n: 7 });
  let below = run;
  for (let depth = 0; depth < 3; depth++) {
    const parent = below;
    below = await executor.getWorkflow(taskOf(parent, "call").subWorkflowId, true);
    assert.deepEqual([below.status, below.parentWorkflowId], ["COMPLETED", parent.workflowId]);
  }
  assert.deepEqual(references(below), ["t"]);
}

async function endingTheTree() {
  const inner = await build("inner", [humanTask("human")]);
  const workflow = await build("outer", [subWorkflowTask("call", inner.getName(), 1)]);
  const id = await workflow.startWorkflow({});
  const child = await eventually("the child", async () => taskOf(await executor.getWorkflow(id, true), "call").subWorkflowId);
  await executor.terminate(id, "enough");
  assert.equal(taskOf(await ended(id), "call").status, "CANCELED");
  const below = await ended(child);
  assert.equal(below.status, "TERMINATED");
  assert.match(below.reasonForIncompletion, /Parent workflow has been terminated with reason: enough/);
}

await main({ echo: async ({ inputData }) => ({ status: "COMPLETED", outputData: { ...inputData } }) }, [
  keysOfEachStrategy,
  startsAtTheSameTimeGiveOneRun,
  aStartAfterABrokenConnectionGivesOneRun,
  formsOfStarting,
  failureWorkflows,
  executeWithEachStrategy,
  executeUntilATask,
  aForkOfAThousandBranches,
  subWorkflowsThreeDeep,
  endingTheTree,
]);
