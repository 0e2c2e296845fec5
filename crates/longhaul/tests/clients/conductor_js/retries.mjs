// Retries of each logic, and each time-out with each policy.

import assert from "node:assert/strict";
import { NonRetryableException, humanTask, simpleTask } from "@io-orkes/conductor-javascript";

import {
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
  report,
  runOf,
  statuses,
  unique,
} from "./common.mjs";

// Logic, further settings of the definition, and the seconds before each retry.
const DELAYS = [
  ["FIXED", {}, [10, 10, 10]],
  ["LINEAR_BACKOFF", { backoffScaleFactor: 2 }, [20, 40, 60]],
  ["EXPONENTIAL_BACKOFF", { backoffScaleFactor: 2 }, [10, 20, 40]],
  ["EXPONENTIAL_BACKOFF", { maxRetryDelaySeconds: 25 }, [10, 20, 25]],
];

async function delaysOfEachLogic() {
  for (const [retryLogic, settings, expected] of DELAYS) {
    const { workflow } = await oneTask({ retryLogic, retryCount: 3, retryDelaySeconds: 10, ...settings });
    const id = await workflow.startWorkflow({});
    // A task may be reported before it is polled, so this does not wait for the delays.
    for (let attempt = 0; attempt <= 3; attempt++) await executor.updateTaskByRefName("t", id, "FAILED", { attempt });
    const run = await ended(id);
    assert.equal(run.status, "FAILED");
    assert.deepEqual(run.tasks.map((task) => [task.status, task.retryCount, task.outputData.attempt]), [0, 1, 2, 3].map((n) => ["FAILED", n, n]));
    assert.deepEqual(run.tasks.slice(1).map((task) => task.callbackAfterSeconds), expected, retryLogic);
    assert.deepEqual(run.tasks.slice(1).map((task) => task.retriedTaskId), run.tasks.slice(0, 3).map((task) => task.taskId));
  }
}

const stubborn = unique("stubborn");

async function attemptsWaitForTheirDelay() {
  for (const retryLogic of ["FIXED", "LINEAR_BACKOFF", "EXPONENTIAL_BACKOFF"]) {
    const name = `${stubborn}_${retryLogic}`;
    await metadata.registerTask({ name, retryLogic, retryCount: 1, retryDelaySeconds: 1, responseTimeoutSeconds: 60 });
    const run = await completed(await build("delayed", [simpleTask("t", name, { failures: 1 })]));
    assert.deepEqual(statuses(run), ["FAILED", "COMPLETED"]);
    // Both moments come from the clock of the server.
    const { scheduledTime, startTime } = run.tasks[1];
    assert.ok(startTime - scheduledTime >= 1000, `${retryLogic}: ${startTime - scheduledTime} ms`);
  }
}

const flaky = unique("flaky");

async function retriesAreExhausted() {
  await metadata.registerTask({ name: flaky, retryCount: 2, retryDelaySeconds: 0, responseTimeoutSeconds: 60 });
  const workflow = await build("flaky", [simpleTask("t", flaky, { failures: "${workflow.input.failures}" })]);
  assert.deepEqual(statuses(await completed(workflow, { failures: 2 })), ["FAILED", "FAILED", "COMPLETED"]);
  const run = await runOf(workflow, { failures: 3 });
  assert.equal(run.status, "FAILED");
  assert.deepEqual(statuses(run), ["FAILED", "FAILED", "FAILED"]);
  assert.match(run.reasonForIncompletion, /failed with status: FAILED and reason: 'attempt 2 fails'/);
  assert.deepEqual(run.failedReferenceTaskNames, ["t"]);
}

const fatal = unique("fatal");

async function aTerminalFailureIsNotRetried() {
  await metadata.registerTask({ name: fatal, retryCount: 5, retryDelaySeconds: 0, responseTimeoutSeconds: 60 });
  const run = await runOf(await build("terminal", [simpleTask("t", fatal, {})]));
  assert.equal(run.status, "FAILED");
  assert.deepEqual(statuses(run), ["FAILED_WITH_TERMINAL_ERROR"]);
  assert.match(run.tasks[0].reasonForIncompletion, /no use/);
}

/** Expects that a run timed out after this many attempts with this reason. */
async function timedOut(id, attempts, reason) {
  const run = await ended(id);
  assert.equal(run.status, "TIMED_OUT", run.reasonForIncompletion);
  assert.deepEqual(statuses(run), Array(attempts).fill("TIMED_OUT"));
  assert.match(run.tasks.at(-1).reasonForIncompletion, reason);
  assert.match(run.reasonForIncompletion, reason);
}

/** Expects that an attempt past its time-out is open, and that its result ends the run. */
async function goesOn(given) {
  const task = await executor.getTask(given.taskId);
  assert.equal(task.status, "SCHEDULED", task.reasonForIncompletion);
  await report(task, "COMPLETED", { late: true });
  const run = await ended(task.workflowInstanceId);
  assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
  assert.deepEqual(run.output, { late: true });
}

/** Returns the attempt of this number once it is open. */
const attemptOf = (id, number) =>
  eventually(`attempt ${number}`, async () => (await executor.getWorkflow(id, true)).tasks.find((task) => task.retryCount === number));

const start = async (definition) => {
  const { task, workflow } = await oneTask({ retryCount: 1, retryDelaySeconds: 0, ...definition });
  return { task, id: await workflow.startWorkflow({}) };
};

