//! The control plane, `/api/…`: a folder or file per resource. The routes below define which roles may call what and which workflow
//! operation it is. [`serve`] passes a request through the gate, calls the handler and renders its reply.
//!
//! A route that is not listed here does not exist: 404 `not_found`.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request, StatusCode};
use longhaul_host::Host;
use longhaul_host::api::Rejection;
use longhaul_protocol::Reason;
use longhaul_protocol::history::LimitBreach;
use longhaul_protocol::id::{Namespace, RunId, WorkflowId};
use longhaul_protocol::payload::encoded_bytes_min;
use longhaul_protocol::version::{CONTROL_PLANE_HEADER, VersionRefusal, negotiate_control_plane};
use serde_json::value::RawValue;

use crate::App;
use crate::auth::{Caller, Role};
use crate::gate::{Gate, Refusal};
use crate::request::body::Body;
use crate::request::headers;
use crate::request::path::Path;
use crate::request::url_parameters::UrlParameters;
use crate::routes::{self, Endpoint, Routes, routing_functions};

mod cluster;
mod envelope;
mod messages;
mod namespaces;
mod origin;
mod search_attributes;
pub(crate) mod system;
mod task_queues;
mod workers;
mod workflows;

use envelope::{
    ARCHIVE, CANCEL, DEBUG, DESCRIBE, DESCRIBE_RUN, HISTORY, LIST, LIST_RUNS, Operation, QUERY,
    REPAIR, Reply, SIGNAL, START, TERMINATE, UPDATE,
};
use messages::{commands, queries, streams, updates};
use origin::Origin;
use system::{health, operator_metrics, servers};
use task_queues::{build_ids, deployments};
use workers::session_list;

pub(crate) fn routes() -> Routes {
    in_both_forms(Routes::default())
        .route("/health", routes::get(health::health))
        .route("/ready", routes::get(health::ready))
        .route("/cluster/info", get(ANYONE, cluster::info))
        .route(
            "/namespaces",
            get(NAMESPACE_READ, namespaces::list).merge(post(NAMESPACE_WRITE, namespaces::create)),
        )
        .route(
            "/namespaces/{name}",
            get(NAMESPACE_READ, namespaces::describe)
                .merge(put(NAMESPACE_WRITE, namespaces::update)),
        )
        .route(
            "/workflows",
            get(&LIST, workflows::list).merge(post(&START, workflows::start)),
        )
        .route(
            "/workflows/{workflow_id}",
            get(&DESCRIBE, workflows::describe),
        )
        .route(
            "/workflows/{workflow_id}/runs",
            get(&LIST_RUNS, workflows::runs),
        )
        .route(
            "/workflows/{workflow_id}/runs/{run_id}",
            get(&DESCRIBE_RUN, workflows::describe),
        )
        .route(
            "/workflows/{workflow_id}/runs/{run_id}/history",
            get(&HISTORY, workflows::history),
        )
        .route(
            "/workflows/{workflow_id}/runs/{run_id}/history/export",
            get(OPERATOR, workflows::export),
        )
        .route(
            "/workflows/{workflow_id}/message-streams",
            get(OPERATOR, streams::list),
        )
        .route(
            "/workflows/{workflow_id}/message-streams/{stream_name}",
            get(OPERATOR, streams::describe),
        )
        .route(
            "/workflows/{workflow_id}/message-streams/{stream_name}/messages",
            post(OPERATOR, streams::append),
        )
        .route(
            "/search-attributes",
            get(OPERATOR, search_attributes::list).merge(post(OPERATOR, search_attributes::create)),
        )
        .route(
            "/search-attributes/{name}",
            delete(OPERATOR, search_attributes::remove),
        )
        .route("/workers", get(OPERATOR, workers::list))
        .route(
            "/workers/{worker_id}",
            get(OPERATOR, workers::describe).merge(delete(ADMIN, workers::deregister)),
        )
        .route("/worker-sessions", get(OPERATOR, session_list::list))
        .route(
            "/worker-sessions/{session_id}",
            get(OPERATOR, session_list::describe),
        )
        .route(
            "/system/operator-metrics",
            get(ADMIN, operator_metrics::read),
        )
        .route("/system/servers", get(OPERATOR, servers::list))
        .route("/task-queues", get(OPERATOR, task_queues::list))
        .route("/task-queues/{name}", get(OPERATOR, task_queues::describe))
        .route(
            "/task-queues/{name}/priority-fairness",
            get(OPERATOR, task_queues::priority_fairness),
        )
        .route(
            "/task-queues/{name}/build-ids",
            get(OPERATOR, build_ids::list),
        )
        .route(
            "/task-queues/{name}/build-ids/drain",
            post(OPERATOR, build_ids::drain),
        )
        .route(
            "/task-queues/{name}/build-ids/resume",
            post(OPERATOR, build_ids::resume),
        )
        .route(
            "/task-queues/{name}/build-ids/promote",
            post(OPERATOR, build_ids::promote),
        )
        .route("/deployments", get(OPERATOR, deployments::list))
        .route(
            "/deployments/{*name}",
            get(OPERATOR, deployments::describe).merge(post(OPERATOR, deployments::change)),
        )
        .method_not_allowed_fallback(method_not_allowed)
}

