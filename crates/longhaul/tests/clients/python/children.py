"""Child workflows: results, failures, retries, timeouts, close policies, cancellation both ways, continue-as-new."""

from common import Stage, equal, eventually, main, payloads, result, types
from durable_workflow import (
    ChildWorkflowCancelled,
    ChildWorkflowFailed,
    ChildWorkflowTerminated,
    activity,
    workflow,
)
from durable_workflow.workflow import ChildWorkflowRetryPolicy

attempts: dict[str, int] = {}


@activity.defn(name="count")
async def count(key: str) -> int:
    attempts[key] = attempts.get(key, 0) + 1
    return attempts[key]


@workflow.defn(name="double")
class Double:
    def run(self, ctx, number):
        return number * 2


@workflow.defn(name="failing")
class Failing:
    def run(self, ctx, message):
        raise ValueError(message)


@workflow.defn(name="patient")
class Patient:
    """Waits until it is stopped, or told to go on."""

    def __init__(self) -> None:
        self.go = False

    @workflow.signal("go")
    def on_go(self) -> None:
        self.go = True

    def run(self, ctx):
        yield ctx.wait_condition(lambda: self.go, key="go")
        return "went"


@workflow.defn(name="third_time_lucky")
class ThirdTimeLucky:
    def run(self, ctx, key):
        number = yield ctx.schedule_activity("count", [key])
        if number < 3:
            raise ValueError(f"attempt {number}")
        return number


@workflow.defn(name="countdown")
class Countdown:
    def run(self, ctx, left):
        if left > 0:
            return ctx.continue_as_new(left - 1)
        return "zero"


@workflow.defn(name="parent")
class ParentWorkflow:
    """Starts one child and says how it ended."""

    def run(self, ctx, child_type, arguments, options):
        if "retry_policy" in options:
            options["retry_policy"] = ChildWorkflowRetryPolicy(**options["retry_policy"])
        try:
            return ["completed", (yield ctx.start_child_workflow(child_type, arguments, **options))]
        except ChildWorkflowCancelled as error:
            return ["cancelled", str(error)]
        except ChildWorkflowTerminated as error:
            return ["terminated", str(error)]
        except ChildWorkflowFailed as error:
            return ["failed", str(error), error.exception_class]


@workflow.defn(name="family")
class Family:
    def run(self, ctx):
        return (yield [ctx.start_child_workflow("double", [number]) for number in range(5)])


async def a_child_returns_its_result(stage: Stage) -> None:
    outcome, events = await stage.run("parent", "double", [21], {})
    equal(outcome, ["completed", 42])
    equal(
        types(events)[2:],
        ["ChildWorkflowScheduled", "ChildRunStarted", "ChildRunCompleted", "WorkflowCompleted"],
    )
    child = payloads(events, "ChildRunStarted")[0]
    history = await stage.history(child["child_workflow_instance_id"], child["child_workflow_run_id"])
    started = payloads(history, "WorkflowStarted")[0]
    equal(history[0]["event_type"], "WorkflowStarted")
    equal([started["parent_sequence"], started["child_call_id"]], [1, child["child_call_id"]])


async def a_failing_child_fails_in_its_parent(stage: Stage) -> None:
    outcome, events = await stage.run("parent", "failing", ["no stock"], {})
    equal(outcome[0], "failed")
    assert "no stock" in outcome[1], outcome
    failure = payloads(events, "ChildRunFailed")[0]
    equal([failure["exception_type"], failure["child_status"]], ["ValueError", "failed"])


async def a_failed_child_is_tried_again(stage: Stage) -> None:
    key = stage.queue + "-lucky"
    policy = {"max_attempts": 5, "backoff_seconds": [0, 0]}
    outcome, events = await stage.run("parent", "third_time_lucky", [key], {"retry_policy": policy})
    equal(outcome, ["completed", 3])
    started = payloads(events, "ChildRunStarted")
    equal([event["child_run_number"] for event in started], [1, 2, 3])
    equal([event.get("retry_attempt") for event in started], [None, 2, 3])
    equal(started[1]["retry_of_child_workflow_run_id"], started[0]["child_workflow_run_id"])
    equal(len({event["child_call_id"] for event in started}), 1)


