"""One queue, two languages: workflows of each call activities and workflows of the other.

The Rust worker (`interop.rs`) listens on the queue that LONGHAUL_QUEUE names.
"""

import asyncio
import os
import sys

from common import URL, Stage, beside, check_sound, equal, fails, result
from durable_workflow import ActivityFailed, Client, Worker, activity, workflow

QUEUE = os.environ["LONGHAUL_QUEUE"]

RICH = {"text": "grüße", "number": -3, "ratio": 0.5, "list": [1, None, True], "bytes": b"\x00\xff"}


@activity.defn(name="py_describe")
async def py_describe(order: dict, times: int) -> dict:
    return {"item": order["item"] * times, "tags": [*order["tags"], "seen by Python"]}


@activity.defn(name="py_refuse")
async def py_refuse(reason: str) -> None:
    raise ValueError(reason)


@workflow.defn(name="py_child")
class PyChild:
    def run(self, ctx, number):
        return number * 2


@workflow.defn(name="py_caller")
class PyCaller:
    """Calls what only the Rust worker has."""

    def run(self, ctx, name):
        greeting = yield ctx.schedule_activity("rust_greet", [name])
        echoed = yield ctx.schedule_activity("rust_echo", [RICH])
        doubled = yield ctx.start_child_workflow("rust_child", [21])
        try:
            yield ctx.schedule_activity("rust_refuse", ["too heavy"])
        except ActivityFailed as refusal:
            return {"greeting": greeting, "echoed": echoed, "doubled": doubled, "refused": str(refusal)}


async def stories(stage: Stage) -> None:
    handle = await stage.start("py_caller", "Python")
    answer = await result(handle)
    equal(answer["greeting"], "Rust greets Python")
    equal(answer["echoed"], RICH)
    equal(answer["doubled"], 42)
    assert "too heavy" in answer["refused"], answer
    check_sound(await stage.history(handle.workflow_id, handle.run_id))

    # A workflow of the Rust SDK, started, asked, changed and signalled from Python.
    handle = await stage.start("rust_caller", {"item": "tea", "tags": ["hot"]})
    equal(await handle.query("status", []), "waiting")
    changed = await handle.update("add", [40], wait_for="completed", wait_timeout_seconds=30)
    equal(changed["result"], 40)
    refused = await fails(Exception, handle.update("add", [-1], wait_for="completed", wait_timeout_seconds=30))
    assert "not negative" in str(refused), refused
    await handle.signal("go", ["now"])
    answer = await result(handle)
    equal(answer["described"], {"item": "teatea", "tags": ["hot", "seen by Python"]})
    equal(answer["child"], 10)
    equal([answer["total"], answer["told"]], [40, "now"])
    assert "no thanks" in answer["refused"], answer
    check_sound(await stage.history(handle.workflow_id, handle.run_id))


async def main() -> None:
    async with Client(URL) as client:
        worker = Worker(
            client, task_queue=QUEUE, workflows=[PyCaller, PyChild], activities=[py_describe, py_refuse]
        )
        await beside(worker, stories(Stage(client, QUEUE)))
    print("both languages understood each other")


asyncio.run(main())
sys.exit(0)