/// Routes for both a workflow's current run and a named run.
fn in_both_forms(routes: Routes) -> Routes {
    let forms = [
        ("/signal/{signal_name}", post(&SIGNAL, commands::signal)),
        ("/query/{query_name}", post(&QUERY, queries::query)),
        ("/update/{update_name}", post(&UPDATE, updates::update)),
        ("/cancel", post(&CANCEL, commands::cancel)),
        ("/terminate", post(&TERMINATE, commands::terminate)),
        (
            "/request-cancellation",
            post(OPERATOR, commands::request_cancellation),
        ),
        ("/commands", get(OPERATOR, workflows::commands)),
        ("/debug", get(&DEBUG, workflows::debug)),
        ("/repair", post(&REPAIR, commands::repair)),
        ("/archive", post(&ARCHIVE, commands::archive)),
    ];
    forms.into_iter().fold(routes, |routes, (rest, endpoint)| {
        routes
            .route(
                &format!("/workflows/{{workflow_id}}{rest}"),
                endpoint.clone(),
            )
            .route(
                &format!("/workflows/{{workflow_id}}/runs/{{run_id}}{rest}"),
                endpoint,
            )
    })
}

/// What a route requires of its callers, and which workflow operation it is, if any.
#[derive(Clone, Copy)]
struct Door {
    gate: Gate,
    operation: Option<&'static Operation>,
}

/// Discovery: any role, any version header or none, any namespace. Clients learn here what to send.
const ANYONE: Door = Door {
    gate: Gate {
        roles: &[Role::Worker, Role::Operator, Role::Admin],
        version: any_version,
        namespaced: false,
        metered: false,
    },
    operation: None,
};
const OPERATOR: Door = Door {
    gate: Gate {
        roles: OPERATORS,
        version: check_version,
        namespaced: true,
        metered: true,
    },
    operation: None,
};
const ADMIN: Door = Door {
    gate: Gate {
        roles: &[Role::Admin],
        version: check_version,
        namespaced: true,
        metered: true,
    },
    operation: None,
};
/// The namespace is in the path, so the one that the request was sent in need not exist.
const NAMESPACE_READ: Door = Door {
    gate: Gate {
        roles: OPERATORS,
        version: check_version,
        namespaced: false,
        metered: true,
    },
    operation: None,
};
const NAMESPACE_WRITE: Door = Door {
    gate: Gate {
        roles: &[Role::Admin],
        version: check_version,
        namespaced: false,
        metered: true,
    },
    operation: None,
};

const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];

/// Workflow operations are for operators.
impl From<&'static Operation> for Door {
    fn from(operation: &'static Operation) -> Self {
        Self {
            operation: Some(operation),
            ..OPERATOR
        }
    }
}

fn check_version(headers: &HeaderMap) -> Result<(), VersionRefusal> {
    negotiate_control_plane(headers::text(headers, CONTROL_PLANE_HEADER).as_deref())
}

fn any_version(_: &HeaderMap) -> Result<(), VersionRefusal> {
    Ok(())
}

