"""Works on the tasks of a fleet until the test ends, and prints the id of each task that it executes."""

from __future__ import annotations

import threading

from common import Workers


def work(task) -> dict:
    print(f"executed {task.task_id}", flush=True)
    return {"by": "python"}


if __name__ == "__main__":
    Workers(fleet_work=work)
    print("working", flush=True)
    threading.Event().wait()
