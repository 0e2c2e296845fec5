"""Worker sessions: explicit and implicit, over several worker processes, lost and taken over."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from urllib.parse import quote

from common import URL, Stage, beside, equal, eventually, fails, main, payloads, result, unique
from durable_workflow import Worker, activity, workflow
from durable_workflow.errors import ServerError
from durable_workflow.worker_session import WorkerSessionOptions
from durable_workflow.workflow import ActivityRetryPolicy

STEPS = 4
running: dict[str, int] = {}
most_running: dict[str, int] = {}


async def seen(session_id: str) -> dict | None:
    """The session as an operator sees it."""

    def look() -> dict | None:
        request = urllib.request.Request(
            f"{URL}/api/worker-sessions/{quote(session_id, safe='')}",
            headers={"X-Durable-Workflow-Control-Plane-Version": "2"},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["session"]
        except urllib.error.HTTPError as error:
            equal(error.code, 404)
            return None

    return await asyncio.to_thread(look)


@activity.defn(name="session.where")
async def where(session_id: str) -> str:
    return session_id


@activity.defn(name="session.one-at-a-time")
async def one_at_a_time(session_id: str, number: int) -> int:
    running[session_id] = running.get(session_id, 0) + 1
    most_running[session_id] = max(most_running.get(session_id, 0), running[session_id])
    await asyncio.sleep(0.02)
    running[session_id] -= 1
    return number


@workflow.defn(name="session.steps")
class Steps:
    """Uses one session for all steps."""

    def run(self, ctx, session_id, options):
        session = WorkerSessionOptions(session_id, **options)
        done = []
        for step in range(STEPS):
            done.append((yield ctx.schedule_activity("session.use", [session_id, step], worker_session=session)))
        return done


@workflow.defn(name="session.hangs")
class Hangs:
    def run(self, ctx, session_id):
        session = WorkerSessionOptions(session_id, requirements=("cache:local",), lease_seconds=1)
        return (
            yield ctx.schedule_activity(
                "session.hang",
                [session_id],
                worker_session=session,
                retry_policy=ActivityRetryPolicy(max_attempts=3, backoff_seconds=[0]),
                start_to_close_timeout=2,
            )
        )


@workflow.defn(name="session.parallel")
class Parallel:
    def run(self, ctx, session_id, count):
        session = WorkerSessionOptions(session_id)
        calls = [
            ctx.schedule_activity("session.one-at-a-time", [session_id, n], worker_session=session)
            for n in range(count)
        ]
        return (yield calls)


@workflow.defn(name="session.waits")
class Waits:
    def run(self, ctx, session_id):
        session = WorkerSessionOptions(session_id, create_if_missing=False)
        return (yield ctx.schedule_activity("session.where", [session_id], worker_session=session))


WORKFLOWS = [Steps, Hangs, Parallel, Waits]


class Process:
    """A worker in a process of its own."""

    def __init__(self, queue: str, worker_id: str, sessions: int = 100) -> None:
        self.queue, self.worker_id, self.sessions = queue, worker_id, sessions

    async def __aenter__(self) -> "Process":
        environment = {
            **os.environ,
            "LONGHAUL_QUEUE": self.queue,
            "LONGHAUL_WORKER_ID": self.worker_id,
            "LONGHAUL_SESSIONS": str(self.sessions),
        }
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "session_worker.py")
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, program, stdout=asyncio.subprocess.PIPE, env=environment
        )
        equal(await self.line(), "registered")
        return self

    async def line(self) -> str:
        return (await self.process.stdout.readline()).decode().strip()

    async def __aexit__(self, *_) -> None:
        if self.process.returncode is None:
            self.process.terminate()
        while await self.line():
            pass
        await self.process.wait()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


async def an_explicit_session_lives_and_ends(stage: Stage) -> None:
    queue = Stage(stage.client, unique("explicit"))
    session_id = unique("gpu/1 %")
    worker = Worker(
        stage.client, task_queue=queue.queue, workflows=WORKFLOWS, activities=[where], capabilities=["gpu:a100"]
    )
    options = WorkerSessionOptions(session_id, requirements=("gpu:a100",), lease_seconds=60)

    async def live() -> None:
        handle = worker.worker_session(options)
        waiting = await queue.start("session.waits", session_id)
        await queue.until(waiting, "ActivityScheduled")
        await eventually("the registration", lambda: registered(queue, worker.worker_id))
        created = await handle.create()
        equal((created["outcome"], created["session"]["requirements"]), ("created", ["gpu:a100"]))
        equal(await result(waiting), session_id)
        renewed = await handle.renew(90)
        equal(renewed["outcome"], "heartbeat_recorded")
        equal(renewed["session"]["ttl_expires_at"], created["session"]["ttl_expires_at"])
        closed = await handle.close("done")
        equal((closed["outcome"], closed["session"]["status"]), ("closed", "closed"))
        equal(await handle.close("again"), closed)
        error = await fails(ServerError, handle.create())
        assert "session_closed" in str(error) or error.reason == "session_closed", error

    await beside(worker, live())


async def registered(stage: Stage, worker_id: str) -> bool:
    return any(known.worker_id == worker_id for known in (await stage.client.list_workers(task_queue=stage.queue)).workers)


async def an_implicit_session_is_closed_by_the_workers_end(stage: Stage) -> None:
    queue = Stage(stage.client, unique("implicit"))
    session_id = unique("implicit")
    worker = Worker(stage.client, task_queue=queue.queue, workflows=WORKFLOWS, activities=[one_at_a_time])

    async def live() -> str:
        handle = await queue.start("session.parallel", session_id, 2)
        equal(await result(handle), [0, 1])
        session = await seen(session_id)
        equal((session["status"], session["lease_owner"]), ("active", worker.worker_id))
        events = await queue.closed_history(handle)
        recorded = payloads(events, "ActivityScheduled")[0]["activity"]["worker_session"]
        assert "queue" not in recorded or recorded["queue"] is None, recorded
        return worker.worker_id

    owner = await beside(worker, live())
    session = await seen(session_id)
    equal((session["status"], session["lease_owner"], session["failure_reason"]), ("closed", owner, None))


async def a_parallel_group_in_one_session_runs_one_by_one(stage: Stage) -> None:
    queue, session_id = Stage(stage.client, unique("parallel")), unique("parallel")
    worker = Worker(stage.client, task_queue=queue.queue, workflows=WORKFLOWS, activities=[one_at_a_time])

    async def live() -> None:
        equal((await queue.run("session.parallel", session_id, 12))[0], list(range(12)))

    await beside(worker, live())
    equal(most_running[session_id], 1)


async def every_session_stays_in_one_of_three_processes(stage: Stage) -> None:
    queue = Stage(stage.client, unique("three"))
    workflows = Worker(stage.client, task_queue=queue.queue, workflows=WORKFLOWS)
    # None takes more than half, so that all of them work.
    async with Process(queue.queue, unique("w"), 9), Process(queue.queue, unique("w"), 9), Process(queue.queue, unique("w"), 9):

        async def live() -> list:
            handles = [
                await queue.start("session.steps", unique("s"), {"requirements": ["cache:local"]}) for _ in range(18)
            ]
            return await asyncio.gather(*(result(handle) for handle in handles))

        outcomes = await beside(workflows, live())
    for steps in outcomes:
        equal(len({worker_id for worker_id, _ in steps}), 1)
        equal([count for _, count in steps], [1, 2, 3, 4])
    assert len({steps[0][0] for steps in outcomes}) >= 2, outcomes


async def a_killed_holder_is_replaced(stage: Stage) -> None:
    queue = Stage(stage.client, unique("killed"))
    session_id = unique("killed")
    workflows = Worker(stage.client, task_queue=queue.queue, workflows=WORKFLOWS)
    async with Process(queue.queue, unique("doomed")) as doomed:

        async def live() -> None:
            handle = await queue.start("session.hangs", session_id)
            equal(await doomed.line(), f"hang {session_id}")
            before = await seen(session_id)
            equal(before["lease_owner"], doomed.worker_id)
            await doomed.kill()
            async with Process(queue.queue, unique("heir")) as heir:
                equal(await result(handle), heir.worker_id)
                after = await seen(session_id)
                equal(after["lease_owner"], heir.worker_id)
                # Its lease of one second may have passed since.
                assert after["status"] in ("active", "expired"), after["status"]
                equal(after["ttl_expires_at"], before["ttl_expires_at"])
            events = await queue.closed_history(handle)
            equal(len(payloads(events, "ActivityCompleted")), 1)
            assert len(payloads(events, "ActivityStarted")) >= 2

        await beside(workflows, live())


if __name__ == "__main__":
    main(
        [
            an_explicit_session_lives_and_ends,
            an_implicit_session_is_closed_by_the_workers_end,
            a_parallel_group_in_one_session_runs_one_by_one,
            every_session_stays_in_one_of_three_processes,
            a_killed_holder_is_replaced,
        ]
    )
