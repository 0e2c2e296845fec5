"""How runs begin and end: failures, duplicates, deadlines, cancel and terminate."""

from common import Stage, check_sound, equal, fails, main, payloads, result, types, unique
from durable_workflow import (
    ServerError,
    SignalFailed,
    WorkflowAlreadyStarted,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
    WorkflowTimedOut,
    activity,
    workflow,
)


class OutOfLuck(Exception):
    pass


@workflow.defn(name="broken")
class Broken:
    def run(self, ctx):
        raise OutOfLuck("no luck today")


async def a_failed_workflow_tells_type_and_message(stage: Stage) -> None:
    handle = await stage.start("broken")
    failure = await fails(WorkflowFailed, result(handle))
    equal(str(failure), "no luck today")
    equal(failure.exception_class, "__main__.OutOfLuck")
    (event,) = payloads(await stage.closed_history(handle), "WorkflowFailed")
    equal([event["exception_type"], event["failure_category"]], ["OutOfLuck", "application"])


@activity.defn(name="charge")
async def charge() -> None:
    raise OutOfLuck("card declined")


@workflow.defn(name="pay")
class Pay:
    def run(self, ctx):
        yield ctx.schedule_activity("charge", [])


async def an_uncaught_activity_failure_fails_the_workflow(stage: Stage) -> None:
    handle = await stage.start("pay")
    failure = await fails(WorkflowFailed, result(handle))
    equal(str(failure), "card declined")
    (event,) = payloads(await stage.closed_history(handle), "WorkflowFailed")
    equal(event["exception_type"], "OutOfLuck")


@workflow.defn(name="wait")
class Wait:
    """Waits for `finish`, which most scenarios never send."""

    def __init__(self) -> None:
        self.answer = None

    @workflow.signal("finish")
    def on_finish(self, answer) -> None:
        self.answer = answer

    def run(self, ctx, *ignored):
        yield ctx.wait_condition(lambda: self.answer is not None, key="finish")
        return self.answer


async def an_id_can_be_started_once(stage: Stage) -> None:
    handle = await stage.start("wait")
    again = {"workflow_id": handle.workflow_id}
    await fails(WorkflowAlreadyStarted, stage.start("wait", **again))
    await fails(WorkflowAlreadyStarted, stage.start("wait", duplicate_policy="fail", **again))
    existing = await stage.start("wait", "another input", duplicate_policy="use-existing", **again)
    equal(existing.run_id, handle.run_id)
    equal((await handle.describe()).input, [])

    await handle.signal("finish", ["the first"])
    equal(await result(handle), "the first")
    for policy in ("fail", "use-existing"):
        await fails(WorkflowAlreadyStarted, stage.start("wait", duplicate_policy=policy, **again))
    equal(len((await handle.list_runs()).runs), 1)


async def use_existing_starts_a_new_id(stage: Stage) -> None:
    handle = await stage.start("wait", workflow_id=unique("fresh"), duplicate_policy="use-existing")
    await handle.signal("finish", ["fresh"])
    equal(await result(handle), "fresh")


async def a_run_ends_at_its_run_timeout(stage: Stage) -> None:
    handle = await stage.start("wait", run_timeout_seconds=1)
    await fails(WorkflowTimedOut, result(handle))
    (event,) = payloads(await stage.closed_history(handle), "WorkflowTimedOut")
    equal(event["timeout_kind"], "run_timeout")
    run = await handle.describe_run()
    equal([run.status, run.closed_reason], ["failed", "timed_out"])


@workflow.defn(name="endless")
class Endless:
    """Each run stays well within its own timeout; only the chain grows too long."""

    def run(self, ctx):
        yield ctx.sleep(1)
        return ctx.continue_as_new()


async def a_chain_of_runs_ends_at_its_execution_timeout(stage: Stage) -> None:
    first = await stage.start("endless", run_timeout_seconds=3, execution_timeout_seconds=3)
    chain = stage.client.get_workflow_handle(first.workflow_id)
    await fails(WorkflowTimedOut, result(chain))
    runs = (await first.list_runs()).runs
    assert len(runs) >= 2, "the chain has more than one run"
    events = await stage.history(first.workflow_id, runs[-1].run_id)
    check_sound(events)
    equal(payloads(events, "WorkflowTimedOut")[0]["timeout_kind"], "execution_timeout")


@workflow.defn(name="busy")
class Busy:
    """Waits for an activity that no worker runs and for a timer."""

    def run(self, ctx):
        yield [ctx.schedule_activity("charge", [], queue="no-worker"), ctx.start_timer(600)]


@workflow.defn(name="patient")
class Patient(Wait):
    def run(self, ctx):
        yield ctx.wait_condition(lambda: self.answer is not None, key="finish", timeout=600)


async def check_closed(stage: Stage, handle, expected: list[str]) -> None:
    """The named events appear once each, and the closed run accepts no further command."""
    events = await stage.closed_history(handle)
    equal({event_type: types(events).count(event_type) for event_type in expected}, dict.fromkeys(expected, 1))
    refused = await fails(SignalFailed, handle.signal("finish", ["too late"]))
    equal(refused.reason, "run_not_active")
    for command in (handle.cancel, handle.terminate):
        equal((await fails(ServerError, command())).reason(), "run_not_active")
    equal(len(await stage.closed_history(handle)), len(events))


async def cancel_closes_everything_the_run_waits_for(stage: Stage) -> None:
    handle = await stage.start("busy")
    await stage.until(handle, "TimerScheduled")
    await handle.cancel(reason="changed my mind")
    equal(str(await fails(WorkflowCancelled, result(handle))), "changed my mind")
    equal((await handle.describe()).status, "cancelled")
    await check_closed(stage, handle, ["CancelRequested", "ActivityCancelled", "TimerCancelled", "WorkflowCancelled"])


async def cancel_closes_a_condition_with_its_timer(stage: Stage) -> None:
    handle = await stage.start("patient")
    await stage.until(handle, "TimerScheduled")
    await handle.cancel()
    await fails(WorkflowCancelled, result(handle))
    await check_closed(stage, handle, ["ConditionWaitOpened", "TimerCancelled", "WorkflowCancelled"])


async def terminate_closes_everything_the_run_waits_for(stage: Stage) -> None:
    handle = await stage.start("busy")
    await stage.until(handle, "TimerScheduled")
    await handle.terminate(reason="operator")
    equal(str(await fails(WorkflowTerminated, result(handle))), "operator")
    equal((await handle.describe()).status, "terminated")
    await check_closed(
        stage, handle, ["TerminateRequested", "ActivityCancelled", "TimerCancelled", "WorkflowTerminated"]
    )


if __name__ == "__main__":
    main(
        [
            a_failed_workflow_tells_type_and_message,
            an_uncaught_activity_failure_fails_the_workflow,
            an_id_can_be_started_once,
            use_existing_starts_a_new_id,
            a_run_ends_at_its_run_timeout,
            a_chain_of_runs_ends_at_its_execution_timeout,
            cancel_closes_everything_the_run_waits_for,
            cancel_closes_a_condition_with_its_timer,
            terminate_closes_everything_the_run_waits_for,
        ],
        workflows=[Broken, Pay, Wait, Endless, Busy, Patient],
        activities=[charge],
    )
