"""Every operator that needs no call to the outside, from the builders of the published client."""

from __future__ import annotations

from conductor.client.workflow.conductor_workflow import ConductorWorkflow
from conductor.client.workflow.task.do_while_task import LoopTask
from conductor.client.workflow.task.dynamic_fork_task import DynamicForkTask
from conductor.client.workflow.task.dynamic_task import DynamicTask
from conductor.client.workflow.task.fork_task import ForkTask
from conductor.client.workflow.task.human_task import HumanTask
from conductor.client.workflow.task.inline import InlineTask
from conductor.client.workflow.task.join_task import JoinTask
from conductor.client.workflow.task.set_variable_task import SetVariableTask
from conductor.client.workflow.task.simple_task import SimpleTask
from conductor.client.workflow.task.sub_workflow_task import SubWorkflowTask
from conductor.client.workflow.task.switch_task import SwitchTask
from conductor.client.workflow.task.terminate_task import TerminateTask, WorkflowStatus
from conductor.client.workflow.task.wait_task import WaitTask

from common import EXECUTOR, TASKS, WORKFLOWS, Workers, ended, eventually, main, start, statuses, unique


def build(*tasks, **outputs) -> str:
    """Registers a workflow of these tasks. Returns its name."""
    workflow = ConductorWorkflow(executor=EXECUTOR, name=unique("operators"), version=1)
    for task in tasks:
        workflow >> task
    workflow.output_parameters(outputs)
    workflow.register(overwrite=True)
    return workflow.name


def simple(name: str, reference: str, **inputs) -> SimpleTask:
    task = SimpleTask(name, reference)
    task.input_parameters = inputs
    return task


def echo(task):
    return {"reference": task.reference_task_name, **task.input_data}


def tasks_in_sequence() -> None:
    first, second = unique("first"), unique("second")
    name = build(
        simple(first, "a", n="${workflow.input.n}"),
        simple(second, "b", text="n=${a.output.n}", missing="${a.output.nothing}"),
        text="${b.output.text}",
        missing="${b.output.missing}",
    )
    with Workers(**{first: echo, second: echo}):
        workflow = ended(start(name, n=3))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.output == {"text": "n=3", "missing": None}, workflow.output
    assert statuses(workflow) == [("a", "COMPLETED"), ("b", "COMPLETED")]


def switch() -> None:
    chosen, other, last = unique("chosen"), unique("other"), unique("last")
    pick = SwitchTask("pick", "${workflow.input.lang}")
    pick.switch_case("FR", [simple(chosen, "fr")])
    pick.default_case([simple(other, "other")])
    name = build(pick, simple(last, "last"))
    with Workers(**{chosen: echo, other: echo, last: echo}):
        french = ended(start(name, lang="FR"))
        german = ended(start(name, lang="DE"))
    assert [reference for reference, _ in statuses(french)] == ["pick", "fr", "last"]
    assert [reference for reference, _ in statuses(german)] == ["pick", "other", "last"]
    assert french.tasks[0].output_data == {"evaluationResult": ["FR"], "selectedCase": "FR"}


def switch_by_script() -> None:
    big, small = unique("big"), unique("small")
    pick = SwitchTask("pick", "$.n > 10 ? 'big' : 'small'", use_javascript=True)
    pick.input_parameters["n"] = "${workflow.input.n}"
    pick.switch_case("big", [simple(big, "big")])
    pick.switch_case("small", [simple(small, "small")])
    name = build(pick)
    with Workers(**{big: echo, small: echo}):
        workflow = ended(start(name, n=11))
    assert [reference for reference, _ in statuses(workflow)] == ["pick", "big"]


def fork() -> None:
    work = unique("work")
    branches = [[simple(work, "a1"), simple(work, "a2")], [simple(work, "b1")]]
    name = build(ForkTask("fork", branches, join_on=["a2", "b1"]), simple(work, "z"))
    with Workers(**{work: echo}):
        workflow = ended(start(name))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    join = next(task for task in workflow.tasks if task.task_type == "JOIN")
    assert set(join.output_data) == {"a2", "b1"}, join.output_data
    assert statuses(workflow)[-1] == ("z", "COMPLETED")