/// A request that passed the gate, with everything a handler reads from it.
struct Call {
    app: App,
    namespace: Namespace,
    caller: Caller,
    body: Body,
    path: Path,
    parameters: UrlParameters,
    origin: Origin,
}

impl Call {
    /// Returns what is stored about this request with its command.
    fn context(&self) -> String {
        self.origin.context(&self.caller)
    }

    fn host(&self) -> &Host {
        self.app.host()
    }

    /// Refuses plain JSON arguments that are too long in every encoding, before they are encoded: encoding takes many times their
    /// length, and the host would refuse them anyway.
    fn check_input(&self) -> Result<(), longhaul_host::Error> {
        let Some(input) = self.body.raw("input").map(RawValue::get) else {
            return Ok(());
        };
        let configured = self.host().config().limits.payload_bytes;
        if (input.len() as u64) < configured / 2 || !input.starts_with('[') {
            return Ok(());
        }
        // Base64 makes four characters of three bytes.
        let value = encoded_bytes_min(input) as u64 / 3 * 4;
        if value <= configured {
            return Ok(());
        }
        let breach = LimitBreach {
            kind: "payload_size",
            value,
            configured,
        };
        let rejection = Rejection::LimitExceeded(breach);
        Err(longhaul_host::Error::Rejected(rejection))
    }

    /// Returns a segment that the route has.
    fn segment(&self, name: &str) -> &str {
        self.path.get(name).unwrap_or_default()
    }

    fn workflow_id(&self) -> WorkflowId {
        self.segment("workflow_id").into()
    }

    /// Returns the run that the route names, if any.
    fn run_id(&self) -> Option<RunId> {
        self.path.get("run_id").map(RunId::from)
    }
}

routing_functions! { Door, Call => Reply; get post put delete }

async fn serve<F, A>(door: Door, app: App, request: Request<HttpBody>, handler: F) -> Response
where
    F: Fn(Call) -> A,
    A: Future<Output = Result<Reply, Refusal>>,
{
    let (mut parts, body) = request.into_parts();
    let named = Path::of(&mut parts).await;
    let is_named = named.is_some();
    let path = named.unwrap_or_else(Path::nameless);
    let parameters = UrlParameters::of(&parts.uri);
    let origin = Origin::of(&parts);
    let passed = match door.gate.pass(&app, Request::from_parts(parts, body)).await {
        Ok(_) if !is_named => Err(no_route()),
        passed => passed,
    };
    match passed {
        Ok(passed) => {
            // The handler takes the call, and the envelope needs the names of the path after that.
            let named = path.clone();
            let _slot = passed.slot;
            let call = Call {
                app,
                namespace: passed.namespace,
                caller: passed.caller,
                body: passed.body,
                path,
                parameters,
                origin,
            };
            envelope::render(door.operation, &named, handler(call).await)
        }
        Err(refusal) => envelope::render(door.operation, &path, Err(refusal)),
    }
}

/// Refuses a caller without an operator's role, for routes outside this plane.
pub(crate) fn admit_operator(app: &App, headers: &HeaderMap) -> Result<(), Box<Response>> {
    match OPERATOR.gate.admit(app, headers) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(Box::new(refused(refusal))),
    }
}

/// Renders the refusal of a request that reached no route.
pub(crate) fn refused(refusal: Refusal) -> Response {
    envelope::render(None, &Path::nameless(), Err(refusal))
}

fn no_route() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        Reason::NotFound,
        "There is no such route.",
    )
}

/// Answers a request that no route matches, also outside `/api`. The credential is checked first here too.
pub(crate) fn not_found(app: &App, headers: &HeaderMap) -> Response {
    let admitted = ANYONE.gate.admit(app, headers);
    refused(admitted.map_or_else(|refusal| refusal, |_| no_route()))
}

async fn method_not_allowed(State(app): State<App>, request: Request<HttpBody>) -> Response {
    let admitted = ANYONE.gate.admit(&app, request.headers());
    let refusal = admitted.map_or_else(
        |refusal| refusal,
        |_| {
            let message = format!("This route does not take {}.", request.method());
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                Reason::MethodNotAllowed,
                message,
            )
        },
    );
    refused(refusal)
}
