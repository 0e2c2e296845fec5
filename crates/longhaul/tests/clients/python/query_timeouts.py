"""Queries whose callers do not get an answer in time. The server is started with a short wait."""

import threading

from common import Stage, beside, equal, eventually, fails, main, unique
from durable_workflow import QueryFailed, Worker, workflow

entered = threading.Event()
released = threading.Event()


@workflow.defn(name="slow")
class Slow:
    @workflow.query("stuck")
    def stuck(self) -> str:
        entered.set()
        released.wait(60)
        return "too late"

    @workflow.query("quick")
    def quick(self) -> str:
        return "quick"

    def run(self, ctx):
        yield ctx.sleep(3600)


async def a_worker_that_takes_too_long(stage: Stage) -> None:
    queue = unique("slow")
    handle = await stage.client.start_workflow(
        workflow_type="slow", task_queue=queue, workflow_id=unique("slow"), input=[]
    )
    worker = Worker(stage.client, task_queue=queue, workflows=[Slow])

    async def work() -> None:
        await stage.until(handle, "TimerScheduled")
        refused = await fails(QueryFailed, handle.query("stuck"))
        equal((refused.status, refused.reason), (504, "query_worker_timeout"))
        equal(refused.body["timeout_stage"], "executing")
        assert entered.is_set()

        # The handler keeps this worker's only query thread busy: the next question is not even taken.
        refused = await fails(QueryFailed, handle.query("quick"))
        equal((refused.status, refused.reason), (504, "query_worker_timeout"))
        equal(refused.body["timeout_stage"], "not_claimed")
        released.set()

        async def answered():
            try:
                return (await handle.query("quick"))["result"] == "quick"
            except QueryFailed:
                return False

        # The late answer was refused and the worker goes on.
        await eventually("the worker answers again", answered)

    await beside(worker, work())
    await stage.client.terminate_workflow(handle.workflow_id)


if __name__ == "__main__":
    main([a_worker_that_takes_too_long])
