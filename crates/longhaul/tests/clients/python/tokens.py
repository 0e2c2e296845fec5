"""A server with one token per role: each opens its own plane and no other."""

from common import URL, Stage, beside, equal, fails, main, result, unique
from durable_workflow import Client, ServerError, Unauthorized, Worker, activity, workflow

WORKER, OPERATOR, ADMIN = "worker-secret", "operator-secret", "admin-secret"


@activity.defn(name="greet")
async def greet(name: str) -> str:
    return f"hello, {name}"


@workflow.defn(name="hello")
class Hello:
    def run(self, ctx, name):
        return (yield ctx.schedule_activity("greet", [name]))


async def a_worker_needs_only_the_worker_token(stage: Stage) -> None:
    async with Client(URL, worker_token=WORKER) as for_worker, Client(URL, control_token=OPERATOR) as for_operator:
        worker = Worker(for_worker, task_queue=stage.queue, workflows=[Hello], activities=[greet])

        async def hello() -> str:
            return await result(await Stage(for_operator, stage.queue).start("hello", "operator"))

        equal(await beside(worker, hello()), "hello, operator")


async def tokens_do_not_open_the_other_plane(stage: Stage) -> None:
    async with Client(URL, token=WORKER) as client:
        refused = await fails(ServerError, Stage(client, stage.queue).start("hello", "no-worker"))
        equal([refused.status, refused.reason()], [403, "forbidden"])
    async with Client(URL, token=OPERATOR) as client:
        refused = await fails(ServerError, client.poll_activity_task(worker_id="w", task_queue=stage.queue, timeout=0))
        equal([refused.status, refused.reason()], [403, "forbidden"])
        refused = await fails(ServerError, client.create_namespace(unique("blue")))
        equal(refused.status, 403)
    async with Client(URL, token=ADMIN) as client:
        await client.create_namespace(unique("blue"))


async def a_wrong_or_missing_token_is_refused(_: Stage) -> None:
    for token in ("nonsense", None):
        async with Client(URL, token=token) as client:
            await fails(Unauthorized, client.describe_workflow("hello"))
            await client.health()


if __name__ == "__main__":
    main(
        [
            a_worker_needs_only_the_worker_token,
            tokens_do_not_open_the_other_plane,
            a_wrong_or_missing_token_is_refused,
        ]
    )
