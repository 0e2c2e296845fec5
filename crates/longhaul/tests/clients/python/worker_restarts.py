"""Workers that come and go: other workers, newer code, a worker for every step."""

from common import Stage, beside, equal, main, payloads, result, unique
from durable_workflow import Worker, WorkflowHandle, activity, workflow

STEPS = 3
tickets: dict[str, list[str]] = {}


class Finishing:
    """A workflow that can be told to finish."""

    def __init__(self) -> None:
        self.finish = False

    @workflow.signal("finish")
    def on_finish(self) -> None:
        self.finish = True

    def finished(self) -> bool:
        """A predicate with one identity in old and new code; a lambda would have one per class."""
        return self.finish


async def at_wait(stage: Stage, handle: WorkflowHandle) -> None:
    await stage.until(handle, "ConditionWaitOpened")


async def finish(handle: WorkflowHandle):
    await handle.signal("finish")
    return await result(handle)


@workflow.defn(name="ticket")
class Ticket(Finishing):
    def run(self, ctx):
        ticket = yield ctx.side_effect(lambda: unique("ticket"))
        tickets.setdefault(ctx.workflow_id, []).append(ticket)
        yield ctx.wait_condition(self.finished, key="finish")
        return ticket


async def a_side_effect_keeps_its_value_in_another_worker(stage: Stage) -> None:
    queue = Stage(stage.client, unique("tickets"))
    handle = await queue.start("ticket")
    await beside(Worker(stage.client, task_queue=queue.queue, workflows=[Ticket]), at_wait(queue, handle))
    ticket = await beside(Worker(stage.client, task_queue=queue.queue, workflows=[Ticket]), finish(handle))
    observed = tickets[handle.workflow_id]
    assert len(observed) >= 2, "both workers ran the code"
    equal(set(observed), {ticket})
    equal(len(payloads(await queue.closed_history(handle), "SideEffectRecorded")), 1)


@workflow.defn(name="deploy")
class OldDeploy(Finishing):
    def run(self, ctx):
        version = yield ctx.get_version("layout", 1, 1)
        yield ctx.wait_condition(self.finished, key="finish")
        return [version]


@workflow.defn(name="deploy")
class NewDeploy(Finishing):
    def run(self, ctx):
        version = yield ctx.get_version("layout", 1, 2)
        yield ctx.wait_condition(self.finished, key="finish")
        return [version, (yield ctx.patched("only in new code"))]


async def a_run_keeps_its_version_when_newer_code_is_deployed(stage: Stage) -> None:
    queue = Stage(stage.client, unique("deploys"))
    before = await queue.start("deploy")
    await beside(Worker(stage.client, task_queue=queue.queue, workflows=[OldDeploy]), at_wait(queue, before))
    after = await queue.start("deploy")

    async def finish_both() -> list:
        return [await finish(before), await finish(after)]

    outcomes = await beside(Worker(stage.client, task_queue=queue.queue, workflows=[NewDeploy]), finish_both())
    equal(outcomes, [[1, True], [2, True]])


@workflow.defn(name="patched")
class Patched(Finishing):
    def run(self, ctx):
        patched = yield ctx.patched("faster")
        yield ctx.schedule_activity("step", [1])
        return patched


@workflow.defn(name="patched")
class BeforePatch(Finishing):
    def run(self, ctx):
        yield ctx.schedule_activity("step", [1])
        return "old code"


async def a_run_from_before_a_patch_stays_unpatched(stage: Stage) -> None:
    queue = Stage(stage.client, unique("patches"))
    before = await queue.start("patched")
    scheduled = queue.until(before, "ActivityScheduled")
    await beside(Worker(stage.client, task_queue=queue.queue, workflows=[BeforePatch]), scheduled)
    after = await queue.start("patched")

    async def both() -> list:
        return [await result(before), await result(after)]

    newer = Worker(stage.client, task_queue=queue.queue, workflows=[Patched], activities=[step])
    equal(await beside(newer, both()), [False, True])


@activity.defn(name="step")
async def step(number: int) -> int:
    return number + 1


@workflow.defn(name="steps")
class Steps:
    def run(self, ctx):
        trail = []
        for number in range(STEPS):
            drawn = yield ctx.side_effect(lambda number=number: number * 100)
            trail.append((yield ctx.schedule_activity("step", [drawn])))
        return trail


async def check_worker_per_step(stage: Stage, name) -> None:
    """Runs the workflow with a fresh worker for each workflow task and each activity; `name` names the n-th."""
    queue = Stage(stage.client, unique("steps"))
    handle = await queue.start("steps")
    for number in range(STEPS):
        decides = Worker(stage.client, task_queue=queue.queue, worker_id=name(2 * number), workflows=[Steps])
        await beside(decides, queue.until(handle, "ActivityScheduled", number + 1))
        acts = Worker(stage.client, task_queue=queue.queue, worker_id=name(2 * number + 1), activities=[step])
        await beside(acts, queue.until(handle, "ActivityCompleted", number + 1))
    last = Worker(stage.client, task_queue=queue.queue, worker_id=name(2 * STEPS), workflows=[Steps])
    equal(await beside(last, result(handle)), [1, 101, 201])
    events = await queue.closed_history(handle)
    equal(len(payloads(events, "SideEffectRecorded")), STEPS)


async def a_new_worker_for_every_step(stage: Stage) -> None:
    prefix = unique("worker")
    await check_worker_per_step(stage, lambda number: f"{prefix}-{number}")


async def the_same_worker_id_for_every_step(stage: Stage) -> None:
    same = unique("worker")
    await check_worker_per_step(stage, lambda _: same)


if __name__ == "__main__":
    main(
        [
            a_side_effect_keeps_its_value_in_another_worker,
            a_run_keeps_its_version_when_newer_code_is_deployed,
            a_run_from_before_a_patch_stays_unpatched,
            a_new_worker_for_every_step,
            the_same_worker_id_for_every_step,
        ]
    )
