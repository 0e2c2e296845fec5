// Starts the load of the crash test, works on it until the test ends, and prints the id of each run.
//
// The client repeats a start whose answer was lost. The key makes that harmless. `node crash_worker.mjs RUNS`.

import { setTimeout as pause } from "node:timers/promises";
import { TaskHandler, noopLogger } from "@io-orkes/conductor-javascript";
import { client, executor } from "./common.mjs";

const SHAPES = ["Sequence", "Fork", "DynamicFork", "Loop", "Child", "Wait", "Switch", "Retry"];
const BRANCHES = 6;
const START_INTERVAL_MS = 150;

const work = async (task) => ({ status: "COMPLETED", outputData: { reference: task.referenceTaskName } });
const failOnce = async (task) => (task.retryCount === 0 ? { status: "FAILED", outputData: {} } : work(task));

const branch = (n) => ({ name: "crash_work", taskReferenceName: `b${n}`, type: "SIMPLE" });

/** Starts a run, again and again until the server answers. */
async function start(number) {
  const request = {
    name: `crash_${SHAPES[number % SHAPES.length]}`,
    version: 1,
    input: { n: number, branches: Array.from({ length: BRANCHES }, (_, n) => branch(n)) },
    idempotencyKey: `run-${number}`,
    idempotencyStrategy: "RETURN_EXISTING",
  };
  for (;;) {
    try {
      return await executor.startWorkflow(request);
    } catch (error) {
      console.error(`start ${number}: ${error.message}`);
      await pause(START_INTERVAL_MS);
    }
  }
}

const workers = [
  { taskDefName: "crash_work", execute: work },
  { taskDefName: "crash_fails_once", execute: failOnce },
];
await new TaskHandler({ client, logger: noopLogger, scanForDecorated: false, workers }).startWorkers();
console.log("working");
for (let number = 0; number < Number(process.argv[2]); number += 1) {
  console.log(`started ${number} ${await start(number)}`);
  await pause(START_INTERVAL_MS);
}
