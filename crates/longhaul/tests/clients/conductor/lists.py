"""Lists of workflows with the published client: search, correlation ids, ids of open runs.

The client does not show how many results there are on all pages.
"""

from __future__ import annotations

import time

from conductor.client.http.models import StartWorkflowRequest, WorkflowDef, WorkflowTask
from conductor.client.http.models.correlation_ids_search_request import CorrelationIdsSearchRequest
from conductor.client.http.rest import ApiException
from conductor.client.workflow.conductor_workflow import ConductorWorkflow
from conductor.client.workflow.task.simple_task import SimpleTask

from common import EXECUTOR, METADATA, TASKS, WORKFLOWS, ended, main, start, unique


def register(task_type: str, version: int = 1, name: str | None = None) -> str:
    """Registers a workflow of one task that needs no worker. Returns its name."""
    name = name or unique("lists")
    node = WorkflowTask(name="step", task_reference_name="step", type=task_type)
    METADATA.register_workflow_def(WorkflowDef(name=name, version=version, tasks=[node]), overwrite=True)
    return name


def start_correlated(name: str, correlation_id: str) -> str:
    return WORKFLOWS.start_workflow(StartWorkflowRequest(name=name, correlation_id=correlation_id))


def ids(workflows) -> list[str]:
    return [workflow.workflow_id for workflow in workflows]


def search_by_type_and_status() -> None:
    slow, quick = register("HUMAN"), register("NOOP")
    open_ids = [start(slow, n=number) for number in range(3)]
    done = start(quick, customer="Ümit")
    ended(done)
    found = WORKFLOWS.search(query=f"workflowType='{slow}' AND status='RUNNING'")
    assert ids(found.results) == open_ids[::-1], found
    assert {summary.workflow_type for summary in found.results} == {slow}
    found = WORKFLOWS.search(query=f"workflowType IN ({slow},{quick}) AND status IN (COMPLETED)")
    assert ids(found.results) == [done], found
    summary = found.results[0]
    assert summary.status == "COMPLETED" and summary.version == 1, summary
    assert summary.input == '{"customer":"Ümit"}' and summary.output == "{}", summary
    assert summary.start_time.endswith("Z") and summary.end_time.endswith("Z"), summary
    # What one commit wrote is found by the next request.
    WORKFLOWS.terminate_workflow(open_ids[0], reason="enough")
    found = WORKFLOWS.search(query=f'workflowId="{open_ids[0]}"')
    assert found.results[0].status == "TERMINATED", found
    assert found.results[0].reason_for_incompletion == "enough", found
    WORKFLOWS.pause_workflow(open_ids[1])
    assert ids(WORKFLOWS.search(query=f"workflowType={slow} AND status=PAUSED").results) == [open_ids[1]]


def search_in_pages() -> None:
    name = register("NOOP")
    before = int(time.time() * 1000) - 60_000
    started = [start(name) for _ in range(7)]
    query = f"workflowType='{name}' AND startTime > {before}"
    pages = [WORKFLOWS.search(start=first, size=3, query=query) for first in (0, 3, 6, 9)]
    assert [len(page.results) for page in pages] == [3, 3, 1, 0], pages
    joined = [workflow_id for page in pages for workflow_id in ids(page.results)]
    assert sorted(joined) == sorted(started)
    assert WORKFLOWS.search(size=0, query=query).results == []


def search_by_free_text() -> None:
    word = unique("word")
    name = register("NOOP")
    wanted = start(name, note=f"before {word.upper()} after")
    start(name, note="something else")
    found = WORKFLOWS.search(free_text=word)
    assert ids(found.results) == [wanted], found
    found = EXECUTOR.search(query=f"workflowType={name}", free_text="*", start=0, size=10)
    assert len(found.results) == 2, found
    assert len(WORKFLOWS.search().results) >= 2


