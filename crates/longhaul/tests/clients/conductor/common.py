"""Set-up shared by the scenario programs of the Conductor client.

A scenario is a function without arguments. A program lists its scenarios in `main(...)`, which runs them one after another, prints
one line each and exits non-zero if any failed. Run one alone with `LONGHAUL_URL=http://127.0.0.1:PORT python operators.py switch`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable

from conductor.client.automator.task_runner import TaskRunner
from conductor.client.configuration.configuration import Configuration
from conductor.client.http.models import StartWorkflowRequest
from conductor.client.orkes_clients import OrkesClients
from conductor.client.worker.worker import Worker
from conductor.client.workflow.executor.workflow_executor import WorkflowExecutor

CONFIGURATION = Configuration(server_api_url=os.environ["LONGHAUL_URL"] + "/api")
CLIENTS = OrkesClients(CONFIGURATION)
EXECUTOR = WorkflowExecutor(configuration=CONFIGURATION)
METADATA = CLIENTS.get_metadata_client()
WORKFLOWS = CLIENTS.get_workflow_client()
TASKS = CLIENTS.get_task_client()

# Longest a scenario may take. Generous, because CI machines stall; never reached when green.
DEADLINE = 180.0
LOOK_INTERVAL = 0.02


class Complaints(logging.Handler):
    """Collects what the client logs about answers that it cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if "deserialize" in line.lower():
            self.lines.append(line)


COMPLAINTS = Complaints()
logging.getLogger().addHandler(COMPLAINTS)


def unique(name: str) -> str:
    """A name that no earlier run of this program has used."""
    return f"{name}_{uuid.uuid4().hex[:12]}"


def start(name: str, **input_data) -> str:
    return WORKFLOWS.start_workflow(StartWorkflowRequest(name=name, input=input_data))


def eventually(what: str, look: Callable):
    """Returns the first true value of `look`."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(LOOK_INTERVAL)
    raise AssertionError(f"{what} did not happen in time")


def ended(workflow_id: str):
    """Returns the workflow once it has ended."""

    def look():
        workflow = WORKFLOWS.get_workflow(workflow_id, True)
        return workflow if workflow.status not in ("RUNNING", "PAUSED") else None

    return eventually(f"the end of {workflow_id}", look)


def statuses(workflow) -> list[tuple[str, str]]:
    return [(task.reference_task_name, task.status) for task in workflow.tasks]


def polled(task_type: str, domain: str | None = None):
    """Returns a task of this type. The client turns an empty answer into a task without members."""

    def look():
        task = TASKS.poll_task(task_type, domain=domain)
        return task if task is not None and task.task_id else None

    return eventually(f"a task {task_type}", look)


class Workers:
    """Workers of the published client, each in a thread of this process."""

    def __init__(self, **functions: Callable) -> None:
        self.runners = []
        for name, function in functions.items():
            worker = Worker(task_definition_name=name, execute_function=function, poll_interval=20)
            runner = TaskRunner(worker, CONFIGURATION)
            threading.Thread(target=runner.run, daemon=True).start()
            self.runners.append(runner)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for runner in self.runners:
            runner.stop()


def main(*scenarios: Callable[[], None], at_end: Callable[[], None] = lambda: None) -> None:
    chosen = sys.argv[1:]
    failed = False
    for scenario in scenarios:
        if chosen and scenario.__name__ not in chosen:
            continue
        began = time.monotonic()
        try:
            scenario()
            assert not COMPLAINTS.lines, COMPLAINTS.lines
            print(f"ok {scenario.__name__} {time.monotonic() - began:.1f} s", flush=True)
        except BaseException:
            failed = True
            print(f"FAILED {scenario.__name__}\n{traceback.format_exc()}", flush=True)
    at_end()
    # Polls of stopped runners may still wait; the process need not.
    os._exit(1 if failed else 0)
