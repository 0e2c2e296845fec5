// Works on the tasks of a fleet until the test ends, and prints the id of each task that it executes.

import { TaskHandler, noopLogger } from "@io-orkes/conductor-javascript";
import { client } from "./common.mjs";

const work = async (task) => {
  console.log(`executed ${task.taskId}`);
  return { status: "COMPLETED", outputData: { by: "javascript" } };
};

const workers = [{ taskDefName: "fleet_work", pollInterval: 20, execute: work }];
await new TaskHandler({ client, logger: noopLogger, scanForDecorated: false, workers }).startWorkers();
console.log("working");
