"""Signals, variables, state and test runs of workflows with the published client."""

from __future__ import annotations

from conductor.client.http.models import WorkflowDef, WorkflowTask
from conductor.client.http.models.sub_workflow_params import SubWorkflowParams
from conductor.client.http.models.task_result import TaskResult
from conductor.client.http.models.workflow_state_update import WorkflowStateUpdate
from conductor.client.http.models.workflow_test_request import TaskMock, WorkflowTestRequest
from conductor.client.http.rest import ApiException

from common import EXECUTOR, METADATA, WORKFLOWS, ended, main, start, unique


def wait(reference: str) -> WorkflowTask:
    return WorkflowTask(name=reference, task_reference_name=reference, type="WAIT")


def register(*tasks: WorkflowTask) -> str:
    name = unique("signals")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=list(tasks)), overwrite=True)
    return name


def start_tree() -> str:
    """Starts a run that waits in its sub-workflow first, and then itself."""
    child = register(wait("inner"))
    sub = WorkflowTask(name="sub", task_reference_name="sub", type="SUB_WORKFLOW", sub_workflow_param=SubWorkflowParams(name=child))
    return start(register(sub, wait("outer")))


def refused(status: int, call) -> ApiException:
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        return error
    raise AssertionError("the call was not refused")


def a_signal_reaches_the_task_that_waits() -> None:
    run = start_tree()
    EXECUTOR.signal_async(run, "COMPLETED", {"said": "yes"})
    after = WORKFLOWS.get_workflow(run, True)
    assert [task.status for task in after.tasks] == ["COMPLETED", "IN_PROGRESS"], after
    EXECUTOR.signal_async(run, "COMPLETED", {"said": "again"})
    done = ended(run)
    assert done.status == "COMPLETED" and done.output == {"said": "again"}, done
    # Nothing waits any more.
    EXECUTOR.signal_async(run, "COMPLETED", {})
    error = refused(404, lambda: EXECUTOR.signal(run, "COMPLETED", {}))
    assert "Found no blocked task" in error.message, error.message
    refused(404, lambda: EXECUTOR.signal_async("none", "COMPLETED", {}))


def a_signal_returns_what_was_asked_for() -> None:
    for strategy in ("TARGET_WORKFLOW", "BLOCKING_WORKFLOW", "BLOCKING_TASK", "BLOCKING_TASK_INPUT"):
        run = start_tree()
        answer = EXECUTOR.signal(run, "COMPLETED", {"said": "yes"}, return_strategy=strategy)
        assert answer.response_type == strategy and answer.target_workflow_id == run, answer
        assert answer.target_workflow_status == "RUNNING", answer
        if strategy.startswith("BLOCKING_TASK"):
            assert answer.reference_task_name == "outer" and answer.status.value == "IN_PROGRESS", answer
        else:
            assert answer.workflow_id == run and len(answer.tasks) == 2, answer
        last = EXECUTOR.signal(run, "FAILED", {"why": "no"})
        assert last.target_workflow_status == "FAILED", last


def variables_change_while_a_run_is_open() -> None:
    run = start(register(wait("one")))
    WORKFLOWS.update_variables(run, {"a": 1})
    WORKFLOWS.update_variables(run, {"b": ["x"]})
    assert WORKFLOWS.get_workflow(run, False).variables == {"a": 1, "b": ["x"]}
    WORKFLOWS.terminate_workflow(run)
    refused(409, lambda: WORKFLOWS.update_variables(run, {"a": 2}))
    refused(404, lambda: WORKFLOWS.update_variables("none", {"a": 2}))


def state_changes_as_a_whole() -> None:
    run = start(register(wait("one"), wait("two")))
    result = TaskResult(workflow_instance_id=run, task_id="", status="COMPLETED", output_data={"x": 1})
    update = WorkflowStateUpdate(task_reference_name="one", task_result=result, variables={"v": 1})
    answer = WORKFLOWS.update_state(run, update, wait_until_task_ref_names=["one"], wait_for_seconds=60)
    assert answer.request_id and answer.variables == {"v": 1}, answer
    assert [task.status for task in answer.tasks] == ["COMPLETED", "IN_PROGRESS"], answer
    update.variables = {"v": 2}
    refused(404, lambda: WORKFLOWS.update_state(run, update))
    assert WORKFLOWS.get_workflow(run, False).variables == {"v": 1}


def a_test_run_uses_given_results_and_is_not_stored() -> None:
    child = register(WorkflowTask(name="inner", task_reference_name="inner"))
    sub = WorkflowTask(name="sub", task_reference_name="sub", type="SUB_WORKFLOW", sub_workflow_param=SubWorkflowParams(name=child))
    choice = WorkflowTask(
        name="choice",
        task_reference_name="choice",
        type="SWITCH",
        evaluator_type="value-param",
        expression="picked",
        input_parameters={"picked": "${first.output.picked}"},
        decision_cases={"left": [WorkflowTask(name="left", task_reference_name="left")]},
    )
    name = register(WorkflowTask(name="first", task_reference_name="first"), choice, sub)
    mocks = {
        "first": [TaskMock(status="FAILED", output={}), TaskMock(status="COMPLETED", output={"picked": "left"}, execution_time=1000)],
        "left": [TaskMock(output={"l": 1})],
    }
    inner = WorkflowTestRequest(name=child, task_ref_to_mock_output={"inner": [TaskMock(output={"i": 2})]})
    request = WorkflowTestRequest(name=name, version=1, task_ref_to_mock_output=mocks, sub_workflow_test_request={"sub": inner})
    run = WORKFLOWS.test_workflow(request)
    assert run.status == "COMPLETED", run
    told = [(task.reference_task_name, task.status) for task in run.tasks]
    assert told == [("first", "FAILED"), ("first", "COMPLETED"), ("choice", "COMPLETED"), ("left", "COMPLETED"), ("sub", "COMPLETED")], told
    assert run.tasks[-1].output_data["i"] == 2, run.tasks[-1]
    assert run.tasks[1].end_time - run.tasks[1].start_time == 1000
    # The first task without a result ends the test.
    request.task_ref_to_mock_output = {"first": [TaskMock(output={"picked": "right"})]}
    request.sub_workflow_test_request = None
    run = WORKFLOWS.test_workflow(request)
    assert run.status == "RUNNING" and [task.status for task in run.tasks] == ["COMPLETED", "COMPLETED", "IN_PROGRESS"], run
    refused(404, lambda: WORKFLOWS.get_workflow(run.workflow_id, True))
    assert WORKFLOWS.search(query=f"workflowType='{name}'").results == []
    refused(404, lambda: WORKFLOWS.test_workflow(WorkflowTestRequest(name="none")))


main(
    a_signal_reaches_the_task_that_waits,
    a_signal_returns_what_was_asked_for,
    variables_change_while_a_run_is_open,
    state_changes_as_a_whole,
    a_test_run_uses_given_results_and_is_not_stored,
)
