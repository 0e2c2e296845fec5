// Events, messages to runs, starts of other workflows, reused outputs, tags and rate limits.

import assert from "node:assert/strict";
import {
  EventClient,
  conductorEventTask,
  humanTask,
  pullWorkflowMessages,
  simpleTask,
  sqsEventTask,
  startWorkflowTask,
} from "@io-orkes/conductor-javascript";

import { build, client, completed, ended, executor, main, metadata, refused, runOf, taskOf, unique } from "./common.mjs";

const events = new EventClient(client);
const runsOf = async (name) => (await executor.search(0, 10, `workflowType='${name}'`, "*")).results;

/** Returns a handler with one action. */
const handler = (event, action, parameters, more = {}) => ({
  name: unique("handler"),
  event,
  active: true,
  actions: [{ action, [action]: parameters }],
  ...more,
});

/** Returns an EVENT task with this input. */
const tell = (event, inputParameters) => ({ ...conductorEventTask("tell", event), inputParameters });

async function anEventCompletesATaskOfAnotherRun() {
  const waiting = await build("waiting", [humanTask("approval")], { by: "${approval.output.by}" });
  const sender = await build("sender", [tell("approved", { id: "${workflow.input.id}", by: "ann" })]);
  const complete = { workflowId: "${id}", taskRefName: "approval", output: { by: "${by}" } };
  await events.addEventHandler(handler(`conductor:${sender.getName()}:approved`, "complete_task", complete));
  const id = await waiting.startWorkflow({});
  await completed(sender, { id });
  const run = await ended(id);
  assert.equal(run.status, "COMPLETED");
  assert.deepEqual(run.output, { by: "ann" });
}

async function aConditionIsAScript() {
  const started = await build("started", [humanTask("h")]);
  const event = `conductor:${unique("nobody")}:made`;
  const one = handler(event, "start_workflow", { name: started.getName(), input: { n: "${n}" } }, { condition: "$.n > 2" });
  await events.addEventHandlers([one]);
  await events.handleIncomingEvent({ event, messageId: unique("m"), payload: '{"n": 1}' });
  assert.equal((await runsOf(started.getName())).length, 0);
  const messageId = unique("m");
  for (let times = 0; times < 2; times++) await events.handleIncomingEvent({ event, messageId, payload: '{"n": 3}' });
  const [run, ...others] = await runsOf(started.getName());
  assert.equal(others.length, 0, "a repeated message is applied once");
  assert.equal((await executor.getWorkflow(run.workflowId, false)).input.n, 3);
  const executions = await events.getEventExecutions(one.name);
  assert.deepEqual(executions.map((execution) => execution.status).sort(), ["COMPLETED", "SKIPPED"]);
  assert.deepEqual(executions.find((execution) => execution.status === "COMPLETED").output, { workflowId: run.workflowId });
  const [message] = await events.getEventMessages(event);
  assert.equal(message.id, messageId);
  const stats = await events.getEventHandlersWithStats();
  assert.ok(stats.totalHits >= 1);
  const active = await events.getAllActiveEventHandlers();
  assert.ok(active.totalHits >= 1);
}

async function handlersAreRegisteredAndRemoved() {
  const event = `conductor:${unique("nobody")}:x`;
  const one = handler(event, "terminate_workflow", { workflowId: "${id}" }, { description: "kept" });
  await events.addEventHandler(one);
  await refused(/already exists/, () => events.addEventHandler(one));
  assert.equal((await events.getEventHandlerByName(one.name)).description, "kept");
  assert.ok((await events.getAllEventHandlers()).some((each) => each.name === one.name));
  assert.deepEqual((await events.getEventHandlersForEvent(event)).map((each) => each.name), [one.name]);
  await events.updateEventHandler({ ...one, active: false });
  assert.deepEqual(await events.getEventHandlersForEvent(event, true), []);
  await refused(/not found/, () => events.updateEventHandler(handler(event, "terminate_workflow", { workflowId: "x" })));
  await refused(/Validation failed/, () => events.addEventHandler({ ...handler(event, "start_workflow", {}) }));
  const tag = { key: "team", value: "blue", type: "METADATA" };
  await events.putTagForEventHandler(one.name, [tag]);
  assert.deepEqual(await events.getTagsForEventHandler(one.name), [tag]);
  await events.deleteTagsForEventHandler(one.name, [tag]);
  assert.deepEqual(await events.getTagsForEventHandler(one.name), []);
  await events.removeEventHandler(one.name);
  await refused(/not found/, () => events.getEventHandlerByName(one.name));
  await refused(/There is no route/, () => events.getQueueConfig("kafka", "topic"));
}

