"""Updates: answered, refused, failed, repeated, waited for, and what conditions make of them."""

from common import Gates, Stage, equal, eventually, fails, main, payloads, rejected, result, types
from durable_workflow import InvalidArgument, ServerError, UpdateFailed, activity, workflow

gates = Gates()


@workflow.defn(name="cart")
class Cart:
    """Fills by updates, closes by signal."""

    def __init__(self) -> None:
        self.items: dict = {}
        self.closed = False

    @workflow.update("set_quantity")
    def set_quantity(self, item: str, quantity: int) -> int:
        if quantity < 0:
            raise ValueError("less than nothing")
        self.items[item] = quantity
        return sum(self.items.values())

    @workflow.signal("close")
    def on_close(self) -> None:
        self.closed = True

    def run(self, ctx):
        yield ctx.wait_condition(lambda: self.closed, key="closed")
        return self.items


async def an_update_changes_state_and_answers(stage: Stage) -> None:
    handle = await stage.start("cart")
    first = await handle.update("set_quantity", ["apple", 2], wait_for="completed", wait_timeout_seconds=30)
    equal(first["result"], 2)
    equal([first["update_status"], first["outcome"]], ["completed", "update_completed"])
    second = await handle.update("set_quantity", ["pear", 3], wait_for="completed", wait_timeout_seconds=30)
    equal(second["result"], 5)
    await handle.signal("close", [])
    equal(await result(handle), {"apple": 2, "pear": 3})
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "UpdateAccepted")), 2)
    equal(len(payloads(events, "UpdateApplied")), 2)
    equal(len(payloads(events, "UpdateCompleted")), 2)


async def an_accepted_update_is_answered_before_it_runs(stage: Stage) -> None:
    handle = await stage.start("cart")
    accepted = await handle.update("set_quantity", ["apple", 1], wait_for="accepted")
    equal(accepted["update_status"], "accepted")
    equal("result" in accepted, False)
    await stage.until(handle, "UpdateCompleted")
    again = await handle.update(
        "set_quantity", ["apple", 1], wait_for="completed", request_id=accepted["request_id"]
    )
    equal([again["update_id"], again["retained"], again["result"]], [accepted["update_id"], True, 1])


async def a_failing_handler_fails_the_update_only(stage: Stage) -> None:
    handle = await stage.start("cart")
    failed = await fails(
        UpdateFailed, handle.update("set_quantity", ["apple", -1], wait_for="completed", wait_timeout_seconds=30)
    )
    assert "less than nothing" in str(failed), failed
    await handle.signal("close", [])
    equal(await result(handle), {})
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "UpdateApplied")), 0)
    equal(payloads(events, "UpdateCompleted")[0]["exception_type"], "ValueError")


async def an_unknown_update_is_refused(stage: Stage) -> None:
    handle = await stage.start("cart")
    await stage.until(handle, "ConditionWaitOpened")
    refused = await fails(ServerError, handle.update("explode", [], wait_for="completed"))
    equal([refused.status, refused.body["reason"]], [404, "unknown_update"])
    equal(refused.body["declared_updates"], ["set_quantity"])
    wrong = await fails(InvalidArgument, handle.update("set_quantity", ["apple", "many"], wait_for="completed"))
    equal(list(wrong.errors), ["quantity"])
    await handle.signal("close", [])
    equal(await result(handle), {})
    events = await stage.closed_history(handle)
    equal([payload["rejection_reason"] for payload in payloads(events, "UpdateRejected")], ["invalid_update_arguments"])
    equal([command["rejection_reason"] for command in await rejected(handle)], ["unknown_update", "invalid_update_arguments"])


async def the_same_request_is_one_update(stage: Stage) -> None:
    handle = await stage.start("cart")
    options = {"wait_for": "completed", "wait_timeout_seconds": 30, "request_id": "once"}
    first = await handle.update("set_quantity", ["apple", 1], **options)
    again = await handle.update("set_quantity", ["apple", 1], **options)
    equal([first["update_id"], first["result"]], [again["update_id"], again["result"]])
    conflict = await fails(UpdateFailed, handle.update("set_quantity", ["apple", 2], **options))
    equal([conflict.status, conflict.body["reason"]], [409, "request_id_conflict"])
    await handle.signal("close", [])
    equal(await result(handle), {"apple": 1})


async def a_closed_run_takes_no_updates(stage: Stage) -> None:
    handle = await stage.start("cart")
    await handle.signal("close", [])
    await result(handle)
    refused = await fails(ServerError, handle.update("set_quantity", ["apple", 1]))
    equal([refused.status, refused.body["reason"]], [409, "run_not_active"])


