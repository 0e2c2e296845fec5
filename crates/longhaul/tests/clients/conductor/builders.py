"""Further forms of the builders of the published client, and the settings of a task that change the flow."""

from __future__ import annotations

from conductor.client.http.models import StartWorkflowRequest, TaskDef, WorkflowDef, WorkflowTask
from conductor.client.worker.exception import NonRetryableException
from conductor.client.workflow.conductor_workflow import ConductorWorkflow
from conductor.client.workflow.task.do_while_task import DoWhileTask, ForEachTask
from conductor.client.workflow.task.fork_task import ForkTask
from conductor.client.workflow.task.javascript_task import JavascriptTask
from conductor.client.workflow.task.join_task import JoinTask
from conductor.client.workflow.task.set_variable_task import SetVariableTask
from conductor.client.workflow.task.simple_task import SimpleTask
from conductor.client.workflow.task.sub_workflow_task import InlineSubWorkflowTask, SubWorkflowTask
from conductor.client.workflow.task.terminate_task import TerminateTask, WorkflowStatus
from conductor.client.workflow.task.wait_task import WaitForDurationTask, WaitTask, WaitUntilTask

from common import EXECUTOR, METADATA, WORKFLOWS, Workers, ended, main, start, statuses, unique

# How long the server holds a call that waits for a run. The default of 10 s is too short for a machine that stalls.
WAIT_SECONDS = 60
ECHO = unique("echo")
FATAL = unique("fatal")


def echo(task):
    return {"reference": task.reference_task_name, **task.input_data}


def fatal(_task):
    raise NonRetryableException("no use")


def simple(reference: str, name: str = ECHO, **inputs) -> SimpleTask:
    task = SimpleTask(name, reference)
    task.input_parameters = inputs
    return task


def built(*tasks, **outputs) -> ConductorWorkflow:
    workflow = ConductorWorkflow(executor=EXECUTOR, name=unique("builders"), version=1).timeout_seconds(0)
    for task in tasks:
        workflow >> task
    return workflow.output_parameters(outputs)


def run_of(workflow: ConductorWorkflow, **input_data):
    """Registers the workflow. Returns a run of it that has ended."""
    workflow.register(overwrite=True)
    return ended(start(workflow.name, **input_data))


def completed(workflow: ConductorWorkflow, **input_data):
    run = run_of(workflow, **input_data)
    assert run.status == "COMPLETED", (run.status, run.reason_for_incompletion)
    return run


def references(run) -> list[str]:
    return [reference for reference, _ in statuses(run)]


def of_nodes(*nodes: WorkflowTask):
    """Returns a run of a workflow without a builder that has ended."""
    name = unique("builders")
    METADATA.register_workflow_def(WorkflowDef(name=name, version=1, tasks=list(nodes)), overwrite=True)
    return ended(start(name))


def a_loop_over_a_list() -> None:
    each = ForEachTask("each", [simple("body", item="${each.output.loopItem}")], "${workflow.input.list}")
    workflow = built(each, rounds="${each.output.iteration}")
    run = completed(workflow, list=["a", None, {"c": 1}])
    assert references(run) == ["each", "body__1", "body__2", "body__3"]
    assert [task.output_data["item"] for task in run.tasks[1:]] == ["a", None, {"c": 1}]
    assert run.output == {"rounds": 3}
    assert references(completed(workflow, list=[])) == ["each"]


def a_loop_with_a_condition() -> None:
    loop = DoWhileTask("loop", "$.body.n < $.most", [simple("body", n="${loop.output.iteration}")])
    loop.input_parameter("most", "${workflow.input.most}")
    run = completed(built(loop, simple("last")), most=3)
    assert references(run) == ["loop", "body__1", "body__2", "body__3", "last"]


def sub_workflows_without_registration() -> None:
    child = built(simple("c", n="${workflow.input.n}"), answer="${c.output.n}")
    inline = InlineSubWorkflowTask("inline", child)
    inline.input_parameters = {"n": 8}
    run = completed(built(inline, answer="${inline.output.answer}"))
    assert run.output == {"answer": 8}, run.output
    child.workflow_input({"n": 9})
    run = completed(built(child))
    assert run.tasks[0].task_type == "SUB_WORKFLOW"
    assert run.tasks[0].output_data["answer"] == 9, run.tasks[0].output_data


def a_sub_workflow_is_tried_again() -> None:
    failures = []

    def once(_task):
        if not failures:
            failures.append(1)
            raise NonRetryableException("the first child fails")
        return {"n": 5}

    task = unique("once")
    child = built(simple("c", task), n="${c.output.n}")
    child.register(overwrite=True)
    call = SubWorkflowTask("call", child.name, 1)
    call.name = unique("call")
    METADATA.register_task_def(TaskDef(name=call.name, retry_count=1, retry_delay_seconds=0))
    with Workers(**{task: once}):
        run = completed(built(call))
    assert statuses(run) == [("call", "FAILED"), ("call", "COMPLETED")]
    first, second = (WORKFLOWS.get_workflow(task.sub_workflow_id, False) for task in run.tasks)
    assert (first.status, second.status) == ("FAILED", "COMPLETED")
    assert "the first child fails" in run.tasks[0].reason_for_incompletion
    assert run.tasks[1].output_data["n"] == 5


