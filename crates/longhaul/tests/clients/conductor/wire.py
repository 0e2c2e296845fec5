"""Makes each request of the Conductor client once, for `conductor_rust/wire.rs`, which records them.

A step is a function that gets clients. The address of its clients contains its name, so that the recording knows which request belongs
to which step. The client reads annotations as types, so they are not delayed here.
"""

import os
from collections.abc import Callable

from conductor.client.automator.lease_tracker import LeaseInfo, LeaseManager
from conductor.client.automator.task_runner import TaskRunner
from conductor.client.configuration.configuration import Configuration
from conductor.client.configuration.settings.authentication_settings import AuthenticationSettings
from conductor.client.http.models import StartWorkflowRequest, TaskDef, TaskResult, WorkflowDef, WorkflowTask
from conductor.client.http.models.schema_def import SchemaDef, SchemaType
from conductor.client.http.models.task_exec_log import TaskExecLog
from conductor.client.http.models.task_result_status import TaskResultStatus
from conductor.client.orkes_clients import OrkesClients
from conductor.client.worker.worker import Worker
from conductor.client.workflow.executor.workflow_executor import WorkflowExecutor

CREATED = 1_700_000_000_000


class Step:
    """The clients of one step. A client is slow to make, so a step makes the ones that it needs."""

    def __init__(self, name: str, key: AuthenticationSettings | None = None) -> None:
        address = f"{os.environ['LONGHAUL_URL']}/{name}/api"
        self.configuration = Configuration(server_api_url=address, authentication_settings=key)
        self.clients = OrkesClients(self.configuration)

    @property
    def tasks(self):
        return self.clients.get_task_client()

    @property
    def metadata(self):
        return self.clients.get_metadata_client()

    @property
    def workflows(self):
        return self.clients.get_workflow_client()

    @property
    def schemas(self):
        return self.clients.get_schema_client()

    @property
    def executor(self) -> WorkflowExecutor:
        return WorkflowExecutor(configuration=self.configuration)

    def work(self, function: Callable, **settings: object) -> None:
        """Registers a worker if it asks for it, and executes what one poll returns."""
        worker = Worker(task_definition_name="charge", execute_function=function, worker_id="w", **settings)
        runner = TaskRunner(worker, self.configuration)
        if worker.register_task_def:
            runner._TaskRunner__register_task_definition()
        runner.run_once()
        runner._executor.shutdown(wait=True)


def result(status: str, **members: object) -> TaskResult:
    return TaskResult(task_id="t", workflow_instance_id="i", worker_id="w", status=TaskResultStatus[status], **members)


def start_request(**members: object) -> StartWorkflowRequest:
    return StartWorkflowRequest(name="order", input={"id": 7, "none": None}, **members)


def task_definition() -> TaskDef:
    return TaskDef(
        name="charge",
        description="Charges a card",
        retry_count=5,
        retry_logic="LINEAR_BACKOFF",
        retry_delay_seconds=7,
        backoff_scale_factor=2,
        timeout_seconds=60,
        timeout_policy="RETRY",
        response_timeout_seconds=30,
        concurrent_exec_limit=4,
        rate_limit_per_frequency=100,
        rate_limit_frequency_in_seconds=10,
        owner_email="ada@example.com",
    )


def workflow_definition() -> WorkflowDef:
    task = WorkflowTask(name="charge", task_reference_name="first", type="SIMPLE", input_parameters={"id": "${workflow.input.id}"})
    return WorkflowDef(
        name="order",
        version=2,
        description="An order",
        tasks=[task],
        output_parameters={"receipt": "${first.output.receipt}"},
        timeout_seconds=3600,
        timeout_policy="TIME_OUT_WF",
        owner_email="ada@example.com",
    )


def schema() -> SchemaDef:
    return SchemaDef(name="charge_input", version=1, type=SchemaType.JSON, data={"type": "object"})


def heartbeat(step: Step) -> None:
    due = LeaseInfo("t", "i", 10.0, 0.0, 8.0, step.tasks.taskResourceApi)
    LeaseManager.get_instance()._send_heartbeat(due)


def fail(_task: object) -> None:
    raise ValueError("no money")


def charge(order: str, cents: int, note: str = "") -> str:
    return f"{order}: {cents}"


LOGS = [TaskExecLog(log="a line", task_id="t", created_time=CREATED)]

