"""Local activities in the worker's default mode: run in the workflow's worker and told with its decision."""

from common import Stage, beside, equal, eventually, is_registered, main, payloads, result, types, unique
from durable_workflow import ActivityFailed, NonRetryableError, Worker, activity, workflow

calls: dict[str, int] = {}


def count(name: str) -> int:
    calls[name] = calls.get(name, 0) + 1
    return calls[name]


@activity.defn(name="flaky")
async def flaky(name: str) -> int:
    await activity.context().heartbeat({"try": activity.context().info.attempt_number})
    if count(name) < 3:
        raise RuntimeError("not yet")
    return activity.context().info.attempt_number


@workflow.defn(name="local-retried")
class Retried:
    def run(self, ctx, name):
        policy = {"max_attempts": 3, "backoff_seconds": [0, 0]}
        return (yield ctx.local_activity("flaky", [name], retry_policy=policy, start_to_close_timeout=30))


async def a_failure_is_tried_again_in_the_same_process(stage: Stage) -> None:
    attempts, events = await stage.run("local-retried", unique("flaky"))
    equal(attempts, 3)
    attempt = ["ActivityStarted", "ActivityHeartbeatRecorded"]
    equal(
        types(events)[2:],
        ["ActivityScheduled", *(attempt + ["ActivityRetryScheduled"]) * 2, *attempt, "ActivityCompleted", "WorkflowCompleted"],
    )
    for event in events[2:-1]:
        equal((event["payload"]["execution_mode"], event["payload"]["local_activity"]), ("local", True))
    equal(payloads(events, "ActivityHeartbeatRecorded")[1]["progress"], {"try": 2})


@activity.defn(name="decline")
def decline() -> None:
    raise NonRetryableError("no funds")


@workflow.defn(name="local-declined")
class Declined:
    def run(self, ctx):
        try:
            yield ctx.local_activity("decline", [])
        except ActivityFailed as failure:
            outcome = [str(failure), failure.exception_type, failure.non_retryable]
        # The failure is the same when it is read from history.
        yield ctx.start_timer(0)
        return outcome


async def a_failure_reaches_the_workflow_and_is_the_same_on_replay(stage: Stage) -> None:
    outcome, events = await stage.run("local-declined")
    equal(outcome, ["no funds", "NonRetryableError", True])
    equal(payloads(events, "ActivityFailed")[0]["failure_category"], "application")


@activity.defn(name="once")
def once(name: str) -> int:
    return count(name)


@workflow.defn(name="local-once")
class Once:
    def __init__(self) -> None:
        self.finish = False
        self.number = None

    @workflow.signal("finish")
    def on_finish(self) -> None:
        self.finish = True

    @workflow.query("number")
    def ask(self):
        return self.number

    def finished(self) -> bool:
        return self.finish

    def run(self, ctx, name):
        self.number = yield ctx.local_activity("once", [name])
        yield ctx.wait_condition(self.finished, key="finish")
        return self.number


async def another_worker_and_queries_replay_it_without_a_call(stage: Stage) -> None:
    queue = Stage(stage.client, unique("local"))
    name = unique("once")
    handle = await queue.start("local-once", name)

    def worker() -> Worker:
        return Worker(stage.client, task_queue=queue.queue, workflows=[Once], activities=[once])

    async def until_it_waits() -> None:
        await queue.until(handle, "ConditionWaitOpened")

    second = worker()

    async def ask_and_finish() -> tuple:
        await eventually("the registration", lambda: is_registered(stage.client, queue.queue, second.worker_id))
        asked = (await handle.query("number"))["result"]
        await handle.signal("finish")
        return asked, await result(handle)

    await beside(worker(), until_it_waits())
    equal(await beside(second, ask_and_finish()), (1, 1))
    equal(calls[name], 1)


@workflow.defn(name="local-mixed")
class Mixed:
    def run(self, ctx, name):
        drawn = yield ctx.side_effect(lambda: 5)
        first = yield ctx.local_activity("once", [name])
        second = yield ctx.local_activity("once", [name])
        third = yield ctx.schedule_activity("once", [name])
        return [drawn, first, second, third]


async def local_and_ordinary_calls_keep_their_order(stage: Stage) -> None:
    outcome, events = await stage.run("local-mixed", unique("mixed"))
    equal(outcome, [5, 1, 2, 3])
    local = [payload.get("local_activity", False) for payload in payloads(events, "ActivityCompleted")]
    equal(local, [True, True, False])
    equal([payload["sequence"] for payload in payloads(events, "ActivityScheduled")], [2, 3, 4])


@workflow.defn(name="local-late")
class Late:
    def run(self, ctx):
        try:
            yield ctx.local_activity("slow", [], start_to_close_timeout=1)
        except ActivityFailed as failure:
            return [failure.exception_type, failure.failure_category]


@activity.defn(name="slow")
async def slow() -> None:
    import asyncio

    await asyncio.sleep(1.2)


async def an_attempt_that_is_late_has_timed_out(stage: Stage) -> None:
    _, events = await stage.run("local-late")
    equal(payloads(events, "ActivityTimedOut")[0]["timeout_kind"], "start_to_close")


@workflow.defn(name="local-unknown")
class Unknown:
    def run(self, ctx):
        try:
            yield ctx.local_activity("not-registered", [])
        except ActivityFailed as failure:
            return failure.non_retryable


async def a_call_of_an_unregistered_function_fails_at_once(stage: Stage) -> None:
    equal((await stage.run("local-unknown"))[0], True)


if __name__ == "__main__":
    main(
        [
            a_failure_is_tried_again_in_the_same_process,
            a_failure_reaches_the_workflow_and_is_the_same_on_replay,
            another_worker_and_queries_replay_it_without_a_call,
            local_and_ordinary_calls_keep_their_order,
            an_attempt_that_is_late_has_timed_out,
            a_call_of_an_unregistered_function_fails_at_once,
        ],
        workflows=[Retried, Declined, Once, Mixed, Late, Unknown],
        activities=[flaky, decline, once, slow],
    )
