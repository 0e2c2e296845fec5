"""Durable selection: the first member wins, losers go on, handles are awaited or given up."""

from common import Gates, Stage, equal, main, payloads, result, types
from durable_workflow import DurableOperationCancelled, activity, workflow

gates = Gates()


@activity.defn(name="hold")
async def hold(key: str) -> str:
    await gates.wait(key)
    return key


@activity.defn(name="refuse")
async def refuse(message: str) -> None:
    raise ValueError(message)


@workflow.defn(name="slow_child")
class SlowChild:
    def run(self, ctx, key):
        return (yield ctx.schedule_activity("hold", [key]))


@workflow.defn(name="race")
class Race:
    """Two gated activities; then waits for the loser, or gives it up."""

    def run(self, ctx, after):
        chosen = yield ctx.select(
            {
                "left": ctx.schedule_activity("hold", [f"{ctx.workflow_id}-left"]),
                "right": ctx.schedule_activity("hold", [f"{ctx.workflow_id}-right"]),
            }
        )
        loser = chosen.handles["left" if chosen.key == "right" else "right"]
        if after == "wait":
            return [chosen.key, chosen.value, (yield loser)]
        yield loser.cancel()
        try:
            yield loser
        except DurableOperationCancelled as error:
            return [chosen.key, chosen.value, f"gave up {error.member_key}"]
        return "the loser was not given up"


async def the_first_wins_and_the_other_is_awaited(stage: Stage) -> None:
    handle = await stage.start("race", "wait")
    await stage.until(handle, "ActivityStarted", 2)
    gates.open(f"{handle.workflow_id}-right")
    await stage.until(handle, "SelectionResolved")
    gates.open(f"{handle.workflow_id}-left")
    equal(await result(handle), ["right", f"{handle.workflow_id}-right", f"{handle.workflow_id}-left"])
    events = await stage.closed_history(handle)
    chosen = payloads(events, "SelectionResolved")
    equal(len(chosen), 1)
    equal([chosen[0]["member_key"], chosen[0]["outcome"]], ["right", "completed"])
    deciding = types(events).index("SelectionResolved") - 1
    equal(events[deciding]["id"], chosen[0]["resolution_event_id"])


async def the_loser_is_given_up(stage: Stage) -> None:
    handle = await stage.start("race", "cancel")
    await stage.until(handle, "ActivityStarted", 2)
    gates.open(f"{handle.workflow_id}-left")
    equal((await result(handle))[0::2], ["left", "gave up right"])
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "SelectionOperationCancelled")), 1)
    equal(len(payloads(events, "ActivityCancelled")), 1)
    gates.open(f"{handle.workflow_id}-right")


@workflow.defn(name="deadline")
class Deadline:
    """An activity against a timer and a group."""

    def run(self, ctx):
        chosen = yield ctx.select(
            {
                "work": ctx.schedule_activity("hold", [ctx.workflow_id]),
                "deadline": ctx.start_timer(1),
                "both": [
                    ctx.schedule_activity("hold", [f"{ctx.workflow_id}-1"]),
                    ctx.schedule_activity("hold", [f"{ctx.workflow_id}-2"]),
                ],
            }
        )
        return [chosen.key, chosen.value if chosen.key == "both" else None]


async def a_timer_wins(stage: Stage) -> None:
    handle = await stage.start("deadline")
    equal(await result(handle), ["deadline", None])
    for key in ("", "-1", "-2"):
        gates.open(handle.workflow_id + key)


async def a_group_wins_when_all_of_it_is_done(stage: Stage) -> None:
    handle = await stage.start("deadline")
    gates.open(f"{handle.workflow_id}-2")
    gates.open(f"{handle.workflow_id}-1")
    outcome = await result(handle)
    events = await stage.closed_history(handle)
    chosen = payloads(events, "SelectionResolved")[0]
    if outcome[0] == "both":
        equal(outcome[1], [f"{handle.workflow_id}-1", f"{handle.workflow_id}-2"])
        equal(chosen["operation_kind"], "group")
    gates.open(handle.workflow_id)


