"""Message streams: in order, once, across continue-as-new, with the server's own bookkeeping."""

import httpx

from common import URL, Stage, equal, eventually, fails, main, payloads, result
from durable_workflow import ServerError, workflow

HEADERS = {"X-Durable-Workflow-Control-Plane-Version": "2"}


@workflow.defn(name="reader")
class Reader:
    """Reads `count` messages one at a time, continuing as new after each `per_run`."""

    def run(self, ctx, count, per_run, read):
        stream = ctx.message_stream("orders")
        for _ in range(min(count, per_run)):
            message = yield from stream.receive_one()
            read = [*read, [message.position, message.arguments[0]]]
        if count > per_run:
            return ctx.continue_as_new(count - per_run, per_run, read)
        return read


@workflow.defn(name="batches")
class Batches:
    def run(self, ctx, count):
        left, right = ctx.message_stream("left"), ctx.message_stream("right")
        total = []
        while len(total) < count:
            total += [message.arguments[0] for message in (yield from left.receive(100))]
        final = yield from right.receive_one()
        return [total, final.arguments[0]]


async def stream_of(workflow_id: str, name: str) -> dict:
    async with httpx.AsyncClient(base_url=URL, headers=HEADERS) as client:
        response = await client.get(f"/api/workflows/{workflow_id}/message-streams/{name}")
        return response.json()["stream"]


async def messages_are_read_in_order(stage: Stage) -> None:
    handle = await stage.start("reader", 5, 5, [])
    for number in range(5):
        appended = await stage.client.append_message_stream(
            handle.workflow_id, "orders", f"message-{number}", args=[number]
        )
        equal([appended["accepted"], appended["position"], appended["duplicate"]], [True, number + 1, False])
    equal(await result(handle), [[number + 1, number] for number in range(5)])
    stream = await stream_of(handle.workflow_id, "orders")
    equal(stream["last_position"], 5)


async def the_same_message_is_taken_once(stage: Stage) -> None:
    handle = await stage.start("reader", 2, 2, [])
    append = stage.client.append_message_stream
    first = await append(handle.workflow_id, "orders", "a", args=["a"])
    again = await append(handle.workflow_id, "orders", "a", args=["a"])
    equal([first["position"], again["position"], again["duplicate"]], [1, 1, True])
    conflict = await fails(ServerError, append(handle.workflow_id, "orders", "a", args=["other"]))
    equal([conflict.status, conflict.body["reason"], conflict.body["accepted"]], [409, "message_identity_conflict", False])
    await append(handle.workflow_id, "orders", "b", args=["b"])
    equal(await result(handle), [[1, "a"], [2, "b"]])
    stream = await stream_of(handle.workflow_id, "orders")
    equal([stream["last_position"], stream["duplicate_count"]], [2, 1])
    closed = await fails(ServerError, append(handle.workflow_id, "orders", "c", args=["c"]))
    equal([closed.status, closed.body["reason"]], [409, "run_not_active"])


async def unread_messages_go_with_a_workflow_that_continues(stage: Stage) -> None:
    handle = await stage.start("reader", 6, 2, [])
    for number in range(6):
        await stage.client.append_message_stream(handle.workflow_id, "orders", f"m{number}", args=[number])

    async def third_run():
        described = await stage.client.describe_workflow(handle.workflow_id)
        return described if described.status == "completed" and described.run_id != handle.run_id else None

    described = await eventually("the last run is closed", third_run)
    equal(described.output, [[number + 1, number] for number in range(6)])
    events = await stage.history(handle.workflow_id, described.run_id)
    cursors = payloads(events, "MessageCursorAdvanced")
    equal([cursors[0]["previous_position"] >= 2, cursors[-1]["new_position"] <= 6], [True, True])


async def streams_are_read_in_batches_beside_each_other(stage: Stage) -> None:
    handle = await stage.start("batches", 20)
    await stage.client.append_message_stream(handle.workflow_id, "right", "last", args=["done"])
    for number in range(20):
        await stage.client.append_message_stream(handle.workflow_id, "left", str(number), args=[number])
    equal(await result(handle), [list(range(20)), "done"])


if __name__ == "__main__":
    main(
        [
            messages_are_read_in_order,
            the_same_message_is_taken_once,
            unread_messages_go_with_a_workflow_that_continues,
            streams_are_read_in_batches_beside_each_other,
        ],
        workflows=[Reader, Batches],
    )
