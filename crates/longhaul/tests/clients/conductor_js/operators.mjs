// Every operator that needs no call to the outside, from the builders of the published client.

import assert from "node:assert/strict";
import {
  ConductorWorkflow,
  doWhileTask,
  dynamicForkTask,
  dynamicTask,
  forkTaskJoin,
  generateSwitchTask,
  humanTask,
  inlineTask,
  joinTask,
  newLoopTask,
  setVariableTask,
  simpleTask,
  subWorkflowTask,
  switchTask,
  terminateTask,
  waitTaskDuration,
  waitTaskUntil,
} from "@io-orkes/conductor-javascript";

import { build, completed, ended, eventually, executor, main, references, runOf, taskOf, unique } from "./common.mjs";

const input = (name) => `\${workflow.input.${name}}`;

async function sequence() {
  const workflow = await build(
    "sequence",
    [simpleTask("a", "echo", { n: input("n") }), simpleTask("b", "echo", { text: "n=${a.output.n}", missing: "${a.output.no}" })],
    { text: "${b.output.text}", missing: "${b.output.missing}" },
  );
  const run = await completed(workflow, { n: 3 });
  assert.deepEqual(run.output, { text: "n=3", missing: null });
  assert.deepEqual(references(run), ["a", "b"]);
}

async function switches() {
  const workflow = await build("switches", [
    switchTask("pick", input("lang"), { FR: [simpleTask("fr", "echo", {})] }, [simpleTask("other", "echo", {})]),
    simpleTask("last", "echo", {}),
  ]);
  assert.deepEqual(references(await completed(workflow, { lang: "FR" })), ["pick", "fr", "last"]);
  assert.deepEqual(references(await completed(workflow, { lang: "DE" })), ["pick", "other", "last"]);
  const byScript = generateSwitchTask({
    name: "size",
    taskReferenceName: "size",
    evaluatorType: "javascript",
    expression: "$.n > 10 ? 'big' : 'small'",
    inputParameters: { n: input("n") },
    decisionCases: { big: [simpleTask("big", "echo", {})], small: [simpleTask("small", "echo", {})] },
    defaultCase: [],
  });
  const run = await completed(await build("switch_by_script", [byScript]), { n: 11 });
  assert.deepEqual(references(run), ["size", "big"]);
}

async function forks() {
  const workflow = new ConductorWorkflow(executor, unique("fork")).timeoutSeconds(0);
  workflow.fork([[simpleTask("a1", "echo", {}), simpleTask("a2", "echo", { x: 1 })], [simpleTask("b1", "echo", {})]]);
  workflow.add(simpleTask("last", "echo", {}));
  await workflow.register();
  const run = await completed(workflow);
  assert.deepEqual(taskOf(run, "__join_1").outputData, { a2: { reference: "a2", x: 1 }, b1: { reference: "b1" } });
  assert.equal(references(run).at(-1), "last");
  const single = await build("fork_join", forkTaskJoin("one", [simpleTask("only", "echo", {})]));
  assert.equal(taskOf(await completed(single), "only").status, "COMPLETED");
}

async function dynamicForks() {
  const workflow = await build(
    "fan",
    [simpleTask("plan", "plan", { count: input("count") }), dynamicForkTask("fan", "${plan.output.tasks}", "${plan.output.inputs}"), joinTask("join", [])],
    { seven: "${join.output.r7.n}" },
  );
  const run = await completed(workflow, { count: 50 });
  assert.deepEqual(run.output, { seven: 7 });
  assert.equal(run.tasks.length, 53);
}

async function loops() {
  const counted = await build("loop", [newLoopTask("loop", 3, [simpleTask("body", "echo", { n: "${loop.output.iteration}" })])], {
    n: "${loop.output.iteration}",
  });
  const run = await completed(counted);
  assert.deepEqual(references(run), ["loop", "body__1", "body__2", "body__3"]);
  assert.deepEqual(run.output, { n: 3 });
  const condition = "if ($.until.iteration < 2) { true; } else { false; }";
  const conditional = await build("until", [doWhileTask("until", condition, [simpleTask("step", "echo", {})])]);
  assert.deepEqual(references(await completed(conditional)), ["until", "step__1", "step__2"]);
}

