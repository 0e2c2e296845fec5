"""A worker process for the session tests. Prints `registered`, then one line for every activity it begins.

Its activities remember, in this process only, how often each session used them.
"""

import asyncio
import os
import signal

from common import URL
from durable_workflow import Client, Worker, activity

used: dict[str, int] = {}


@activity.defn(name="session.use")
async def use(session_id: str, step: int) -> list:
    """Counts in memory: only a worker that runs all steps counts up."""
    print(f"use {session_id} {step}", flush=True)
    used[session_id] = used.get(session_id, 0) + 1
    await asyncio.sleep(0.01)
    return [os.environ["LONGHAUL_WORKER_ID"], used[session_id]]


@activity.defn(name="session.hang")
async def hang(session_id: str) -> str:
    """Hangs in the worker whose id begins with `doomed`."""
    worker_id = os.environ["LONGHAUL_WORKER_ID"]
    print(f"hang {session_id}", flush=True)
    if worker_id.startswith("doomed"):
        await asyncio.sleep(3600)
    return worker_id


class AnnouncingClient(Client):
    async def register_worker(self, **registration):
        answer = await super().register_worker(**registration)
        print("registered", flush=True)
        return answer


async def main() -> None:
    async with AnnouncingClient(URL) as client:
        worker = Worker(
            client,
            task_queue=os.environ["LONGHAUL_QUEUE"],
            worker_id=os.environ["LONGHAUL_WORKER_ID"],
            activities=[use, hang],
            capabilities=["cache:local"],
            max_concurrent_worker_sessions=int(os.environ.get("LONGHAUL_SESSIONS", "100")),
        )
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: asyncio.ensure_future(worker.stop())
        )
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
