// Lists of runs: search with totals, pages, orders and free text, correlation ids, ids of open runs.

import assert from "node:assert/strict";
import { humanTask, simpleTask } from "@io-orkes/conductor-javascript";

import { build, client, ended, executor, main, refused, tasks, unique } from "./common.mjs";

const noop = { name: "noop", taskReferenceName: "noop", type: "NOOP" };
const ids = (runs) => runs.map((run) => run.workflowId);
const search = (query, { first = 0, size = 100, text = "*", sort } = {}) => executor.search(first, size, query, text, sort);

async function searchByTypeAndStatus() {
  const [slow, quick] = [await build("slow", [humanTask("human")]), await build("quick", [noop])];
  const open = [];
  for (let n = 0; n < 3; n++) open.push(await slow.startWorkflow({ n }));
  const done = await quick.startWorkflow({ customer: "Ümit" }, "correlation-ä", 7);
  const running = await search(`workflowType='${slow.getName()}' AND status='RUNNING'`);
  assert.equal(running.totalHits, 3);
  // The newest comes first.
  assert.deepEqual(ids(running.results), [...open].reverse());
  const closed = await search(`workflowType IN (${slow.getName()},${quick.getName()}) AND status IN (COMPLETED)`);
  assert.equal(closed.totalHits, 1);
  const [summary] = closed.results;
  assert.equal(summary.workflowId, done);
  assert.equal(summary.status, "COMPLETED");
  assert.equal(summary.correlationId, "correlation-ä");
  assert.equal(summary.priority, 7);
  assert.equal(summary.input, '{"customer":"Ümit"}');
  assert.match(summary.startTime, /^\d{4}-\d\d-\d\dT.*Z$/);
  // What one commit wrote is found by the next request.
  await executor.terminate(open[0], "enough");
  const [terminated] = (await search(`workflowId="${open[0]}"`)).results;
  assert.equal(terminated.status, "TERMINATED");
  assert.equal(terminated.reasonForIncompletion, "enough");
  await executor.pause(open[1]);
  assert.deepEqual(ids((await search(`workflowType=${slow.getName()} AND status=PAUSED`)).results), [open[1]]);
  assert.equal((await search(`workflowType=${slow.getName()} AND (status=PAUSED OR status=TERMINATED)`)).totalHits, 2);
}

async function searchInPages() {
  const workflow = await build("pages", [noop]);
  const started = [];
  for (let n = 0; n < 7; n++) started.push(await workflow.startWorkflow({}, `c${6 - n}`));
  const query = `workflowType='${workflow.getName()}' AND startTime > ${Date.now() - 3_600_000}`;
  const pages = [];
  for (const first of [0, 3, 6, 9]) pages.push(await search(query, { first, size: 3 }));
  assert.deepEqual(pages.map((page) => [page.totalHits, page.results.length]), [[7, 3], [7, 3], [7, 1], [7, 0]]);
  assert.deepEqual(pages.flatMap((page) => ids(page.results)).sort(), [...started].sort());
  const none = await search(query, { size: 0 });
  assert.deepEqual([none.totalHits, none.results], [7, []]);
}

async function searchInOrder() {
  const workflow = await build("order", [noop]);
  const started = [];
  const starts = [["b", 1], ["a", 2], ["b", 3], ["a", 4]];
  for (const [correlation, priority] of starts) started.push(await workflow.startWorkflow({}, correlation, priority));
  const sorted = async (sort) => ids((await search(`workflowType=${workflow.getName()}`, { sort })).results).map((id) => started.indexOf(id));
  assert.deepEqual(await sorted("startTime:ASC"), [0, 1, 2, 3]);
  assert.deepEqual(await sorted("startTime:DESC"), [3, 2, 1, 0]);
  assert.deepEqual(await sorted("priority:ASC"), [0, 1, 2, 3]);
  assert.deepEqual(await sorted("correlationId:ASC|priority:DESC"), [3, 1, 2, 0]);
}

async function searchByFreeText() {
  const workflow = await build("text", [noop]);
  const word = unique("word");
  const wanted = await workflow.startWorkflow({ note: `before ${word.toUpperCase()} after` });
  await workflow.startWorkflow({ note: "something else" });
  const found = await search("", { text: word });
  assert.deepEqual([found.totalHits, ids(found.results)], [1, [wanted]]);
  assert.equal((await search(`workflowType=${workflow.getName()}`)).totalHits, 2);
  assert.equal((await search(`workflowType=${workflow.getName()}`, { text: word })).totalHits, 1);
  assert.equal((await search("", { text: unique("nowhere") })).totalHits, 0);
}