async function subWorkflows() {
  const child = await build("child", [simpleTask("c", "echo", { n: input("n") })], { answer: "${c.output.n}" });
  const call = { ...subWorkflowTask("sub", child.getName(), 1), inputParameters: { n: 7 } };
  const run = await completed(await build("parent", [call], { answer: "${sub.output.answer}" }));
  assert.deepEqual(run.output, { answer: 7 });
  const below = await executor.getWorkflow(taskOf(run, "sub").subWorkflowId, false);
  assert.equal(below.parentWorkflowId, run.workflowId);
  // The definition inside the call.
  const inline = { ...child.toSubWorkflowTask("inline"), inputParameters: { n: 8 } };
  assert.deepEqual((await completed(await build("inline_parent", [inline], { answer: "${inline.output.answer}" }))).output, { answer: 8 });
}

async function terminates() {
  const workflow = await build("terminates", [terminateTask("end", "FAILED", "no stock"), simpleTask("never", "echo", {})]);
  const run = await runOf(workflow);
  assert.equal(run.status, "FAILED");
  assert.equal(run.reasonForIncompletion, "no stock");
  assert.deepEqual(references(run), ["end"]);
}

async function variablesAndScripts() {
  const script = inlineTask("sum", "(function () { return $.a + $.b; })()");
  script.inputParameters = { ...script.inputParameters, a: input("a"), b: 2 };
  const workflow = await build("variables", [script, setVariableTask("keep", { total: "${sum.output.result}" })], {
    total: "${workflow.variables.total}",
  });
  assert.deepEqual((await completed(workflow, { a: 40 })).output, { total: 42 });
  const run = await runOf(await build("throws", [inlineTask("bad", "throw new TypeError('no')")]));
  assert.equal(run.status, "FAILED");
  assert.equal(taskOf(run, "bad").status, "FAILED_WITH_TERMINAL_ERROR");
}

async function waits() {
  const until = new Date(Date.now() + 1000).toISOString().slice(0, 16).replace("T", " ");
  const workflow = await build("waits", [waitTaskDuration("pause", "1 seconds"), waitTaskUntil("past", until), humanTask("human")]);
  const id = await workflow.startWorkflow({});
  await eventually("the human task", async () => taskOf(await executor.getWorkflow(id, true), "human")?.status === "IN_PROGRESS");
  await executor.updateTaskByRefName("human", id, "COMPLETED", { answer: "yes" });
  const run = await ended(id);
  assert.equal(run.status, "COMPLETED", run.reasonForIncompletion);
  assert.deepEqual(taskOf(run, "human").outputData.answer, "yes");
}

async function dynamicTasks() {
  const run = await completed(await build("dynamic", [dynamicTask("any", input("task"))]), { task: "echo" });
  assert.equal(taskOf(run, "any").taskType, "echo");
}

async function nothing() {
  const run = await completed(await build("nothing", [{ name: "noop", taskReferenceName: "noop", type: "NOOP" }]));
  assert.equal(taskOf(run, "noop").status, "COMPLETED");
}

await main(
  {
    echo: async (task) => ({ status: "COMPLETED", outputData: { reference: task.referenceTaskName, ...task.inputData } }),
    plan: async ({ inputData: { count } }) => {
      const numbers = [...Array(count).keys()];
      return {
        status: "COMPLETED",
        outputData: {
          tasks: numbers.map((n) => ({ name: "echo", taskReferenceName: `r${n}`, type: "SIMPLE" })),
          inputs: Object.fromEntries(numbers.map((n) => [`r${n}`, { n }])),
        },
      };
    },
  },
  [sequence, switches, forks, dynamicForks, loops, subWorkflows, terminates, variablesAndScripts, waits, dynamicTasks, nothing],
);
