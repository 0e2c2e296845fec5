"""The four activity timeouts, and the late report of an activity that overran one."""

import asyncio

from common import Gates, Stage, equal, main, payloads, result
from durable_workflow import ActivityFailed, activity, workflow

gates = Gates()


@activity.defn(name="stuck")
async def stuck(key: str) -> str:
    attempt = activity.context().info.attempt_number
    if attempt == 1:
        await gates.wait(key)
    return f"attempt {attempt}"


@workflow.defn(name="overrun")
class Overrun:
    def run(self, ctx, options):
        try:
            return (yield ctx.schedule_activity("stuck", [ctx.workflow_id], **options))
        except ActivityFailed as failure:
            return failure.failure_category


async def check_times_out(stage: Stage, kind: str, attempts_started: int, **options) -> None:
    handle = await stage.start("overrun", options)
    equal(await result(handle), "timeout")
    events = await stage.closed_history(handle)
    equal([payload["timeout_kind"] for payload in payloads(events, "ActivityTimedOut")], [kind])
    equal(len(payloads(events, "ActivityStarted")), attempts_started)
    # The activity now ends and reports to a closed run; the worker must live with the refusal.
    gates.open(handle.workflow_id)


async def schedule_to_start(stage: Stage) -> None:
    await check_times_out(stage, "schedule_to_start", 0, queue="no-worker", schedule_to_start_timeout=1)


async def start_to_close(stage: Stage) -> None:
    await check_times_out(stage, "start_to_close", 1, start_to_close_timeout=1)


async def schedule_to_close(stage: Stage) -> None:
    # Attempts are left, but the whole activity's time is up.
    await check_times_out(stage, "schedule_to_close", 1, schedule_to_close_timeout=1, retry_policy={"max_attempts": 3})


async def heartbeat(stage: Stage) -> None:
    await check_times_out(stage, "heartbeat", 1, heartbeat_timeout=1)


@activity.defn(name="wait-for-late-report")
async def wait_for_late_report(key: str) -> None:
    """Keeps the run open until the first attempt of `stuck` has had time to report."""
    gates.open(key)
    await asyncio.sleep(0.2)


@workflow.defn(name="second-try")
class SecondTry:
    def run(self, ctx):
        policy = workflow.ActivityRetryPolicy(max_attempts=2, backoff_seconds=[0])
        answer = yield ctx.schedule_activity(
            "stuck", [ctx.workflow_id], start_to_close_timeout=1, retry_policy=policy
        )
        yield ctx.schedule_activity("wait-for-late-report", [ctx.workflow_id])
        return answer


async def a_timed_out_attempt_is_retried_and_its_late_report_ignored(stage: Stage) -> None:
    answer, events = await stage.run("second-try")
    equal(answer, "attempt 2")
    equal([payload["timeout_kind"] for payload in payloads(events, "ActivityRetryScheduled")], ["start_to_close"])
    equal(len(payloads(events, "ActivityStarted")), 3)


@activity.defn(name="slow")
async def slow() -> str:
    # Longer than the heartbeat timeout, in steps shorter than it.
    for step in range(8):
        await asyncio.sleep(0.25)
        await activity.context().heartbeat({"step": step})
    return "done"


@workflow.defn(name="patient")
class Patient:
    def run(self, ctx):
        return (yield ctx.schedule_activity("slow", [], heartbeat_timeout=1))


async def heartbeats_keep_an_activity_alive(stage: Stage) -> None:
    answer, events = await stage.run("patient")
    equal(answer, "done")
    equal(len(payloads(events, "ActivityStarted")), 1)


if __name__ == "__main__":
    main(
        [
            schedule_to_start,
            start_to_close,
            schedule_to_close,
            heartbeat,
            a_timed_out_attempt_is_retried_and_its_late_report_ignored,
            heartbeats_keep_an_activity_alive,
        ],
        workflows=[Overrun, SecondTry, Patient],
        activities=[stuck, wait_for_late_report, slow],
    )
