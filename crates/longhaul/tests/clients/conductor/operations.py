"""Removing workflows, operations on many, signals and changes of state, with the published client."""

from __future__ import annotations

from conductor.client.http.api.workflow_bulk_resource_api import WorkflowBulkResourceApi
from conductor.client.http.api_client import ApiClient
from conductor.client.http.models import SubWorkflowParams, TaskResult, WorkflowDef, WorkflowStateUpdate, WorkflowTask
from conductor.client.http.models.workflow_test_request import TaskMock, WorkflowTestRequest
from conductor.client.http.rest import ApiException

from common import CONFIGURATION, EXECUTOR, METADATA, WORKFLOWS, main, polled, start, statuses, unique

BULK = WorkflowBulkResourceApi(ApiClient(CONFIGURATION))


def node(kind: str, name: str, **more) -> WorkflowTask:
    return WorkflowTask(name=name, task_reference_name=name, type=kind, **more)


def define(*tasks: WorkflowTask, **more) -> str:
    name = unique("workflow")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=list(tasks), **more), overwrite=True)
    return name


def refused(status: int, call) -> str:
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        return error.body
    raise AssertionError(f"{status} was expected")


def a_workflow_is_removed() -> None:
    task = unique("task")
    name = define(node("SIMPLE", task))
    done, leased = start(name), start(name)
    first = polled(task)
    EXECUTOR.update_task(first.task_id, first.workflow_instance_id, {}, "COMPLETED")
    polled(task)
    for workflow_id in (done, leased):
        WORKFLOWS.delete_workflow(workflow_id)
        refused(404, lambda workflow_id=workflow_id: WORKFLOWS.get_workflow(workflow_id, True))
    refused(404, lambda: EXECUTOR.remove_workflow(done, archive_workflow=False))
    assert not WORKFLOWS.search(query=f"workflowType='{name}'").results


def operations_on_many_workflows() -> None:
    name = define(node("HUMAN", "h"))
    ids = [start(name) for _ in range(3)]
    unknown = ids + ["none"]

    def check(answer) -> None:
        assert sorted(answer.bulk_successful_results) == sorted(ids), answer
        assert list(answer.bulk_error_results) == ["none"], answer

    check(BULK.pause_workflow(unknown))
    assert {WORKFLOWS.get_workflow(one, False).status for one in ids} == {"PAUSED"}
    check(BULK.resume_workflow(unknown))
    check(BULK.terminate(unknown, reason="enough"))
    check(BULK.retry(unknown))
    assert {WORKFLOWS.get_workflow(one, False).status for one in ids} == {"RUNNING"}
    refused_all = BULK.restart(ids)
    assert sorted(refused_all.bulk_error_results) == sorted(ids), refused_all
    check(BULK.terminate(unknown))
    check(BULK.restart(unknown))
    refused(400, lambda: BULK.pause_workflow([]))


def signals_reach_the_tree() -> None:
    inner = define(node("WAIT", "w"))
    sub = node("SUB_WORKFLOW", "s", sub_workflow_param=SubWorkflowParams(name=inner, version=1))
    workflow_id = start(define(sub, node("WAIT", "z"), output_parameters={"s": "${s.output}", "z": "${z.output.v}"}))
    EXECUTOR.signal_async(workflow_id, "COMPLETED", {"v": 1})
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert statuses(workflow) == [("s", "COMPLETED"), ("z", "IN_PROGRESS")], statuses(workflow)
    answer = EXECUTOR.signal(workflow_id, "COMPLETED", {"v": 2})
    assert (answer.response_type, answer.target_workflow_status) == ("TARGET_WORKFLOW", "COMPLETED"), answer
    assert answer.output["z"] == 2, answer
    assert "Found no blocked task" in refused(404, lambda: EXECUTOR.signal(workflow_id, "COMPLETED", {}))


def state_changes() -> None:
    name = define(node("WAIT", "w"), node("WAIT", "z", input_parameters={"k": "${workflow.variables.k}"}))
    workflow_id = start(name)
    WORKFLOWS.update_variables(workflow_id, {"k": 1})
    assert WORKFLOWS.get_workflow(workflow_id, False).variables == {"k": 1}
    result = TaskResult(task_id="", workflow_instance_id=workflow_id, status="COMPLETED", output_data={"o": 1})
    update = WorkflowStateUpdate(task_reference_name="w", task_result=result, variables={"k": 2})
    run = WORKFLOWS.update_state(workflow_id, update, wait_until_task_ref_names=["w"], wait_for_seconds=60)
    assert run.variables == {"k": 2}, run
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert workflow.tasks[0].output_data == {"o": 1}
    assert workflow.tasks[1].input_data == {"k": 2}


def a_definition_is_tested() -> None:
    task, other = unique("task"), unique("other")
    inner = define(node("SIMPLE", "c", retry_count=0), output_parameters={"n": "${c.output.n}"})
    sub = node("SUB_WORKFLOW", "s", sub_workflow_param=SubWorkflowParams(name=inner, version=1))
    name = define(node("SIMPLE", task, retry_count=1), sub, node("WAIT", other), output_parameters={"n": "${s.output.n}"})
    mocks = {task: [TaskMock(status="FAILED", output={}), TaskMock(status="COMPLETED", output={"a": 1})]}
    child = WorkflowTestRequest(name=inner, task_ref_to_mock_output={"c": [TaskMock(status="COMPLETED", output={"n": 7})]})
    request = WorkflowTestRequest(name=name, version=1, task_ref_to_mock_output=mocks, sub_workflow_test_request={"s": child})
    workflow = WORKFLOWS.test_workflow(request)
    shown = [(task, "FAILED"), (task, "COMPLETED"), ("s", "COMPLETED"), (other, "IN_PROGRESS")]
    assert (workflow.status, statuses(workflow)) == ("RUNNING", shown), statuses(workflow)
    refused(404, lambda: WORKFLOWS.get_workflow(workflow.workflow_id, True))
    request.task_ref_to_mock_output[other] = [TaskMock(status="COMPLETED", output={})]
    workflow = WORKFLOWS.test_workflow(request)
    assert (workflow.status, workflow.output) == ("COMPLETED", {"n": 7}), workflow


if __name__ == "__main__":
    main(a_workflow_is_removed, operations_on_many_workflows, signals_reach_the_tree, state_changes, a_definition_is_tested)