def a_wrong_query_is_refused() -> None:
    for query, part in [("workflowTyp='x'", "`workflowTyp` is not a field"), ("status=", "Incorrectly formatted query string")]:
        try:
            WORKFLOWS.search(query=query)
        except ApiException as error:
            assert error.status == 400 and part in error.message, error
        else:
            raise AssertionError(f"{query} was accepted")
    try:
        WORKFLOWS.search(size=5001)
    except ApiException as error:
        assert error.status == 400, error
    else:
        raise AssertionError("a page of 5001 was accepted")


def runs_by_correlation_id() -> None:
    slow, quick = register("HUMAN"), register("NOOP")
    one, two = unique("c"), unique("c/ä")
    first, second = start_correlated(slow, one), start_correlated(slow, one)
    other, done = start_correlated(slow, two), start_correlated(quick, one)
    ended(done)
    found = WORKFLOWS.get_by_correlation_ids(slow, [one, two, "none"])
    assert set(found) == {one, two, "none"}, found
    assert ids(found[one]) == [second, first] and ids(found[two]) == [other] and found["none"] == [], found
    assert found[one][0].tasks == [] and found[one][0].correlation_id == one
    assert WORKFLOWS.get_by_correlation_ids(quick, [one]) == {one: []}
    found = WORKFLOWS.get_by_correlation_ids(quick, [one], include_completed=True, include_tasks=True)
    assert ids(found[one]) == [done] and len(found[one][0].tasks) == 1, found
    batch = CorrelationIdsSearchRequest(correlation_ids=[one, two], workflow_names=[slow, quick])
    found = WORKFLOWS.get_by_correlation_ids_in_batch(batch)
    assert ids(found[one]) == [second, first] and ids(found[two]) == [other], found
    found = WORKFLOWS.get_by_correlation_ids_in_batch(batch, include_completed=True, include_tasks=True)
    assert ids(found[one]) == [done, second, first], found


def ids_of_open_runs() -> None:
    name = register("HUMAN")
    register("HUMAN", version=2, name=name)
    api = WORKFLOWS.workflowResourceApi
    older = WORKFLOWS.start_workflow(StartWorkflowRequest(name=name, version=1))
    newer = WORKFLOWS.start_workflow(StartWorkflowRequest(name=name, version=2))
    assert api.get_running_workflow(name) == [older]
    assert api.get_running_workflow(name, version=2) == [newer]
    WORKFLOWS.terminate_workflow(older)
    assert api.get_running_workflow(name) == []
    now = int(time.time() * 1000)
    assert api.get_running_workflow(name, start_time=now - 60_000, end_time=now + 60_000) == [older]


def tasks_are_searched() -> None:
    work = unique("work")
    workflow = ConductorWorkflow(executor=EXECUTOR, name=unique("tasks"), version=1)
    workflow >> SimpleTask(work, "t")
    workflow.register(overwrite=True)
    first, second = start(workflow.name, n=1), start(workflow.name, n=2)
    TASKS.update_task_by_ref_name(first, "t", "COMPLETED", {"k": 5})
    api = TASKS.taskResourceApi
    found = api.search1(query=f"taskType='{work}'", start=0, size=10)
    assert found.total_hits == 2, found
    assert {task.workflow_id for task in found.results} == {first, second}
    done = api.search_v21(query=f"workflowType='{workflow.name}' AND status IN (COMPLETED)", sort="startTime:ASC")
    [task] = done.results
    assert (task.workflow_instance_id, task.output_data["result"]) == (first, {"k": 5}), task
    assert api.requeue_pending_task(work) == "1"
    try:
        api.search1(query="nothing = 1")
    except ApiException as error:
        assert error.status == 400, error
        assert "`nothing` is not a field of tasks" in str(error.body), error.body
    else:
        raise AssertionError("an unknown field was accepted")


main(
    tasks_are_searched,
    search_by_type_and_status,
    search_in_pages,
    search_by_free_text,
    a_wrong_query_is_refused,
    runs_by_correlation_id,
    ids_of_open_runs,
)
