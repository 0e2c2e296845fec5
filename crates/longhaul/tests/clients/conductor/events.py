"""Events, messages to runs, starts of other workflows, reused outputs, tags and rate limits, with the published client."""

from __future__ import annotations

from conductor.client.http.api.event_resource_api import EventResourceApi
from conductor.client.http.models import StartWorkflowRequest
from conductor.client.http.models.state_change_event import StateChangeConfig, StateChangeEvent, StateChangeEventType
from conductor.client.http.rest import ApiException
from conductor.client.orkes.models.metadata_tag import MetadataTag
from conductor.client.workflow.conductor_workflow import ConductorWorkflow
from conductor.client.workflow.task.event_task import ConductorEventTask, SqsEventTask
from conductor.client.workflow.task.human_task import HumanTask
from conductor.client.workflow.task.pull_workflow_messages_task import PullWorkflowMessagesTask
from conductor.client.workflow.task.simple_task import SimpleTask
from conductor.client.workflow.task.start_workflow_task import StartWorkflowTask
from conductor.client.workflow.task.wait_task import WaitTask

from common import EXECUTOR, METADATA, WORKFLOWS, Workers, ended, eventually, main, start, statuses, unique

EVENTS = EventResourceApi(WORKFLOWS.workflowResourceApi.api_client)


def build(*tasks, name: str | None = None, **outputs) -> str:
    """Registers a workflow of these tasks. Returns its name."""
    workflow = ConductorWorkflow(executor=EXECUTOR, name=name or unique("events"), version=1)
    for task in tasks:
        workflow >> task
    workflow.output_parameters(outputs)
    workflow.register(overwrite=True)
    return workflow.name


def handler(event: str, action: str, condition: str | None = None, **parameters) -> str:
    """Registers an event handler with one action. Returns its name."""
    name = unique("handler")
    body = {"name": name, "event": event, "active": True, "actions": [{"action": action, action: parameters}]}
    if condition:
        body |= {"condition": condition, "evaluatorType": "javascript"}
    EVENTS.add_event_handler(body)
    return name


def refused(status: int, reason: str, call) -> None:
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        assert f'"reason":"{reason}"' in str(error.body), error.body
        return
    raise AssertionError("it was not refused")


def runs_of(name: str) -> list:
    return WORKFLOWS.search(query=f"workflowType='{name}'").results


def an_event_completes_a_task_of_another_run() -> None:
    waiting = build(HumanTask("approval"), approved="${approval.output.by}")
    sender = build(tell("tell", "approved"))
    handler(
        f"conductor:{sender}:approved",
        "complete_task",
        workflowId="${workflow_id}",
        taskRefName="approval",
        output={"by": "${by}"},
    )
    run = start(waiting)
    start(sender, workflow_id=run, by="ann")
    workflow = WORKFLOWS.get_workflow(run, True)
    assert workflow.status == "COMPLETED", workflow
    assert workflow.output == {"approved": "ann"}, workflow.output


def tell(reference: str, event: str) -> ConductorEventTask:
    task = ConductorEventTask(reference, event)
    task.input_parameters |= {"workflow_id": "${workflow.input.workflow_id}", "by": "${workflow.input.by}"}
    return task


def a_condition_is_a_script() -> None:
    started = build(WaitTask("wait"))
    sender = build(tell("tell", "made"))
    handler(f"conductor:{sender}:made", "start_workflow", "$.by.length > 3 && !$.gone?.x", name=started, input={"by": "${by}"})
    start(sender, by="ann")
    assert runs_of(started) == []
    start(sender, by="anna")
    [run] = runs_of(started)
    assert WORKFLOWS.get_workflow(run.workflow_id).input["by"] == "anna"


def handlers_are_registered_and_removed() -> None:
    event = f"conductor:{unique('none')}:x"
    name = handler(event, "complete_task", workflowId="${id}", taskRefName="t")
    one = {"name": name, "event": event, "actions": [{"action": "complete_task", "complete_task": {"taskId": "x"}}]}
    refused(409, "definition_already_exists", lambda: EVENTS.add_event_handler(one))
    assert [one.name for one in EVENTS.get_event_handlers_for_event(event)] == [name]
    assert name in [one.name for one in EVENTS.get_event_handlers()]
    EVENTS.update_event_handler(one | {"active": True})
    wrong = one | {"name": unique("h"), "condition": "(("}
    refused(400, "definition_invalid", lambda: EVENTS.add_event_handler(wrong))
    EVENTS.remove_event_handler_status(name)
    assert EVENTS.get_event_handlers_for_event(event) == []
    refused(404, "definition_not_found", lambda: EVENTS.remove_event_handler_status(name))
    refused(404, "not_found", lambda: EVENTS.get_queue_config("kafka", "topic"))


def an_unknown_provider_fails_the_task() -> None:
    workflow = WORKFLOWS.get_workflow(start(build(SqsEventTask("tell", "queue"))), True)
    assert workflow.status == "FAILED"
    assert workflow.tasks[0].reason_for_incompletion.endswith("error: Unknown queue type sqs"), workflow.tasks[0]


