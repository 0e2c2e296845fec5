"""Retries of each logic, and each time-out with each policy, with workers of the published client and by hand."""

from __future__ import annotations

import re

from conductor.client.http.models import TaskDef, TaskResult, WorkflowDef, WorkflowTask
from conductor.client.worker.exception import NonRetryableException

from common import METADATA, TASKS, WORKFLOWS, Workers, ended, eventually, main, polled, start, statuses, unique

# Logic, factor, and the seconds before each retry. The client cannot express the longest delay and the jitter.
DELAYS = [
    ("FIXED", 1, [10, 10, 10]),
    ("LINEAR_BACKOFF", 2, [20, 40, 60]),
    ("EXPONENTIAL_BACKOFF", 2, [10, 20, 40]),
]


def one_task(**definition) -> tuple[str, str]:
    """Registers a task and a workflow of it. Returns the names of both."""
    task = unique("task")
    METADATA.register_task_def(TaskDef(name=task, **{"retry_delay_seconds": 0, **definition}))
    workflow = unique("workflow")
    node = WorkflowTask(name=task, task_reference_name="t")
    METADATA.register_workflow_def(WorkflowDef(name=workflow, version=1, tasks=[node]), overwrite=True)
    return task, workflow


def started(**definition) -> tuple[str, str]:
    """Starts a run of one task that is retried once. Returns the name of the task and the id of the run."""
    task, name = one_task(**{"retry_count": 1, **definition})
    return task, start(name)


def report(task, status: str, **output) -> None:
    TASKS.update_task(
        TaskResult(task_id=task.task_id, workflow_instance_id=task.workflow_instance_id, status=status, output_data=output)
    )


def attempts(workflow) -> list[str]:
    return [task.status for task in workflow.tasks]


def attempt_of(workflow_id: str, number: int):
    """Returns the attempt of this number once it exists."""

    def look():
        tasks = WORKFLOWS.get_workflow(workflow_id, True).tasks
        return tasks[number] if len(tasks) > number else None

    return eventually(f"attempt {number}", look)


def delays_of_each_logic() -> None:
    for logic, factor, expected in DELAYS:
        _, name = one_task(retry_count=3, retry_logic=logic, retry_delay_seconds=10, backoff_scale_factor=factor)
        workflow_id = start(name)
        # A task may be reported before it is polled, so this does not wait for the delays.
        for attempt in range(4):
            TASKS.update_task_by_ref_name(workflow_id, "t", "FAILED", {"attempt": attempt})
        workflow = ended(workflow_id)
        assert workflow.status == "FAILED"
        assert attempts(workflow) == ["FAILED"] * 4, attempts(workflow)
        assert [task.retry_count for task in workflow.tasks] == [0, 1, 2, 3]
        delays = [task.callback_after_seconds for task in workflow.tasks[1:]]
        assert delays == expected, (logic, delays)


def attempts_wait_for_their_delay() -> None:
    names = {}
    for logic in ("FIXED", "LINEAR_BACKOFF", "EXPONENTIAL_BACKOFF"):
        task, name = one_task(retry_count=1, retry_logic=logic, retry_delay_seconds=1)
        names[task] = name

    def work(given):
        if given.retry_count == 0:
            raise RuntimeError("not yet")
        return {}

    with Workers(**dict.fromkeys(names, work)):
        for workflow_id in [start(name) for name in names.values()]:
            workflow = ended(workflow_id)
            assert attempts(workflow) == ["FAILED", "COMPLETED"], attempts(workflow)
            # Both moments come from the clock of the server.
            second = workflow.tasks[1]
            assert second.start_time - second.scheduled_time >= 1000, second


def a_failure_is_retried() -> None:
    task, name = one_task(retry_count=2)
    seen = []

    def work(given):
        seen.append(given.retry_count)
        if len(seen) < 3:
            raise RuntimeError("not yet")
        return {"attempts": len(seen)}

    with Workers(**{task: work}):
        workflow = ended(start(name))
    assert seen == [0, 1, 2], seen
    assert statuses(workflow) == [("t", "FAILED"), ("t", "FAILED"), ("t", "COMPLETED")]
    assert workflow.tasks[1].retried_task_id == workflow.tasks[0].task_id
    assert workflow.output == {"attempts": 3}


def retries_are_exhausted() -> None:
    task, name = one_task(retry_count=1, retry_logic="EXPONENTIAL_BACKOFF")

    def work(_given):
        raise RuntimeError("always")

    with Workers(**{task: work}):
        workflow = ended(start(name))
    assert workflow.status == "FAILED"
    assert attempts(workflow) == ["FAILED", "FAILED"], attempts(workflow)
    assert "failed with status: FAILED and reason: 'always'" in workflow.reason_for_incompletion
    assert workflow.failed_reference_task_names == {"t"}, workflow.failed_reference_task_names


def a_terminal_failure_is_not_retried() -> None:
    task, name = one_task(retry_count=5)

    def work(_given):
        raise NonRetryableException("no use")

    with Workers(**{task: work}):
        workflow = ended(start(name))
    assert workflow.status == "FAILED"
    assert statuses(workflow) == [("t", "FAILED_WITH_TERMINAL_ERROR")]
    assert "no use" in workflow.tasks[0].reason_for_incompletion


def timed_out(workflow_id: str, count: int, reason: str) -> None:
    """Expects that a run timed out after this many attempts with this reason."""
    workflow = ended(workflow_id)
    assert workflow.status == "TIMED_OUT", (workflow.status, workflow.reason_for_incompletion)
    assert attempts(workflow) == ["TIMED_OUT"] * count, attempts(workflow)
    for found in (workflow.tasks[-1].reason_for_incompletion, workflow.reason_for_incompletion):
        assert re.search(reason, found), found


