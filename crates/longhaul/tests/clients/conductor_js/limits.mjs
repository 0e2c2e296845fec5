// Limits of task definitions, logs, sizes of queues, domains, leases and the synchronous update.

import assert from "node:assert/strict";
import { getTaskContext, humanTask, simpleTask } from "@io-orkes/conductor-javascript";

import {
  batch,
  build,
  client,
  completed,
  ended,
  eventually,
  executor,
  main,
  metadata,
  oneTask,
  polled,
  refused,
  report,
  runOf,
  statuses,
  tasks,
  unique,
} from "./common.mjs";

const startMany = (workflow, count) => Promise.all(Array.from({ length: count }, (_, n) => workflow.startWorkflow({ n })));
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
// Earlier than any moment of a run, and later than the same moment in seconds.
const SOME_TIME_AGO_MS = 1_700_000_000_000;

/** Returns the tasks that a limit admits, which are no more than this. Another server may need a moment to offer a freed slot. */
async function admitted(task, count) {
  const given = [];
  await eventually(`${count} tasks`, async () => given.push(...(await batch(task))) >= count);
  assert.equal(given.length, count);
  assert.deepEqual(await batch(task), []);
  return given;
}

async function twoOfFiveAreInProgress() {
  const { task, workflow } = await oneTask({ concurrentExecLimit: 2 });
  const runs = await startMany(workflow, 5);
  const first = await admitted(task, 2);
  await report(first[0], "COMPLETED");
  await admitted(task, 1);
  // A task that waits for its callback is not in progress.
  const { taskId, workflowInstanceId } = first[1];
  await client.taskResource.updateTask1({ taskId, workflowInstanceId, status: "IN_PROGRESS", callbackAfterSeconds: 3600 });
  const fourth = await admitted(task, 1);
  await executor.terminate(fourth[0].workflowInstanceId, "enough");
  await admitted(task, 1);
  const states = await Promise.all(runs.map(async (id) => (await executor.getWorkflow(id, false)).status));
  assert.deepEqual(states.sort(), ["COMPLETED", "RUNNING", "RUNNING", "RUNNING", "TERMINATED"]);
}

const crowded = unique("crowded");
let running = 0;
let most = 0;

async function aWorkerWithManySlotsKeepsToTheLimit() {
  await metadata.registerTask({ name: crowded, concurrentExecLimit: 2, responseTimeoutSeconds: 60 });
  const workflow = await build("crowd", [simpleTask("t", crowded, {})]);
  const runs = await startMany(workflow, 20);
  for (const run of await Promise.all(runs.map(ended))) assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
  assert.equal(most, 2);
}

async function startsInAWindowAreLimited() {
  const { task, workflow } = await oneTask({ rateLimitPerFrequency: 3, rateLimitFrequencyInSeconds: 1 });
  await startMany(workflow, 7);
  const given = [];
  await eventually("the last task", async () => given.push(...(await batch(task))) === 7);
  // The moments come from the clock of the server: the third task after any one starts a window later.
  const moments = (await Promise.all(given.map(({ taskId }) => executor.getTask(taskId)))).map((one) => one.startTime).sort((a, b) => a - b);
  for (let n = 3; n < moments.length; n++) assert.ok(moments[n] - moments[n - 3] >= 1000, moments.join());
  assert.deepEqual([given[0].rateLimitPerFrequency, given[0].rateLimitFrequencyInSeconds], [3, 1]);
}

const talkative = unique("talkative");

async function logs() {
  const run = await completed(await build("logs", [simpleTask("t", talkative, {})]));
  const { taskId, outputData } = run.tasks[0];
  assert.deepEqual(outputData, { context: true, both: "result", retry: 0 });
  await tasks.addTaskLog(taskId, 'later: "quoted" ü');
  const found = await tasks.getTaskLogs(taskId);
  assert.deepEqual(found.slice(0, 2).map(({ log }) => log), ["from the context", "second ü"]);
  assert.equal(found.length, 3);
  assert.match(found[2].log, /^"?later: .*quoted.* ü"?$/);
  assert.ok(found.every((line) => line.taskId === taskId && line.createdTime > SOME_TIME_AGO_MS));
  await refused(/no-such-task/, tasks.addTaskLog("no-such-task", "lost"));
}

const broken = unique("broken");

async function aFailureLeavesItsTrace() {
  await metadata.registerTask({ name: broken, retryCount: 0 });
  const run = await runOf(await build("trace", [simpleTask("t", broken, {})]));
  assert.equal(run.status, "FAILED");
  const found = await tasks.getTaskLogs(run.tasks[0].taskId);
  assert.equal(found.length, 1);
  assert.match(found[0].log, /^RangeError: broken on purpose\n[^]* at /);
  assert.ok(found[0].createdTime > SOME_TIME_AGO_MS);
}

