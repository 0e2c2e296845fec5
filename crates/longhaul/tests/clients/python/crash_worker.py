"""A worker process for the crash tests. Prints `registered` at each registration and `stopped` after a clean end.

The workflows are those of `crash/shapes.rs`.
"""

import asyncio
import os
import signal

from common import URL
from durable_workflow import ChildWorkflowFailed, Client, Worker, WorkflowCancelled, activity, workflow
from durable_workflow.workflow import ChildWorkflowRetryPolicy
from local_activity_functions import added

SEQUENTIAL_ACTIVITIES = 6
PARALLEL_ACTIVITIES = 10
LOCAL_ACTIVITIES = 4
SIGNALS = 4
UPDATES = 3
MESSAGES = 4
MESSAGES_PER_RUN = 2
STEPS = 3


@activity.defn(name="crash.add")
async def add(left: int, right: int) -> int:
    # Uneven work, so that kills meet activities at different points.
    await asyncio.sleep((left * 7 + right * 13) % 80 / 1000)
    return left + right


@workflow.defn(name="crash.sequential")
class Sequential:
    def run(self, ctx, total):
        for number in range(SEQUENTIAL_ACTIVITIES):
            total = yield ctx.schedule_activity("crash.add", [total, number])
        return total


@workflow.defn(name="crash.local")
class Local:
    def run(self, ctx, total):
        for number in range(LOCAL_ACTIVITIES):
            total = yield ctx.local_activity("crash.add", [total, number])
        return total


@workflow.defn(name="crash.prepared")
class Prepared:
    def run(self, ctx, total):
        # Every kill may interrupt an attempt.
        return (yield ctx.local_activity("crash.add", [total, 1], retry_policy={"max_attempts": 50}))


@workflow.defn(name="crash.parallel")
class Parallel:
    def run(self, ctx, number):
        return (yield [ctx.schedule_activity("crash.add", [number, other]) for other in range(PARALLEL_ACTIVITIES)])


@workflow.defn(name="crash.timer")
class Timer:
    def run(self, ctx, total):
        total = yield ctx.schedule_activity("crash.add", [total, 1])
        yield ctx.sleep(1)
        return (yield ctx.schedule_activity("crash.add", [total, 2]))


class Receiving:
    def __init__(self) -> None:
        self.received: list = []

    @workflow.signal("go")
    def on_go(self, value) -> None:
        self.received.append(value)

    @workflow.query("received")
    def on_query(self) -> list:
        return self.received


@workflow.defn(name="crash.signals")
class Signals(Receiving):
    def run(self, ctx, total):
        yield ctx.wait_condition(lambda: len(self.received) >= SIGNALS, key="enough")
        total = yield ctx.schedule_activity("crash.add", [total, len(self.received)])
        return [total, self.received]


@workflow.defn(name="crash.steps")
class Steps(Receiving):
    def run(self, ctx):
        total = 0
        for step in range(STEPS):
            yield ctx.wait_condition(lambda step=step: len(self.received) > step, key=f"step-{step}")
            total = yield ctx.schedule_activity("crash.add", [total, step])
        yield ctx.sleep(1)
        return total


@workflow.defn(name="crash.updates")
class Updates:
    def __init__(self) -> None:
        self.taken: list = []

    @workflow.update("add")
    def add(self, value: int) -> int:
        self.taken.append(value)
        return value * 2

    def run(self, ctx, number):
        yield ctx.wait_condition(lambda: len(self.taken) >= UPDATES, key="enough")
        return self.taken


@workflow.defn(name="crash.double")
class Double:
    def run(self, ctx, number):
        return number * 2


@workflow.defn(name="crash.failing")
class Failing:
    def run(self, ctx):
        raise ValueError("there is none")


@workflow.defn(name="crash.sleeping")
class Sleeping:
    def run(self, ctx, *_):
        yield ctx.start_timer(3600)
        return "slept"


@workflow.defn(name="crash.children")
class Children:
    def run(self, ctx, number):
        results = yield [ctx.start_child_workflow("crash.double", [value]) for value in (number, number + 1)]
        try:
            yield ctx.start_child_workflow(
                "crash.failing", [], retry_policy=ChildWorkflowRetryPolicy(max_attempts=2, backoff_seconds=[0])
            )
        except ChildWorkflowFailed:
            results = [*results, "failed"]
        yield ctx.select(
            [
                ctx.start_child_workflow("crash.sleeping", [], parent_close_policy="terminate"),
                ctx.start_timer(0),
            ]
        )
        return results


@workflow.defn(name="crash.selection")
class Selection:
    def run(self, ctx, number):
        chosen = yield ctx.select(
            {"work": ctx.schedule_activity("crash.add", [number, 1]), "late": ctx.start_timer(3600)}
        )
        yield chosen.handles["late"].cancel()
        return chosen.value


@workflow.defn(name="crash.stream")
class Stream:
    def run(self, ctx, number, read=None):
        read = read or []
        stream = ctx.message_stream("orders")
        for _ in range(MESSAGES_PER_RUN):
            message = yield from stream.receive_one()
            read = [*read, message.arguments[0]]
        if len(read) < MESSAGES:
            return ctx.continue_as_new(number, read)
        return read


@workflow.defn(name="crash.asked")
class Asked:
    """Sleeps until it is asked to end; cleaning up takes a moment."""

    def run(self, ctx, number):
        try:
            yield ctx.start_timer(3600)
        except WorkflowCancelled:
            yield ctx.start_timer(1)
            raise


class AnnouncingClient(Client):
    async def register_worker(self, **registration):
        answer = await super().register_worker(**registration)
        print("registered", flush=True)
        return answer


async def main() -> None:
    queue = os.environ["LONGHAUL_QUEUE"]
    # A worker that can be asked to end workflows runs activities in processes of their own.
    asked = queue == "asked"
    workflows = [Sequential, Local, Parallel, Timer, Signals, Steps, Updates, Double, Failing, Sleeping, Children, Selection, Stream]
    async with AnnouncingClient(URL) as client:
        worker = Worker(
            client,
            task_queue=queue,
            worker_id=os.environ["LONGHAUL_WORKER_ID"],
            workflows=[Asked, Prepared] if asked else workflows,
            activities=[added] if asked else [add],
            capabilities=["cooperative_cancellation", "prepared_local_activities"] if asked else [],
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