def changes_of_a_task_are_events() -> None:
    work = unique("work")
    told = build(WaitTask("wait"))
    change = StateChangeConfig(StateChangeEventType.onSuccess, [StateChangeEvent("done", {"n": "${t.output.n}"})])
    workflow = ConductorWorkflow(executor=EXECUTOR, name=unique("changes"), version=1)
    workflow >> SimpleTask(work, "t")
    definition = workflow.to_workflow_def()
    definition.tasks[0].on_state_change = change
    METADATA.register_workflow_def(definition, overwrite=True)
    handler(f"conductor:{workflow.name}:done", "start_workflow", name=told, input={"n": "${n}", "status": "${status}"})
    with Workers(**{work: lambda _task: {"n": 5}}):
        assert ended(start(workflow.name)).status == "COMPLETED"
    [run] = eventually("the started run", lambda: runs_of(told))
    started = WORKFLOWS.get_workflow(run.workflow_id)
    assert (started.input["n"], started.input["status"]) == (5, "COMPLETED"), started.input


def messages_are_pulled_in_order() -> None:
    name = build(PullWorkflowMessagesTask("first", batch_size=2), PullWorkflowMessagesTask("second"))
    run = start(name)
    first = WORKFLOWS.send_message(run, {"n": 1})
    workflow = WORKFLOWS.get_workflow(run, True)
    assert statuses(workflow) == [("first", "COMPLETED"), ("second", "IN_PROGRESS")], statuses(workflow)
    output = workflow.tasks[0].output_data
    assert output["count"] == 1 and output["messages"][0]["id"] == first, output
    WORKFLOWS.send_message(run, {"n": 2})
    workflow = WORKFLOWS.get_workflow(run, True)
    assert workflow.status == "COMPLETED"
    assert workflow.tasks[1].output_data["messages"][0]["payload"] == {"n": 2}
    refused(409, "run_not_active", lambda: WORKFLOWS.send_message(run, {}))
    refused(404, "run_not_found", lambda: WORKFLOWS.send_message("none", {}))


def another_workflow_is_started() -> None:
    other = build(WaitTask("wait"))
    request = StartWorkflowRequest(name=other, input={"n": "${workflow.input.n}"})
    run = start(build(StartWorkflowTask("go", other, request), id="${go.output.workflowId}"), n=3)
    workflow = WORKFLOWS.get_workflow(run, True)
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    started = WORKFLOWS.get_workflow(workflow.output["id"])
    assert (started.status, started.input) == ("RUNNING", {"n": 3}), started
    missing = StartWorkflowTask("go", unique("none"), StartWorkflowRequest(name="x", input={}))
    workflow = WORKFLOWS.get_workflow(start(build(missing)), True)
    assert workflow.status == "FAILED"
    assert "No such workflow defined" in workflow.tasks[0].reason_for_incompletion


def an_output_is_used_again() -> None:
    work = unique("work")
    calls = []

    def count(task):
        calls.append(task.input_data)
        return {"calls": len(calls)}

    task = SimpleTask(work, "t")
    task.input_parameters = {"user": "${workflow.input.user}", "noise": "${workflow.input.noise}"}
    task.cache("${user}", 600)
    name = build(task)
    with Workers(**{work: count}):
        first = ended(start(name, user="ann", noise=1))
        second = ended(start(name, user="ann", noise=2))
        third = ended(start(name, user="bob"))
    outputs = [run.tasks[0].output_data for run in (first, second, third)]
    assert outputs == [{"calls": 1}, {"calls": 1}, {"calls": 2}], outputs


def tags_and_rate_limits() -> None:
    name, task = build(WaitTask("wait")), unique("task")
    METADATA.register_task_def({"name": task})
    for add, read, replace, remove, subject in (
        (METADATA.add_workflow_tag, METADATA.get_workflow_tags, METADATA.set_workflow_tags, METADATA.delete_workflow_tag, name),
        (METADATA.addTaskTag, METADATA.getTaskTags, METADATA.setTaskTags, METADATA.deleteTaskTag, task),
    ):
        shown = lambda: [(tag.key, tag.value, tag.type) for tag in read(subject)]
        add(MetadataTag("team", "blue"), subject)
        assert shown() == [("team", "blue", "METADATA")], shown()
        replace([MetadataTag("team", "red"), MetadataTag("cost", "high")], subject)
        remove(MetadataTag("team", "red"), subject)
        assert shown() == [("cost", "high", "METADATA")], shown()
        refused(404, "definition_not_found", lambda: read(unique("none")))
    assert METADATA.getWorkflowRateLimit(name) is None
    METADATA.setWorkflowRateLimit(5, name)
    METADATA.setWorkflowRateLimit(7, name)
    assert METADATA.getWorkflowRateLimit(name) == 7
    METADATA.removeWorkflowRateLimit(name)
    assert METADATA.getWorkflowRateLimit(name) is None


if __name__ == "__main__":
    main(
        an_event_completes_a_task_of_another_run,
        a_condition_is_a_script,
        handlers_are_registered_and_removed,
        an_unknown_provider_fails_the_task,
        changes_of_a_task_are_events,
        messages_are_pulled_in_order,
        another_workflow_is_started,
        an_output_is_used_again,
        tags_and_rate_limits,
    )
