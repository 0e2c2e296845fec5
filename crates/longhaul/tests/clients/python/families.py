"""Calls between the families: a Conductor definition starts code of the Durable Workflow client, and code starts definitions."""

import asyncio
import os
import threading

from common import Stage, equal, eventually, main, payloads, result, unique
from conductor.client.automator.task_runner import TaskRunner
from conductor.client.configuration.configuration import Configuration
from conductor.client.http.models import StartWorkflowRequest
from conductor.client.orkes_clients import OrkesClients
from conductor.client.worker.worker import Worker as TaskWorker
from durable_workflow import ChildWorkflowCancelled, ChildWorkflowFailed, ChildWorkflowTerminated, workflow

CONFIGURATION = Configuration(server_api_url=os.environ["LONGHAUL_URL"] + "/api")
CLIENTS = OrkesClients(CONFIGURATION)
WORKFLOWS = CLIENTS.get_workflow_client()
TASKS = CLIENTS.get_task_client()
METADATA = CLIENTS.get_metadata_client()

attempts: dict[str, int] = {}


@workflow.defn(name="ship")
class Ship:
    """Code that a definition starts. It starts another definition itself."""

    def run(self, ctx, order, label):
        options = {"task_queue": "conductor"}
        packed = yield ctx.start_child_workflow(order["pack"], [{"item": order["item"]}], **options)
        return {"packed": packed["text"], "label": label}


@workflow.defn(name="broken")
class Broken:
    def run(self, ctx, key):
        raise ValueError(f"no stock of {key}")


@workflow.defn(name="lasting")
class Lasting:
    def __init__(self) -> None:
        self.go = False

    @workflow.signal("go")
    def on_go(self) -> None:
        self.go = True

    def run(self, ctx, left):
        yield ctx.wait_condition(lambda: self.go, key="go")
        if left:
            return ctx.continue_as_new(left - 1)
        return ["went"]


@workflow.defn(name="caller")
class Caller:
    """Starts one definition and says how it ended."""

    def run(self, ctx, name, arguments, options):
        try:
            return ["completed", (yield ctx.start_child_workflow(name, arguments, task_queue="conductor", **options))]
        except ChildWorkflowCancelled as error:
            return ["cancelled", str(error)]
        except ChildWorkflowTerminated as error:
            return ["terminated", str(error)]
        except ChildWorkflowFailed as error:
            return ["failed", str(error)]


def define(*tasks: dict, **more) -> str:
    name = unique("definition")
    METADATA.register_workflow_def({"name": name, "version": 1, "schemaVersion": 2, "timeoutSeconds": 0, "tasks": list(tasks), **more}, overwrite=True)
    return name


def simple(name: str, **inputs) -> dict:
    return {"name": name, "taskReferenceName": "work", "type": "SIMPLE", "inputParameters": inputs}


def code(stage: Stage, kind: str, **inputs) -> dict:
    inputs = {"workflowType": kind, "taskQueue": stage.queue, **inputs}
    return {"name": kind, "taskReferenceName": "code", "type": "DURABLE_WORKFLOW", "inputParameters": inputs}


def set_up_worker(name: str, function) -> None:
    runner = TaskRunner(TaskWorker(task_definition_name=name, execute_function=function, poll_interval=20), CONFIGURATION)
    threading.Thread(target=runner.run, daemon=True).start()


async def begin(name: str, **inputs) -> str:
    return await asyncio.to_thread(WORKFLOWS.start_workflow, StartWorkflowRequest(name=name, version=1, input=inputs))


async def read(workflow_id: str):
    return await asyncio.to_thread(WORKFLOWS.get_workflow, workflow_id, True)


async def ended(workflow_id: str):
    async def look():
        run = await read(workflow_id)
        return run if run.status != "RUNNING" else None

    return await eventually(f"the end of {workflow_id}", look)


async def child_of(workflow_id: str) -> str:
    """The code that the first task of a definition run has started."""

    async def look():
        return ((await read(workflow_id)).tasks[0].output_data or {}).get("workflowId")

    return await eventually("a child", look)


async def definition_to_code_to_definition(stage: Stage) -> None:
    task = unique("pack")
    set_up_worker(task, lambda polled: {"text": f"packed {polled.input_data['item']}"})
    pack = define(simple(task, item="${workflow.input.item}"), outputParameters={"text": "${work.output.text}"})
    arguments = [{"pack": f"{pack}@1", "item": "${workflow.input.item}"}, "L-1"]
    outer = define(code(stage, "ship", arguments=arguments), outputParameters={"result": "${code.output.result}"})
    run = await ended(await begin(outer, item="book"))
    equal([run.status, run.output], ["COMPLETED", {"result": {"packed": "packed book", "label": "L-1"}}])
    output = run.tasks[0].output_data
    handle = stage.client.get_workflow_handle(output["workflowId"], run_id=output["runId"])
    equal(await result(handle), {"packed": "packed book", "label": "L-1"})


async def a_failure_of_code_is_one_of_its_task(stage: Stage) -> None:
    call = code(stage, "broken", arguments="books")
    retried = define({**call, "name": unique("retried"), "taskDefinition": {"name": "retried", "retryCount": 1, "retryDelaySeconds": 0}})
    run = await ended(await begin(retried))
    equal([run.status, [task.status for task in run.tasks]], ["FAILED", ["FAILED", "FAILED"]])
    for task in run.tasks:
        assert "no stock of books" in task.reason_for_incompletion, task.reason_for_incompletion
        assert "no stock of books" in task.output_data["error"], task.output_data
        equal(task.output_data["errorType"], "ValueError")
    ids = {task.output_data["workflowId"] for task in run.tasks}
    equal(len(ids), 2)


