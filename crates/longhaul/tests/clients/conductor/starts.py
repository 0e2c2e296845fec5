"""Starting, executing and ending runs with the published client."""

from __future__ import annotations

import itertools

from conductor.client.http.models import (
    StartWorkflowRequest,
    SubWorkflowParams,
    TaskDef,
    TaskResult,
    WorkflowDef,
    WorkflowTask,
)
from conductor.client.http.models.schema_def import SchemaDef, SchemaType
from conductor.client.http.models.task_result_status import TaskResultStatus
from conductor.client.http.models.start_workflow_request import IdempotencyStrategy
from conductor.client.http.rest import ApiException

from common import CLIENTS, EXECUTOR, METADATA, TASKS, WORKFLOWS, Workers, ended, main, polled, start, statuses, unique

# The server knows it, the enumeration of the client does not.
FAIL_ON_RUNNING = "FAIL_ON_RUNNING"
STRATEGIES = ("TARGET_WORKFLOW", "BLOCKING_WORKFLOW", "BLOCKING_TASK", "BLOCKING_TASK_INPUT")
# How long the server holds a call that waits for a run. Generous, because CI machines stall.
WAIT_SECONDS = 60


def node(kind: str, reference: str, **more) -> WorkflowTask:
    return WorkflowTask(name=more.pop("name", reference), task_reference_name=reference, type=kind, **more)


def define(*tasks: WorkflowTask, **more) -> str:
    name = unique("workflow")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=list(tasks), **more), overwrite=True)
    return name


def refused(status: int, call) -> None:
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        return
    raise AssertionError(f"{status} was expected")


def complete(task_type: str, **output) -> None:
    task = polled(task_type)
    TASKS.update_task(
        TaskResult(
            task_id=task.task_id,
            workflow_instance_id=task.workflow_instance_id,
            status=TaskResultStatus.COMPLETED,
            output_data=output,
        )
    )


def a_key_starts_one_run() -> None:
    task = unique("task")
    name, other = define(node("SIMPLE", "t", name=task)), define(node("SIMPLE", "t", name=task))

    def keyed(strategy: str | None, workflow: str = name) -> str:
        request = StartWorkflowRequest(name=workflow, input={}, idempotency_key="order-7")
        request.idempotency_strategy = strategy
        return WORKFLOWS.start_workflow(request)

    first = keyed(IdempotencyStrategy.FAIL)
    refused(409, lambda: keyed(IdempotencyStrategy.FAIL))
    refused(409, lambda: keyed(None))
    refused(409, lambda: keyed(FAIL_ON_RUNNING))
    assert keyed(IdempotencyStrategy.RETURN_EXISTING) == first
    assert WORKFLOWS.get_workflow(first, False).idempotency_key == "order-7"
    assert keyed(IdempotencyStrategy.FAIL, other) != first
    complete(task)
    assert ended(first).status == "COMPLETED"
    refused(409, lambda: keyed(IdempotencyStrategy.FAIL))
    assert keyed(IdempotencyStrategy.RETURN_EXISTING) == first
    second = keyed(FAIL_ON_RUNNING)
    assert second != first
    assert keyed(IdempotencyStrategy.RETURN_EXISTING) == second


def a_run_without_waiting_has_ended_when_its_id_is_returned() -> None:
    inner = define(node("SET_VARIABLE", "v", input_parameters={"x": 1}), output_parameters={"x": "${workflow.variables.x}"})
    call = node("SUB_WORKFLOW", "call", sub_workflow_param=SubWorkflowParams(name=inner, version=1))
    outer = define(call, output_parameters={"x": "${call.output.x}"})
    workflow = WORKFLOWS.get_workflow(start(outer), True)
    assert workflow.status == "COMPLETED", workflow.status
    assert workflow.output == {"x": 1}, workflow.output


def sub_workflows_three_deep() -> None:
    task = unique("task")
    name = define(node("SIMPLE", "t", name=task), output_parameters={"n": "${t.output.n}"})
    for _ in range(3):
        call = node("SUB_WORKFLOW", "call", sub_workflow_param=SubWorkflowParams(name=name, version=1))
        name = define(call, output_parameters={"n": "${call.output.n}"})
    workflow_id = start(name)
    complete(task, n=7)
    # The update returned after every parent was decided.
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert workflow.status == "COMPLETED"
    assert workflow.output == {"n": 7}


def a_run_that_ended_is_terminated_unless_it_completed() -> None:
    done = start(define(node("NOOP", "n")))
    refused(409, lambda: WORKFLOWS.terminate_workflow(done, reason="late"))
    failed = start(
        define(node("TERMINATE", "t", input_parameters={"terminationStatus": "FAILED", "terminationReason": "no"}))
    )
    assert WORKFLOWS.get_workflow(failed, False).status == "FAILED"
    WORKFLOWS.terminate_workflow(failed, reason="given up")
    WORKFLOWS.terminate_workflow(failed, reason="again")
    workflow = WORKFLOWS.get_workflow(failed, False)
    assert (workflow.status, workflow.reason_for_incompletion) == ("TERMINATED", "given up")
    refused(404, lambda: WORKFLOWS.terminate_workflow("nothing", reason="no"))


