"""Workers of the published client: results, progress, domains, leases, coroutines."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.error
import urllib.request

from conductor.client.automator.async_task_runner import AsyncTaskRunner
from conductor.client.automator.task_runner import TaskRunner
from conductor.client.configuration.configuration import Configuration
from conductor.client.configuration.settings.authentication_settings import AuthenticationSettings
from conductor.client.http.models import StartWorkflowRequest, TaskDef, TaskResult, WorkflowDef, WorkflowTask
from conductor.client.http.models.task_result_status import TaskResultStatus
from conductor.client.orkes_clients import OrkesClients
from conductor.client.worker.worker import Worker

from common import CONFIGURATION, LOOK_INTERVAL, METADATA, TASKS, WORKFLOWS, Workers, ended, eventually, main, polled, start, statuses, unique


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


def a_run_step_by_step() -> None:
    # The server is open: it has no tokens, and the client goes on without one.
    settings = AuthenticationSettings(key_id="any", key_secret="any")
    clients = OrkesClients(Configuration(server_api_url=CONFIGURATION.host, authentication_settings=settings))
    metadata, workflows, tasks = clients.get_metadata_client(), clients.get_workflow_client(), clients.get_task_client()
    task, name = unique("greet"), unique("hello")
    metadata.register_task_def(TaskDef(name=task))
    node = WorkflowTask(name=task, task_reference_name="greet_ref", input_parameters={"n": "${workflow.input.n}"})
    definition = WorkflowDef(name=name, version=1, tasks=[node], output_parameters={"g": "${greet_ref.output.result}"})
    metadata.register_workflow_def(definition, overwrite=True)
    assert tasks.batch_poll_tasks(task, worker_id="h", count=1, timeout_in_millisecond=100) == []
    workflow_id = workflows.start_workflow(StartWorkflowRequest(name=name, input={"n": "x"}))
    [given] = tasks.batch_poll_tasks(task, worker_id="h", count=1, timeout_in_millisecond=100)
    assert (given.workflow_instance_id, given.status, given.input_data) == (workflow_id, "IN_PROGRESS", {"n": "x"}), given
    assert (given.task_type, given.task_def_name, given.reference_task_name) == (task, task, "greet_ref"), given
    assert (given.seq, given.poll_count, given.retry_count, given.worker_id) == (1, 1, 0, "h"), given
    assert tasks.taskResourceApi.update_task_v2(result(given, "COMPLETED", result="hi x")) is None
    workflow = workflows.get_workflow(workflow_id, True)
    assert (workflow.status, workflow.output, statuses(workflow)) == ("COMPLETED", {"g": "hi x"}, [("greet_ref", "COMPLETED")]), workflow
    found = workflows.search(query=f'workflowId="{workflow_id}"', free_text="*", start=0, size=10)
    assert [summary.workflow_id for summary in found.results] == [workflow_id], found


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


def a_worker_of_a_domain_gets_its_tasks_only() -> None:
    task, name = one_task()
    worker = Worker(task_definition_name=task, execute_function=lambda _: {"by": "blue"}, poll_interval=20, domain="blue")
    runner = TaskRunner(worker, CONFIGURATION)
    threading.Thread(target=runner.run, daemon=True).start()
    blue = ended(WORKFLOWS.start_workflow(StartWorkflowRequest(name=name, task_to_domain={"*": "blue"})))
    assert (blue.status, blue.output, blue.tasks[0].domain) == ("COMPLETED", {"by": "blue"}, "blue"), blue
    plain = start(name)
    TASKS.update_task(result(polled(task), TaskResultStatus.COMPLETED, by="hand"))
    assert ended(plain).output == {"by": "hand"}
    runner.stop()
    # A domain without a worker yields to the next entry, here to no domain.
    fallen = WORKFLOWS.start_workflow(StartWorkflowRequest(name=name, task_to_domain={task: "unseen,NO_DOMAIN"}))
    TASKS.update_task(result(polled(task), TaskResultStatus.COMPLETED, by="hand"))
    workflow = ended(fallen)
    assert (workflow.output, workflow.tasks[0].domain) == ({"by": "hand"}, None), workflow


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


def coroutines_work_at_the_same_time() -> None:
    task, name = one_task()
    begun = []

    async def work(n: int):
        # All ten wait for each other, so one event loop must run them together.
        begun.append(n)
        while len(begun) < 10:
            await asyncio.sleep(LOOK_INTERVAL)
        return {"n": n}

    # The client does not read annotations that are text.
    work.__annotations__["n"] = int

    worker = Worker(task_definition_name=task, execute_function=work, poll_interval=20, thread_count=10)
    runner = AsyncTaskRunner(worker, CONFIGURATION)
    threading.Thread(target=lambda: asyncio.run(runner.run()), daemon=True).start()
    ids = [start(name, n=n) for n in range(10)]
    for n, workflow_id in enumerate(ids):
        assert ended(workflow_id).output == {"n": n}
    asyncio.run(runner.stop())


def a_worker_keeps_its_lease() -> None:
    # The client sends a heartbeat after 80 % of the time-out, at its next tick of a second. An attempt is lost if the machine stalls then.
    seconds = 6
    task, name = one_task(retry_count=9, retry_delay_seconds=0, response_timeout_seconds=seconds)

    def work(_given):
        time.sleep(seconds + 1)
        return {"done": True}

    worker = Worker(task_definition_name=task, execute_function=work, poll_interval=20, lease_extend_enabled=True)
    runner = TaskRunner(worker, CONFIGURATION)
    threading.Thread(target=runner.run, daemon=True).start()
    workflow = ended(start(name))
    runner.stop()
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.output == {"done": True}
    last = workflow.tasks[-1]
    assert last.end_time - last.start_time > seconds * 1000, last
    assert last.poll_count == 1, last


def many_workflows() -> None:
    task, name = one_task()
    began = time.monotonic()
    with Workers(**{task: lambda given: {"n": given.input_data["n"]}}):
        ids = [start(name, n=n) for n in range(100)]
        for n, workflow_id in enumerate(ids):
            assert ended(workflow_id).output == {"n": n}
    print(f"   100 workflows in {time.monotonic() - began:.1f} s")


main(
    a_run_step_by_step,
    a_task_in_progress_comes_back,
    a_domain_has_its_own_queue,
    a_worker_of_a_domain_gets_its_tasks_only,
    an_update_after_the_end_changes_nothing,
    values_keep_their_form,
    pause_and_resume,
    terminate,
    commands_of_the_other_family_are_refused,
    coroutines_work_at_the_same_time,
    a_worker_keeps_its_lease,
    many_workflows,
)
