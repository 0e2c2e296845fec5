"""Two namespaces on one server do not see each other."""

from common import URL, Stage, beside, equal, fails, main, result, unique
from durable_workflow import Client, NamespaceNotFound, Worker, WorkflowNotFound, activity, workflow


@workflow.defn(name="where")
class Where:
    def run(self, ctx):
        return (yield ctx.schedule_activity("where", []))


def worker(client: Client, queue: str, worker_id: str) -> Worker:
    @activity.defn(name="where")
    async def where() -> str:
        return client.namespace

    return Worker(client, task_queue=queue, worker_id=worker_id, workflows=[Where], activities=[where])


async def namespaces_do_not_see_each_other(stage: Stage) -> None:
    name = unique("blue")
    await stage.client.create_namespace(name)
    async with Client(URL, namespace=name) as blue:
        # The same id, queue and worker id on both sides.
        there = Stage(blue, stage.queue)
        workflow_id, worker_id = unique("same"), unique("worker")

        async def both() -> list[str]:
            handles = [await side.start("where", workflow_id=workflow_id) for side in (stage, there)]
            return [await result(handle) for handle in handles]

        answers = beside(worker(blue, stage.queue, worker_id), both())
        equal(await beside(worker(stage.client, stage.queue, worker_id), answers), ["default", name])

        only_blue = await there.start("where")
        await fails(WorkflowNotFound, stage.client.describe_workflow(only_blue.workflow_id))
        listed = await stage.client.list_workflows(workflow_type="where")
        assert only_blue.workflow_id not in [found.workflow_id for found in listed.executions]


async def an_unknown_namespace_is_refused(stage: Stage) -> None:
    async with Client(URL, namespace=unique("nowhere")) as client:
        await fails(NamespaceNotFound, Stage(client, stage.queue).start("where"))


if __name__ == "__main__":
    main([namespaces_do_not_see_each_other, an_unknown_namespace_is_refused])
