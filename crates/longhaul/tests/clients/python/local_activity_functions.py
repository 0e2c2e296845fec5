"""Local activities that run in processes of their own; they count their calls in files."""

import asyncio
import pathlib

from durable_workflow import NonRetryableError, activity


def calls(folder: str, key: str) -> int:
    """How often it was called so far."""
    return len(list(pathlib.Path(folder).glob(f"{key}.*")))


def count(folder: str, key: str) -> int:
    number = calls(folder, key) + 1
    pathlib.Path(folder, f"{key}.{number}").touch()
    return number


@activity.defn(name="count")
async def counted(folder: str, key: str) -> int:
    return count(folder, key)


@activity.defn(name="flaky")
async def flaky(folder: str, key: str, good: int) -> int:
    await activity.context().heartbeat({"try": activity.context().info.attempt_number})
    number = count(folder, key)
    if number < good:
        raise RuntimeError("not yet")
    return number


@activity.defn(name="decline")
async def decline() -> None:
    raise NonRetryableError("no funds")


@activity.defn(name="linger-once")
async def linger_once(folder: str, key: str) -> int:
    """The first call takes its time; later ones do not."""
    number = count(folder, key)
    if number == 1:
        await asyncio.sleep(120)
    return number


@activity.defn(name="crash.add")
async def added(left: int, right: int) -> int:
    return left + right


EVERY = [counted, flaky, decline, linger_once]
