"""Finding runs: search attribute definitions, values from starters and from workflow code, queries and their pages."""

import asyncio

from common import Stage, equal, fails, main, result, unique
from durable_workflow import InvalidArgument, ServerError, workflow

# Definitions are the namespace's, so each scenario has names of its own.
NAMES = {
    "OrderRegion": "keyword",
    "OrderNote": "text",
    "OrderItems": "int",
    "OrderWeight": "double",
    "OrderVip": "bool",
    "OrderDue": "datetime",
    "OrderTags": "keyword_list",
    "OrderStage": "keyword",
}


async def define_all(stage: Stage) -> None:
    known = (await stage.client.list_search_attributes()).custom_attributes
    for name, attribute_type in NAMES.items():
        if name not in known:
            await stage.client.create_search_attribute(name, attribute_type)


async def found(stage: Stage, query: str, **options) -> list[str]:
    page = await stage.client.list_workflows(query=query, **options)
    return sorted(row.workflow_id for row in page.executions)


async def refused(reason: str, call) -> None:
    equal((await fails(ServerError, call)).reason(), reason)


@workflow.defn(name="order")
class Order:
    def __init__(self) -> None:
        self.steps = 0

    @workflow.signal("next")
    def on_next(self) -> None:
        self.steps += 1

    def run(self, ctx):
        yield ctx.upsert_search_attributes({"OrderStage": "packing", "OrderItems": 3, "NobodyDefinedThis": "x"})
        yield ctx.wait_condition(lambda: self.steps > 0, key="next")
        yield ctx.upsert_search_attributes({"OrderStage": "sent", "OrderItems": None})


async def definitions_come_and_go(stage: Stage) -> None:
    listed = await stage.client.list_search_attributes()
    equal(listed.system_attributes["WorkflowType"], "keyword")
    equal(listed.system_attributes["StartTime"], "datetime")
    created = await stage.client.create_search_attribute("Passing", "string")
    equal((created["name"], created["type"], created["outcome"]), ("Passing", "text", "created"))
    equal((await stage.client.list_search_attributes()).custom_attributes["Passing"], "text")
    await refused("attribute_already_exists", stage.client.create_search_attribute("Passing", "int"))
    await refused("name_reserved", stage.client.create_search_attribute("wf_id", "int"))
    await fails(InvalidArgument, stage.client.create_search_attribute("__internal", "int"))
    await fails(InvalidArgument, stage.client.create_search_attribute("Odd", "number"))
    equal((await stage.client.delete_search_attribute("Passing"))["outcome"], "deleted")
    equal("Passing" in (await stage.client.list_search_attributes()).custom_attributes, False)
    await refused("attribute_not_found", stage.client.delete_search_attribute("Passing"))
    await refused("system_attribute", stage.client.delete_search_attribute("WorkflowType"))


async def values_of_a_start_are_checked_kept_and_found(stage: Stage) -> None:
    customer = unique("start")
    values = {
        "OrderRegion": "eu",
        "OrderNote": customer,
        "OrderItems": 2**53 + 1,
        "OrderWeight": 0.1,
        "OrderVip": True,
        "OrderDue": "2026-01-01T00:00:00.123456789+05:30",
        "OrderTags": ["zebra", "apple", "zebra"],
    }
    # A queue without a worker: the run stays as it started.
    start = {"workflow_type": "order", "task_queue": "no-worker", "input": []}
    await stage.client.start_workflow(**start, workflow_id=customer, search_attributes=values)
    mine = f"OrderNote = '{customer}'"
    for query in [
        "OrderRegion = 'eu'",
        "OrderItems = 9007199254740993",
        "OrderWeight > 0 AND OrderWeight < 0.2",
        "OrderVip",
        "OrderDue = '2025-12-31T18:30:00.123456Z'",
        "OrderTags = apple",
        "OrderRegion STARTS_WITH e",
        "NOT (OrderRegion = us OR OrderVip = false)",
    ]:
        equal((query, await found(stage, f"{mine} AND {query}")), (query, [customer]))
    equal(await found(stage, f"{mine} AND OrderItems = 9007199254740992"), [])
    [row] = (await stage.client.list_workflows(query=mine)).executions
    equal(row.search_attributes, values)
    equal(await found(stage, customer), [customer])

    for wrong in [{"OrderItems": "3"}, {"OrderItems": 1.5}, {"OrderTags": "x"}, {"OrderDue": "soon"}, {"Undefined": 1}]:
        refusing = stage.client.start_workflow(**start, workflow_id=unique("bad"), search_attributes=wrong)
        equal(list((await fails(InvalidArgument, refusing)).errors), ["search_attributes"])


async def workflow_code_changes_what_is_found(stage: Stage) -> None:
    order = unique("upsert")
    handle = await stage.start("order", workflow_id=order, search_attributes={"OrderNote": order})
    await stage.until(handle, "ConditionWaitOpened")
    mine = f"OrderNote = '{order}'"
    equal(await found(stage, f"{mine} AND OrderStage = packing AND OrderItems >= 3"), [order])
    equal(await found(stage, f"{mine} AND OrderStage = sent"), [])
    await handle.signal("next")
    equal(await result(handle), None)
    equal(await found(stage, f"{mine} AND OrderStage = sent AND Status = completed"), [order])
    equal(await found(stage, f"{mine} AND (OrderStage = packing OR OrderItems > 0)"), [])
    attributes = (await handle.describe()).search_attributes
    equal(attributes, {"OrderNote": order, "OrderStage": "sent", "NobodyDefinedThis": "x"})


async def pages_of_a_query_follow_each_other(stage: Stage) -> None:
    tag = unique("page")
    ids = [f"{tag}-{number}" for number in range(7)]
    for workflow_id in ids:
        await stage.client.start_workflow(
            workflow_type="order", task_queue="no-worker", workflow_id=workflow_id, search_attributes={"OrderTags": [tag]}
        )
    seen: list[str] = []
    token = None
    while True:
        page = await stage.client.list_workflows(
            query=f"OrderTags = '{tag}'", status="running", page_size=3, next_page_token=token
        )
        seen += [row.workflow_id for row in page.executions]
        token = page.next_page_token
        if token is None:
            break
    equal(seen, ids[::-1])
    equal(await found(stage, f"WorkflowId STARTS_WITH '{tag}' AND TaskQueue = no-worker", workflow_type="order"), ids)


async def queries_that_mean_nothing_are_refused(stage: Stage) -> None:
    for query in ["OrderItems = 'x'", "Missing = 1", "1=1", "OrderRegion = 'eu", "OrderTags != 'x'", "x; DROP TABLE y"]:
        error = await fails(InvalidArgument, stage.client.list_workflows(query=query))
        equal((query, list(error.errors)), (query, ["query"]))


async def with_definitions(stage: Stage) -> None:
    """Everything that needs the definitions, once they are there."""
    await define_all(stage)
    await asyncio.gather(
        values_of_a_start_are_checked_kept_and_found(stage),
        workflow_code_changes_what_is_found(stage),
        pages_of_a_query_follow_each_other(stage),
        queries_that_mean_nothing_are_refused(stage),
    )


if __name__ == "__main__":
    main([definitions_come_and_go, with_definitions], workflows=[Order])