def dynamic_fork() -> None:
    plan, work = unique("plan"), unique("work")
    count = 100

    def plan_branches(_task):
        return {
            "tasks": [{"name": work, "taskReferenceName": f"r{n}", "type": "SIMPLE"} for n in range(count)],
            "inputs": {f"r{n}": {"n": n} for n in range(count)},
        }

    fan = DynamicForkTask("fan", "dynamicTasks", "dynamicTasksInputs", JoinTask("join"))
    fan.input_parameters["dynamicTasks"] = "${plan.output.tasks}"
    fan.input_parameters["dynamicTasksInputs"] = "${plan.output.inputs}"
    name = build(simple(plan, "plan"), fan, seven="${join.output.r7.n}")
    with Workers(**{plan: plan_branches, work: echo}):
        workflow = ended(start(name))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.output == {"seven": 7}, workflow.output
    assert len(workflow.tasks) == count + 3


def loop() -> None:
    body = unique("body")
    name = build(LoopTask("loop", 3, [simple(body, "t", n="${loop.output.iteration}")]), n="${loop.output.iteration}")
    with Workers(**{body: echo}):
        workflow = ended(start(name))
    assert [reference for reference, _ in statuses(workflow)] == ["loop", "t__1", "t__2", "t__3"]
    assert workflow.output == {"n": 3}, workflow.output
    assert workflow.tasks[0].output_data["2"] == {"t": {"reference": "t__2", "n": 2}}


def inline_and_variables() -> None:
    name = build(
        InlineTask("sum", "(function () { return $.a + $.b; })()", {"a": "${workflow.input.a}", "b": 2}),
        SetVariableTask("keep").input_parameter("total", "${sum.output.result}"),
        total="${workflow.variables.total}",
    )
    workflow = ended(start(name, a=40))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.output == {"total": 42}, workflow.output


def a_script_that_throws_fails_the_task() -> None:
    name = build(InlineTask("bad", "throw new TypeError('no')", {}))
    workflow = ended(start(name))
    assert workflow.status == "FAILED"
    assert workflow.tasks[0].status == "FAILED_WITH_TERMINAL_ERROR"
    assert "TypeError: no" in workflow.tasks[0].output_data["error"]


def sub_workflow() -> None:
    work = unique("work")
    child = build(simple(work, "c", n="${workflow.input.n}"), answer="${c.output.n}")
    call = SubWorkflowTask("sub", child, 1)
    call.input_parameters = {"n": 7}
    name = build(call, answer="${sub.output.answer}")
    with Workers(**{work: echo}):
        workflow = ended(start(name))
    assert workflow.output == {"answer": 7}, workflow.output
    below = WORKFLOWS.get_workflow(workflow.tasks[0].sub_workflow_id, False)
    assert below.parent_workflow_id == workflow.workflow_id


def dynamic_task() -> None:
    work = unique("work")
    task = DynamicTask("${workflow.input.task}", "dynamic")
    name = build(task)
    with Workers(**{work: echo}):
        workflow = ended(start(name, task=work))
    assert workflow.status == "COMPLETED", workflow.reason_for_incompletion
    assert workflow.tasks[0].task_type == work


def wait_and_human() -> None:
    name = build(WaitTask("wait", wait_for_seconds=1), HumanTask("human"))
    workflow_id = start(name)

    def human():
        tasks = WORKFLOWS.get_workflow(workflow_id, True).tasks
        return len(tasks) == 2 and tasks[1].status == "IN_PROGRESS"

    eventually("the human task", human)
    TASKS.update_task_by_ref_name(workflow_id, "human", "COMPLETED", {"answer": "yes"})
    workflow = ended(workflow_id)
    assert workflow.status == "COMPLETED"
    assert workflow.tasks[1].output_data == {"result": {"answer": "yes"}}


def terminate() -> None:
    work = unique("work")
    end = TerminateTask("end", WorkflowStatus.FAILED, "no stock")
    name = build(ForkTask("fork", [[simple(work, "a")], [end]], join_on=["a"]))
    workflow = ended(start(name))
    assert workflow.status == "FAILED"
    assert workflow.reason_for_incompletion == "no stock"
    assert ("a", "CANCELED") in statuses(workflow)


main(
    tasks_in_sequence,
    switch,
    switch_by_script,
    fork,
    dynamic_fork,
    loop,
    inline_and_variables,
    a_script_that_throws_fails_the_task,
    sub_workflow,
    dynamic_task,
    wait_and_human,
    terminate,
)
