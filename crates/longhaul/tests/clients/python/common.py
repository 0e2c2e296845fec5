"""Set-up shared by the scenario programs.

A scenario is an async function that takes a `Stage`: a client and a task queue with a running worker. A program
lists its scenarios in `main(...)`, which runs them concurrently, prints one line each and exits non-zero if any failed.
Run one alone with `LONGHAUL_URL=http://127.0.0.1:PORT python activities.py hello`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from durable_workflow import Client, Worker, WorkflowCancelled, WorkflowHandle

URL = os.environ["LONGHAUL_URL"]

# Longest a scenario may take. Generous, because CI machines stall; never reached when green.
DEADLINE = 240.0
LOOK_INTERVAL = 0.02

TERMINAL_EVENTS = {
    "WorkflowCompleted",
    "WorkflowContinuedAsNew",
    "WorkflowFailed",
    "WorkflowTimedOut",
    "WorkflowCancelled",
    "WorkflowTerminated",
}


def unique(name: str) -> str:
    """An id that no earlier run of this program has used."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


async def eventually(what: str, look: Callable[[], Awaitable[Any]]) -> Any:
    """Looks until there is something to see."""
    deadline = time.monotonic() + DEADLINE / 2
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting: {what}")
        await asyncio.sleep(LOOK_INTERVAL)


class Gates:
    """Named gates at which activities wait until a scenario opens them."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def __getitem__(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    def open(self, name: str) -> None:
        self[name].set()

    async def wait(self, name: str) -> None:
        await asyncio.wait_for(self[name].wait(), DEADLINE)


class Stage:
    """A client and the task queue on which the program's worker listens."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        self.queue = queue

    async def start(self, workflow_type: str, *arguments: Any, **options: Any) -> WorkflowHandle:
        options.setdefault("workflow_id", unique(workflow_type))
        return await self.client.start_workflow(
            workflow_type=workflow_type, task_queue=self.queue, input=list(arguments), **options
        )

    async def run(self, workflow_type: str, *arguments: Any, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
        """Runs a workflow to its end; its result and its history."""
        handle = await self.start(workflow_type, *arguments, **options)
        return await result(handle), await self.closed_history(handle)

    async def history(self, workflow_id: str, run_id: str | None) -> list[dict[str, Any]]:
        """All events of a run; of the current run when none is named."""
        run_id = run_id or (await self.client.describe_workflow(workflow_id)).run_id
        events: list[dict[str, Any]] = []
        token = None
        while True:
            page = await self.client.get_history(workflow_id, run_id, page_size=200, next_page_token=token)
            events += page["events"]
            token = page["next_page_token"]
            if token is None:
                return events

    async def closed_history(self, handle: WorkflowHandle) -> list[dict[str, Any]]:
        """The history of a closed run, checked for what every history must hold."""
        events = await self.history(handle.workflow_id, handle.run_id)
        check_sound(events)
        return events

    async def until(self, handle: WorkflowHandle, event_type: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until the run has at least `count` events of a type; their payloads."""

        async def look() -> list[dict[str, Any]] | None:
            found = payloads(await self.history(handle.workflow_id, handle.run_id), event_type)
            return found if len(found) >= count else None

        return await eventually(f"{count} x {event_type} in {handle.workflow_id}", look)


async def result(handle: WorkflowHandle) -> Any:
    return await handle.result(poll_interval=LOOK_INTERVAL, timeout=DEADLINE / 2)


async def fails(expected: type[BaseException], outcome: Awaitable[Any]) -> Any:
    """The exception that an awaitable must end with."""
    try:
        value = await outcome
    except expected as error:
        return error
    raise AssertionError(f"expected {expected.__name__}, got {value!r}")


def types(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["event_type"] for event in events]


def payloads(events: Iterable[dict[str, Any]], event_type: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in events if event["event_type"] == event_type]


async def rejected(handle: WorkflowHandle) -> list[dict[str, Any]]:
    """Refused commands of a run: they are no part of its history."""
    commands = (await handle.export_history())["commands"]
    return [command for command in commands if command["status"] == "rejected"]


def command_sequences(events: Iterable[dict[str, Any]], event_type: str) -> list[int]:
    return [payload["sequence"] for payload in payloads(events, event_type)]


def check_sound(events: list[dict[str, Any]]) -> None:
    """What holds for the history of every closed run."""
    equal([event["sequence"] for event in events], list(range(1, len(events) + 1)))
    equal(len([event for event in types(events) if event in TERMINAL_EVENTS]), 1)
    completed = command_sequences(events, "ActivityCompleted")
    equal(len(completed), len(set(completed)))


def equal(actual: Any, expected: Any) -> None:
    if actual != expected:
        raise AssertionError(f"{actual!r} is not {expected!r}")


async def beside(worker: Worker, work: Awaitable[Any]) -> Any:
    """Does some work while a worker runs, then stops the worker; a worker that ends by itself ends the work."""
    running = asyncio.create_task(worker.run())
    working = asyncio.ensure_future(work)
    await asyncio.wait({running, working}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        await running
        raise AssertionError("the worker ended by itself")
    await worker.stop()
    await running
    return working.result()


Scenario = Callable[[Stage], Awaitable[None]]


def main(
    scenarios: list[Scenario],
    *,
    workflows: Iterable[type] = (),
    activities: Iterable[Callable] = (),
    **worker_options: Any,
) -> None:
    """Runs the scenarios (or those named on the command line) and exits.

    Without workflows there is no shared worker: the scenarios bring their own.
    """
    chosen = [scenario for scenario in scenarios if not sys.argv[1:] or scenario.__name__ in sys.argv[1:]]
    sys.exit(0 if asyncio.run(_run_all(chosen, workflows, activities, worker_options)) else 1)


async def _run_all(
    scenarios: list[Scenario], workflows: Iterable[type], activities: Iterable[Callable], options: dict[str, Any]
) -> bool:
    async with Client(URL) as client:
        stage = Stage(client, unique("queue"))
        if workflows:
            # Many slots: some scenarios hold an activity until they are done with it.
            options = {"max_concurrent_workflow_tasks": 20, "max_concurrent_activity_tasks": 100, **options}
            worker = Worker(client, task_queue=stage.queue, workflows=workflows, activities=activities, **options)
            return all(await beside(worker, _run_each(scenarios, stage, worker)))
        return all(await _run_each(scenarios, stage))


async def _run_each(scenarios: list[Scenario], stage: Stage, worker: Worker | None = None) -> list[bool]:
    if worker:
        # What a run may declare (signals, updates, validators) is what registered workers declared before its start.
        await eventually("the registration", lambda: is_registered(stage.client, stage.queue, worker.worker_id))
    return await asyncio.gather(*(_run_one(scenario, stage) for scenario in scenarios))


async def is_registered(client: Client, queue: str, worker_id: str) -> bool:
    return any(known.worker_id == worker_id for known in (await client.list_workers(task_queue=queue)).workers)


async def _run_one(scenario: Scenario, stage: Stage) -> bool:
    started = time.monotonic()
    try:
        await asyncio.wait_for(scenario(stage), DEADLINE)
    except (Exception, WorkflowCancelled):
        print(f"FAIL {scenario.__name__} ({time.monotonic() - started:.2f} s)\n{traceback.format_exc()}")
        return False
    print(f"ok   {scenario.__name__} ({time.monotonic() - started:.2f} s)")
    return True
