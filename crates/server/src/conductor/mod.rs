//! The Conductor plane: `/api/metadata`, `/api/workflow`, `/api/tasks`, `/api/token`. Its workers and callers send any content type
//! and no version header. [`call`] reads a request, [`answer`] renders what a handler returns and every refusal.

mod answer;
mod call;
mod execute;
mod metadata;
mod tasks;
mod workflows;

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::Request;

use crate::App;
use crate::auth::Role;
use crate::routes::{self, Endpoint, Routes};
use answer::Answer;
use call::Call;

use crate::gate::Refusal;

/// Who may poll, report, log and register task definitions.
const WORKERS: &[Role] = &[Role::Worker, Role::Operator, Role::Admin];

/// Who may do everything else.
const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];

pub(crate) fn routes() -> Routes {
    Routes::default()
        .route("/api/token", routes::post(no_token))
        .route(
            "/api/metadata/taskdefs",
            get(WORKERS, metadata::list_tasks)
                .merge(post(WORKERS, metadata::create_tasks))
                .merge(put(WORKERS, metadata::put_task)),
        )
        .route(
            "/api/metadata/taskdefs/{a}",
            get(WORKERS, metadata::get_task)
                .merge(put(WORKERS, metadata::put_task))
                .merge(delete(OPERATORS, metadata::delete_task)),
        )
        .route(
            "/api/metadata/workflow",
            get(OPERATORS, metadata::list_workflows)
                .merge(post(OPERATORS, metadata::create_workflow))
                .merge(put(OPERATORS, metadata::put_workflows)),
        )
        .route(
            "/api/metadata/workflow/{a}",
            get(OPERATORS, metadata::get_workflow),
        )
        .route(
            "/api/metadata/workflow/{a}/{b}",
            delete(OPERATORS, metadata::delete_workflow),
        )
        .route(
            "/api/metadata/workflow/validate",
            post(OPERATORS, metadata::validate),
        )
        .route("/api/workflow", post(OPERATORS, workflows::start))
        .route(
            "/api/workflow/{a}",
            get(OPERATORS, workflows::get)
                .merge(post(OPERATORS, workflows::start_by_name))
                .merge(delete(OPERATORS, workflows::terminate)),
        )
        .route(
            "/api/workflow/execute/{a}/{b}",
            post(OPERATORS, execute::execute),
        )
        .route(
            "/api/workflow/{a}/status",
            get(OPERATORS, workflows::status),
        )
        .route("/api/workflow/{a}/tasks", get(OPERATORS, workflows::tasks))
        .route("/api/workflow/{a}/pause", put(OPERATORS, workflows::pause))
        .route(
            "/api/workflow/{a}/resume",
            put(OPERATORS, workflows::resume),
        )
        .route("/api/tasks", post(WORKERS, tasks::update))
        .route(
            "/api/tasks/update-v2",
            post(WORKERS, tasks::update_and_take_next),
        )
        .route("/api/tasks/{a}", get(WORKERS, tasks::get))
        .route("/api/tasks/poll/{a}", get(WORKERS, tasks::poll_one))
        .route(
            "/api/tasks/poll/batch/{a}",
            get(WORKERS, tasks::poll).merge(post(WORKERS, tasks::poll)),
        )
        .route(
            "/api/tasks/{a}/{b}/{c}",
            post(WORKERS, tasks::update_by_reference),
        )
        .route("/api/tasks/queue/polldata", get(WORKERS, tasks::poll_data))
}

/// Without configured keys there are no tokens. Clients then go on without one.
async fn no_token() -> Response {
    Refusal::new(
        http::StatusCode::NOT_FOUND,
        longhaul_protocol::Reason::NotFound,
        "This server does not use tokens.",
    )
    .into_answer()
}

macro_rules! methods {
    ($($name:ident)+) => {$(
        fn $name<F, Fut>(roles: &'static [Role], handler: F) -> Endpoint
        where
            F: Fn(Call) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = Result<Answer, Refusal>> + Send + 'static,
        {
            routes::$name(move |State(app): State<App>, request: Request<HttpBody>| {
                let handler = handler.clone();
                async move { serve(app, request, roles, handler).await }
            })
        }
    )+};
}

methods! { get post put delete }

async fn serve<F, Fut>(
    app: App,
    request: Request<HttpBody>,
    roles: &'static [Role],
    handler: F,
) -> Response
where
    F: Fn(Call) -> Fut,
    Fut: Future<Output = Result<Answer, Refusal>>,
{
    let answer = match Call::read(app, request, roles).await {
        Ok(call) => handler(call).await,
        Err(refusal) => Err(refusal),
    };
    match answer {
        Ok(answer) => answer.into_response(),
        Err(refusal) => refusal.into_answer(),
    }
}
