"""The page about compatibility names every public method of the client."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from conductor.client.event.event_client import EventClient
from conductor.client.http.api.event_resource_api import EventResourceApi
from conductor.client.orkes.orkes_metadata_client import OrkesMetadataClient
from conductor.client.orkes.orkes_schema_client import OrkesSchemaClient
from conductor.client.orkes.orkes_task_client import OrkesTaskClient
from conductor.client.orkes.orkes_workflow_client import OrkesWorkflowClient
from conductor.client.workflow.executor.workflow_executor import WorkflowExecutor

from common import main

PAGE = Path(__file__).resolve().parents[5] / "docs/conductor-compatibility.md"
CLASSES = [
    OrkesWorkflowClient,
    OrkesTaskClient,
    OrkesMetadataClient,
    OrkesSchemaClient,
    EventClient,
    EventResourceApi,
    WorkflowExecutor,
]


def every_method_is_listed_once() -> None:
    part = PAGE.read_text().split("\n## Python", 1)[1].split("\n## ", 1)[0]
    sections = dict(re.findall(r"### (\w+)\n(.*?)(?=\n### |\Z)", part, re.DOTALL))
    assert sections.keys() == {each.__name__ for each in CLASSES}, sections.keys()
    for each in CLASSES:
        functions = [name for name, _ in inspect.getmembers(each, inspect.isfunction)]
        public = [name for name in functions if not name.startswith("_") and not name.endswith("_with_http_info")]
        listed = re.findall(r"`(\w+)`", sections[each.__name__])
        assert sorted(listed) == sorted(public), (each.__name__, set(listed) ^ set(public))


if __name__ == "__main__":
    main(every_method_is_listed_once)