async function anUnknownProviderFailsTheTask() {
  const run = await runOf(await build("sqs", [sqsEventTask("tell", "queue")]));
  assert.equal(run.status, "FAILED");
  assert.match(taskOf(run, "tell").reasonForIncompletion, /Unknown queue type sqs$/);
}

async function messagesArePulled() {
  const workflow = await build("pulls", [pullWorkflowMessages("pull", 2)]);
  const id = await workflow.startWorkflow({});
  const send = (body) => client.request({ method: "POST", url: `/api/workflow/${id}/messages`, body, headers: { "Content-Type": "application/json" } });
  const sent = await send({ n: 1 });
  const run = await ended(id);
  assert.equal(run.status, "COMPLETED");
  const { count, messages } = taskOf(run, "pull").outputData;
  assert.equal(count, 1);
  assert.deepEqual(messages[0].payload, { n: 1 });
  assert.ok(sent !== undefined);
}

async function anotherWorkflowIsStarted() {
  const other = await build("other", [humanTask("h")]);
  const run = await completed(await build("starts", [startWorkflowTask("go", other.getName(), { n: "${workflow.input.n}" })]), { n: 3 });
  const started = await executor.getWorkflow(taskOf(run, "go").outputData.workflowId, true);
  assert.equal(started.status, "RUNNING");
  assert.deepEqual(started.input, { n: 3 });
  const failed = await runOf(await build("starts_none", [startWorkflowTask("go", unique("none"), {})]));
  assert.equal(failed.status, "FAILED");
}

let calls = 0;
const counting = unique("counting");

async function anOutputIsUsedAgain() {
  const task = { ...simpleTask("t", counting, { user: "${workflow.input.user}" }), cacheConfig: { key: "${user}", ttlInSecond: 600 } };
  const workflow = await build("cached", [task]);
  const outputs = [];
  for (const user of ["ann", "ann", "bob"]) outputs.push(taskOf(await completed(workflow, { user }), "t").outputData);
  assert.deepEqual(outputs, [{ calls: 1 }, { calls: 1 }, { calls: 2 }]);
}

async function tagsAndRateLimits() {
  const name = (await build("tagged", [humanTask("h")])).getName();
  const tag = (value) => ({ key: "team", value, type: "METADATA" });
  await metadata.addWorkflowTag(tag("blue"), name);
  await metadata.setWorkflowTags([tag("red"), tag("green")], name);
  await metadata.deleteWorkflowTag(tag("red"), name);
  assert.deepEqual(await metadata.getWorkflowTags(name), [tag("green")]);
  const task = unique("task");
  await metadata.registerTask({ name: task });
  await metadata.addTaskTag(tag("blue"), task);
  assert.deepEqual(await metadata.getTaskTags(task), [tag("blue")]);
  const limit = { rateLimitKey: "k", concurrentExecLimit: 5 };
  await metadata.setWorkflowRateLimit(limit, name);
  assert.deepEqual(await metadata.getWorkflowRateLimit(name), limit);
  const limits = (await metadata.getWorkflowTags(name)).filter((each) => each.type === "RATE_LIMIT");
  assert.deepEqual(limits, [{ key: name, value: 5, type: "RATE_LIMIT" }]);
  await metadata.removeWorkflowRateLimit(name);
  assert.deepEqual(await metadata.getWorkflowTags(name), [tag("green")]);
}

await main({ [counting]: async () => ({ status: "COMPLETED", outputData: { calls: ++calls } }) }, [
  anEventCompletesATaskOfAnotherRun,
  aConditionIsAScript,
  handlersAreRegisteredAndRemoved,
  anUnknownProviderFailsTheTask,
  messagesArePulled,
  anotherWorkflowIsStarted,
  anOutputIsUsedAgain,
  tagsAndRateLimits,
]);
