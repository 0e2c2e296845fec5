"""Workers of the published client: results, failures, retries, time-outs, progress, domains."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request

from conductor.client.http.models import StartWorkflowRequest, TaskDef, TaskResult, WorkflowDef, WorkflowTask
from conductor.client.http.models.task_result_status import TaskResultStatus
from conductor.client.worker.exception import NonRetryableException

from common import METADATA, TASKS, WORKFLOWS, Workers, ended, eventually, main, polled, start, statuses, unique


def one_task(**definition) -> tuple[str, str]:
    """Registers a task and a workflow of it. Returns the names of both."""
    task = unique("task")
    METADATA.register_task_def(TaskDef(name=task, **definition))
    workflow = unique("workflow")
    node = WorkflowTask(name=task, task_reference_name="t", input_parameters={"n": "${workflow.input.n}"})
    METADATA.register_workflow_def(WorkflowDef(name=workflow, version=1, tasks=[node]), overwrite=True)
    return task, workflow


def result(task, status: str, **output) -> TaskResult:
    return TaskResult(
        task_id=task.task_id, workflow_instance_id=task.workflow_instance_id, status=status, output_data=output
    )


def a_failure_is_retried() -> None:
    task, name = one_task(retry_count=2, retry_logic="FIXED", retry_delay_seconds=0)
    attempts = []

    def work(given):
        attempts.append(given.retry_count)
        if len(attempts) < 3:
            raise RuntimeError("not yet")
        return {"attempts": len(attempts)}

    with Workers(**{task: work}):
        workflow = ended(start(name))
    assert attempts == [0, 1, 2], attempts
    assert statuses(workflow) == [("t", "FAILED"), ("t", "FAILED"), ("t", "COMPLETED")]
    assert workflow.tasks[1].retried_task_id == workflow.tasks[0].task_id
    assert workflow.output == {"attempts": 3}


def retries_end() -> None:
    task, name = one_task(retry_count=1, retry_logic="EXPONENTIAL_BACKOFF", retry_delay_seconds=0)

    def work(_given):
        raise RuntimeError("always")

    with Workers(**{task: work}):
        workflow = ended(start(name))
    assert workflow.status == "FAILED"
    assert "always" in workflow.reason_for_incompletion, workflow.reason_for_incompletion
    assert workflow.failed_reference_task_names == {"t"}, workflow.failed_reference_task_names


def a_terminal_failure_is_not_retried() -> None:
    task, name = one_task(retry_count=5, retry_delay_seconds=0)

    def work(_given):
        raise NonRetryableException("no use")

    with Workers(**{task: work}):
        workflow = ended(start(name))
    assert workflow.status == "FAILED"
    assert statuses(workflow) == [("t", "FAILED_WITH_TERMINAL_ERROR")]


def a_silent_worker_loses_its_task() -> None:
    task, name = one_task(
        retry_count=1, retry_delay_seconds=0, response_timeout_seconds=1, timeout_seconds=60, timeout_policy="RETRY"
    )
    workflow_id = start(name)
    lost = polled(task)
    found = polled(task)
    assert found.task_id != lost.task_id
    assert found.retry_count == 1
    TASKS.update_task(result(lost, TaskResultStatus.COMPLETED, late=True))
    TASKS.update_task(result(found, TaskResultStatus.COMPLETED, late=False))
    workflow = ended(workflow_id)
    assert statuses(workflow) == [("t", "TIMED_OUT"), ("t", "COMPLETED")]
    assert workflow.output == {"late": False}


def a_task_in_progress_comes_back() -> None:
    task, name = one_task()
    workflow_id = start(name)
    for round_ in range(3):
        given = polled(task)
        assert given.poll_count == round_ + 1
        update = result(given, TaskResultStatus.IN_PROGRESS, round=round_)
        update.callback_after_seconds = 0
        TASKS.update_task(update)
    given = polled(task)
    assert given.output_data == {"round": 2}
    TASKS.update_task(result(given, TaskResultStatus.COMPLETED))
    assert ended(workflow_id).status == "COMPLETED"


def a_domain_has_its_own_queue() -> None:
    task, name = one_task()
    request = StartWorkflowRequest(name=name, input={}, task_to_domain={task: "blue"})
    workflow_id = WORKFLOWS.start_workflow(request)
    assert TASKS.poll_task(task).task_id is None
    given = polled(task, "blue")
    assert given.domain == "blue"
    TASKS.update_task(result(given, TaskResultStatus.COMPLETED))
    assert ended(workflow_id).status == "COMPLETED"


def an_update_after_the_end_changes_nothing() -> None:
    task, name = one_task()
    workflow_id = start(name)
    given = polled(task)
    TASKS.update_task(result(given, TaskResultStatus.COMPLETED, first=True))
    TASKS.update_task(result(given, TaskResultStatus.FAILED, first=False))
    workflow = ended(workflow_id)
    assert workflow.status == "COMPLETED"
    assert workflow.output == {"first": True}


def values_keep_their_form() -> None:
    task, name = one_task()
    value = {"text": "naïve 雪 \U0001f40d", "null": None, "deep": {"null": [None, {"null": None}]}, "large": "x" * 1_000_000}
    with Workers(**{task: lambda given: {"n": given.input_data["n"]}}):
        workflow = ended(start(name, n=value))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.output == {"n": value}


def pause_and_resume() -> None:
    first, second = unique("first"), unique("second")
    nodes = [WorkflowTask(name=first, task_reference_name="a"), WorkflowTask(name=second, task_reference_name="b")]
    name = unique("workflow")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=nodes), overwrite=True)
    workflow_id = start(name)
    WORKFLOWS.pause_workflow(workflow_id)
    with Workers(**{first: lambda _: {}, second: lambda _: {}}):
        eventually("the first task", lambda: WORKFLOWS.get_workflow(workflow_id, True).tasks[0].status == "COMPLETED")
        paused = WORKFLOWS.get_workflow(workflow_id, True)
        assert paused.status == "PAUSED"
        assert len(paused.tasks) == 1
        WORKFLOWS.resume_workflow(workflow_id)
        assert ended(workflow_id).status == "COMPLETED"


def terminate() -> None:
    _, name = one_task()
    workflow_id = start(name)
    WORKFLOWS.terminate_workflow(workflow_id, reason="enough")
    workflow = ended(workflow_id)
    assert workflow.status == "TERMINATED"
    assert workflow.reason_for_incompletion == "enough"
    assert statuses(workflow) == [("t", "CANCELED")]


def commands_of_the_other_family_are_refused() -> None:
    _, name = one_task()
    workflow_id = start(name)
    versions = {"X-Durable-Workflow-Control-Plane-Version": "2", "Content-Type": "application/json"}
    for path in ("signal/go", "query/state", "update/add"):
        url = f"{os.environ['LONGHAUL_URL']}/api/workflows/{workflow_id}/{path}"
        request = urllib.request.Request(url, data=b"{}", headers=versions, method="POST")
        try:
            urllib.request.urlopen(request)
            raise AssertionError(f"{path} was accepted")
        except urllib.error.HTTPError as error:
            refusal = json.load(error)
            assert (error.code, refusal["reason"]) == (409, "other_program"), (path, error.code, refusal["reason"])
    assert WORKFLOWS.get_workflow(workflow_id, True).status == "RUNNING"


def many_workflows() -> None:
    task, name = one_task()
    began = time.monotonic()
    with Workers(**{task: lambda given: {"n": given.input_data["n"]}}):
        ids = [start(name, n=n) for n in range(100)]
        for n, workflow_id in enumerate(ids):
            assert ended(workflow_id).output == {"n": n}
    print(f"   100 workflows in {time.monotonic() - began:.1f} s")


main(
    a_failure_is_retried,
    retries_end,
    a_terminal_failure_is_not_retried,
    a_silent_worker_loses_its_task,
    a_task_in_progress_comes_back,
    a_domain_has_its_own_queue,
    an_update_after_the_end_changes_nothing,
    values_keep_their_form,
    pause_and_resume,
    terminate,
    commands_of_the_other_family_are_refused,
    many_workflows,
)