def a_failure_starts_the_failure_workflow() -> None:
    cleanup = define(node("NOOP", "n"), output_parameters={"of": "${workflow.input.workflowId}", "why": "${workflow.input.reason}"})
    failing = node("TERMINATE", "t", input_parameters={"terminationStatus": "FAILED", "terminationReason": "no stock"})
    workflow = WORKFLOWS.get_workflow(start(define(failing, failure_workflow=cleanup)), True)
    assert workflow.status == "FAILED"
    followed = ended(workflow.output["conductor.failure_workflow"])
    assert followed.output == {"of": workflow.workflow_id, "why": "no stock"}, followed.output
    waiting = define(node("HUMAN", "h"), failure_workflow=cleanup)
    for trigger in (False, True):
        workflow_id = start(waiting)
        WORKFLOWS.terminate_workflow(workflow_id, reason="enough", trigger_failure_workflow=trigger)
        output = WORKFLOWS.get_workflow(workflow_id, False).output
        assert ("conductor.failure_workflow" in output) == trigger, output


def a_fork_of_a_thousand_branches() -> None:
    task = unique("task")
    branches = [{"name": task, "taskReferenceName": f"b{n}", "type": "SIMPLE"} for n in range(1000)]
    inputs = {f"b{n}": {"n": n} for n in range(1000)}
    fork = node(
        "FORK_JOIN_DYNAMIC",
        "fork",
        dynamic_fork_tasks_param="branches",
        dynamic_fork_tasks_input_param_name="inputs",
        input_parameters={"branches": "${workflow.input.branches}", "inputs": "${workflow.input.inputs}"},
    )
    workflow_id = start(define(fork, node("JOIN", "join")), branches=branches, inputs=inputs)
    done = 0
    while done < 1000:
        for given in TASKS.batch_poll_tasks(task, count=100, timeout_in_millisecond=1000):
            TASKS.update_task(
                TaskResult(
                    task_id=given.task_id,
                    workflow_instance_id=workflow_id,
                    status=TaskResultStatus.COMPLETED,
                    output_data={"n": given.input_data["n"]},
                )
            )
            done += 1
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert workflow.status == "COMPLETED", workflow.status
    assert workflow.output["b999"] == {"n": 999}
    assert len(workflow.tasks) == 1002


def execute_returns_what_was_asked_for() -> None:
    task = unique("task")
    name = define(node("SIMPLE", "t", name=task), node("WAIT", "w"), node("SIMPLE", "u", name=task))
    with Workers(**{task: lambda given: {"from": given.reference_task_name}}):
        request = StartWorkflowRequest(name=name, version=1, input={"k": 1})
        for strategy, consistency in itertools.product(STRATEGIES, ("SYNCHRONOUS", "DURABLE", "REGION_DURABLE")):
            run = EXECUTOR.execute_workflow_with_return_strategy(
                request, wait_for_seconds=WAIT_SECONDS, return_strategy=strategy, consistency=consistency
            )
            assert run.response_type == strategy, run
            if strategy.startswith("BLOCKING_TASK"):
                assert run.reference_task_name == "w", run
            else:
                assert [task["referenceTaskName"] for task in run.tasks] == ["t", "w"], run.tasks
            WORKFLOWS.terminate_workflow(run.target_workflow_id)
        run = EXECUTOR.execute_workflow(request, wait_until_task_ref="t", wait_for_seconds=WAIT_SECONDS)
        assert run.status == "RUNNING", run
        TASKS.update_task_by_ref_name(run.workflow_id, "w", "COMPLETED", {"go": True})
        workflow = ended(run.workflow_id)
    assert workflow.status == "COMPLETED"
    assert statuses(workflow) == [("t", "COMPLETED"), ("w", "COMPLETED"), ("u", "COMPLETED")]


def schemas_are_enforced() -> None:
    task, schema = unique("task"), unique("schema")

    def content(member: str) -> dict:
        described = {"type": "integer"}
        return {"type": "object", "properties": {member: described}, "required": [member]}

    registry = CLIENTS.get_schema_client()
    registry.register_schema(SchemaDef(name=schema, version=2, type=SchemaType.JSON, data=content("n")))
    out = SchemaDef(name="out", version=1, type=SchemaType.JSON, data=content("x"))
    METADATA.register_task_def(TaskDef(name=task, retry_count=0, output_schema=out, enforce_schema=True))
    link = SchemaDef(name=schema, version=2, type=SchemaType.JSON)
    name = define(node("SIMPLE", "t", name=task), input_schema=link, enforce_schema=True)
    refused(400, lambda: start(name, m=1))
    refused(400, lambda: start(name, n="one"))
    good = start(name, n=1)
    complete(task, x=5)
    assert ended(good).status == "COMPLETED"
    bad = start(name, n=1)
    complete(task, x="five")
    workflow = ended(bad)
    assert statuses(workflow) == [("t", "FAILED_WITH_TERMINAL_ERROR")], workflow
    assert "/x: value is not of type" in workflow.tasks[0].reason_for_incompletion, workflow.tasks[0]
    assert workflow.tasks[0].output_data == {"x": "five"}, workflow.tasks[0]


main(
    a_key_starts_one_run,
    a_run_without_waiting_has_ended_when_its_id_is_returned,
    sub_workflows_three_deep,
    a_run_that_ended_is_terminated_unless_it_completed,
    a_failure_starts_the_failure_workflow,
    a_fork_of_a_thousand_branches,
    execute_returns_what_was_asked_for,
    schemas_are_enforced,
)
