"""Local activities that the server writes down attempt by attempt: the worker's opted-in mode.

The worker runs them in processes of their own, so they live in `local_activity_functions.py`, which those can import.
Called with `worker QUEUE`, the program is a worker that a scenario can kill.
"""

import asyncio
import sys
import tempfile

import local_activity_functions as functions
from common import DEADLINE, LOOK_INTERVAL, URL, Stage, check_sound, equal, eventually, main, payloads, types, unique
from durable_workflow import ActivityFailed, Client, Worker, WorkflowCancelled, workflow

FOLDER = tempfile.mkdtemp()
# The client gives a process five seconds to start, and gives its task up when the machine is too busy for that: every call may be
# interrupted, and is tried again.
RETRIED = {"max_attempts": 20}
CAPABILITIES = ["cooperative_cancellation", "prepared_local_activities", "prepared_local_activity_groups"]


@workflow.defn(name="prepared")
class Prepared:
    """One local activity after a side effect; what its failure says when it has one."""

    def __init__(self) -> None:
        self.signals = 0

    @workflow.signal("go")
    def on_go(self) -> None:
        self.signals += 1

    def run(self, ctx, name, arguments, options):
        drawn = yield ctx.side_effect(lambda: 5)
        try:
            outcome = yield ctx.local_activity(name, arguments, **options)
        except ActivityFailed as failure:
            outcome = [str(failure), failure.exception_type, failure.non_retryable]
        yield ctx.start_timer(0)
        return [drawn, outcome, self.signals]


async def result(handle):
    """Processes take their time to start when many do at once."""
    return await handle.result(poll_interval=LOOK_INTERVAL, timeout=DEADLINE)


async def run(stage: Stage, name: str, arguments: list, **options):
    handle = await stage.start("prepared", name, arguments, options)
    return await result(handle), await stage.closed_history(handle)


async def a_result_is_recorded_and_replayed(stage: Stage) -> None:
    key = unique("count")
    outcome, events = await run(stage, "count", [FOLDER, key], retry_policy=RETRIED)
    equal(outcome, [5, functions.calls(FOLDER, key), 0])
    equal(types(events)[2:5], ["SideEffectRecorded", "ActivityScheduled", "ActivityStarted"])
    equal(types(events)[-4:], ["ActivityCompleted", "TimerScheduled", "TimerFired", "WorkflowCompleted"])
    equal({payload["execution_mode"] for payload in payloads(events, "ActivityStarted")}, {"local"})


async def a_failure_is_tried_again_after_a_durable_back_off(stage: Stage) -> None:
    policy = {**RETRIED, "backoff_seconds": [0, 1]}
    outcome, events = await run(stage, "flaky", [FOLDER, unique("flaky"), 3], retry_policy=policy, heartbeat_timeout=30)
    equal(outcome, [5, 3, 0])
    retries = payloads(events, "ActivityRetryScheduled")
    equal([retry["retry_backoff_seconds"] for retry in retries], [0, *[1] * (len(retries) - 1)])
    assert len([retry for retry in retries if retry["retry_reason"] == "failure"]) == 2
    assert all(retry["retry_task_id"] for retry in retries)
    numbers = [payload["attempt_number"] for payload in payloads(events, "ActivityStarted")]
    equal(numbers, list(range(1, len(numbers) + 1)))
    beats = payloads(events, "ActivityHeartbeatRecorded")
    assert all(beat["progress"] == {"details": {"try": beat["attempt_number"]}} for beat in beats) and beats


async def a_failure_reaches_the_workflow_and_is_the_same_on_replay(stage: Stage) -> None:
    outcome, events = await run(stage, "decline", [], retry_policy=RETRIED)
    equal(outcome, [5, ["no funds", "NonRetryableError", True], 0])
    equal(payloads(events, "ActivityFailed")[0]["failure_category"], "application")


async def an_attempt_that_takes_too_long_is_tried_again(stage: Stage) -> None:
    key = unique("linger")
    options = {"retry_policy": RETRIED, "start_to_close_timeout": 6}
    outcome, events = await run(stage, "linger-once", [FOLDER, key], **options)
    equal(outcome, [5, functions.calls(FOLDER, key), 0])
    kinds = [retry.get("timeout_kind") for retry in payloads(events, "ActivityRetryScheduled")]
    assert "start_to_close" in kinds, kinds


