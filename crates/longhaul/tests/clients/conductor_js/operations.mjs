// Removing workflows, operations on many, signals and changes of state.

import assert from "node:assert/strict";
import { humanTask, simpleTask, subWorkflowTask } from "@io-orkes/conductor-javascript";

import { build, client, executor, main, refused, statuses, unique } from "./common.mjs";

const wait = (name, inputParameters = {}) => ({ name, taskReferenceName: name, type: "WAIT", inputParameters });
const run = (id) => executor.getWorkflow(id, true);

async function aRunIsRemoved() {
  const workflow = await build("removed", [humanTask("h")]);
  const id = await workflow.startWorkflow({});
  await executor.deleteWorkflow(id, true);
  await refused(/No such workflow/, run(id));
  await refused(/No such workflow/, executor.deleteWorkflow(id, false));
  assert.equal((await executor.search(0, 10, `workflowType=${workflow.getName()}`, "*")).totalHits, 0);
}

async function manyRuns() {
  const workflow = await build("many", [humanTask("h")]);
  const ids = await Promise.all([1, 2, 3].map(() => workflow.startWorkflow({})));
  const body = [...ids, "none"];
  const call = async (operation, ...more) => {
    const { bulkSuccessfulResults, bulkErrorResults } = await operation(body, ...more);
    assert.deepEqual(bulkSuccessfulResults, ids);
    assert.deepEqual(bulkErrorResults, { none: "No such workflow found by id: none" });
  };
  const bulk = client.workflowBulkResource;
  await call(bulk.pauseWorkflow1);
  assert.equal((await run(ids[0])).status, "PAUSED");
  await call(bulk.resumeWorkflow);
  await call(bulk.terminate, "enough");
  await call(bulk.retry);
  await call(bulk.terminate);
  await call(bulk.restart, false);
  assert.equal((await run(ids[2])).status, "RUNNING");
}

async function signalsReachTheTree() {
  const inner = await build("inner", [wait("w")]);
  const outer = await build("outer", [subWorkflowTask("s", inner.getName(), 1), wait("z")], { z: "${z.output.taskOutput.v}" });
  const id = await outer.startWorkflow({});
  await executor.signalAsync(id, "COMPLETED", { v: 1 });
  assert.deepEqual(statuses(await run(id)), ["COMPLETED", "IN_PROGRESS"]);
  const answer = await executor.signal(id, "COMPLETED", { v: 2 });
  assert.equal(answer.targetWorkflowStatus, "COMPLETED");
  assert.equal((await run(id)).output.z, 2);
  await refused(/Found no blocked task/, executor.signal(id, "COMPLETED", {}));
}

async function stateChanges() {
  const workflow = await build("state", [wait("w"), wait("z", { k: "${workflow.variables.k}" })]);
  const id = await workflow.startWorkflow({});
  const shown = await executor.updateVariables(id, { k: 1 });
  assert.deepEqual(shown.variables, { k: 1 });
  const update = { taskReferenceName: "w", taskResult: { status: "COMPLETED", outputData: { o: 1 } }, variables: { k: 2 } };
  const state = await executor.updateState(id, update, unique("request"), "w", 60);
  assert.deepEqual(state.variables, { k: 2 });
  const after = await run(id);
  assert.deepEqual([after.tasks[0].outputData, after.tasks[1].inputData], [{ o: 1 }, { k: 2 }]);
}

async function aDefinitionIsTested() {
  const workflow = await build("tested", [simpleTask("t", "t", {}), wait("w")], { n: "${w.output.n}" });
  const request = { name: workflow.getName(), version: 1, input: { k: 1 }, taskRefToMockOutput: { t: [{ status: "COMPLETED", output: { a: 1 } }] } };
  const half = await executor.testWorkflow(request);
  assert.deepEqual([half.status, statuses(half)], ["RUNNING", ["COMPLETED", "IN_PROGRESS"]]);
  await refused(/No such workflow/, run(half.workflowId));
  request.taskRefToMockOutput.w = [{ output: { n: 7 }, executionTime: 1000 }];
  const whole = await executor.testWorkflow(request);
  assert.deepEqual([whole.status, whole.output], ["COMPLETED", { n: 7 }]);
}

await main({}, [aRunIsRemoved, manyRuns, signalsReachTheTree, stateChanges, aDefinitionIsTested]);
