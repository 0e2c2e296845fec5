"""Activities that run in processes of their own; they tell of themselves through files."""

import asyncio
import pathlib

from durable_workflow import activity


@activity.defn(name="linger")
async def linger(folder: str, key: str) -> str:
    pathlib.Path(folder, key).touch()
    await asyncio.sleep(120)
    return "lingered"


@activity.defn(name="clean")
async def clean(folder: str, key: str) -> str:
    pathlib.Path(folder, f"{key}-clean").touch()
    return "clean"


async def started(folder: str, key: str) -> None:
    while not pathlib.Path(folder, key).exists():
        await asyncio.sleep(0.02)
