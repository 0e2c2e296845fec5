"""Validators of updates: approval, refusal, failure, repeats, and workers that are not there or do not answer.

The server is started with a short wait and a shorter lease for validations.
"""

from common import Gates, Stage, beside, equal, fails, main, payloads, rejected, result, unique
from durable_workflow import (
    InvalidArgument,
    ServerError,
    UpdateRejected,
    UpdateValidationFailed,
    Worker,
    workflow,
)

gates = Gates()


@workflow.defn(name="account")
class Account:
    """Takes deposits that its validator approves of."""

    def __init__(self) -> None:
        self.balance = 0
        self.closed = False

    @workflow.update("deposit")
    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @deposit.validator
    def check_deposit(self, amount: int) -> None:
        if amount <= 0:
            raise InvalidArgument("not a deposit", {"amount": ["must be positive"]})
        if self.balance + amount > 100:
            raise ValueError("the account is full")

    @workflow.update("audit")
    def audit(self) -> str:
        return "audited"

    @workflow.update_validator("audit")
    def check_audit(self) -> bool:
        return self.balance > 0

    @workflow.update("slow")
    def slow(self, gate: str) -> str:
        return gate

    @workflow.update_validator("slow")
    async def check_slow(self, gate: str) -> None:
        await gates.wait(gate)

    @workflow.update("rename")
    def rename(self, name: str) -> str:
        return name

    @workflow.signal("close")
    def on_close(self) -> None:
        self.closed = True

    def run(self, ctx):
        yield ctx.wait_condition(lambda: self.closed, key="closed")
        return self.balance


DONE = {"wait_for": "completed", "wait_timeout_seconds": 30}


async def opened(stage: Stage):
    handle = await stage.start("account")
    await stage.until(handle, "ConditionWaitOpened")
    return handle


async def closed(stage: Stage, handle) -> list:
    await handle.signal("close", [])
    await result(handle)
    return await stage.closed_history(handle)


async def an_approved_update_is_applied(stage: Stage) -> None:
    handle = await opened(stage)
    answer = await handle.update("deposit", [40], **DONE)
    equal([answer["result"], answer["update_status"]], [40, "completed"])
    # An update without a validator needs none.
    equal((await handle.update("rename", ["savings"], **DONE))["result"], "savings")
    events = await closed(stage, handle)
    equal(len(payloads(events, "UpdateAccepted")), 2)
    equal(payloads(events, "WorkflowStarted")[0]["declared_update_validators"], ["audit", "deposit", "slow"])


async def a_refused_update_is_recorded_and_runs_no_handler(stage: Stage) -> None:
    handle = await opened(stage)
    refused = await fails(UpdateRejected, handle.update("deposit", [-5], **DONE))
    equal(refused.validation_errors, {"amount": ["must be positive"]})
    equal(refused.body["reason"], "update_validator_rejected")
    equal([refused.body["update_status"], refused.body["command_status"]], ["rejected", "rejected"])
    # The validator sees the state that the update would meet.
    await handle.update("deposit", [90], **DONE)
    refused = await fails(UpdateRejected, handle.update("deposit", [20], **DONE))
    assert "the account is full" in str(refused), refused
    await handle.signal("close", [])
    equal(await result(handle), 90)
    events = await stage.closed_history(handle)
    rejections = payloads(events, "UpdateRejected")
    equal([rejection["rejection_reason"] for rejection in rejections], ["update_validator_rejected"] * 2)
    equal(rejections[0]["validation_errors"], {"amount": ["must be positive"]})
    equal(len(payloads(events, "UpdateAccepted")), 1)


async def a_validator_may_just_say_false(stage: Stage) -> None:
    handle = await opened(stage)
    refused = await fails(UpdateRejected, handle.update("audit", [], **DONE))
    assert "returned false" in str(refused), refused
    await handle.update("deposit", [1], **DONE)
    equal((await handle.update("audit", [], **DONE))["result"], "audited")
    await closed(stage, handle)


async def a_repeated_request_is_validated_once(stage: Stage) -> None:
    handle = await opened(stage)
    first = await handle.update("deposit", [60], request_id="once", **DONE)
    # A second deposit of 60 would be refused; the repeat of the first is not.
    again = await handle.update("deposit", [60], request_id="once", **DONE)
    equal([again["update_id"], again["result"], again["retained"]], [first["update_id"], 60, True])
    refused = await fails(UpdateRejected, handle.update("deposit", [60], request_id="twice", **DONE))
    await fails(UpdateRejected, handle.update("deposit", [60], request_id="twice", **DONE))
    equal(refused.body["retained"], False)
    events = await closed(stage, handle)
    equal(len(payloads(events, "UpdateRejected")), 1)
    equal(len(await rejected(handle)), 1)


async def a_worker_that_keeps_a_validation_is_lost(stage: Stage) -> None:
    handle = await opened(stage)
    gate = unique("gate")
    lost = await fails(ServerError, handle.update("slow", [gate], **DONE))
    equal([lost.status, lost.reason(), lost.body["retryable"]], [503, "update_validator_worker_lost", True])
    gates.open(gate)
    # Nothing was admitted, and the same update may be sent again.
    equal((await handle.update("slow", [gate], **DONE))["result"], gate)
    events = await closed(stage, handle)
    equal([len(payloads(events, "UpdateRejected")), len(payloads(events, "UpdateAccepted"))], [0, 1])


async def a_busy_worker_does_not_claim(stage: Stage) -> None:
    queue = unique("busy")

    async def started():
        return await stage.client.start_workflow(
            workflow_type="account", task_queue=queue, workflow_id=unique("account"), input=[]
        )

    handle = await started()
    worker = Worker(stage.client, task_queue=queue, workflows=[Account], max_concurrent_workflow_tasks=1)
    gate = unique("gate")

    async def work():
        await stage.until(handle, "ConditionWaitOpened")
        await fails((ServerError, UpdateValidationFailed), handle.update("slow", [gate], **DONE))
        # The only slot still waits at the gate.
        late = await fails(UpdateValidationFailed, handle.update("deposit", [1], **DONE))
        equal([late.status, late.reason, late.retryable], [504, "update_validation_task_not_claimed", True])
        gates.open(gate)
        equal((await handle.update("deposit", [1], **DONE))["result"], 1)
        return await started()

    orphan = await beside(worker, work())
    # The worker is gone; the run knows from its start that this update has a validator.
    gone = await fails(ServerError, orphan.update("deposit", [1], **DONE))
    equal([gone.status, gone.reason()], [503, "update_validator_worker_unavailable"])
    for left in [handle, orphan]:
        await stage.client.terminate_workflow(left.workflow_id)


if __name__ == "__main__":
    main(
        [
            an_approved_update_is_applied,
            a_refused_update_is_recorded_and_runs_no_handler,
            a_validator_may_just_say_false,
            a_repeated_request_is_validated_once,
            a_worker_that_keeps_a_validation_is_lost,
            a_busy_worker_does_not_claim,
        ],
        workflows=[Account],
    )
