// HTTP tasks from the builder of the published client, against a service of this program.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { httpTask } from "@io-orkes/conductor-javascript";

import { build, completed, main, metadata, runOf, statuses, taskOf, unique } from "./common.mjs";

const asked = new Map();

const service = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const count = (asked.get(request.url) ?? 0) + 1;
  asked.set(request.url, count);
  const failing = request.url.startsWith("/fail") && count === 1;
  response.writeHead(failing ? 503 : 200, { "Content-Type": "application/json", "Set-Cookie": ["a=1", "b=2"] });
  response.end(JSON.stringify({ method: request.method, key: request.headers["x-key"], cookie: request.headers.cookie, body }));
});
await new Promise((resolve) => service.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${service.address().port}`;

async function methods() {
  const calls = ["GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"].map((method) =>
    httpTask(method.toLowerCase(), {
      uri: `${url}/${method}`,
      method,
      headers: { "X-Key": "${workflow.input.key}" },
      accept: "application/json",
      contentType: "application/json",
      body: { n: "${workflow.input.n}" },
    }),
  );
  const workflow = await build("methods", calls, {
    code: "${post.output.response.statusCode}",
    body: "${post.output.response.body.body}",
    cookies: "${post.output.response.headers.Set-Cookie}",
  });
  const run = await completed(workflow, { key: "k", n: 3 });
  assert.deepEqual(run.output, { code: 200, body: '{"n":3}', cookies: ["a=1", "b=2"] });
  for (const task of run.tasks) {
    const { body } = task.outputData.response;
    assert.deepEqual([body.method, body.key, body.cookie], [task.referenceTaskName.toUpperCase(), "k", undefined]);
  }
}

async function retries() {
  const name = unique("call");
  await metadata.registerTask({ name, retryCount: 1, retryDelaySeconds: 0, timeoutSeconds: 0, responseTimeoutSeconds: 60 });
  const call = { ...httpTask("call", { uri: `${url}/fail/${name}`, method: "GET" }), name };
  const run = await runOf(await build("retries", [call]));
  assert.deepEqual(statuses(run), ["FAILED", "COMPLETED"]);
  assert.equal(run.tasks[0].outputData.response.statusCode, 503);
}

async function failures() {
  const run = await runOf(await build("failures", [httpTask("call", { uri: "nonsense", method: "GET" })]));
  assert.equal(run.status, "FAILED");
  assert.match(taskOf(run, "call").reasonForIncompletion, /^The URI is not valid/);
}

await main({}, [methods, retries, failures]);
