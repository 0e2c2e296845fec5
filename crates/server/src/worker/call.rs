//! A request on the worker plane. [`serve`] passes it through the gate, calls the handler and renders the reply; a handler is
//! `async fn(Call) -> Result<Reply, Refusal>`, as on the control plane.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request, StatusCode};
use longhaul_host::Host;
use longhaul_protocol::Reason;
use longhaul_protocol::id::{ActivityAttemptId, Namespace, TaskId};
use longhaul_protocol::version::{VersionRefusal, WORKER_PROTOCOL_HEADER, negotiate};

use super::envelope::{self, Reply};
use crate::App;
use crate::auth::{Caller, Role};
use crate::gate::{Gate, Refusal};
use crate::request::body::Body;
use crate::request::headers;
use crate::request::path::Path;
use crate::request::url_parameters::UrlParameters;
use crate::routes::{self, Endpoint};

pub(super) const GATE: Gate = Gate {
    roles: &[Role::Worker],
    version: check_version,
    namespaced: true,
    metered: false,
};

fn check_version(headers: &HeaderMap) -> Result<(), VersionRefusal> {
    negotiate(headers::text(headers, WORKER_PROTOCOL_HEADER).as_deref()).map(drop)
}

/// A request that passed the gate, with everything a handler reads from it.
pub(super) struct Call {
    pub(super) app: App,
    pub(super) namespace: Namespace,
    pub(super) caller: Caller,
    pub(super) body: Body,
    pub(super) path: Path,
    pub(super) parameters: UrlParameters,
}

impl Call {
    pub(super) fn host(&self) -> &Host {
        self.app.host()
    }

    /// Returns a segment that the route has.
    pub(super) fn segment(&self, name: &str) -> &str {
        self.path.get(name).unwrap_or_default()
    }

    pub(super) fn task_id(&self) -> TaskId {
        self.segment("task_id").into()
    }

    pub(super) fn attempt_id(&self) -> ActivityAttemptId {
        self.segment("attempt_id").into()
    }
}

/// The routing functions of this plane: a method and its handler.
macro_rules! methods {
    ($($name:ident,)+) => {$(
        pub(super) fn $name<F, A>(handler: F) -> Endpoint
        where
            F: Fn(Call) -> A + Clone + Send + Sync + 'static,
            A: Future<Output = Result<Reply, Refusal>> + Send + 'static,
        {
            routes::$name(move |State(app): State<App>, request: Request<HttpBody>| {
                serve(app, request, handler.clone())
            })
        }
    )+};
}

methods! {
    get,
    post,
    delete,
}

async fn serve<F, A>(app: App, request: Request<HttpBody>, handler: F) -> Response
where
    F: Fn(Call) -> A,
    A: Future<Output = Result<Reply, Refusal>>,
{
    let result = match pass(&app, request).await {
        Ok(call) => handler(call).await,
        Err(refusal) => Err(refusal),
    };
    envelope::render(&app, result)
}

async fn pass(app: &App, request: Request<HttpBody>) -> Result<Call, Refusal> {
    let (mut parts, body) = request.into_parts();
    let Some(path) = Path::of(&mut parts).await else {
        return Err(unknown_route(app, &parts.headers, parts.uri.path()));
    };
    let parameters = UrlParameters::of(&parts.uri);
    let passed = GATE.pass(app, Request::from_parts(parts, body)).await?;
    Ok(Call {
        app: app.clone(),
        namespace: passed.namespace,
        caller: passed.caller,
        body: passed.body,
        path,
        parameters,
    })
}

/// The refusal of a path that no route has. A caller without a valid credential learns nothing about paths.
pub(super) fn unknown_route(app: &App, headers: &HeaderMap, path: &str) -> Refusal {
    match GATE.admit(app, headers) {
        Ok(_) => Refusal::new(
            StatusCode::NOT_FOUND,
            Reason::NotFound,
            format!("There is no route {path}."),
        ),
        Err(refusal) => refusal,
    }
}