async def attempts_of_a_child_are_bounded(stage: Stage) -> None:
    policy = {"max_attempts": 2, "backoff_seconds": [0]}
    outcome, events = await stage.run("parent", "failing", ["again"], {"retry_policy": policy})
    equal(outcome[0], "failed")
    equal(len(payloads(events, "ChildRunStarted")), 2)
    once = {"max_attempts": 5, "backoff_seconds": [0], "non_retryable_error_types": ["ValueError"]}
    outcome, events = await stage.run("parent", "failing", ["never"], {"retry_policy": once})
    equal(outcome[0], "failed")
    equal(len(payloads(events, "ChildRunStarted")), 1)


async def a_child_times_out(stage: Stage) -> None:
    outcome, events = await stage.run("parent", "patient", [], {"run_timeout_seconds": 1})
    equal(outcome[0], "failed")
    failure = payloads(events, "ChildRunFailed")[0]
    equal([failure["failure_category"], failure["closed_reason"]], ["timeout", "timed_out"])


async def the_outcome_of_a_stopped_child_names_how_it_was_stopped(stage: Stage) -> None:
    for stop, outcome in (("cancel_workflow", "cancelled"), ("terminate_workflow", "terminated")):
        handle = await stage.start("parent", "patient", [], {})
        child = (await stage.until(handle, "ChildRunStarted"))[0]["child_workflow_instance_id"]
        await getattr(stage.client, stop)(child, reason="operator")
        equal((await result(handle))[0], outcome)


async def children_run_beside_each_other(stage: Stage) -> None:
    outcome, events = await stage.run("family")
    equal(outcome, [0, 2, 4, 6, 8])
    equal(len(payloads(events, "ChildRunCompleted")), 5)


async def a_child_that_continues_answers_once(stage: Stage) -> None:
    outcome, events = await stage.run("parent", "countdown", [3], {})
    equal(outcome, ["completed", "zero"])
    equal([event["child_run_number"] for event in payloads(events, "ChildRunStarted")], [1, 2, 3, 4])
    equal(len(payloads(events, "ChildRunCompleted")), 1)


async def closing_a_parent_follows_each_policy(stage: Stage) -> None:
    for policy, status in (("abandon", "waiting"), ("request_cancel", "cancelled"), ("terminate", "terminated")):
        handle = await stage.start("parent", "patient", [], {"parent_close_policy": policy})
        child = (await stage.until(handle, "ChildRunStarted"))[0]["child_workflow_instance_id"]

        async def waiting():
            described = await stage.client.describe_workflow(child)
            return described if described.status == "waiting" else None

        await eventually("the child waits", waiting)
        await handle.terminate(reason="enough")

        async def settled():
            described = await stage.client.describe_workflow(child)
            return described if described.status == status else None

        await eventually(f"the child is {status}", settled)
        if policy == "abandon":
            await stage.client.signal_workflow(child, "go")
            equal(await result(stage.client.get_workflow_handle(child)), "went")
            continue
        applied = (await stage.until(handle, "ParentClosePolicyApplied"))[0]
        equal([applied["child_instance_id"], applied["policy"]], [child, policy])
        events = await stage.closed_history(handle)
        equal(types(events)[-2:], ["WorkflowTerminated", "ParentClosePolicyApplied"])


if __name__ == "__main__":
    main(
        [
            a_child_returns_its_result,
            a_failing_child_fails_in_its_parent,
            a_failed_child_is_tried_again,
            attempts_of_a_child_are_bounded,
            a_child_times_out,
            the_outcome_of_a_stopped_child_names_how_it_was_stopped,
            children_run_beside_each_other,
            a_child_that_continues_answers_once,
            closing_a_parent_follows_each_policy,
        ],
        workflows=[Double, Failing, Patient, ThirdTimeLucky, Countdown, ParentWorkflow, Family],
        activities=[count],
    )
