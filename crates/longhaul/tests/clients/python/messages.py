"""Signals, conditions and timers: early, late, many, satisfied, timed out."""

import asyncio
import time

from common import Gates, Stage, command_sequences, equal, eventually, fails, main, payloads, result, types
from durable_workflow import SignalFailed, activity, workflow

gates = Gates()


@workflow.defn(name="collect")
class Collect:
    """Returns the first `count` values sent with `go`."""

    def __init__(self) -> None:
        self.received: list = []

    @workflow.signal("go")
    def on_go(self, value) -> None:
        self.received.append(value)

    def run(self, ctx, count):
        yield ctx.wait_condition(lambda: len(self.received) >= count, key="enough")
        return self.received


async def a_signal_sent_before_the_first_task_is_kept(stage: Stage) -> None:
    handle = await stage.start("collect", 1)
    await handle.signal("go", ["first"])
    equal(await result(handle), ["first"])


async def a_signal_sent_after_the_wait_wakes_it(stage: Stage) -> None:
    handle = await stage.start("collect", 1)
    await stage.until(handle, "ConditionWaitOpened")
    await handle.signal("go", ["now"])
    equal(await result(handle), ["now"])
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "ConditionWaitSatisfied")), 1)
    equal(len(payloads(events, "TimerScheduled")), 0)


async def fifty_signals_arrive_in_order(stage: Stage) -> None:
    handle = await stage.start("collect", 50)
    for number in range(50):
        await handle.signal("go", [number])
    equal(await result(handle), list(range(50)))
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "SignalReceived")), 50)
    equal(len(payloads(events, "ConditionWaitOpened")), 1)


async def a_repeated_request_is_one_signal(stage: Stage) -> None:
    handle = await stage.start("collect", 2)
    first = await handle.signal("go", ["a"], request_id="request-1")
    again = await handle.signal("go", ["a"], request_id="request-1")
    equal([first["retained"], again["retained"]], [False, True])
    conflict = await fails(SignalFailed, handle.signal("go", ["b"], request_id="request-1"))
    equal(conflict.reason, "request_id_conflict")
    await handle.signal("go", ["c"], request_id="request-2")
    equal(await result(handle), ["a", "c"])


async def only_declared_signals_are_accepted(stage: Stage) -> None:
    handle = await stage.start("collect", 1)
    # A run that has been picked up belongs to a registered worker, which declared its signals.
    await stage.until(handle, "ConditionWaitOpened")
    refused = await fails(SignalFailed, handle.signal("stop", []))
    equal(refused.reason, "unknown_signal")
    await handle.signal("go", ["declared"])
    equal(await result(handle), ["declared"])


@activity.defn(name="gated")
async def gated(key: str) -> None:
    await gates.wait(key)


@workflow.defn(name="busy")
class Busy(Collect):
    """Waits for two signals twice, with an activity between."""

    def run(self, ctx):
        yield ctx.schedule_activity("gated", [ctx.workflow_id])
        yield ctx.wait_condition(lambda: len(self.received) >= 1, key="one")
        seen_at_first = len(self.received)
        yield ctx.wait_condition(lambda: len(self.received) >= 3, key="three")
        return [seen_at_first, self.received]


async def signals_before_and_between_waits_are_kept(stage: Stage) -> None:
    handle = await stage.start("busy")
    await stage.until(handle, "ActivityStarted")
    for number in range(2):
        await handle.signal("go", [number])
    await stage.until(handle, "SignalReceived", 2)
    gates.open(handle.workflow_id)
    await stage.until(handle, "ConditionWaitOpened")
    await handle.signal("go", [2])
    equal(await result(handle), [2, [0, 1, 2]])


@workflow.defn(name="approval")
class Approval:
    def __init__(self) -> None:
        self.approved = False

    @workflow.signal("approve")
    def on_approve(self, approved: bool) -> None:
        self.approved = approved

    def run(self, ctx, timeout):
        return (yield ctx.wait_condition(lambda: self.approved, key="approved", timeout=timeout))


async def a_condition_is_satisfied_before_its_timeout(stage: Stage) -> None:
    handle = await stage.start("approval", 60)
    await stage.until(handle, "ConditionWaitOpened")
    await handle.signal("approve", [True])
    equal(await result(handle), True)
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "TimerCancelled")), 1)
    equal(len(payloads(events, "TimerFired")), 0)