def an_optional_task_may_fail() -> None:
    task = simple("may", FATAL)
    task.optional = True
    run = completed(built(task, simple("last")))
    assert statuses(run) == [("may", "COMPLETED_WITH_ERRORS"), ("last", "COMPLETED")]


def a_permissive_task_fails_the_run_at_its_end() -> None:
    nodes = [WorkflowTask(name=FATAL, task_reference_name="may", permissive=True), WorkflowTask(name=ECHO, task_reference_name="last")]
    run = of_nodes(*nodes)
    assert run.status == "FAILED", run.status
    assert statuses(run) == [("may", "FAILED_WITH_TERMINAL_ERROR"), ("last", "COMPLETED")]
    assert "no use" in run.reason_for_incompletion


def a_task_with_a_delay() -> None:
    run = of_nodes(WorkflowTask(name=ECHO, task_reference_name="t", start_delay=1))
    assert run.status == "COMPLETED"
    # Both moments come from the clock of the server.
    assert run.tasks[0].start_time - run.tasks[0].scheduled_time >= 1000, run.tasks[0]


def a_type_of_the_user() -> None:
    kind = unique("MY_TYPE")
    with Workers(**{kind: echo}):
        run = of_nodes(
            WorkflowTask(name="mine", task_reference_name="mine", type=kind, input_parameters={"n": 1}),
            WorkflowTask(name="noop", task_reference_name="noop", type="NOOP"),
        )
    assert run.status == "COMPLETED"
    assert (run.tasks[0].task_type, run.tasks[0].output_data["n"]) == (kind, 1)
    assert (run.tasks[1].task_type, run.tasks[1].output_data) == ("NOOP", {})


def branches_in_a_list() -> None:
    run = completed(built([[simple("a1"), simple("a2")], [simple("b")]], simple("last")))
    join = next(task for task in run.tasks if task.task_type == "JOIN")
    assert set(join.output_data) == {"a2", "b"}, join.output_data
    assert references(run)[-1] == "last"


def a_join_of_its_own() -> None:
    branches = [[simple("a")], [simple("b")]]
    run = completed(built(ForkTask("fork", branches), JoinTask("join", join_on=["a", "b"]), simple("last")))
    join = next(task for task in run.tasks if task.task_type == "JOIN")
    assert set(join.output_data) == {"a", "b"}, join.output_data


def forms_of_waiting() -> None:
    past = "2024-01-01 00:00 UTC"
    run = completed(built(WaitUntilTask("until", past), WaitTask("alias", wait_until=past), WaitForDurationTask("second", 1)))
    assert statuses(run) == [("until", "COMPLETED"), ("alias", "COMPLETED"), ("second", "COMPLETED")]
    assert run.tasks[2].end_time - run.tasks[2].scheduled_time >= 1000, run.tasks[2]


def values_of_the_definition() -> None:
    double = JavascriptTask("double", "$.n * 2", {"n": "${workflow.input.n}"})
    keep = SetVariableTask("keep").input_parameter("total", "${double.output.result}")
    workflow = built(double, keep, total="${workflow.variables.total}", first="${workflow.variables.first}", n="${workflow.input.n}")
    workflow.variables({"first": "yes", "total": 0}).input_template({"n": 21})
    assert completed(workflow).output == {"total": 42, "first": "yes", "n": 21}
    assert completed(workflow, n=1).output == {"total": 2, "first": "yes", "n": 1}


def an_end_before_the_end() -> None:
    end = TerminateTask("end", WorkflowStatus.COMPLETED, "early")
    end.input_parameter("workflowOutput", {"n": "${workflow.input.n}"})
    run = completed(built(end, simple("never")), n=3)
    assert references(run) == ["end"]
    assert run.output == {"n": 3}, run.output
    assert run.reason_for_incompletion == "early"


def forms_of_starting() -> None:
    workflow = built(simple("t", n="${workflow.input.n}"), n="${t.output.n}")
    # The builder sends the definition with the request, so nothing is registered yet.
    run = workflow.execute({"n": 1}, wait_for_seconds=WAIT_SECONDS)
    assert (run.status, run.output) == ("COMPLETED", {"n": 1}), run
    assert ended(workflow.start_workflow_with_input({"n": 2}, correlation_id="c")).output == {"n": 2}
    assert ended(workflow.start_workflow(StartWorkflowRequest(input={"n": 3}))).output == {"n": 3}
    workflow.register(overwrite=True)
    requests = [StartWorkflowRequest(name=workflow.name, input={"n": n}) for n in range(5)]
    assert [ended(workflow_id).output["n"] for workflow_id in EXECUTOR.start_workflows(*requests)] == list(range(5))
    answer = EXECUTOR.execute(workflow.name, 1, {"n": 4}, wait_for_seconds=WAIT_SECONDS, request_id="request-4")
    assert (answer.status, answer.output, answer.request_id) == ("COMPLETED", {"n": 4}, "request-4"), answer


SCENARIOS = [
    a_loop_over_a_list,
    a_loop_with_a_condition,
    sub_workflows_without_registration,
    a_sub_workflow_is_tried_again,
    an_optional_task_may_fail,
    a_permissive_task_fails_the_run_at_its_end,
    a_task_with_a_delay,
    a_type_of_the_user,
    branches_in_a_list,
    a_join_of_its_own,
    forms_of_waiting,
    values_of_the_definition,
    an_end_before_the_end,
    forms_of_starting,
]

with Workers(**{ECHO: echo, FATAL: fatal}):
    main(*SCENARIOS)
