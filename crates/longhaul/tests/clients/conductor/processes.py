"""`TaskHandler` of the published client, which runs each worker in a process of its own.

Each process imports the client and this file again, so all scenarios share one handler. Annotations are not postponed here, because
the client does not read annotations that are text.
"""

import os

from conductor.client.automator.task_handler import TaskHandler
from conductor.client.context.task_context import TaskInProgress, get_task_context
from conductor.client.http.models import TaskDef, WorkflowDef, WorkflowTask
from conductor.client.worker.worker_task import worker_task

from common import CONFIGURATION, METADATA, ended, main, start, statuses, unique

@worker_task(task_definition_name="in_process", register_task_def=True, thread_count=4, task_def=TaskDef(name="in_process", retry_count=7))
def in_process(n: int):
    return {"n": n + 1, "process": os.getpid()}


@worker_task(task_definition_name="in_event_loop", thread_count=4)
async def in_event_loop(n: int):
    return {"n": n * 10, "process": os.getpid()}


@worker_task(task_definition_name="in_rounds")
def in_rounds():
    context = get_task_context()
    context.add_log(f"round {context.get_poll_count()}")
    if context.get_poll_count() < 3:
        return TaskInProgress(callback_after_seconds=1, output={"round": context.get_poll_count()})
    return {"rounds": context.get_poll_count()}


@worker_task(task_definition_name="in_danger")
def in_danger():
    if get_task_context().get_retry_count() == 0:
        os._exit(3)
    return {"process": os.getpid()}


def define(*nodes: WorkflowTask) -> str:
    name = unique("processes")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=list(nodes)), overwrite=True)
    return name


def node(task: str, reference: str, **inputs) -> WorkflowTask:
    return WorkflowTask(name=task, task_reference_name=reference, input_parameters=inputs)


def each_worker_has_a_process() -> None:
    name = define(node("in_process", "a", n="${workflow.input.n}"), node("in_event_loop", "b", n="${a.output.n}"))
    runs = [ended(start(name, n=n)) for n in range(10)]
    assert [run.output["n"] for run in runs] == [(n + 1) * 10 for n in range(10)], runs
    processes = {task.output_data["process"] for run in runs for task in run.tasks}
    assert len(processes) == 2 and os.getpid() not in processes, processes


def a_worker_registers_its_task() -> None:
    assert METADATA.get_task_def("in_process").retry_count == 7


def a_task_comes_back_for_three_rounds() -> None:
    workflow = ended(start(define(node("in_rounds", "t"))))
    assert statuses(workflow) == [("t", "COMPLETED")]
    assert (workflow.tasks[0].poll_count, workflow.output["rounds"]) == (3, 3), workflow.tasks[0]


def the_task_of_a_process_that_dies_is_tried_again() -> None:
    METADATA.register_task_def(TaskDef(name="in_danger", retry_count=9, retry_delay_seconds=0, response_timeout_seconds=1))
    workflow = ended(start(define(node("in_danger", "t"))))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    # A machine that stalls may cost further attempts.
    assert [status for _, status in statuses(workflow)] == ["TIMED_OUT"] * (len(workflow.tasks) - 1) + ["COMPLETED"]
    assert len(workflow.tasks) > 1


if __name__ == "__main__":
    handler = TaskHandler(configuration=CONFIGURATION, monitor_interval_seconds=0.2, restart_backoff_seconds=0.1)
    handler.start_processes()
    main(
        each_worker_has_a_process,
        a_worker_registers_its_task,
        a_task_comes_back_for_three_rounds,
        the_task_of_a_process_that_dies_is_tried_again,
        at_end=handler.stop_processes,
    )