async def a_workflow_id_is_used_once(stage: Stage) -> None:
    own = unique("own")
    name = define(code(stage, "lasting", arguments=[0], workflowId=own))
    first = await begin(name)
    equal(await child_of(first), own)
    second = await ended(await begin(name))
    equal(second.status, "FAILED")
    assert f"The workflow id {own} is in use" in second.tasks[0].reason_for_incompletion
    await stage.client.signal_workflow(own, "go")
    equal((await ended(first)).output["result"], ["went"])


async def code_may_continue_as_another_run(stage: Stage) -> None:
    run_id = await begin(define(code(stage, "lasting", arguments=[1])))
    child = await child_of(run_id)
    first = (await stage.client.describe_workflow(child)).run_id
    await stage.client.signal_workflow(child, "go")

    async def continued():
        return (await stage.client.describe_workflow(child)).run_id != first

    await eventually("the next run", continued)
    await stage.client.signal_workflow(child, "go")
    run = await ended(run_id)
    equal([run.status, run.output["result"]], ["COMPLETED", ["went"]])
    assert run.output["runId"] != first


async def the_end_of_a_definition_ends_its_code(stage: Stage) -> None:
    run_id = await begin(define(code(stage, "lasting", arguments=[0])))
    child = await child_of(run_id)
    await asyncio.to_thread(WORKFLOWS.terminate_workflow, run_id, "enough")

    async def closed():
        return (await stage.client.describe_workflow(child)).status == "terminated"

    await eventually("the end of the code", closed)


async def stopped_code_ends_its_task(stage: Stage) -> None:
    for stop in ("cancel_workflow", "terminate_workflow"):
        run_id = await begin(define(code(stage, "lasting", arguments=[0])))
        child = await child_of(run_id)
        await getattr(stage.client, stop)(child, reason="operator")
        run = await ended(run_id)
        equal([run.status, run.tasks[0].status], ["TERMINATED", "CANCELED"])


async def input_that_code_cannot_have_fails_the_task(stage: Stage) -> None:
    run = await ended(await begin(define(code(stage, "broken", arguments=["${workflow.input.big}"])), big=2**64 - 1))
    equal(run.tasks[0].status, "FAILED_WITH_TERMINAL_ERROR")
    assert run.tasks[0].reason_for_incompletion.startswith("The arguments cannot be sent to code"), run.tasks[0]


async def code_starts_a_definition(stage: Stage) -> None:
    name = define({"name": "set", "taskReferenceName": "set", "type": "SET_VARIABLE", "inputParameters": {"x": "${workflow.input}"}},
                  outputParameters={"input": "${workflow.variables.x}"})
    outcome, events = await stage.run("caller", name, [{"a": [1, None]}], {})
    equal(outcome, ["completed", {"input": {"a": [1, None]}}])
    equal([event["event_type"] for event in events][2:], ["ChildWorkflowScheduled", "ChildRunStarted", "ChildRunCompleted", "WorkflowCompleted"])
    equal((await stage.run("caller", f"{name}@1", [1, "b"], {}))[0], ["completed", {"input": {"arguments": [1, "b"]}}])
    equal((await stage.run("caller", name, [], {}))[0], ["completed", {"input": {}}])


async def a_definition_that_does_not_exist_is_a_failed_child(stage: Stage) -> None:
    outcome, events = await stage.run("caller", "nowhere@3", [], {})
    equal(outcome[0], "failed")
    assert "No such workflow defined. name=nowhere, version=3" in outcome[1], outcome
    child = payloads(events, "ChildRunStarted")[0]["child_workflow_instance_id"]
    equal((await read(child)).status, "FAILED")


async def a_failed_definition_is_a_failed_child(stage: Stage) -> None:
    end = {"name": "end", "taskReferenceName": "end", "type": "TERMINATE",
           "inputParameters": {"terminationStatus": "FAILED", "terminationReason": "not today"}}
    outcome, _ = await stage.run("caller", define(end), [], {})
    equal(outcome[0], "failed")
    assert "not today" in outcome[1], outcome


async def a_terminated_definition_is_a_terminated_child(stage: Stage) -> None:
    human = {"name": "human", "taskReferenceName": "human", "type": "HUMAN"}
    handle = await stage.start("caller", define(human), [], {})
    child = (await stage.until(handle, "ChildRunStarted"))[0]["child_workflow_instance_id"]

    async def waits():
        try:
            return (await read(child)).status == "RUNNING"
        except Exception:
            return False

    await eventually("the first pass", waits)
    await asyncio.to_thread(WORKFLOWS.terminate_workflow, child, "operator")
    equal((await result(handle))[0], "terminated")


async def the_end_of_code_ends_its_definition(stage: Stage) -> None:
    human = {"name": "human", "taskReferenceName": "human", "type": "HUMAN"}
    for policy in ("request_cancel", "terminate"):
        handle = await stage.start("caller", define(human), [], {"parent_close_policy": policy})
        child = (await stage.until(handle, "ChildRunStarted"))[0]["child_workflow_instance_id"]
        await stage.client.terminate_workflow(handle.workflow_id, reason="operator")
        equal((await ended(child)).status, "TERMINATED")


if __name__ == "__main__":
    main(
        [
            definition_to_code_to_definition,
            a_failure_of_code_is_one_of_its_task,
            a_workflow_id_is_used_once,
            code_may_continue_as_another_run,
            the_end_of_a_definition_ends_its_code,
            stopped_code_ends_its_task,
            input_that_code_cannot_have_fails_the_task,
            code_starts_a_definition,
            a_definition_that_does_not_exist_is_a_failed_child,
            a_failed_definition_is_a_failed_child,
            a_terminated_definition_is_a_terminated_child,
            the_end_of_code_ends_its_definition,
        ],
        workflows=[Ship, Broken, Lasting, Caller],
        activities=[],
    )
