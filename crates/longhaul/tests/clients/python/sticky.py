"""Sticky execution: a worker that keeps histories in memory gets its runs back, and cold replay is always right."""

from common import URL, Stage, beside, equal, main, payloads, result, unique
from durable_workflow import Client, Worker, workflow


@workflow.defn(name="rounds")
class Rounds:
    """Waits for a given number of signals."""

    def __init__(self) -> None:
        self.values: list = []

    @workflow.signal("next")
    def on_next(self, value) -> None:
        self.values.append(value)

    def run(self, ctx, count):
        token = yield ctx.side_effect(lambda: "recorded once")
        for number in range(count):
            yield ctx.wait_condition(lambda number=number: len(self.values) > number, key=f"round-{number}")
        return [token, self.values]


def sticky_worker(client: Client, queue: str, name: str) -> Worker:
    return Worker(
        client, task_queue=queue, workflows=[Rounds], worker_id=unique(name), sticky_cache_capacity=16, build_id="one"
    )


async def drive(stage: Stage, count: int) -> list:
    handle = await stage.start("rounds", count)
    for number in range(count):
        await stage.until(handle, "ConditionWaitOpened", number + 1)
        await handle.signal("next", [number])
    equal(await result(handle), ["recorded once", list(range(count))])
    return await stage.closed_history(handle)


async def a_run_stays_with_the_worker_that_knows_it(stage: Stage) -> None:
    async with Client(URL) as client:
        stage = Stage(client, unique("sticky"))
        first, second = sticky_worker(client, stage.queue, "a"), sticky_worker(client, stage.queue, "b")
        await beside(first, beside(second, drive(stage, 6)))
        hits = [worker.sticky_cache_metrics()["hit"] for worker in (first, second)]
        # One of them has served the run from its memory; the other never had it.
        equal([max(hits) >= 5, min(hits)], [True, 0])


async def another_worker_takes_over_from_history(stage: Stage) -> None:
    async with Client(URL) as client:
        stage = Stage(client, unique("sticky"))
        first = sticky_worker(client, stage.queue, "gone")
        handle = await stage.start("rounds", 2)

        async def begin():
            await stage.until(handle, "ConditionWaitOpened")

        await beside(first, begin())
        await handle.signal("next", ["one"])
        await handle.signal("next", ["two"])
        second = sticky_worker(client, stage.queue, "heir")
        equal(await beside(second, result(handle)), ["recorded once", ["one", "two"]])
        events = await stage.closed_history(handle)
        equal(len(payloads(events, "SideEffectRecorded")), 1)


if __name__ == "__main__":
    main([a_run_stays_with_the_worker_that_knows_it, another_worker_takes_over_from_history])