async function pollTimeOuts() {
  const alert = await start({ pollTimeoutSeconds: 1, timeoutPolicy: "ALERT_ONLY" });
  const retry = await start({ pollTimeoutSeconds: 1, timeoutPolicy: "RETRY" });
  const end = await start({ pollTimeoutSeconds: 1, timeoutPolicy: "TIME_OUT_WF" });
  const begin = "Task poll timed out after \\d+ seconds. Poll timeout configured as 1 seconds.";
  const reason = (policy) => new RegExp(`${begin} Timeout policy configured to ${policy}`);
  await timedOut(end.id, 1, reason("TIME_OUT_WF"));
  await timedOut(retry.id, 2, reason("RETRY"));
  await goesOn(await attemptOf(alert.id, 0));
}

/** Takes an attempt and asks for it again in an hour, so that it has no response time-out. Returns it. */
async function putOff(task) {
  const { taskId, workflowInstanceId } = await polled(task);
  await client.taskResource.updateTask1({ taskId, workflowInstanceId, status: "IN_PROGRESS", callbackAfterSeconds: 3600 });
  return executor.getTask(taskId);
}

async function taskTimeOuts() {
  // The response time-out cannot be longer. Where it ends an attempt before that is put off, the next one is taken.
  const settings = { timeoutSeconds: 1, responseTimeoutSeconds: 1 };
  const alert = await start({ ...settings, timeoutPolicy: "ALERT_ONLY", retryCount: 1000 });
  const retry = await start({ ...settings, timeoutPolicy: "RETRY" });
  const end = await start({ ...settings, timeoutPolicy: "TIME_OUT_WF" });
  const open = await eventually("a task that was put off", async () => {
    const found = await putOff(alert.task);
    return found.status === "SCHEDULED" && found;
  });
  for (const { task } of [end, retry, retry]) await putOff(task);
  const begin = "Task timed out after \\d+ seconds. Timeout configured as 1 seconds.";
  const reason = (policy) => new RegExp(`${begin} Timeout policy configured to ${policy}`);
  await timedOut(end.id, 1, reason("TIME_OUT_WF"));
  await timedOut(retry.id, 2, reason("RETRY"));
  await goesOn(open);
}

async function responseTimeOuts() {
  // The response time-out ends the attempt whatever the policy is.
  const oneOf = async (timeoutPolicy) => {
    const settings = { timeoutPolicy, responseTimeoutSeconds: 1 };
    const [repeated, exhausted] = [await start(settings), await start({ ...settings, retryCount: 0 })];
    const lost = await polled(repeated.task);
    await polled(exhausted.task);
    await timedOut(exhausted.id, 1, /responseTimeout: 1 exceeded for the taskId: .* with Task Definition: /);
    const second = await attemptOf(repeated.id, 1);
    await report(lost, "COMPLETED", { late: true });
    // A task that was not polled has no response time-out.
    await report(second, "COMPLETED", { late: false });
    const run = await ended(repeated.id);
    assert.deepEqual(statuses(run), ["TIMED_OUT", "COMPLETED"]);
    assert.deepEqual(run.output, { late: false });
  };
  await Promise.all(["RETRY", "TIME_OUT_WF", "ALERT_ONLY"].map(oneOf));
}

async function totalTimeOuts() {
  const alert = await start({ totalTimeoutSeconds: 1, timeoutPolicy: "ALERT_ONLY" });
  const retry = await start({ totalTimeoutSeconds: 1, timeoutPolicy: "RETRY" });
  const end = await start({ totalTimeoutSeconds: 1, timeoutPolicy: "TIME_OUT_WF" });
  // No time is left for a retry.
  await timedOut(retry.id, 1, /exceeded total timeout of 1 seconds/);
  await timedOut(end.id, 1, /exceeded total timeout of 1 seconds .* Timeout policy: TIME_OUT_WF/);
  await goesOn(await attemptOf(alert.id, 0));
}

async function workflowTimeOuts() {
  const cleanup = await build("cleanup", [{ name: "noop", taskReferenceName: "noop", type: "NOOP" }], { status: "${workflow.input.failureStatus}" });
  const waiting = async (policy) => {
    const workflow = (await build("slow", [humanTask("human")])).timeoutSeconds(1).timeoutPolicy(policy).failureWorkflow(cleanup.getName());
    await workflow.register(true);
    return workflow.startWorkflow({});
  };
  const [alert, end] = [await waiting("ALERT_ONLY"), await waiting("TIME_OUT_WF")];
  const run = await ended(end);
  assert.equal(run.status, "TIMED_OUT");
  assert.deepEqual(statuses(run), ["CANCELED"]);
  assert.match(run.reasonForIncompletion, /^Workflow timed out after \d+ seconds. Timeout configured as 1 seconds. .* to TIME_OUT_WF$/);
  assert.deepEqual((await ended(run.output["conductor.failure_workflow"])).output, { status: "TIMED_OUT" });
  await executor.updateTaskByRefName("human", alert, "COMPLETED", {});
  assert.equal((await ended(alert)).status, "COMPLETED");
}

/** Fails as many attempts as the input demands. */
const fail = async ({ retryCount, inputData }) => {
  if (retryCount < inputData.failures) throw new Error(`attempt ${retryCount} fails`);
  return { status: "COMPLETED", outputData: {} };
};

await main(
  {
    [`${stubborn}_FIXED`]: fail,
    [`${stubborn}_LINEAR_BACKOFF`]: fail,
    [`${stubborn}_EXPONENTIAL_BACKOFF`]: fail,
    [flaky]: fail,
    [fatal]: async () => {
      throw new NonRetryableException("no use");
    },
  },
  [
    delaysOfEachLogic,
    attemptsWaitForTheirDelay,
    retriesAreExhausted,
    aTerminalFailureIsNotRetried,
    pollTimeOuts,
    taskTimeOuts,
    responseTimeOuts,
    totalTimeOuts,
    workflowTimeOuts,
  ],
);
