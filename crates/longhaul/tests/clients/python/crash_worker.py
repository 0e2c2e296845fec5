"""A worker process for the crash tests. Prints `registered` at each registration and `stopped` after a clean end.

The workflows are those of `crash/shapes.rs`.
"""

import asyncio
import os
import signal

from common import URL
from durable_workflow import Client, Worker, activity, workflow

SEQUENTIAL_ACTIVITIES = 6
PARALLEL_ACTIVITIES = 10
SIGNALS = 4
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


class AnnouncingClient(Client):
    async def register_worker(self, **registration):
        answer = await super().register_worker(**registration)
        print("registered", flush=True)
        return answer


async def main() -> None:
    async with AnnouncingClient(URL) as client:
        worker = Worker(
            client,
            task_queue=os.environ["LONGHAUL_QUEUE"],
            worker_id=os.environ["LONGHAUL_WORKER_ID"],
            workflows=[Sequential, Parallel, Timer, Signals, Steps],
            activities=[add],
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop()))
        await worker.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
