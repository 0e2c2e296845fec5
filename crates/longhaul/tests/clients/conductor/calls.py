"""HTTP tasks from the builders of the published client, against a service of this program."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from conductor.client.http.models.task_def import TaskDef
from conductor.client.workflow.conductor_workflow import ConductorWorkflow
from conductor.client.workflow.task.http_task import HttpInput, HttpMethod, HttpTask

from common import EXECUTOR, METADATA, TASKS, ended, eventually, main, start, statuses, unique, WORKFLOWS

# How often each path was asked.
ASKED: dict[str, int] = {}
LOCK = threading.Lock()


class Service(BaseHTTPRequestHandler):
    """Echoes requests. A path `/fail/N/…` fails the first N times."""

    def answer(self) -> None:
        with LOCK:
            ASKED[self.path] = asked = ASKED.get(self.path, 0) + 1
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        parts = self.path.split("/")
        failing = parts[1] == "fail" and asked <= int(parts[2])
        echo = {"method": self.command, "path": self.path, "body": body, "keys": self.headers.get_all("X-Key") or []}
        text = b"not now" if failing else json.dumps(echo).encode()
        self.send_response(500 if failing else 200)
        self.send_header("Content-Type", "text/plain" if failing else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_OPTIONS = answer

    def log_message(self, *_: object) -> None:
        pass


SERVICE = ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=SERVICE.serve_forever, daemon=True).start()
URL = f"http://127.0.0.1:{SERVICE.server_port}"


def build(*tasks, **outputs) -> str:
    workflow = ConductorWorkflow(executor=EXECUTOR, name=unique("calls"), version=1)
    for task in tasks:
        workflow >> task
    workflow.output_parameters(outputs)
    workflow.register(overwrite=True)
    return workflow.name


def every_method_of_the_builder() -> None:
    calls = [
        HttpTask(
            method.value.lower(),
            HttpInput(
                method=method,
                uri=f"{URL}/{method.value}/${{workflow.input.n}}",
                headers={"X-Key": ["a", "b"]},
                accept="application/json",
                body={"n": "${workflow.input.n}"},
            ),
        )
        for method in HttpMethod
    ]
    post = next(call for call in calls if call.task_reference_name == "post")
    name = build(*calls, code=post.status_code(), body=post.body("body"), keys=post.body("keys"), type=post.headers("Content-Type"))
    workflow = ended(start(name, n=3))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.output == {"code": 200, "body": '{"n":3}', "keys": ["a", "b"], "type": ["application/json"]}, workflow.output
    for task in workflow.tasks:
        response = task.output_data["response"]
        assert response["reasonPhrase"] == "OK", response
        if task.reference_task_name == "head":
            assert response["body"] is None, response
        else:
            assert response["body"]["path"] == f"/{task.reference_task_name.upper()}/3", response
        assert task.task_type == "HTTP" and task.poll_count == 1, task


def failures_are_tried_again_by_the_definition() -> None:
    path = f"/fail/2/{unique('path')}"
    call = HttpTask("call", {"uri": URL + path})
    name = build(call, body=call.body("path"))
    METADATA.register_task_def(TaskDef(name="call", retry_count=2, retry_delay_seconds=0, timeout_seconds=0))
    workflow = ended(start(name))
    assert statuses(workflow) == [("call", "FAILED"), ("call", "FAILED"), ("call", "COMPLETED")], statuses(workflow)
    failed = workflow.tasks[0]
    assert failed.reason_for_incompletion == "not now"
    assert failed.output_data["response"]["statusCode"] == 500 and failed.output_data["response"]["body"] == "not now"
    assert workflow.output == {"body": path} and ASKED[path] == 3
    # One more failure than attempts.
    workflow = ended(start(build(HttpTask("call", {"uri": f"{URL}/fail/9/{unique('path')}"}))))
    assert workflow.status == "FAILED" and [status for _, status in statuses(workflow)] == ["FAILED"] * 3


def a_call_without_an_answer_fails() -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    closed.server_close()
    workflow = ended(start(build(HttpTask(unique("call"), {"uri": f"http://127.0.0.1:{closed.server_port}/"}))))
    assert workflow.status == "FAILED" and len(workflow.tasks) == 1
    task = workflow.tasks[0]
    assert task.reason_for_incompletion.startswith(f"No connection to 127.0.0.1:{closed.server_port}: "), task
    assert task.output_data["response"]["statusCode"] == 0


def a_call_may_wait_for_an_update() -> None:
    call = HttpTask(unique("call"), {"uri": f"{URL}/accept", "method": "POST"})
    workflow = ConductorWorkflow(executor=EXECUTOR, name=unique("calls"), version=1)
    workflow >> call
    definition = workflow.to_workflow_def()
    definition.tasks[0].async_complete = True
    METADATA.register_workflow_def(definition, overwrite=True)
    workflow_id = start(workflow.name)

    def called():
        task = WORKFLOWS.get_workflow(workflow_id, True).tasks[0]
        return task if (task.output_data or {}).get("response") else None

    task = eventually("the call", called)
    assert task.status == "IN_PROGRESS", task.status
    TASKS.update_task_by_ref_name(workflow_id, task.reference_task_name, "COMPLETED", {"done": True})
    run = ended(workflow_id)
    assert run.status == "COMPLETED" and run.output["result"] == {"done": True}, run.output
    assert run.output["response"]["statusCode"] == 200, run.output


main(
    every_method_of_the_builder,
    failures_are_tried_again_by_the_definition,
    a_call_without_an_answer_fails,
    a_call_may_wait_for_an_update,
)
