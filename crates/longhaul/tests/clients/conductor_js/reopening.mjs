// Opening workflows again: restart, retry, rerun. And skipping tasks.

import assert from "node:assert/strict";
import { simpleTask, subWorkflowTask } from "@io-orkes/conductor-javascript";

import { build, executor, main, polled, refused, references, report, statuses, taskOf, unique } from "./common.mjs";

const step = (name) => ({ ...simpleTask(name, name, {}), retryCount: 0 });
const run = (id) => executor.getWorkflow(id, true);

/** Registers and starts a workflow of new tasks. Returns the id and the names of the tasks. */
async function started(count) {
  const names = Array.from({ length: count }, () => unique("task"));
  const workflow = await build("steps", names.map(step));
  return { id: await workflow.startWorkflow({ n: 1 }), names, workflow };
}

const done = async (name, status = "COMPLETED") => {
  const task = await polled(name);
  await report(task, status, { from: name });
  return task;
};

async function aFailedRunIsRetried() {
  const { id, names } = await started(2);
  await refused(/has not ended/, executor.retry(id, false));
  await done(names[0]);
  await done(names[1], "FAILED");
  await executor.retry(id, false);
  assert.deepEqual(statuses(await run(id)), ["COMPLETED", "FAILED", "SCHEDULED"]);
  await done(names[1]);
  assert.equal((await run(id)).status, "COMPLETED");
  await refused(/no failed or cancelled task/, executor.retry(id, false));
}

async function aRetryDescends() {
  const { names, workflow } = await started(1);
  await done(names[0]);
  const outer = await build("outer", [{ ...subWorkflowTask("s", workflow.getName(), 1), retryCount: 0 }]);
  const id = await outer.startWorkflow({});
  const child = taskOf(await run(id), "s").subWorkflowId;
  await done(names[0], "FAILED");
  assert.equal((await run(id)).status, "FAILED");
  await executor.retry(id, true);
  assert.deepEqual(statuses(await run(id)), ["IN_PROGRESS"]);
  assert.deepEqual(statuses(await run(child)), ["FAILED", "SCHEDULED"]);
  await done(names[0]);
  assert.equal((await run(id)).status, "COMPLETED");
}

async function aRunIsRestarted() {
  const { id, names } = await started(1);
  await refused(/has not ended/, executor.restart(id, false));
  await done(names[0]);
  await executor.restart(id, true);
  const again = await run(id);
  assert.deepEqual([again.status, statuses(again), again.input], ["RUNNING", ["SCHEDULED"], { n: 1 }]);
  await done(names[0]);
  assert.equal((await run(id)).status, "COMPLETED");
}

async function aRunGoesBackToATask() {
  const { id, names } = await started(3);
  for (const name of names) await done(name);
  await executor.goBackToTask(id, (task) => task.referenceTaskName === names[1], { taskInput: { again: true } });
  const again = await run(id);
  assert.deepEqual([references(again), statuses(again)], [names.slice(0, 2), ["COMPLETED", "SCHEDULED"]]);
  assert.deepEqual(again.tasks[1].inputData, { again: true });
  await done(names[1]);
  await done(names[2]);
  assert.equal(await executor.reRun(id, { workflowInput: { n: 2 } }), id);
  const whole = await run(id);
  assert.deepEqual([whole.input, references(whole)], [{ n: 2 }, [names[0]]]);
}

async function aTaskIsSkipped() {
  const { id, names } = await started(2);
  await executor.skipTasksFromWorkflow(id, names[1], { taskInput: { i: 1 }, taskOutput: { o: 2 } });
  await refused(/cannot be skipped/, executor.skipTasksFromWorkflow(id, names[0], {}));
  await done(names[0]);
  const ended = await run(id);
  assert.deepEqual([ended.status, statuses(ended)], ["COMPLETED", ["COMPLETED", "SKIPPED"]]);
  assert.deepEqual(ended.tasks[1].outputData, { o: 2 });
}

await main({}, [aFailedRunIsRetried, aRetryDescends, aRunIsRestarted, aRunGoesBackToATask, aTaskIsSkipped]);