async def a_signal_in_the_back_off_begins_nothing_early(stage: Stage) -> None:
    options = {"retry_policy": {**RETRIED, "backoff_seconds": [2]}}
    handle = await stage.start("prepared", "flaky", [FOLDER, unique("flaky"), 2], options)
    await stage.until(handle, "ActivityRetryScheduled")
    await handle.signal("go")
    equal(await result(handle), [5, 2, 1])
    events = await stage.closed_history(handle)
    retries = payloads(events, "ActivityRetryScheduled")
    equal(len(payloads(events, "ActivityStarted")), len(retries) + 1)


async def another_worker_goes_on_after_one_is_lost(stage: Stage) -> None:
    queue = Stage(stage.client, unique("lost"))
    key = unique("linger")
    handle = await queue.start("prepared", "linger-once", [FOLDER, key], {"retry_policy": RETRIED})

    def worker():
        return asyncio.create_subprocess_exec(sys.executable, __file__, "worker", queue.queue)

    first = await worker()
    await eventually("the first call", lambda: asyncio.to_thread(functions.calls, FOLDER, key))
    first.kill()
    await first.wait()
    second = await worker()
    try:
        equal(await result(handle), [5, functions.calls(FOLDER, key), 0])
    finally:
        second.kill()
        await second.wait()
    events = await queue.closed_history(handle)
    retry = payloads(events, "ActivityRetryScheduled")[0]
    equal(retry["retry_reason"], "cold_replay")
    equal(retry["local_recovery"]["callback_stop_state"], "unknown")


@workflow.defn(name="careful-local")
class Careful:
    """Cleans up with a local activity when it is asked to end."""

    def run(self, ctx, key):
        try:
            yield ctx.local_activity("linger-once", [FOLDER, key], retry_policy=RETRIED)
        except WorkflowCancelled:
            with ctx.cancellation_shield():
                yield ctx.local_activity("count", [FOLDER, f"{key}-clean"], retry_policy=RETRIED)
            raise


async def a_cancellation_stops_it_and_cleanup_may_use_one(stage: Stage) -> None:
    key = unique("linger")
    handle = await stage.start("careful-local", key)
    await eventually("the call", lambda: asyncio.to_thread(functions.calls, FOLDER, key))
    await stage.client.request_workflow_cancellation(handle.workflow_id, cleanup_timeout_seconds=40)

    async def look():
        described = await stage.client.describe_workflow(handle.workflow_id)
        return described.status == "cancelled"

    await eventually("the run is cancelled", look)
    assert functions.calls(FOLDER, f"{key}-clean") >= 1
    events = await stage.history(handle.workflow_id, handle.run_id)
    check_sound(events)
    cancelled = payloads(events, "ActivityCancelled")
    equal([payload["execution_mode"] for payload in cancelled], ["local"])


@workflow.defn(name="prepared-group")
class Group:
    def run(self, ctx, key):
        members = [
            ctx.local_activity("count", [FOLDER, f"{key}-{number}"], retry_policy=RETRIED) for number in range(3)
        ]
        return (yield [*members, ctx.start_timer(0)])


async def local_activities_run_beside_each_other(stage: Stage) -> None:
    handle = await stage.start("prepared-group", unique("group"))
    outcome, events = await result(handle), await stage.closed_history(handle)
    assert all(count >= 1 for count in outcome[:3]), outcome
    equal(len(payloads(events, "ActivityCompleted")), 3)


WORKFLOWS = [Prepared, Careful, Group]


async def be_a_worker(queue: str) -> None:
    async with Client(URL) as client:
        worker = Worker(
            client, task_queue=queue, workflows=WORKFLOWS, activities=functions.EVERY, capabilities=CAPABILITIES
        )
        await worker.run()


if __name__ == "__main__" and sys.argv[1:2] == ["worker"]:
    asyncio.run(be_a_worker(sys.argv[2]))
elif __name__ == "__main__":
    main(
        [
            a_result_is_recorded_and_replayed,
            a_failure_is_tried_again_after_a_durable_back_off,
            a_failure_reaches_the_workflow_and_is_the_same_on_replay,
            an_attempt_that_takes_too_long_is_tried_again,
            a_signal_in_the_back_off_begins_nothing_early,
            another_worker_goes_on_after_one_is_lost,
            a_cancellation_stops_it_and_cleanup_may_use_one,
            local_activities_run_beside_each_other,
        ],
        workflows=WORKFLOWS,
        activities=functions.EVERY,
        capabilities=CAPABILITIES,
        # Every attempt is two processes.
        max_concurrent_workflow_tasks=4,
    )
