// Signals, variables, state and test runs of workflows.

import assert from "node:assert/strict";
import { simpleTask } from "@io-orkes/conductor-javascript";

import { build, ended, executor, main, references, refused, statuses, unique } from "./common.mjs";

const wait = (reference) => ({ name: reference, taskReferenceName: reference, type: "WAIT" });

/** Starts a run that waits in its sub-workflow first, and then itself. */
async function startTree() {
  const child = await build("child", [wait("inner")]);
  const sub = { name: "sub", taskReferenceName: "sub", type: "SUB_WORKFLOW", subWorkflowParam: { name: child.getName(), version: 1 } };
  return (await build("parent", [sub, wait("outer")])).startWorkflow({});
}

async function aSignalReachesTheTaskThatWaits() {
  const run = await startTree();
  await executor.signalAsync(run, "COMPLETED", { said: "yes" });
  assert.deepEqual(statuses(await executor.getWorkflow(run, true)), ["COMPLETED", "IN_PROGRESS"]);
  await executor.signalAsync(run, "COMPLETED", { said: "again" });
  // The client sends the output as a member of this name.
  assert.deepEqual((await ended(run)).output, { taskOutput: { said: "again" } });
  await refused(/Found no blocked task/, executor.signal(run, "COMPLETED", {}));
  const unknown = unique("none");
  await refused(new RegExp(unknown), executor.signal(unknown, "COMPLETED", {}));
}

async function aSignalReturnsWhatWasAskedFor() {
  for (const strategy of ["TARGET_WORKFLOW", "BLOCKING_WORKFLOW", "BLOCKING_TASK", "BLOCKING_TASK_INPUT"]) {
    const run = await startTree();
    const answer = await executor.signal(run, "COMPLETED", { said: "yes" }, strategy);
    assert.equal(answer.responseType, strategy);
    assert.equal(answer.targetWorkflowId, run);
    assert.equal(answer.targetWorkflowStatus, "RUNNING");
    if (strategy.startsWith("BLOCKING_TASK")) assert.equal(answer.referenceTaskName, "outer");
    else assert.deepEqual(statuses(answer), ["COMPLETED", "IN_PROGRESS"]);
  }
}

async function variablesChangeWhileARunIsOpen() {
  const run = await (await build("variables", [wait("one")])).startWorkflow({});
  await executor.updateVariables(run, { a: 1 });
  const after = await executor.updateVariables(run, { b: ["x"] });
  assert.deepEqual(after.variables, { a: 1, b: ["x"] });
  await executor.terminate(run, "enough");
  await refused(/./, executor.updateVariables(run, { a: 2 }));
}

async function stateChangesAsAWhole() {
  const run = await (await build("state", [wait("one"), wait("two")])).startWorkflow({});
  const taskResult = { workflowInstanceId: run, taskId: "", status: "COMPLETED", outputData: { x: 1 } };
  const update = { taskReferenceName: "one", taskResult, variables: { v: 1 } };
  const answer = await executor.updateState(run, update, "request-1", "", 60);
  assert.equal(answer.requestId, "request-1");
  assert.deepEqual(answer.variables, { v: 1 });
  assert.deepEqual(statuses(answer), ["COMPLETED", "IN_PROGRESS"]);
  await refused(/no running task one/, executor.updateState(run, { ...update, variables: { v: 2 } }, "request-2"));
  assert.deepEqual((await executor.getWorkflow(run, false)).variables, { v: 1 });
}

async function aTestRunUsesGivenResultsAndIsNotStored() {
  const workflow = await build("tested", [
    simpleTask("first", "first", {}),
    { name: "loop", taskReferenceName: "loop", type: "DO_WHILE", loopCondition: "$.loop['iteration'] < 2", loopOver: [simpleTask("body", "body", {})] },
  ], { last: "${body.output.n}" });
  const name = workflow.getName();
  const mocks = { first: [{ status: "COMPLETED", output: {} }], body__1: [{ output: { n: 1 } }], body: [{ output: { n: 2 } }] };
  const run = await executor.testWorkflow({ name, version: 1, input: {}, taskRefToMockOutput: mocks });
  assert.equal(run.status, "COMPLETED");
  assert.deepEqual(references(run), ["first", "loop", "body__1", "body__2"]);
  assert.deepEqual(run.output, { last: 2 });
  const failed = await executor.testWorkflow({ name, version: 1, taskRefToMockOutput: { first: [{ status: "FAILED_WITH_TERMINAL_ERROR", output: { why: "no" } }] } });
  assert.equal(failed.status, "FAILED");
  await refused(new RegExp(run.workflowId), executor.getWorkflow(run.workflowId, true));
  assert.equal((await executor.search(0, 10, `workflowType='${name}'`, "*")).totalHits, 0);
}

await main({}, [
  aSignalReachesTheTaskThatWaits,
  aSignalReturnsWhatWasAskedFor,
  variablesChangeWhileARunIsOpen,
  stateChangesAsAWhole,
  aTestRunUsesGivenResultsAndIsNotStored,
]);
