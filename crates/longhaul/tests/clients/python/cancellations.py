"""Cooperative cancellation: the workflow is asked to end, cleans up within its time, and ends as cancelled.

The worker runs activities in processes of their own, so they live in `cancellation_activities.py`, which those can import.
"""

import tempfile

import cancellation_activities as activities
from common import Stage, check_sound, equal, eventually, fails, main, payloads, result, types, unique
from durable_workflow import ServerError, WorkflowCancelled, workflow

FOLDER = tempfile.mkdtemp()


@workflow.defn(name="careful")
class Careful:
    """Waits as told; cleans up when it is asked to end."""

    def __init__(self) -> None:
        self.go = False

    @workflow.signal("go")
    def on_go(self) -> None:
        self.go = True

    def run(self, ctx, waits_for, policy):
        try:
            if waits_for == "timer":
                yield ctx.start_timer(3600)
            elif waits_for == "condition":
                yield ctx.wait_condition(lambda: self.go, key="go", timeout=3600)
            elif waits_for == "child":
                yield ctx.start_child_workflow("careful", ["timer", None], cancellation_policy=policy)
            elif waits_for == "activity":
                options = {"schedule_to_close_timeout": 600} if policy == "abandon" else {}
                yield ctx.schedule_activity(
                    "linger", [FOLDER, ctx.workflow_id], cancellation_policy=policy, **options
                )
            elif waits_for == "group":
                yield [ctx.start_timer(3600), ctx.schedule_activity("linger", [FOLDER, ctx.workflow_id])]
        except WorkflowCancelled:
            cleaned = yield ctx.schedule_activity("clean", [FOLDER, ctx.workflow_id])
            if waits_for == "condition":
                return cleaned
            raise
        return "never asked"


@workflow.defn(name="stubborn")
class Stubborn:
    """Does not end when asked."""

    def run(self, ctx):
        try:
            yield ctx.start_timer(3600)
        except WorkflowCancelled:
            yield ctx.start_timer(3600)


async def closed(stage: Stage, handle, status: str) -> list:
    async def look():
        described = await stage.client.describe_workflow(handle.workflow_id)
        return described if described.status == status else None

    await eventually(f"{handle.workflow_id} is {status}", look)
    events = await stage.history(handle.workflow_id, handle.run_id)
    check_sound(events)
    return events


async def a_timer_is_interrupted_and_cleanup_runs(stage: Stage) -> None:
    handle = await stage.start("careful", "timer", None)
    await stage.until(handle, "TimerScheduled")
    request = stage.client.request_workflow_cancellation
    asked = await request(handle.workflow_id, reason="maintenance", cleanup_timeout_seconds=60)
    again = await request(handle.workflow_id)
    equal([asked["duplicate"], again["duplicate"]], [False, True])
    equal(asked["cancellation_request"]["request_id"], again["cancellation_request"]["request_id"])
    events = await closed(stage, handle, "cancelled")
    names = types(events)
    for name in ("CooperativeCancellationRequested", "CooperativeCancellationDelivered", "TimerCancelled"):
        equal(names.count(name), 1)
    equal([names.count("ActivityCompleted"), names[-1]], [1, "WorkflowCancelled"])
    delivered = payloads(events, "CooperativeCancellationDelivered")[0]
    equal([delivered["sequence"], delivered["call_kind"]], [1, "timer"])
    refused = await fails(ServerError, request(handle.workflow_id))
    equal([refused.status, refused.body["reason"]], [409, "run_not_active"])


async def a_workflow_may_end_well_after_cleanup(stage: Stage) -> None:
    handle = await stage.start("careful", "condition", None)
    await stage.until(handle, "ConditionWaitOpened")
    await stage.client.request_workflow_cancellation(handle.workflow_id)
    equal(await result(handle), "clean")


async def a_request_before_the_first_task_is_delivered(stage: Stage) -> None:
    handle = await stage.start("careful", "timer", None)
    await stage.client.request_workflow_cancellation(handle.workflow_id)
    await closed(stage, handle, "cancelled")


async def a_running_activity_is_stopped(stage: Stage) -> None:
    for policy in ("try_cancel", "wait_cancellation_completed"):
        handle = await stage.start("careful", "activity", policy)
        await activities.started(FOLDER, handle.workflow_id)
        await stage.client.request_workflow_cancellation(handle.workflow_id)
        events = await closed(stage, handle, "cancelled")
        equal(len(payloads(events, "ActivityCancelled")), 1)
        equal(len(payloads(events, "ActivityCompleted")), 1)


async def an_abandoned_activity_goes_on(stage: Stage) -> None:
    handle = await stage.start("careful", "activity", "abandon")
    await activities.started(FOLDER, handle.workflow_id)
    await stage.client.request_workflow_cancellation(handle.workflow_id)
    events = await closed(stage, handle, "cancelled")
    delivered = types(events).index("CooperativeCancellationDelivered")
    equal(types(events[: delivered + 1]).count("ActivityCancelled"), 0)


async def a_group_is_interrupted_whole(stage: Stage) -> None:
    handle = await stage.start("careful", "group", None)
    await activities.started(FOLDER, handle.workflow_id)
    await stage.client.request_workflow_cancellation(handle.workflow_id)
    events = await closed(stage, handle, "cancelled")
    delivered = payloads(events, "CooperativeCancellationDelivered")[0]
    equal([delivered["call_kind"], delivered["sequence_span"]], ["parallel", 2])


async def a_child_is_asked_first(stage: Stage) -> None:
    handle = await stage.start("careful", "child", "wait_cancellation_completed")
    child = (await stage.until(handle, "ChildRunStarted"))[0]["child_workflow_instance_id"]
    await stage.until(stage.client.get_workflow_handle(child), "TimerScheduled")
    await stage.client.request_workflow_cancellation(handle.workflow_id, reason="both")
    events = await closed(stage, handle, "cancelled")
    equal(len(payloads(events, "ChildRunCancelled")), 1)
    asked = payloads(await stage.history(child, None), "CooperativeCancellationRequested")[0]
    equal([asked["reason"], len(asked["cancellation"]["lineage"])], ["both", 2])


async def cleanup_is_bounded(stage: Stage) -> None:
    handle = await stage.start("stubborn")
    await stage.until(handle, "TimerScheduled")
    await stage.client.request_workflow_cancellation(handle.workflow_id, cleanup_timeout_seconds=1)
    events = await closed(stage, handle, "cancelled")
    equal(types(events)[-1], "WorkflowCancelled")


async def without_a_capable_worker_nothing_is_asked(stage: Stage) -> None:
    handle = await stage.client.start_workflow(
        workflow_type="careful", task_queue=unique("no-worker"), workflow_id=unique("careful"), input=["timer", None]
    )
    refused = await fails(ServerError, stage.client.request_workflow_cancellation(handle.workflow_id))
    equal([refused.status, refused.body["reason"]], [409, "cooperative_cancellation_not_supported"])


if __name__ == "__main__":
    main(
        [
            a_timer_is_interrupted_and_cleanup_runs,
            a_workflow_may_end_well_after_cleanup,
            a_request_before_the_first_task_is_delivered,
            a_running_activity_is_stopped,
            an_abandoned_activity_goes_on,
            a_group_is_interrupted_whole,
            a_child_is_asked_first,
            cleanup_is_bounded,
            without_a_capable_worker_nothing_is_asked,
        ],
        workflows=[Careful, Stubborn],
        activities=[activities.linger, activities.clean],
        capabilities=["cooperative_cancellation"],
        # Every activity is a process.
        max_concurrent_activity_tasks=4,
    )
