"""Exported histories: accepted by the verifier and replayer of the package, refused if they were changed."""

from __future__ import annotations

import copy
import json

from common import Stage, equal, eventually, fails, main, result
from durable_workflow import ActivityFailed, activity, workflow
from durable_workflow.errors import NonDeterministicReplayError
from durable_workflow.history_bundle_verify import verify_bundle, verify_bundle_json
from durable_workflow.workflow import CompleteWorkflow, Replayer

# As the server is started with (python_sdk.rs).
KEY = "export-secret"


@activity.defn(name="greet")
async def greet(name: str) -> dict:
    return {"hello": name, "ratio": 0.1, "many": [1, 2.5, None, True], "größe": "😀/\"\\"}


@activity.defn(name="refuse")
async def refuse() -> None:
    raise ValueError("no – never")


@workflow.defn(name="eventful")
class Eventful:
    def __init__(self) -> None:
        self.names: list[str] = []

    @workflow.signal("name")
    def name(self, name: str) -> None:
        self.names.append(name)

    def run(self, ctx, first: str):
        greeting = yield ctx.schedule_activity("greet", [first])
        yield ctx.start_timer(1)
        try:
            yield ctx.schedule_activity("refuse", [], retry_policy=workflow.ActivityRetryPolicy(max_attempts=1))
        except ActivityFailed as error:
            refused = str(error)
        drawn = yield ctx.side_effect(lambda: 42)
        yield ctx.wait_condition(lambda: len(self.names) > 0, key="named")
        return {"greeting": greeting, "refused": refused, "drawn": drawn, "names": self.names}


@workflow.defn(name="eventful")
class Changed:
    def run(self, ctx, first: str):
        yield ctx.start_timer(1)
        return first


async def exported(stage: Stage) -> tuple[dict, dict]:
    """A finished run with an activity, a timer, a failure, a signal; its result and its bundle."""
    handle = await stage.start("eventful", "Zoë", memo={"note": "é", "weight": 1.0})
    await stage.until(handle, "ActivityFailed")
    await handle.signal("name", ["Ada"])
    outcome = await result(handle)
    return outcome, await handle.export_history()


def replay(code: type, bundle: dict):
    """Runs the code against the bundle as it was exported: it holds the arguments too."""
    return Replayer(workflows=[code]).replay(bundle)


async def a_bundle_is_verified_and_replayed(stage: Stage) -> None:
    outcome, bundle = await exported(stage)
    report = verify_bundle(bundle, KEY)
    equal((report["status"], report["findings"]), ("ok", []))
    assert report["integrity"]["checksum_matches"] and report["integrity"]["signature_verified"]
    equal(verify_bundle_json(json.dumps(bundle), KEY)["status"], "ok")
    replayed = replay(Eventful, bundle)
    command = replayed.commands[-1]
    assert isinstance(command, CompleteWorkflow), command
    equal(command.result, outcome)
    await fails(NonDeterministicReplayError, changed(bundle))


async def changed(bundle: dict) -> None:
    replay(Changed, bundle)


async def a_touched_bundle_is_refused(stage: Stage) -> None:
    _, bundle = await exported(stage)
    for touch in (
        lambda copy: copy["history_events"][3]["payload"].update(sequence=99),
        lambda copy: copy["history_events"].pop(),
        lambda copy: copy["workflow"].update(status="failed"),
        lambda copy: copy["payloads"]["arguments"].update(data="wwHioz3/VYAiNwwA"),
    ):
        touched = copy.deepcopy(bundle)
        touch(touched)
        rules = {finding["rule"] for finding in verify_bundle(touched, KEY)["findings"]}
        assert {"integrity.checksum_mismatch", "integrity.signature_mismatch"} <= rules, rules
    rules = {finding["rule"] for finding in verify_bundle(bundle, "another key")["findings"]}
    equal(rules, {"integrity.signature_mismatch"})


async def an_open_run_is_verified_too(stage: Stage) -> None:
    handle = await stage.start("eventful", "open")
    await stage.until(handle, "ConditionWaitOpened")

    async def verified() -> bool:
        return verify_bundle(await handle.export_history(), KEY)["status"] == "ok"

    await eventually("a bundle of an open run", verified)
    await handle.signal("name", ["x"])
    await result(handle)


if __name__ == "__main__":
    main(
        [a_bundle_is_verified_and_replayed, a_touched_bundle_is_refused, an_open_run_is_verified_too],
        workflows=[Eventful],
        activities=[greet, refuse],
    )