async function wrongSearchesAreRefused() {
  await refused(/`workflowTyp` is not a field/, search("workflowTyp='x'"));
  await refused(/Incorrectly formatted query string/, search("status="));
  await refused(/5000/, search("", { size: 5001 }));
}

async function wholeRuns() {
  const workflow = await build("whole", [noop], { answer: 42 });
  const id = await workflow.startWorkflow({});
  await ended(id);
  const found = await client.workflowResource.searchV21(0, 10, "", "*", `workflowId=${id}`);
  assert.equal(found.totalHits, 1);
  assert.deepEqual(found.results[0].output, { answer: 42 });
  assert.equal(found.results[0].workflowName, workflow.getName());
}

async function runsByCorrelationId() {
  const [slow, quick] = [await build("slow", [humanTask("human")]), await build("quick", [noop])];
  const [one, two] = [unique("c"), unique("c/ä")];
  const [first, second] = [await slow.startWorkflow({}, one), await slow.startWorkflow({}, one)];
  const [other, done] = [await slow.startWorkflow({}, two), await quick.startWorkflow({}, one)];
  const request = { correlationIds: [one, two, "none"], workflowNames: [slow.getName(), quick.getName()] };
  const open = await executor.getByCorrelationIds(request);
  assert.deepEqual(Object.keys(open).sort(), [one, two, "none"].sort());
  assert.deepEqual([ids(open[one]), ids(open[two]), open.none], [[second, first], [other], []]);
  assert.deepEqual(open[one][0].tasks ?? [], []);
  const all = await executor.getByCorrelationIds(request, true, true);
  assert.deepEqual(ids(all[one]), [done, second, first]);
  assert.equal(all[one][1].tasks[0].referenceTaskName, "human");
  // The forms for one workflow are in the older resource objects of the client.
  const named = await client.workflowResource.getWorkflows(slow.getName(), [one, "none"]);
  assert.deepEqual([ids(named[one]), named.none], [[second, first], []]);
  assert.deepEqual(ids(await client.workflowResource.getWorkflows1(slow.getName(), two)), [other]);
  assert.deepEqual(ids(await client.workflowResource.getWorkflows1(quick.getName(), one)), []);
  assert.deepEqual(ids(await client.workflowResource.getWorkflows1(quick.getName(), one, true)), [done]);
}

async function idsOfOpenRuns() {
  const workflow = await build("open", [humanTask("human")]);
  const [older, newer] = [await workflow.startWorkflow({}), await workflow.startWorkflow({})];
  const running = (...times) => client.workflowResource.getRunningWorkflow(workflow.getName(), 1, ...times);
  assert.deepEqual((await running()).sort(), [older, newer].sort());
  await executor.terminate(older, "enough");
  assert.deepEqual(await running(), [newer]);
  const hour = 3_600_000;
  assert.deepEqual((await running(Date.now() - hour, Date.now() + hour)).sort(), [older, newer].sort());
}

async function searchForTasks() {
  const work = unique("work");
  const workflow = await build("tasks", [simpleTask("t", work, { n: "${workflow.input.n}" })]);
  const [first, second] = [await workflow.startWorkflow({ n: 1 }), await workflow.startWorkflow({ n: 2 })];
  await executor.updateTaskByRefName("t", first, "COMPLETED", { k: 5 });
  const found = await tasks.search(0, 10, "", "*", `taskType='${work}'`);
  assert.equal(found.totalHits, 2);
  assert.deepEqual(found.results.map((task) => task.workflowId).sort(), [first, second].sort());
  const done = await tasks.search(0, 10, "startTime:DESC", "*", `taskDefName='${work}' AND status='COMPLETED'`);
  assert.equal(done.totalHits, 1);
  assert.equal(done.results[0].workflowId, first);
  await refused(/`nothing` is not a field of tasks/, () => tasks.search(0, 10, "", "*", "nothing = 1"));
}

await main({}, [
  searchForTasks,
  searchByTypeAndStatus,
  searchInPages,
  searchInOrder,
  searchByFreeText,
  wrongSearchesAreRefused,
  wholeRuns,
  runsByCorrelationId,
  idsOfOpenRuns,
]);
