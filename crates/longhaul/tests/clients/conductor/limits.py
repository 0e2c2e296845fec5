"""Limits of task definitions, logs, sizes of queues and the synchronous update, with the published client."""

from __future__ import annotations

import threading
import time

from conductor.client.automator.task_runner import TaskRunner
from conductor.client.context.task_context import get_task_context
from conductor.client.http.models import StartWorkflowRequest, TaskDef, TaskResult, WorkflowDef, WorkflowTask
from conductor.client.http.models.task_exec_log import TaskExecLog
from conductor.client.worker.worker import Worker

from common import (
    CONFIGURATION,
    METADATA,
    TASKS,
    WORKFLOWS,
    Workers,
    ended,
    eventually,
    main,
    polled,
    start,
    unique,
)


def one_task(**definition) -> tuple[str, str]:
    """Registers a task and a workflow of it. Returns the names of both."""
    task = unique("task")
    METADATA.register_task_def(TaskDef(name=task, **definition))
    workflow = unique("workflow")
    node = WorkflowTask(name=task, task_reference_name="t")
    METADATA.register_workflow_def(WorkflowDef(name=workflow, version=1, tasks=[node]), overwrite=True)
    return task, workflow


def result(task, status: str, **members) -> TaskResult:
    return TaskResult(
        task_id=task.task_id, workflow_instance_id=task.workflow_instance_id, status=status, **members
    )


def batch(task: str, count: int = 10) -> list:
    """Returns the tasks that can be polled now."""
    return TASKS.batch_poll_tasks(task, count=count, timeout_in_millisecond=50) or []


def admitted(task: str, count: int) -> list:
    """Returns the tasks that a limit admits, which are no more than this. Another server may need a moment to offer a freed slot."""
    given = []

    def look() -> bool:
        given.extend(batch(task))
        return len(given) >= count

    eventually(f"{count} tasks", look)
    assert len(given) == count, given
    assert batch(task) == []
    return given


def two_of_five_are_in_progress() -> None:
    task, name = one_task(concurrent_exec_limit=2)
    runs = [start(name) for _ in range(5)]
    first = admitted(task, 2)
    TASKS.update_task(result(first[0], "COMPLETED"))
    admitted(task, 1)
    # A task that waits for its callback is not in progress.
    TASKS.update_task(result(first[1], "IN_PROGRESS", callback_after_seconds=3600))
    fourth = admitted(task, 1)
    WORKFLOWS.terminate_workflow(fourth[0].workflow_instance_id)
    admitted(task, 1)
    for run in runs:
        if WORKFLOWS.get_workflow(run, False).status == "RUNNING":
            WORKFLOWS.terminate_workflow(run)


def a_worker_with_many_threads_keeps_to_the_limit() -> None:
    task, name = one_task(concurrent_exec_limit=2)
    lock = threading.Lock()
    running, most = 0, 0

    def work(_given):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # The first task waits for a second one. After that, a third one has time to begin.
        eventually("a second task", lambda: most > 1)
        time.sleep(0.02)
        with lock:
            running -= 1
        return {}

    worker = Worker(task_definition_name=task, execute_function=work, poll_interval=20, thread_count=8)
    runner = TaskRunner(worker, CONFIGURATION)
    threading.Thread(target=runner.run, daemon=True).start()
    try:
        runs = [start(name) for _ in range(20)]
        assert all(ended(run).status == "COMPLETED" for run in runs)
    finally:
        runner.stop()
    assert most == 2, most


def starts_in_a_window_are_limited() -> None:
    task, name = one_task(rate_limit_per_frequency=3, rate_limit_frequency_in_seconds=1)
    for _ in range(7):
        start(name)
    given = []

    def look() -> bool:
        given.extend(batch(task))
        return len(given) == 7

    eventually("the last task", look)
    # The moments come from the clock of the server: the third task after any one starts a window later.
    moments = sorted(TASKS.get_task(one.task_id).start_time for one in given)
    assert all(later - earlier >= 1000 for earlier, later in zip(moments, moments[3:])), moments
    record = TASKS.get_task(given[0].task_id)
    assert (record.rate_limit_per_frequency, record.rate_limit_frequency_in_seconds) == (3, 1)


def logs() -> None:
    task, name = one_task()

    def work(_given):
        get_task_context().add_log("from the context")
        return {"done": True}

    with Workers(**{task: work}):
        workflow = ended(start(name))
    task_id = workflow.tasks[0].task_id
    TASKS.add_task_log(task_id, 'later: "quoted" ü')
    found = TASKS.get_task_logs(task_id)
    assert [line.log for line in found][0] == "from the context", found
    assert "quoted" in found[1].log, found
    assert all(line.task_id == task_id and line.created_time > 1_700_000_000_000 for line in found), found
    # A report without a worker. Another task type: the last poll of a worker that stops may take a task.
    task, name = one_task()
    waiting = start(name)
    given = polled(task)
    entry = TaskExecLog(log="by hand", task_id=given.task_id, created_time=int(time.time() * 1000))
    TASKS.update_task(result(given, "COMPLETED", logs=[entry]))
    assert ended(waiting).status == "COMPLETED"
    assert [line.log for line in TASKS.get_task_logs(given.task_id)] == ["by hand"]


def a_failure_leaves_its_trace() -> None:
    task, name = one_task(retry_count=0)

    def work(_given):
        raise RuntimeError("broken on purpose")

    with Workers(**{task: work}):
        workflow = ended(start(name))
    found = TASKS.get_task_logs(workflow.tasks[0].task_id)
    assert any("broken on purpose" in line.log for line in found), found
    # This client sends seconds here; the server answers milliseconds.
    assert all(line.created_time > 1_700_000_000_000 for line in found), found


def sizes_of_queues() -> None:
    task, name = one_task()
    assert TASKS.get_queue_size_for_task(task) == 0
    runs = [start(name) for _ in range(3)]
    assert TASKS.get_queue_size_for_task(task) == 3
    given = polled(task)
    assert TASKS.get_queue_size_for_task(task) == 2
    TASKS.update_task(result(given, "IN_PROGRESS", callback_after_seconds=3600))
    assert TASKS.get_queue_size_for_task(task) == 3
    domain = StartWorkflowRequest(name=name, task_to_domain={task: "blue"})
    runs.append(WORKFLOWS.start_workflow(domain))
    assert TASKS.get_queue_size_for_task(f"blue:{task}") == 1
    polls = eventually("poll data", lambda: TASKS.get_task_poll_data(task))
    assert [poll.queue_name for poll in polls] == [task], polls
    assert TASKS.taskResourceApi.all()[task] == 3
    assert TASKS.taskResourceApi.all_verbose()[task] == {"a": {"size": 3, "uacked": 0}}
    for run in runs:
        WORKFLOWS.terminate_workflow(run)
    assert TASKS.get_queue_size_for_task(task) == 0


def the_synchronous_update_returns_the_workflow() -> None:
    name = unique("waits")
    wait = WorkflowTask(name="wait", task_reference_name="wait", type="WAIT")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=[wait]), overwrite=True)
    run = start(name)
    workflow = TASKS.update_task_sync(run, "wait", "COMPLETED", {"v": 9})
    assert workflow.status == "COMPLETED", workflow
    assert workflow.workflow_id == run
    assert workflow.tasks[0].output_data == {"v": 9}, workflow.tasks[0]


main(
    two_of_five_are_in_progress,
    a_worker_with_many_threads_keeps_to_the_limit,
    starts_in_a_window_are_limited,
    logs,
    a_failure_leaves_its_trace,
    sizes_of_queues,
    the_synchronous_update_returns_the_workflow,
)