async function sizesOfQueues() {
  const { task, workflow } = await oneTask();
  const size = async (name = task) => (await tasks.getQueueSizeForTask([name]))[name];
  assert.equal(await size(), 0);
  const runs = await startMany(workflow, 3);
  assert.equal(await size(), 3);
  const { taskId, workflowInstanceId } = await polled(task);
  assert.equal(await size(), 2);
  await client.taskResource.updateTask1({ taskId, workflowInstanceId, status: "IN_PROGRESS", callbackAfterSeconds: 3600 });
  assert.equal(await size(), 3);
  const polls = await eventually("poll data", async () => {
    const found = await tasks.getTaskPollData(task);
    return found.length > 0 && found;
  });
  assert.deepEqual(polls.map((poll) => [poll.queueName, poll.workerId]), [[task, "by-hand"]]);
  assert.equal((await client.taskResource.all())[task], 3);
  assert.deepEqual((await client.taskResource.allVerbose())[task], { a: { size: 3, uacked: 0 } });
  for (const id of runs) await executor.terminate(id, "enough");
  assert.equal(await size(), 0);
}

const tinted = unique("tinted");

async function domains() {
  const workflow = await build("domains", [simpleTask("a", tinted, {}), simpleTask("b", tinted, {})]);
  const run = await ended(await workflow.startWorkflow({}, undefined, undefined, undefined, undefined, { [tinted]: "blue" }));
  assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
  assert.deepEqual(run.tasks.map((task) => [task.domain, task.outputData]), [["blue", { by: "blue" }], ["blue", { by: "blue" }]]);
  assert.deepEqual(run.taskToDomain, { [tinted]: "blue" });
  // The worker of the domain does not get a task without one.
  const id = await workflow.startWorkflow({});
  await report(await polled(tinted), "COMPLETED", { by: "hand" });
  await report(await polled(tinted), "COMPLETED", { by: "hand" });
  assert.deepEqual((await ended(id)).tasks.map((task) => task.outputData), [{ by: "hand" }, { by: "hand" }]);
  // A domain without a worker yields to the next entry, here to no domain.
  const fallen = await workflow.startWorkflow({}, undefined, undefined, undefined, undefined, { "*": "unseen,NO_DOMAIN" });
  assert.equal((await polled(tinted)).domain, undefined);
  await executor.terminate(fallen, "seen");
}

const leased = unique("leased");
const LEASE_SECONDS = 5;

async function aWorkerKeepsItsLease() {
  // The client sends a heartbeat after 80 % of the response time-out. An attempt is lost if the machine stalls at that moment.
  await metadata.registerTask({ name: leased, retryCount: 5, retryDelaySeconds: 0, responseTimeoutSeconds: LEASE_SECONDS, timeoutSeconds: 0 });
  const run = await completed(await build("lease", [simpleTask("t", leased, {})]));
  const { startTime, endTime, pollCount } = run.tasks.at(-1);
  assert.ok(endTime - startTime > LEASE_SECONDS * 1000, `${endTime - startTime} ms`);
  assert.equal(pollCount, 1);
}

async function pauseAndResume() {
  const [first, second] = [unique("first"), unique("second")];
  const workflow = await build("pause", [simpleTask("a", first, {}), simpleTask("b", second, {})]);
  const id = await workflow.startWorkflow({});
  await executor.pause(id);
  // The open task can be polled and reported; no task follows it.
  await report(await polled(first), "COMPLETED");
  const paused = await executor.getWorkflow(id, true);
  assert.equal(paused.status, "PAUSED");
  assert.deepEqual(statuses(paused), ["COMPLETED"]);
  await executor.resume(id);
  await report(await polled(second), "COMPLETED");
  assert.equal((await ended(id)).status, "COMPLETED");
  await refused(/the run is closed/, executor.pause(id));
  await refused(/the run is not paused/, executor.resume(id));
}

async function theSynchronousUpdateReturnsTheRun() {
  const workflow = await build("waits", [humanTask("one"), humanTask("two")]);
  const id = await workflow.startWorkflow({});
  const open = await executor.updateTaskSync("one", id, "COMPLETED", { v: 9 });
  assert.deepEqual([open.workflowId, open.status, statuses(open)], [id, "RUNNING", ["COMPLETED", "IN_PROGRESS"]]);
  const run = await tasks.updateTaskSync(id, "two", "COMPLETED", { v: 10 });
  assert.equal(run.status, "COMPLETED");
}

await main(
  {
    [crowded]: async () => {
      most = Math.max(most, ++running);
      // The first task waits for a second one. After that, a third one has time to begin.
      await eventually("a second task", () => most > 1);
      await sleep(20);
      running--;
      return { status: "COMPLETED", outputData: {} };
    },
    [talkative]: async () => {
      const context = getTaskContext();
      context.addLog("from the context");
      context.addLog("second ü");
      context.setOutput({ context: true, both: "context", retry: context.getRetryCount() });
      return { status: "COMPLETED", outputData: { both: "result" } };
    },
    [broken]: async () => {
      throw new RangeError("broken on purpose");
    },
    [tinted]: { domain: "blue", execute: async () => ({ status: "COMPLETED", outputData: { by: "blue" } }) },
    [leased]: {
      leaseExtendEnabled: true,
      execute: async () => {
        await sleep((LEASE_SECONDS + 1) * 1000);
        return { status: "COMPLETED", outputData: {} };
      },
    },
  },
  [
    twoOfFiveAreInProgress,
    aWorkerWithManySlotsKeepsToTheLimit,
    startsInAWindowAreLimited,
    logs,
    aFailureLeavesItsTrace,
    sizesOfQueues,
    domains,
    aWorkerKeepsItsLease,
    pauseAndResume,
    theSynchronousUpdateReturnsTheRun,
  ],
);
