"""Queries: open runs, closed runs, arguments, typed results, failing handlers, unknown names, and what they leave alone."""

from common import Stage, beside, equal, eventually, fails, main, result, unique
from durable_workflow import QueryFailed, Worker, WorkflowFailed, WorkflowNotFound, activity, workflow


@workflow.defn(name="counter")
class Counter:
    """Adds the values of signals until a signal ends it, by completing or by failing."""

    def __init__(self) -> None:
        self.total = 0
        self.ending = None

    @workflow.signal("add")
    def on_add(self, number) -> None:
        self.total += number

    @workflow.signal("end")
    def on_end(self, how) -> None:
        self.ending = how

    @workflow.query("total")
    def current_total(self) -> int:
        return self.total

    @workflow.query("scaled")
    def scaled(self, factor: int, unit: str = "none") -> dict:
        return {"value": self.total * factor, "unit": unit, "exact": True, "parts": [self.total, factor, None, 0.5]}

    @workflow.query("broken")
    def broken(self) -> None:
        self.total += 1000
        raise ValueError("the counter is stuck")

    def run(self, ctx, start):
        self.total = start
        label = yield ctx.schedule_activity("label", [ctx.workflow_id])
        yield ctx.wait_condition(lambda: self.ending is not None, key="ended")
        if self.ending == "fail":
            raise RuntimeError("told to fail")
        return f"{label} {self.total}"


labelled: list[str] = []


@activity.defn(name="label")
async def label(workflow_id: str) -> str:
    labelled.append(workflow_id)
    return "total"


async def ask(stage: Stage, workflow_id: str, name: str, *arguments):
    """The result of a query, which must not change what is recorded about the run."""
    before = await recorded(stage, workflow_id)
    try:
        answer = await stage.client.query_workflow(workflow_id, name, args=list(arguments))
    finally:
        equal(await recorded(stage, workflow_id), before)
    equal(answer["query_name"], name)
    equal(answer["control_plane"]["operation"], "query")
    return answer["result"]


async def recorded(stage: Stage, workflow_id: str):
    description = await stage.client.describe_workflow(workflow_id)
    return await stage.history(workflow_id, description.run_id), description


async def waiting(stage: Stage, start: int):
    handle = await stage.start("counter", start)
    await stage.until(handle, "ConditionWaitOpened")
    return handle


async def an_open_run_answers_with_its_present_state(stage: Stage) -> None:
    handle = await waiting(stage, 5)
    equal(await ask(stage, handle.workflow_id, "total"), 5)
    await handle.signal("add", [3])
    # The signal was accepted before the query was asked: it is in the history that answers.
    equal((await handle.query("total"))["result"], 8)
    await handle.signal("end", ["complete"])
    equal(await result(handle), "total 8")


async def arguments_and_results_keep_their_types(stage: Stage) -> None:
    handle = await waiting(stage, 4)
    expected = {"value": 12, "unit": "none", "exact": True, "parts": [4, 3, None, 0.5]}
    equal(await ask(stage, handle.workflow_id, "scaled", 3), expected)
    equal((await ask(stage, handle.workflow_id, "scaled", 2, "kg"))["unit"], "kg")
    await handle.signal("end", ["complete"])
    await result(handle)


async def closed_runs_answer_too(stage: Stage) -> None:
    for how in ["complete", "fail", "cancel", "terminate"]:
        handle = await waiting(stage, 1)
        await handle.signal("add", [1])
        if how == "cancel":
            await stage.client.cancel_workflow(handle.workflow_id)
        elif how == "terminate":
            await stage.client.terminate_workflow(handle.workflow_id)
        else:
            await handle.signal("end", [how])
            if how == "fail":
                await fails(WorkflowFailed, result(handle))
                # The question reaches the worker; this SDK does not answer for code that raised at its end.
                refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "total"))
                equal((refused.status, refused.reason), (409, "query_workflow_state_unavailable"))
                continue
            await result(handle)
        equal(await ask(stage, handle.workflow_id, "total"), 2)


async def a_query_runs_no_activity(stage: Stage) -> None:
    handle = await waiting(stage, 1)
    for _ in range(3):
        await ask(stage, handle.workflow_id, "total")
    equal(labelled.count(handle.workflow_id), 1)
    await handle.signal("end", ["complete"])
    await result(handle)


async def a_handler_that_raises_tells_why_and_changes_nothing(stage: Stage) -> None:
    handle = await waiting(stage, 7)
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "broken"))
    equal((refused.status, refused.reason), (409, "query_rejected"))
    assert "the counter is stuck" in str(refused), refused
    equal(await ask(stage, handle.workflow_id, "total"), 7)
    await handle.signal("end", ["complete"])
    equal(await result(handle), "total 7")


async def an_unknown_query_is_refused(stage: Stage) -> None:
    handle = await waiting(stage, 7)
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "nothing"))
    equal((refused.status, refused.reason), (404, "rejected_unknown_query"))
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "scaled", "much"))
    equal((refused.status, refused.reason), (422, "invalid_query_arguments"))
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "scaled"))
    equal((refused.status, refused.reason), (422, "invalid_query_arguments"))
    await fails(WorkflowNotFound, stage.client.query_workflow(unique("missing"), "total"))
    await handle.signal("end", ["complete"])
    await result(handle)


@workflow.defn(name="silent")
class Silent:
    """Declares no query, so only its worker can say that there is none."""

    def run(self, ctx):
        yield ctx.sleep(3600)


async def a_worker_says_that_a_workflow_has_no_queries(stage: Stage) -> None:
    handle = await stage.start("silent")
    await stage.until(handle, "TimerScheduled")
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "total"))
    equal((refused.status, refused.reason), (404, "rejected_unknown_query"))
    await stage.client.terminate_workflow(handle.workflow_id)


async def without_a_worker_there_is_a_reason(stage: Stage) -> None:
    queue = unique("empty")
    handle = await stage.client.start_workflow(
        workflow_type="counter", task_queue=queue, workflow_id=unique("counter"), input=[2]
    )
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "total"))
    equal((refused.status, refused.reason), (409, "query_worker_unavailable"))

    async def answered():
        try:
            return (await handle.query("total"))["result"] == 2
        except QueryFailed:
            return False

    worker = Worker(stage.client, task_queue=queue, workflows=[Counter], activities=[label])
    await beside(worker, eventually("the worker answers", answered))
    # It deregistered when it stopped.
    refused = await fails(QueryFailed, ask(stage, handle.workflow_id, "total"))
    equal((refused.status, refused.reason), (409, "query_worker_unavailable"))
    await stage.client.terminate_workflow(handle.workflow_id)


if __name__ == "__main__":
    main(
        [
            an_open_run_answers_with_its_present_state,
            arguments_and_results_keep_their_types,
            closed_runs_answer_too,
            a_query_runs_no_activity,
            a_handler_that_raises_tells_why_and_changes_nothing,
            an_unknown_query_is_refused,
            a_worker_says_that_a_workflow_has_no_queries,
            without_a_worker_there_is_a_reason,
        ],
        workflows=[Counter, Silent],
        activities=[label],
    )
