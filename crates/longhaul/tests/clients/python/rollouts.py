"""Builds of Python workers: drained, resumed, promoted, pinned."""

from __future__ import annotations

from common import Stage, beside, equal, eventually, fails, main, payloads, result, unique
from durable_workflow import ServerError, Worker, workflow


def build(client, queue: str, build_id: str | None, worker_id: str | None = None) -> Worker:
    """A worker whose workflow answers with the worker's build."""

    @workflow.defn(name="which")
    class Which:
        def run(self, ctx):
            return build_id

    options = {} if build_id is None else {"build_id": build_id}
    return Worker(client, task_queue=queue, worker_id=worker_id or unique("worker"), workflows=[Which], **options)


async def registered(stage: Stage, *build_ids: str) -> None:
    """Waits until every build has a worker."""

    async def look() -> bool:
        rollout = await stage.client.list_task_queue_build_ids(stage.queue)
        return set(build_ids) <= {cohort.build_id for cohort in rollout.build_ids}

    await eventually(f"workers of {build_ids}", look)


def own_queue(stage: Stage) -> Stage:
    return Stage(stage.client, unique("queue"))


async def a_drained_worker_keeps_asking_and_works_again_when_it_is_resumed(stage: Stage) -> None:
    stage = own_queue(stage)
    client, worker_id = stage.client, unique("worker")

    async def story() -> None:
        await registered(stage, "a")
        drained = await client.drain_task_queue_build_id(stage.queue, "a")
        equal(drained.drain_intent, "draining")
        equal((await client.drain_task_queue_build_id(stage.queue, "a")).drained_at, drained.drained_at)
        described = await client.describe_worker(worker_id)
        equal(described.status, "draining")
        waiting = await stage.start("which", build_id="a")
        resumed = await client.resume_task_queue_build_id(stage.queue, "a")
        equal((resumed.drain_intent, resumed.drained_at), ("active", None))
        equal(await result(waiting), "a")

    async def both() -> None:
        # A worker without a build, so that not every cohort drains and the queue takes the start.
        await beside(build(client, stage.queue, None), story())

    await beside(build(client, stage.queue, "a", worker_id), both())


async def a_drained_queue_takes_no_start(stage: Stage) -> None:
    stage = own_queue(stage)

    async def story() -> None:
        await registered(stage, "a")
        await stage.client.drain_task_queue_build_id(stage.queue, "a")
        refused = await fails(ServerError, stage.start("which"))
        equal(refused.status, 409)
        equal(refused.reason(), "task_queue_draining")
        await stage.client.resume_task_queue_build_id(stage.queue, "a")
        equal(await result(await stage.start("which")), "a")

    await beside(build(stage.client, stage.queue, "a"), story())


async def new_runs_go_to_the_promoted_build(stage: Stage) -> None:
    stage = own_queue(stage)
    client = stage.client

    async def story() -> None:
        await registered(stage, "a", "b")
        for chosen in ("a", "b", "a"):
            promoted = await client.promote_task_queue_build_id(stage.queue, chosen)
            assert promoted.new_start_selected
            equal(promoted.deployment["state"], "promoted")
            for _ in range(3):
                handle = await stage.start("which")
                equal(await result(handle), chosen)
                started = payloads(await stage.history(handle.workflow_id, handle.run_id), "WorkflowStarted")
                equal(started[0]["compatibility"], chosen)
        equal(await result(await stage.start("which", build_id="b")), "b")
        rollout = await client.list_task_queue_build_ids(stage.queue)
        selected = {cohort.build_id: cohort.new_start_selected for cohort in rollout.build_ids}
        equal(selected, {"a": True, "b": False})

    async def both() -> None:
        await beside(build(client, stage.queue, "b"), story())

    await beside(build(client, stage.queue, "a"), both())


async def an_unknown_build_is_not_promoted(stage: Stage) -> None:
    refused = await fails(ServerError, stage.client.promote_task_queue_build_id(unique("queue"), "x"))
    equal((refused.status, refused.reason()), (409, "unknown_deployment"))


if __name__ == "__main__":
    main(
        [
            a_drained_worker_keeps_asking_and_works_again_when_it_is_resumed,
            a_drained_queue_takes_no_start,
            new_runs_go_to_the_promoted_build,
            an_unknown_build_is_not_promoted,
        ]
    )