def goes_on(task_id: str) -> None:
    """Expects that an attempt past its time-out is open, and that its result ends the run."""
    task = TASKS.get_task(task_id)
    assert task.status == "SCHEDULED", (task.status, task.reason_for_incompletion)
    report(task, "COMPLETED", late=True)
    workflow = ended(task.workflow_instance_id)
    assert (workflow.status, workflow.output) == ("COMPLETED", {"late": True}), workflow


def poll_time_outs() -> None:
    _, alert = started(poll_timeout_seconds=1, timeout_policy="ALERT_ONLY")
    _, retry = started(poll_timeout_seconds=1, timeout_policy="RETRY")
    _, end = started(poll_timeout_seconds=1, timeout_policy="TIME_OUT_WF")
    reason = r"Task poll timed out after \d+ seconds. Poll timeout configured as 1 seconds. Timeout policy configured to "
    timed_out(end, 1, reason + "TIME_OUT_WF")
    timed_out(retry, 2, reason + "RETRY")
    goes_on(attempt_of(alert, 0).task_id)


def put_off(task: str):
    """Takes an attempt and asks for it again in an hour, so that it has no response time-out. Returns it."""
    given = polled(task)
    result = TaskResult(task_id=given.task_id, workflow_instance_id=given.workflow_instance_id, status="IN_PROGRESS")
    result.callback_after_seconds = 3600
    TASKS.update_task(result)
    return TASKS.get_task(given.task_id)


def task_time_outs() -> None:
    # The response time-out cannot be longer. Where it ends an attempt before that is put off, the next one is taken.
    limits = {"timeout_seconds": 1, "response_timeout_seconds": 1}
    alert, _ = started(timeout_policy="ALERT_ONLY", retry_count=1000, **limits)
    retry, retried = started(timeout_policy="RETRY", **limits)
    end, ending = started(timeout_policy="TIME_OUT_WF", **limits)

    def waiting():
        found = put_off(alert)
        return found if found.status == "SCHEDULED" else None

    open_task = eventually("a task that was put off", waiting)
    for task in (end, retry, retry):
        put_off(task)
    reason = r"Task timed out after \d+ seconds. Timeout configured as 1 seconds. Timeout policy configured to "
    timed_out(ending, 1, reason + "TIME_OUT_WF")
    timed_out(retried, 2, reason + "RETRY")
    goes_on(open_task.task_id)


def response_time_outs() -> None:
    # The response time-out ends the attempt whatever the policy is.
    rows = []
    for policy in ("RETRY", "TIME_OUT_WF", "ALERT_ONLY"):
        limits = {"timeout_policy": policy, "response_timeout_seconds": 1}
        repeated, exhausted = started(**limits), started(**{**limits, "retry_count": 0})
        rows.append((polled(repeated[0]), repeated[1], exhausted[1]))
        polled(exhausted[0])
    for lost, repeated, exhausted in rows:
        timed_out(exhausted, 1, "responseTimeout: 1 exceeded for the taskId: .* with Task Definition: ")
        second = attempt_of(repeated, 1)
        report(lost, "COMPLETED", late=True)
        # A task that was not polled has no response time-out.
        report(second, "COMPLETED", late=False)
        workflow = ended(repeated)
        assert attempts(workflow) == ["TIMED_OUT", "COMPLETED"], attempts(workflow)
        assert workflow.output == {"late": False}, workflow.output


def total_time_outs() -> None:
    _, alert = started(total_timeout_seconds=1, timeout_policy="ALERT_ONLY")
    _, retry = started(total_timeout_seconds=1, timeout_policy="RETRY")
    _, end = started(total_timeout_seconds=1, timeout_policy="TIME_OUT_WF")
    # No time is left for a retry.
    timed_out(retry, 1, "exceeded total timeout of 1 seconds")
    timed_out(end, 1, "exceeded total timeout of 1 seconds .* Timeout policy: TIME_OUT_WF")
    goes_on(attempt_of(alert, 0).task_id)


def workflow_time_outs() -> None:
    cleanup, human = unique("cleanup"), WorkflowTask(name="human", task_reference_name="human", type="HUMAN")
    noop = WorkflowTask(name="noop", task_reference_name="noop", type="NOOP")
    output = {"status": "${workflow.input.failureStatus}"}
    METADATA.register_workflow_def(WorkflowDef(name=cleanup, version=1, tasks=[noop], output_parameters=output), overwrite=True)

    def waiting(policy: str) -> str:
        name = unique("workflow")
        limits = {"timeout_seconds": 1, "timeout_policy": policy, "failure_workflow": cleanup}
        METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=[human], **limits), overwrite=True)
        return start(name)

    alert, end = waiting("ALERT_ONLY"), waiting("TIME_OUT_WF")
    workflow = ended(end)
    assert workflow.status == "TIMED_OUT", workflow.status
    assert attempts(workflow) == ["CANCELED"], attempts(workflow)
    reason = r"Workflow timed out after \d+ seconds. Timeout configured as 1 seconds. Timeout policy configured to TIME_OUT_WF"
    assert re.fullmatch(reason, workflow.reason_for_incompletion), workflow.reason_for_incompletion
    assert ended(workflow.output["conductor.failure_workflow"]).output == {"status": "TIMED_OUT"}
    TASKS.update_task_by_ref_name(alert, "human", "COMPLETED", {})
    assert ended(alert).status == "COMPLETED"


main(
    delays_of_each_logic,
    attempts_wait_for_their_delay,
    a_failure_is_retried,
    retries_are_exhausted,
    a_terminal_failure_is_not_retried,
    poll_time_outs,
    task_time_outs,
    response_time_outs,
    total_time_outs,
    workflow_time_outs,
)