@workflow.defn(name="threshold")
class Threshold:
    """Ends when updates have added up to ten."""

    def __init__(self) -> None:
        self.total = 0

    @workflow.update("add")
    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    def run(self, ctx):
        reached = yield ctx.wait_condition(lambda: self.total >= 10, key="ten", timeout=60)
        return [reached, self.total]


async def a_condition_is_looked_at_again_after_an_update(stage: Stage) -> None:
    handle = await stage.start("threshold")
    await stage.until(handle, "ConditionWaitOpened")
    await handle.update("add", [4], wait_for="completed", wait_timeout_seconds=30)
    await handle.update("add", [6], wait_for="completed", wait_timeout_seconds=30)
    equal(await result(handle), [True, 10])
    events = await stage.closed_history(handle)
    equal(len(payloads(events, "ConditionWaitOpened")), 1)
    satisfied = payloads(events, "ConditionWaitSatisfied")[0]
    equal(satisfied["workflow_update_id"], payloads(events, "UpdateApplied")[1]["update_id"])


async def updates_sent_at_once_run_in_order(stage: Stage) -> None:
    handle = await stage.start("threshold")
    for amount in range(1, 5):
        await handle.update("add", [amount], wait_for="accepted")
    equal(await result(handle), [True, 10])
    events = await stage.closed_history(handle)
    results = [event["update_name"] for event in payloads(events, "UpdateApplied")]
    equal(len(results), 4)


@activity.defn(name="hold")
async def hold(key: str) -> None:
    await gates.wait(key)


@workflow.defn(name="round")
class Round:
    """Continues as new once, after a gate."""

    def __init__(self) -> None:
        self.notes: list = []
        self.done = False

    @workflow.update("note")
    def note(self, text: str) -> int:
        self.notes.append(text)
        return len(self.notes)

    @workflow.signal("finish")
    def finish(self) -> None:
        self.done = True

    def run(self, ctx, number):
        yield ctx.schedule_activity("hold", [f"{ctx.workflow_id}-{number}"])
        if number == 0:
            return ctx.continue_as_new(1)
        yield ctx.wait_condition(lambda: self.done, key="done")
        return self.notes


async def an_open_update_moves_with_a_workflow_that_continues(stage: Stage) -> None:
    handle = await stage.start("round", 0)
    await stage.until(handle, "ActivityStarted")
    # The workflow is blocked in its activity, so this update runs at once; the next two race with continue-as-new.
    equal((await handle.update("note", ["before"], wait_for="completed", wait_timeout_seconds=30))["result"], 1)
    gates.open(f"{handle.workflow_id}-0")
    during = await stage.client.update_workflow(
        handle.workflow_id, "note", args=["during"], wait_for="completed", wait_timeout_seconds=30
    )
    equal(during["update_status"], "completed")
    gates.open(f"{handle.workflow_id}-1")

    async def second_run():
        described = await stage.client.describe_workflow(handle.workflow_id)
        return described.run_id if described.run_id != handle.run_id else None

    second = await eventually("the second run", second_run)
    # Sent while the first run was open, a signal would have been that run's.
    await stage.client.signal_workflow(handle.workflow_id, "finish")
    await result(stage.client.get_workflow_handle(handle.workflow_id))
    runs = [await stage.history(handle.workflow_id, run_id) for run_id in (handle.run_id, second)]
    completed = [event for run in runs for event in payloads(run, "UpdateCompleted")]
    equal(len(completed), 2)


async def an_update_that_is_not_over_ends_with_its_run(stage: Stage) -> None:
    queue = stage.queue + "-no-worker"
    handle = await stage.client.start_workflow(
        workflow_type="cart", task_queue=queue, workflow_id=stage.queue + "-waiting", input=[]
    )
    accepted = await handle.update("set_quantity", ["apple", 1], wait_for="accepted")
    await handle.terminate(reason="enough")
    again = await fails(
        UpdateFailed,
        handle.update("set_quantity", ["apple", 1], wait_for="completed", request_id=accepted["request_id"]),
    )
    assert "terminated" in str(again), again
    events = await stage.closed_history(handle)
    equal(types(events)[-2:], ["WorkflowTerminated", "UpdateCompleted"])
    equal(payloads(events, "UpdateCompleted")[0]["terminal_reason"], "terminated")


if __name__ == "__main__":
    main(
        [
            an_update_changes_state_and_answers,
            an_accepted_update_is_answered_before_it_runs,
            a_failing_handler_fails_the_update_only,
            an_unknown_update_is_refused,
            the_same_request_is_one_update,
            a_closed_run_takes_no_updates,
            a_condition_is_looked_at_again_after_an_update,
            updates_sent_at_once_run_in_order,
            an_open_update_moves_with_a_workflow_that_continues,
            an_update_that_is_not_over_ends_with_its_run,
        ],
        workflows=[Cart, Threshold, Round],
        activities=[hold],
    )
