"""Activities: one, many in a row, many at once, failing, retried, heartbeating, cancelled."""

import asyncio
import time

from common import Gates, Stage, command_sequences, equal, fails, main, payloads, result, types
from durable_workflow import ActivityCancelled, ActivityFailed, NonRetryableError, WorkflowCancelled, activity, workflow

gates = Gates()
attempts: dict[str, list[tuple[int, float]]] = {}


class CardDeclined(Exception):
    pass


def describe(failure: ActivityFailed) -> dict:
    """What workflow code learns about a failed activity."""
    return {
        "type": failure.exception_type,
        "message": str(failure),
        "non_retryable": failure.non_retryable,
        "category": failure.failure_category,
    }


@activity.defn(name="greet")
async def greet(name: str) -> str:
    return f"hello, {name}"


@workflow.defn(name="hello")
class Hello:
    def run(self, ctx, name):
        return (yield ctx.schedule_activity("greet", [name]))


async def hello(stage: Stage) -> None:
    greeting, events = await stage.run("hello", "world")
    equal(greeting, "hello, world")
    equal(
        types(events),
        [
            "StartAccepted",
            "WorkflowStarted",
            "ActivityScheduled",
            "ActivityStarted",
            "ActivityCompleted",
            "WorkflowCompleted",
        ],
    )


@activity.defn(name="double")
def double(number: int) -> int:
    """A plain function: the worker runs it in a thread."""
    return number * 2


@workflow.defn(name="sequential")
class Sequential:
    def run(self, ctx, number):
        for _ in range(5):
            number = yield ctx.schedule_activity("double", [number])
        return number


async def sequential_activities(stage: Stage) -> None:
    value, events = await stage.run("sequential", 3)
    equal(value, 96)
    equal(command_sequences(events, "ActivityScheduled"), [1, 2, 3, 4, 5])
    equal(command_sequences(events, "ActivityCompleted"), [1, 2, 3, 4, 5])


@activity.defn(name="square")
async def square(key: str, number: int) -> int:
    # The first waits for the last, so completion order differs from call order.
    if number == 0:
        await gates.wait(key)
    if number == 99:
        gates.open(key)
    return number * number


@workflow.defn(name="fan-out")
class FanOut:
    def run(self, ctx):
        calls = [ctx.schedule_activity("square", [ctx.workflow_id, number]) for number in range(100)]
        return (yield calls)


async def hundred_parallel_activities_answer_in_order(stage: Stage) -> None:
    squares, events = await stage.run("fan-out")
    equal(squares, [number * number for number in range(100)])
    equal(command_sequences(events, "ActivityScheduled"), list(range(1, 101)))
    completed = command_sequences(events, "ActivityCompleted")
    equal(sorted(completed), list(range(1, 101)))
    assert completed != sorted(completed), "the activities were meant to complete out of order"


@activity.defn(name="member")
async def member(key: str, number: int) -> None:
    if number == 1:
        raise ValueError("1 is odd")
    if number == 2:
        await gates.wait(key)


@workflow.defn(name="group")
class Group:
    def run(self, ctx):
        try:
            yield [ctx.schedule_activity("member", [ctx.workflow_id, number]) for number in range(3)]
        except ActivityFailed as failure:
            return str(failure)


async def a_failed_group_waits_for_all_members(stage: Stage) -> None:
    handle = await stage.start("group")
    await stage.until(handle, "ActivityFailed")
    gates.open(handle.workflow_id)
    equal(await result(handle), "1 is odd")
    equal(sorted(command_sequences(await stage.closed_history(handle), "ActivityCompleted")), [1, 3])


@activity.defn(name="flaky")
async def flaky(key: str, succeeds_at: int) -> str:
    attempt = activity.context().info.attempt_number
    attempts.setdefault(key, []).append((attempt, time.monotonic()))
    if attempt < succeeds_at:
        raise RuntimeError(f"attempt {attempt}")
    return f"attempt {attempt}"


