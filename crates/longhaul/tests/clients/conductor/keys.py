"""A key of the configuration: the client exchanges it for a token. A token outlives the client and is renewed when it is refused."""

from __future__ import annotations

import os

from conductor.client.configuration.configuration import Configuration
from conductor.client.configuration.settings.authentication_settings import AuthenticationSettings
from conductor.client.http.models import StartWorkflowRequest, TaskDef, WorkflowDef, WorkflowTask
from conductor.client.http.models.schema_def import SchemaDef, SchemaType
from conductor.client.http.rest import ApiException, AuthorizationException
from conductor.client.orkes_clients import OrkesClients

from common import main, unique

URL = os.environ["LONGHAUL_URL"] + "/api"
SECRET = "a-secret-for-the-tests"


def clients(key: str, secret: str = SECRET) -> OrkesClients:
    settings = AuthenticationSettings(key_id=key, key_secret=secret)
    return OrkesClients(Configuration(server_api_url=URL, authentication_settings=settings))


def refused(status: int, call) -> ApiException:
    try:
        call()
    except ApiException as error:
        assert error.status == status, error
        return error
    raise AssertionError(f"expected a refusal with {status}")


def a_worker_and_an_operator() -> None:
    worker, operator = clients("worker"), clients("operator")
    name = unique("guarded")
    worker.get_metadata_client().register_task_def(TaskDef(name=name))
    schema = SchemaDef(name=name, version=1, type=SchemaType.JSON, data={"type": "object"})
    worker.get_schema_client().register_schema(schema)
    assert operator.get_schema_client().get_schema(name, 1).data == {"type": "object"}
    definition = WorkflowDef(name=name, version=1, tasks=[WorkflowTask(name=name, task_reference_name="only")])
    error = refused(403, lambda: worker.get_metadata_client().register_workflow_def(definition))
    assert not error.invalid_token and not error.token_expired, error
    operator.get_metadata_client().register_workflow_def(definition)
    workflow_id = operator.get_workflow_client().start_workflow(StartWorkflowRequest(name=name))
    task = worker.get_task_client().poll_task(name)
    worker.get_task_client().update_task_by_ref_name(workflow_id, "only", "COMPLETED", {"ok": True})
    assert task.workflow_instance_id == workflow_id
    assert operator.get_workflow_client().get_workflow(workflow_id, True).status == "COMPLETED"


def a_forged_token_is_renewed() -> None:
    operator = clients("operator")
    definitions = operator.get_metadata_client()
    definitions.get_all_task_defs()
    configuration = definitions.metadataResourceApi.api_client.configuration
    configuration.update_token("forged.token")
    definitions.get_all_task_defs()
    assert configuration.AUTH_TOKEN != "forged.token"


def a_wrong_secret_is_refused_once() -> None:
    wrong = clients("operator", "another-secret-altogether").get_metadata_client()
    error = refused(401, wrong.get_all_task_defs)
    assert isinstance(error, AuthorizationException)
    # One request for each of the client's attempts, not a request for a token to repeat a request for a token.
    assert wrong.metadataResourceApi.api_client._token_refresh_failures < 5


main(a_worker_and_an_operator, a_forged_token_is_renewed, a_wrong_secret_is_refused_once)
