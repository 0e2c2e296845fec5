"""What a run records for itself, and values on their way: memo, attributes, new runs, long histories, payloads."""

from common import Stage, check_sound, equal, main, payloads, result
from durable_workflow import activity, workflow

SIDE_EFFECTS = 1200


@workflow.defn(name="countdown")
class Countdown:
    def run(self, ctx, left):
        if left == 0:
            return "lift-off"
        return ctx.continue_as_new(left - 1)


async def continue_as_new_five_times(stage: Stage) -> None:
    first = await stage.start("countdown", 5)
    # A handle without a run follows the chain; the one from the start stays with the first run.
    equal(await result(stage.client.get_workflow_handle(first.workflow_id)), "lift-off")
    runs = (await first.list_runs()).runs
    equal([run.run_number for run in runs], [1, 2, 3, 4, 5, 6])
    histories = [await stage.history(run.workflow_id, run.run_id) for run in runs]
    for history in histories:
        check_sound(history)
    continued_to = [payloads(history, "WorkflowContinuedAsNew") for history in histories]
    equal([event[0]["continued_to_run_id"] for event in continued_to[:-1]], [run.run_id for run in runs[1:]])
    equal(continued_to[-1], [])


@workflow.defn(name="memo")
class Memo:
    def __init__(self) -> None:
        self.steps = 0

    @workflow.signal("next")
    def on_next(self) -> None:
        self.steps += 1

    def run(self, ctx):
        yield ctx.upsert_memo({"stage": "one", "count": 1, "nested": {"list": [1, "two", None]}})
        yield ctx.wait_condition(lambda: self.steps > 0, key="next")
        yield ctx.upsert_memo({"stage": "two", "count": None})


async def memo_entries_merge_and_none_deletes(stage: Stage) -> None:
    handle = await stage.start("memo", memo={"from": "start"})
    await stage.until(handle, "ConditionWaitOpened")
    kept = {"from": "start", "nested": {"list": [1, "two", None]}}
    equal((await handle.describe()).memo, {**kept, "stage": "one", "count": 1})
    await handle.signal("next")
    equal(await result(handle), None)
    equal((await handle.describe()).memo, {**kept, "stage": "two"})


@workflow.defn(name="attributes")
class Attributes(Memo):
    def run(self, ctx):
        yield ctx.upsert_search_attributes({"Stage": "packing", "Items": 3, "Weight": 1.5, "Tags": ["blue", "round"]})
        yield ctx.wait_condition(lambda: self.steps > 0, key="next")
        yield ctx.upsert_search_attributes({"Stage": "sent", "Items": None})


async def search_attributes_merge_and_show_in_describe(stage: Stage) -> None:
    handle = await stage.start("attributes", search_attributes={"Customer": "c-7"})
    await stage.until(handle, "ConditionWaitOpened")
    kept = {"Customer": "c-7", "Weight": 1.5, "Tags": ["blue", "round"]}
    equal((await handle.describe()).search_attributes, {**kept, "Stage": "packing", "Items": 3})
    await handle.signal("next")
    equal(await result(handle), None)
    equal((await handle.describe()).search_attributes, {**kept, "Stage": "sent"})


@activity.defn(name="total")
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@workflow.defn(name="long-history")
class LongHistory:
    """The worker reads 500 events at a time, so the task after the activity takes three pages."""

    def run(self, ctx):
        numbers = []
        for number in range(SIDE_EFFECTS):
            numbers.append((yield ctx.side_effect(lambda number=number: number)))
        return [(yield ctx.schedule_activity("total", [numbers])), numbers[-1]]


async def a_history_of_three_pages_is_replayed(stage: Stage) -> None:
    answer, events = await stage.run("long-history")
    equal(answer, [SIDE_EFFECTS * (SIDE_EFFECTS - 1) // 2, SIDE_EFFECTS - 1])
    equal(len(events), SIDE_EFFECTS + 6)


@activity.defn(name="echo")
async def echo(value):
    return value


@workflow.defn(name="round-trip")
class RoundTrip:
    """Sends a value through an activity and receives it once more as a signal."""

    def __init__(self) -> None:
        self.signalled: list = []

    @workflow.signal("value")
    def on_value(self, value) -> None:
        self.signalled.append(value)

    def run(self, ctx, value):
        echoed = yield ctx.schedule_activity("echo", [value])
        yield ctx.wait_condition(lambda: bool(self.signalled), key="signalled")
        return [echoed, self.signalled == [value]]


async def check_round_trip(stage: Stage, value) -> None:
    handle = await stage.start("round-trip", value)
    await handle.signal("value", [value])
    description, answer = await handle.describe(), await result(handle)
    assert answer == [value, True], "the value changed on its way"
    assert description.input == [value], "the input changed"


async def unicode(stage: Stage) -> None:
    await check_round_trip(stage, "żółć 漢字 עברית 🚀👩‍👩‍👧 \0\1\"\\\n\u2028\U0010ffff")


async def raw_bytes(stage: Stage) -> None:
    await check_round_trip(stage, bytes(range(256)))


async def every_kind_of_value(stage: Stage) -> None:
    numbers = {"smallest": -(2**63), "largest": 2**63 - 1, "fraction": 0.1}
    await check_round_trip(stage, {"null": None, "yes": True, "ключ": [[], "", {}], **numbers})


async def a_megabyte(stage: Stage) -> None:
    await check_round_trip(stage, "0123456789" * 100_000)


if __name__ == "__main__":
    main(
        [
            continue_as_new_five_times,
            memo_entries_merge_and_none_deletes,
            search_attributes_merge_and_show_in_describe,
            a_history_of_three_pages_is_replayed,
            unicode,
            raw_bytes,
            every_kind_of_value,
            a_megabyte,
        ],
        workflows=[Countdown, Memo, Attributes, LongHistory, RoundTrip],
        activities=[total, echo],
    )
