"""Works on the load of the crash test until the test ends."""

from __future__ import annotations

import threading

from common import Workers


def work(task) -> dict:
    return {"reference": task.reference_task_name}


def fail_once(task) -> dict:
    if task.retry_count == 0:
        raise RuntimeError("the first attempt fails")
    return work(task)


if __name__ == "__main__":
    Workers(crash_work=work, crash_fails_once=fail_once)
    print("working", flush=True)
    threading.Event().wait()
