// The page about compatibility names every public method of the client.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { EventClient, MetadataClient, SchemaClient, TaskClient, WorkflowClient, WorkflowExecutor } from "@io-orkes/conductor-javascript";

import { main } from "./common.mjs";

async function everyMethodIsListedOnce() {
  const page = readFileSync(`${process.env.LONGHAUL_ROOT}/docs/conductor-compatibility.md`, "utf8");
  const [, part] = page.split("\n## JavaScript");
  for (const each of [WorkflowExecutor, WorkflowClient, TaskClient, MetadataClient, SchemaClient, EventClient]) {
    const [, section] = part.split(`\n### ${each.name}\n`);
    const listed = [...section.split("\n### ")[0].matchAll(/`(\w+)`/g)].map((match) => match[1]);
    const methods = Object.getOwnPropertyNames(each.prototype).filter((name) => name !== "constructor" && !name.startsWith("_"));
    assert.deepEqual(listed.sort(), methods.sort(), each.name);
  }
}

await main({}, [everyMethodIsListedOnce]);