STEPS: dict[str, Callable[[Step], object]] = {
    "poll_one": lambda step: step.tasks.poll_task("charge", worker_id="w"),
    "poll_one_in_a_domain": lambda step: step.tasks.poll_task("charge", worker_id="w", domain="eu"),
    "poll": lambda step: step.tasks.batch_poll_tasks("charge", "w", 7, 100),
    "poll_in_a_domain": lambda step: step.tasks.batch_poll_tasks("charge", "w", 7, 250, "eu"),
    "poll_in_an_empty_domain": lambda step: step.tasks.batch_poll_tasks("charge", "w", 1, 100, ""),
    "poll_without_a_worker": lambda step: step.tasks.batch_poll_tasks("charge", None, 1, 100),
    "poll_a_name_with_other_characters": lambda step: step.tasks.batch_poll_tasks("a/b c+d?ü%", "w 1&2", 1, 100, "e u"),
    "update_completed": lambda step: step.tasks.update_task(result("COMPLETED", output_data={"a": [1, None, {"b": None}]})),
    "update_failed": lambda step: step.tasks.update_task(
        result("FAILED", reason_for_incompletion="no money", output_data={}, logs=LOGS)
    ),
    "update_terminal": lambda step: step.tasks.update_task(
        result("FAILED_WITH_TERMINAL_ERROR", reason_for_incompletion="no card", output_data={})
    ),
    "update_in_progress": lambda step: step.tasks.update_task(
        result("IN_PROGRESS", callback_after_seconds=60, output_data={"done": 1})
    ),
    "update_and_poll": lambda step: step.tasks.taskResourceApi.update_task_v2(result("COMPLETED", output_data={"a": 1})),
    "heartbeat": heartbeat,
    "update_by_reference": lambda step: step.executor.update_task_by_ref_name({"ok": True}, "i", "r 1", "COMPLETED"),
    "update_by_reference_sync": lambda step: step.tasks.update_task_sync("i", "r 1", "COMPLETED", {"ok": True}),
    "add_log": lambda step: step.tasks.add_task_log("t", "a line"),
    "logs": lambda step: step.tasks.get_task_logs("t"),
    "task": lambda step: step.tasks.get_task("t"),
    "queue_size": lambda step: step.tasks.get_queue_size_for_task("charge"),
    "poll_data": lambda step: step.tasks.get_task_poll_data("charge"),
    "register_task": lambda step: step.metadata.register_task_def(task_definition()),
    "update_task": lambda step: step.metadata.update_task_def(task_definition()),
    "get_task": lambda step: step.metadata.get_task_def("charge"),
    "get_task_with_other_characters": lambda step: step.metadata.get_task_def("a/b c"),
    "list_tasks": lambda step: step.metadata.get_all_task_defs(),
    "delete_task": lambda step: step.metadata.unregister_task_def("charge"),
    "register_workflow": lambda step: step.metadata.register_workflow_def(workflow_definition(), overwrite=False),
    "replace_workflow": lambda step: step.metadata.register_workflow_def(workflow_definition(), overwrite=True),
    "get_workflow_definition": lambda step: step.metadata.get_workflow_def("order", 2),
    "get_newest_workflow_definition": lambda step: step.metadata.get_workflow_def("order"),
    "list_workflows": lambda step: step.metadata.get_all_workflow_defs(),
    "delete_workflow": lambda step: step.metadata.unregister_workflow_def("order", 2),
    "register_schema": lambda step: step.schemas.register_schema(schema()),
    "get_schema": lambda step: step.schemas.get_schema("charge_input", 1),
    "list_schemas": lambda step: step.schemas.get_all_schemas(),
    "delete_schema": lambda step: step.schemas.delete_schema("charge_input", 1),
    "delete_schemas_of_a_name": lambda step: step.schemas.delete_schema_by_name("charge_input"),
    "start": lambda step: step.workflows.start_workflow(start_request()),
    "start_with_all": lambda step: step.workflows.start_workflow(
        start_request(version=2, correlation_id="c", task_to_domain={"charge": "eu"}, priority=3)
    ),
    "start_by_name": lambda step: step.workflows.start_workflow_by_name(
        "order", {"id": 7, "none": None}, version=2, correlationId="c", priority=3
    ),
    "execute": lambda step: step.workflows.execute_workflow(
        start_request(version=2), request_id="q", wait_until_task_ref="first", wait_for_seconds=5
    ),
    "execute_with_strategy": lambda step: step.workflows.execute_workflow_with_return_strategy(
        start_request(version=2), request_id="q", wait_for_seconds=5, return_strategy="BLOCKING_TASK"
    ),
    "get": lambda step: step.workflows.get_workflow("i", True),
    "get_without_tasks": lambda step: step.workflows.get_workflow("i", False),
    "status": lambda step: step.workflows.get_workflow_status("i", True, True),
    "pause": lambda step: step.workflows.pause_workflow("i"),
    "resume": lambda step: step.workflows.resume_workflow("i"),
    "terminate": lambda step: step.workflows.terminate_workflow("i"),
    "terminate_with_reason": lambda step: step.workflows.terminate_workflow("i", reason="too late"),
    "terminate_as_failed": lambda step: step.workflows.terminate_workflow("i", reason="no", trigger_failure_workflow=True),
    "search": lambda step: step.workflows.search(20, 10, "Ada", "status IN (FAILED)"),
    "search_all": lambda step: step.workflows.search(),
    "correlated": lambda step: step.workflows.get_by_correlation_ids("order", ["c"]),
    "correlated_with_all": lambda step: step.workflows.get_by_correlation_ids("order", ["c"], True, True),
    "running": lambda step: step.workflows.workflowResourceApi.get_running_workflow("order", version=2),
    "work": lambda step: step.work(lambda task: {"ok": True}),
    "work_that_fails": lambda step: step.work(fail),
    "work_in_a_domain": lambda step: step.work(lambda task: 7, domain="eu", thread_count=3),
    "work_with_a_new_definition": lambda step: step.work(
        lambda task: 7, register_task_def=True, overwrite_task_def=False, task_def_template=task_definition()
    ),
    "work_with_a_known_definition": lambda step: step.work(lambda task: 7, register_task_def=True, overwrite_task_def=False),
    "work_with_a_replaced_definition": lambda step: step.work(
        lambda task: 7, register_task_def=True, task_def_template=task_definition()
    ),
    "work_with_a_bare_definition": lambda step: step.work(lambda task: 7, register_task_def=True),
    "work_with_schemas": lambda step: step.work(charge, register_task_def=True, register_schema=True),
    "work_with_strict_schemas": lambda step: step.work(
        charge, register_task_def=True, register_schema=True, strict_schema=True
    ),
}

for name, make in STEPS.items():
    print(name, flush=True)
    make(Step(name))
print("token", flush=True)
Step("token", AuthenticationSettings("key", "secret")).workflows.get_workflow("i", True)
# Pools of the client may still wait; the process need not.
os._exit(0)