async def a_false_signal_wakes_but_does_not_satisfy(stage: Stage) -> None:
    handle = await stage.start("approval", None)
    await stage.until(handle, "ConditionWaitOpened")
    await handle.signal("approve", [False])
    await stage.until(handle, "SignalReceived")
    await handle.signal("approve", [True])
    equal(await result(handle), True)
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "ConditionWaitOpened")), 1)
    equal(len(payloads(events, "ConditionWaitSatisfied")), 1)


async def a_condition_times_out(stage: Stage) -> None:
    started = time.monotonic()
    satisfied, events = await stage.run("approval", 1)
    equal(satisfied, False)
    assert time.monotonic() - started >= 1.0
    equal([payload["timer_kind"] for payload in payloads(events, "TimerFired")], ["condition_timeout"])
    equal(len(payloads(events, "ConditionWaitSatisfied")), 0)


async def a_condition_with_no_time_times_out_at_once(stage: Stage) -> None:
    satisfied, events = await stage.run("approval", 0)
    equal(satisfied, False)
    equal(len(payloads(events, "TimerFired")), 1)


async def false_signals_do_not_extend_the_timeout(stage: Stage) -> None:
    handle = await stage.start("approval", 1)

    async def refused() -> bool:
        """Sends one more signal; the run refuses it once it is closed."""
        try:
            await handle.signal("approve", [False])
        except SignalFailed as refusal:
            equal(refusal.reason, "run_not_active")
            return True
        return False

    await eventually("the timeout comes in spite of the signals", refused)
    equal(await result(handle), False)


@workflow.defn(name="nap")
class Nap:
    def run(self, ctx):
        yield ctx.sleep(0)
        yield ctx.sleep(1)
        yield [ctx.start_timer(1), ctx.start_timer(1), ctx.start_timer(1)]
        return "awake"


async def timers_last_at_least_their_time(stage: Stage) -> None:
    started = time.monotonic()
    answer, events = await stage.run("nap")
    equal(answer, "awake")
    assert time.monotonic() - started >= 2.0
    equal(command_sequences(events, "TimerScheduled"), [1, 2, 3, 4, 5])
    equal(sorted(command_sequences(events, "TimerFired")), [1, 2, 3, 4, 5])


@workflow.defn(name="racing")
class Racing(Approval):
    """A signal may arrive at any moment around the timeout; whatever is decided must be decided for good."""

    def run(self, ctx):
        satisfied = yield ctx.wait_condition(lambda: self.approved, key="approved", timeout=1)
        yield ctx.sleep(0)
        return [satisfied, self.approved]


async def a_signal_at_the_moment_of_the_timeout(stage: Stage) -> None:
    async def race(offset: float) -> None:
        handle = await stage.start("racing")
        await stage.until(handle, "ConditionWaitOpened")
        await asyncio.sleep(offset)
        await handle.signal("approve", [True])
        satisfied, approved = await result(handle)
        assert approved or not satisfied, "satisfied without approval"
        events = await stage.closed_history(handle)
        closings = types(events).count("ConditionWaitSatisfied") + len(
            [timer for timer in payloads(events, "TimerFired") if timer.get("timer_kind") == "condition_timeout"]
        )
        equal(closings, 1)

    outcomes = await asyncio.gather(*(race(0.8 + step * 0.04) for step in range(8)), return_exceptions=True)
    for outcome in outcomes:
        # A signal that comes after the end is refused; every other failure counts.
        if isinstance(outcome, BaseException) and getattr(outcome, "reason", None) != "run_not_active":
            raise outcome


if __name__ == "__main__":
    main(
        [
            a_signal_sent_before_the_first_task_is_kept,
            a_signal_sent_after_the_wait_wakes_it,
            fifty_signals_arrive_in_order,
            a_repeated_request_is_one_signal,
            only_declared_signals_are_accepted,
            signals_before_and_between_waits_are_kept,
            a_condition_is_satisfied_before_its_timeout,
            a_false_signal_wakes_but_does_not_satisfy,
            a_condition_times_out,
            a_condition_with_no_time_times_out_at_once,
            false_signals_do_not_extend_the_timeout,
            timers_last_at_least_their_time,
            a_signal_at_the_moment_of_the_timeout,
        ],
        workflows=[Collect, Busy, Approval, Nap, Racing],
        activities=[gated],
    )