@workflow.defn(name="failing_first")
class FailingFirst:
    def run(self, ctx):
        chosen = yield ctx.select(
            [ctx.schedule_activity("refuse", ["no"]), ctx.schedule_activity("hold", [ctx.workflow_id])]
        )
        return [chosen.index, str(chosen.failure)]


async def a_failure_can_win(stage: Stage) -> None:
    handle = await stage.start("failing_first")
    outcome = await result(handle)
    equal(outcome[0], 0)
    assert "no" in outcome[1], outcome
    events = await stage.closed_history(handle)
    equal(payloads(events, "SelectionResolved")[0]["outcome"], "failed")
    gates.open(handle.workflow_id)


@workflow.defn(name="with_child")
class WithChild:
    def run(self, ctx, give_up):
        chosen = yield ctx.select(
            {
                "child": ctx.start_child_workflow("slow_child", [f"{ctx.workflow_id}-child"]),
                "own": ctx.schedule_activity("hold", [f"{ctx.workflow_id}-own"]),
            }
        )
        if give_up:
            yield chosen.handles["child"].cancel()
        return [chosen.key, chosen.value]


async def a_child_can_win(stage: Stage) -> None:
    handle = await stage.start("with_child", False)
    gates.open(f"{handle.workflow_id}-child")
    equal(await result(handle), ["child", f"{handle.workflow_id}-child"])
    gates.open(f"{handle.workflow_id}-own")


async def a_child_that_loses_is_cancelled(stage: Stage) -> None:
    handle = await stage.start("with_child", True)
    child = (await stage.until(handle, "ChildRunStarted"))[0]["child_workflow_instance_id"]
    gates.open(f"{handle.workflow_id}-own")
    equal((await result(handle))[0], "own")
    await stage.until(stage.client.get_workflow_handle(child), "WorkflowCancelled")
    gates.open(f"{handle.workflow_id}-child")


@workflow.defn(name="until_told")
class UntilTold:
    """A condition against a timer."""

    def __init__(self) -> None:
        self.told = False

    @workflow.signal("tell")
    def on_tell(self) -> None:
        self.told = True

    def run(self, ctx, seconds, timeout):
        chosen = yield ctx.select(
            {"told": ctx.wait_condition(lambda: self.told, key="told", timeout=timeout), "timer": ctx.start_timer(seconds)}
        )
        return [chosen.key, chosen.value]


async def a_condition_wins(stage: Stage) -> None:
    handle = await stage.start("until_told", 60, None)
    await stage.until(handle, "ConditionWaitOpened")
    await handle.signal("tell", [])
    equal((await result(handle))[0], "told")


async def a_condition_wins_before_its_timeout(stage: Stage) -> None:
    handle = await stage.start("until_told", 60, 30)
    await stage.until(handle, "ConditionWaitOpened")
    await handle.signal("tell", [])
    equal(await result(handle), ["told", True])
    events = await stage.closed_history(handle)
    equal(payloads(events, "SelectionResolved")[0]["resolution_event_type"], "ConditionWaitSatisfied")


async def a_condition_times_out_first(stage: Stage) -> None:
    handle = await stage.start("until_told", 60, 1)
    equal(await result(handle), ["told", False])


if __name__ == "__main__":
    main(
        [
            the_first_wins_and_the_other_is_awaited,
            the_loser_is_given_up,
            a_timer_wins,
            a_group_wins_when_all_of_it_is_done,
            a_failure_can_win,
            a_child_can_win,
            a_child_that_loses_is_cancelled,
            a_condition_wins,
            a_condition_wins_before_its_timeout,
            a_condition_times_out_first,
        ],
        workflows=[SlowChild, Race, Deadline, FailingFirst, WithChild, UntilTold],
        activities=[hold, refuse],
    )