@workflow.defn(name="retry")
class Retry:
    def run(self, ctx, succeeds_at):
        policy = workflow.ActivityRetryPolicy(max_attempts=3, backoff_seconds=[0, 1])
        try:
            return (yield ctx.schedule_activity("flaky", [ctx.workflow_id, succeeds_at], retry_policy=policy))
        except ActivityFailed as failure:
            return describe(failure)


async def retry_with_back_off_then_success(stage: Stage) -> None:
    handle = await stage.start("retry", 3)
    equal(await result(handle), "attempt 3")
    seen = attempts[handle.workflow_id]
    equal([attempt for attempt, _ in seen], [1, 2, 3])
    assert seen[2][1] - seen[1][1] >= 1.0, "the second back-off is one second"
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "ActivityRetryScheduled")), 2)
    equal(len(payloads(events, "ActivityStarted")), 3)
    equal(len(payloads(events, "ActivityFailed")), 0)


async def exhausted_retries_surface_the_last_failure(stage: Stage) -> None:
    failure, _ = await stage.run("retry", 99)
    expected = {"type": "RuntimeError", "message": "attempt 3", "non_retryable": False, "category": "activity"}
    equal(failure, expected)


@activity.defn(name="decline")
async def decline(how: str) -> None:
    raise CardDeclined("no money") if how == "by type" else NonRetryableError("no money")


@workflow.defn(name="pay")
class Pay:
    def run(self, ctx, how):
        policy = workflow.ActivityRetryPolicy(max_attempts=5, non_retryable_error_types=["CardDeclined"])
        try:
            yield ctx.schedule_activity("decline", [how], retry_policy=policy)
        except ActivityFailed as failure:
            return describe(failure)


async def check_single_attempt(stage: Stage, how: str, error_type: str) -> None:
    failure, events = await stage.run("pay", how)
    equal(failure, {"type": error_type, "message": "no money", "non_retryable": True, "category": "activity"})
    equal(len(payloads(events, "ActivityStarted")), 1)
    equal(len(payloads(events, "ActivityRetryScheduled")), 0)


async def a_non_retryable_failure_is_tried_once(stage: Stage) -> None:
    await check_single_attempt(stage, "by flag", "NonRetryableError")


async def a_failure_type_listed_as_non_retryable_is_tried_once(stage: Stage) -> None:
    await check_single_attempt(stage, "by type", "CardDeclined")


@activity.defn(name="long")
async def long(key: str) -> None:
    step = 0
    try:
        while True:
            await activity.context().heartbeat({"step": step})
            step += 1
            await asyncio.sleep(0.05)
    except ActivityCancelled:
        gates.open(key)
        raise


@workflow.defn(name="cancelled")
class Cancelled:
    def run(self, ctx):
        yield ctx.schedule_activity("long", [ctx.workflow_id])


async def heartbeats_carry_details_and_bring_back_the_cancellation(stage: Stage) -> None:
    handle = await stage.start("cancelled")
    heartbeats = await stage.until(handle, "ActivityHeartbeatRecorded")
    equal(heartbeats[0]["progress"]["details"], {"step": 0})
    await handle.cancel(reason="enough")
    await gates.wait(handle.workflow_id)
    equal(str(await fails(WorkflowCancelled, result(handle))), "enough")
    equal(len(payloads(await stage.closed_history(handle), "ActivityCancelled")), 1)


if __name__ == "__main__":
    main(
        [
            hello,
            sequential_activities,
            hundred_parallel_activities_answer_in_order,
            a_failed_group_waits_for_all_members,
            retry_with_back_off_then_success,
            exhausted_retries_surface_the_last_failure,
            a_non_retryable_failure_is_tried_once,
            a_failure_type_listed_as_non_retryable_is_tried_once,
            heartbeats_carry_details_and_bring_back_the_cancellation,
        ],
        workflows=[Hello, Sequential, FanOut, Group, Retry, Pay, Cancelled],
        activities=[greet, double, square, member, flaky, decline, long],
    )
