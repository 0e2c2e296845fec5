"""Opening workflows again with the published client: restart, retry, rerun. And skipping tasks."""

from __future__ import annotations

from conductor.client.http.models import RerunWorkflowRequest, SkipTaskRequest, SubWorkflowParams, WorkflowDef, WorkflowTask
from conductor.client.http.rest import ApiException

from common import EXECUTOR, METADATA, TASKS, WORKFLOWS, main, polled, start, statuses, unique


def step(name: str) -> WorkflowTask:
    return WorkflowTask(name=name, task_reference_name=name, type="SIMPLE", retry_count=0)


def define(*tasks: WorkflowTask, version: int = 1, name: str | None = None, **more) -> str:
    name = name or unique("workflow")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=version, tasks=list(tasks), **more), overwrite=True)
    return name


def refused(status: int, call) -> str:
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        return error.body
    raise AssertionError(f"{status} was expected")


def report(name: str, status: str, **output) -> str:
    task = polled(name)
    EXECUTOR.update_task(task.task_id, task.workflow_instance_id, output, status)
    return task.task_id


def a_failed_workflow_is_retried() -> None:
    a, b = unique("a"), unique("b")
    workflow_id = start(define(step(a), step(b)))
    refused(409, lambda: WORKFLOWS.retry_workflow(workflow_id))
    report(a, "COMPLETED")
    report(b, "FAILED")
    WORKFLOWS.retry_workflow(workflow_id)
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert statuses(workflow) == [(a, "COMPLETED"), (b, "FAILED"), (b, "SCHEDULED")], statuses(workflow)
    report(b, "COMPLETED")
    assert WORKFLOWS.get_workflow(workflow_id, False).status == "COMPLETED"
    assert "nothing_to_retry" in refused(409, lambda: EXECUTOR.retry(workflow_id))


def a_retry_descends_into_sub_workflows() -> None:
    a = unique("a")
    inner = define(step(a))
    sub = WorkflowTask(name="s", task_reference_name="s", type="SUB_WORKFLOW", retry_count=0)
    sub.sub_workflow_param = SubWorkflowParams(name=inner, version=1)
    outer_id = start(define(sub))
    inner_id = WORKFLOWS.get_workflow(outer_id, True).tasks[0].sub_workflow_id
    report(a, "FAILED")
    assert WORKFLOWS.get_workflow(outer_id, False).status == "FAILED"
    EXECUTOR.retry(outer_id, resume_subworkflow_tasks=True)
    assert statuses(WORKFLOWS.get_workflow(outer_id, True)) == [("s", "IN_PROGRESS")]
    assert statuses(WORKFLOWS.get_workflow(inner_id, True)) == [(a, "FAILED"), (a, "SCHEDULED")]
    report(a, "COMPLETED")
    assert WORKFLOWS.get_workflow(outer_id, False).status == "COMPLETED"


def a_workflow_is_restarted() -> None:
    a, b = unique("a"), unique("b")
    name = define(step(a))
    workflow_id = start(name, n=1)
    refused(409, lambda: WORKFLOWS.restart_workflow(workflow_id))
    first = report(a, "COMPLETED")
    WORKFLOWS.restart_workflow(workflow_id)
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert (workflow.status, statuses(workflow), workflow.input) == ("RUNNING", [(a, "SCHEDULED")], {"n": 1})
    refused(404, lambda: TASKS.get_task(first))
    report(a, "FAILED")
    define(step(b), name=name, version=2, restartable=False)
    EXECUTOR.restart(workflow_id, use_latest_definitions=True)
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert (workflow.workflow_version, statuses(workflow)) == (2, [(b, "SCHEDULED")])
    report(b, "COMPLETED")
    assert "run_not_restartable" in refused(409, lambda: WORKFLOWS.restart_workflow(workflow_id))


def a_workflow_goes_on_from_a_task() -> None:
    a, b, c = unique("a"), unique("b"), unique("c")
    workflow_id = start(define(step(a), step(b), step(c)), n=1)
    report(a, "COMPLETED")
    second = report(b, "COMPLETED")
    request = RerunWorkflowRequest(re_run_from_task_id=second, task_input={"again": True})
    refused(409, lambda: WORKFLOWS.rerun_workflow(workflow_id, request))
    report(c, "FAILED")
    assert WORKFLOWS.rerun_workflow(workflow_id, request) == workflow_id
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert statuses(workflow) == [(a, "COMPLETED"), (b, "SCHEDULED")]
    assert (workflow.tasks[1].task_id, workflow.tasks[1].input_data) == (second, {"again": True})
    report(b, "COMPLETED")
    report(c, "COMPLETED")
    refused(400, lambda: EXECUTOR.rerun(RerunWorkflowRequest(re_run_from_task_id="none"), workflow_id))
    whole = RerunWorkflowRequest(workflow_input={"n": 2}, correlation_id="again")
    EXECUTOR.rerun(whole, workflow_id)
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert (workflow.input, workflow.correlation_id, statuses(workflow)) == ({"n": 2}, "again", [(a, "SCHEDULED")])


def a_task_is_skipped() -> None:
    a, b = unique("a"), unique("b")
    workflow_id = start(define(step(a), step(b)))
    request = SkipTaskRequest(task_input={}, task_output={})
    WORKFLOWS.skip_task_from_workflow(workflow_id, b, request)
    refused(409, lambda: EXECUTOR.skip_task_from_workflow(workflow_id, a, request))
    refused(404, lambda: EXECUTOR.skip_task_from_workflow(workflow_id, "none", request))
    report(a, "COMPLETED")
    workflow = WORKFLOWS.get_workflow(workflow_id, True)
    assert (workflow.status, statuses(workflow)) == ("COMPLETED", [(a, "COMPLETED"), (b, "SKIPPED")])


if __name__ == "__main__":
    main(
        a_failed_workflow_is_retried,
        a_retry_descends_into_sub_workflows,
        a_workflow_is_restarted,
        a_workflow_goes_on_from_a_task,
        a_task_is_skipped,
    )
