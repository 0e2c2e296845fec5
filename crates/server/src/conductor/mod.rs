//! The Conductor plane: `/api/metadata`, `/api/workflow`, `/api/tasks`, `/api/schema`, `/api/token`. Its workers and callers send any
//! content type and no version header. [`call`] reads a request, [`answer`] renders what a handler returns and every refusal.

mod answer;
mod bulk;
mod call;
mod events;
mod logs;
mod metadata;
mod queues;
mod schemas;
mod search;
mod system;
mod tags;
mod tasks;
mod token;
mod workflows;

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Method, Request, StatusCode};
use longhaul_protocol::Reason;

use crate::App;
use crate::auth::Role;
use crate::gate::Refusal;
use crate::routes::{self, Endpoint, Routes, routing_functions};
use answer::Answer;
use call::Call;
use workflows::{execute, reopening, signals, test_run};

/// Who may poll, report, log and register task definitions and schemas.
const WORKERS: &[Role] = &[Role::Worker, Role::Operator, Role::Admin];

/// Who may do everything else.
const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];

pub(crate) fn routes() -> Routes {
    Routes::default()
        .route("/api/token", routes::post(token::issue))
        .route("/api/version", get(WORKERS, system::version))
        .route(
            "/api/schema",
            get(WORKERS, schemas::list).merge(post(WORKERS, schemas::put)),
        )
        .route(
            "/api/schema/{a}",
            get(WORKERS, schemas::get_newest).merge(delete(OPERATORS, schemas::delete_all)),
        )
        .route(
            "/api/schema/{a}/{b}",
            get(WORKERS, schemas::get).merge(delete(OPERATORS, schemas::delete)),
        )
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
            "/api/metadata/workflow/names",
            get(OPERATORS, metadata::list_names),
        )
        .route(
            "/api/metadata/workflow/names-and-versions",
            get(OPERATORS, metadata::list_names_and_versions),
        )
        .route(
            "/api/metadata/workflow/latest-versions",
            get(OPERATORS, metadata::list_latest_versions),
        )
        .route(
            "/api/metadata/workflow/{a}/versions",
            get(OPERATORS, metadata::list_versions),
        )
        .route(
            "/api/metadata/workflow/validate",
            post(OPERATORS, metadata::validate),
        )
        .merge(tag_routes())
        .merge(event_routes())
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
        .route("/api/workflow/test", post(OPERATORS, test_run::test))
        .route("/api/workflow/search", get(OPERATORS, search::search))
        .route(
            "/api/workflow/search-v2",
            get(OPERATORS, search::search_workflows),
        )
        .route(
            "/api/workflow/search-by-tasks",
            get(OPERATORS, search::by_tasks),
        )
        .route(
            "/api/workflow/search-by-tasks-v2",
            get(OPERATORS, search::workflows_by_tasks),
        )
        .route(
            "/api/workflow/externalstoragelocation",
            get(OPERATORS, search::no_external_storage),
        )
        .route("/api/tasks/search", get(OPERATORS, search::tasks))
        .route("/api/tasks/search-v2", get(OPERATORS, search::whole_tasks))
        .route(
            "/api/tasks/externalstoragelocation",
            get(WORKERS, search::no_external_storage),
        )
        .route(
            "/api/tasks/queue/requeue/{a}",
            post(WORKERS, search::requeue),
        )
        .route("/api/admin/task/{a}", get(OPERATORS, search::pending_tasks))
        .route("/api/workflow/running/{a}", get(OPERATORS, search::running))
        .route(
            "/api/workflow/correlated/batch",
            post(OPERATORS, search::by_correlation_ids_and_names),
        )
        .route(
            "/api/workflow/{a}/correlated",
            post(OPERATORS, search::by_correlation_ids),
        )
        .route(
            "/api/workflow/{a}/correlated/{b}",
            get(OPERATORS, search::by_correlation_id),
        )
        .route(
            "/api/workflow/{a}/status",
            get(OPERATORS, workflows::status),
        )
        .route("/api/workflow/{a}/tasks", get(OPERATORS, workflows::tasks))
        .route(
            "/api/workflow/{a}/variables",
            post(OPERATORS, signals::merge_variables),
        )
        .route(
            "/api/workflow/{a}/state",
            post(OPERATORS, signals::update_state),
        )
        .route(
            "/api/workflow/{a}/messages",
            post(OPERATORS, workflows::push_message),
        )
        .route("/api/workflow/{a}/pause", put(OPERATORS, workflows::pause))
        .route(
            "/api/workflow/{a}/resume",
            put(OPERATORS, workflows::resume),
        )
        .route(
            "/api/workflow/{a}/restart",
            post(OPERATORS, reopening::restart),
        )
        .route("/api/workflow/{a}/retry", post(OPERATORS, reopening::retry))
        .route("/api/workflow/{a}/rerun", post(OPERATORS, reopening::rerun))
        .route(
            "/api/workflow/{a}/resetcallbacks",
            post(OPERATORS, reopening::reset_callbacks),
        )
        .route(
            "/api/workflow/{a}/skiptask/{b}",
            put(OPERATORS, reopening::skip_task),
        )
        .route(
            "/api/workflow/decide/{a}",
            put(OPERATORS, reopening::decide),
        )
        .route(
            "/api/workflow/{a}/remove",
            delete(OPERATORS, workflows::remove),
        )
        .route(
            "/api/workflow/{a}/terminate-remove",
            delete(OPERATORS, workflows::terminate_and_remove),
        )
        .route("/api/workflow/bulk/pause", put(OPERATORS, bulk::pause))
        .route("/api/workflow/bulk/resume", put(OPERATORS, bulk::resume))
        .route("/api/workflow/bulk/restart", post(OPERATORS, bulk::restart))
        .route("/api/workflow/bulk/retry", post(OPERATORS, bulk::retry))
        .route(
            "/api/workflow/bulk/terminate",
            post(OPERATORS, bulk::terminate),
        )
        .route("/api/workflow/bulk/remove", delete(OPERATORS, bulk::remove))
        .route("/api/workflow/bulk/delete", post(OPERATORS, bulk::remove))
        .route(
            "/api/workflow/bulk/terminate-remove",
            delete(OPERATORS, bulk::terminate_and_remove),
        )
        .route("/api/workflow/bulk/search", post(OPERATORS, bulk::search))
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
        .route(
            "/api/tasks/{a}/{b}/{c}/sync",
            post(WORKERS, tasks::update_by_reference_and_read),
        )
        .route(
            "/api/tasks/{a}/log",
            get(WORKERS, logs::list).merge(post(WORKERS, logs::add)),
        )
        .route("/api/tasks/{a}/{b}/signal", post(WORKERS, signals::signal))
        .route(
            "/api/tasks/{a}/{b}/signal/sync",
            post(WORKERS, signals::signal_and_wait),
        )
        .route("/api/tasks/queue/all", get(WORKERS, queues::all))
        .route(
            "/api/tasks/queue/all/verbose",
            get(WORKERS, queues::all_verbose),
        )
        .route("/api/tasks/queue/size", get(WORKERS, queues::size))
        .route("/api/tasks/queue/sizes", get(WORKERS, queues::sizes))
        .route("/api/tasks/queue/polldata", get(WORKERS, queues::poll_data))
        .route(
            "/api/tasks/queue/polldata/all",
            get(WORKERS, queues::all_poll_data),
        )
        .method_not_allowed_fallback(method_not_allowed)
}

fn tag_routes() -> Routes {
    Routes::default()
        .route("/api/metadata/tags", get(OPERATORS, tags::all))
        .route(
            "/api/metadata/task/{a}/tags",
            get(OPERATORS, tags::of_task)
                .merge(post(OPERATORS, tags::add_to_task))
                .merge(put(OPERATORS, tags::replace_of_task))
                .merge(delete(OPERATORS, tags::remove_from_task)),
        )
        .route(
            "/api/metadata/workflow/{a}/tags",
            get(OPERATORS, tags::of_workflow)
                .merge(post(OPERATORS, tags::add_to_workflow))
                .merge(put(OPERATORS, tags::replace_of_workflow))
                .merge(delete(OPERATORS, tags::remove_from_workflow)),
        )
        .route(
            "/api/metadata/workflow/{a}/rate-limit",
            get(OPERATORS, tags::rate_limit)
                .merge(put(OPERATORS, tags::set_rate_limit))
                .merge(delete(OPERATORS, tags::remove_rate_limit)),
        )
        .route(
            "/api/event/{a}/tags",
            get(OPERATORS, tags::of_handler)
                .merge(post(OPERATORS, tags::add_to_handler))
                .merge(put(OPERATORS, tags::replace_of_handler))
                .merge(delete(OPERATORS, tags::remove_from_handler)),
        )
}

fn event_routes() -> Routes {
    Routes::default()
        .route(
            "/api/event",
            get(OPERATORS, events::list)
                .merge(post(OPERATORS, events::create))
                .merge(put(OPERATORS, events::update)),
        )
        .route(
            "/api/event/{a}",
            get(OPERATORS, events::list_of_event).merge(delete(OPERATORS, events::delete)),
        )
        .route("/api/event/handler", get(OPERATORS, events::list))
        // One of the clients asks with a slash at the end.
        .route("/api/event/handler/", get(OPERATORS, events::list))
        .route("/api/event/handler/{a}", get(OPERATORS, events::get))
        .route(
            "/api/event/handleIncomingEvent",
            post(OPERATORS, events::publish),
        )
        .route(
            "/api/event/execution",
            get(OPERATORS, events::active_handlers),
        )
        .route(
            "/api/event/execution/{a}",
            get(OPERATORS, events::executions),
        )
        .route(
            "/api/event/message",
            get(OPERATORS, events::handlers_with_stats),
        )
        .route("/api/event/message/{a}", get(OPERATORS, events::messages))
        .route("/api/queue", get(OPERATORS, events::no_queues))
        .route("/api/queue/", get(OPERATORS, events::no_queues))
        .route("/api/queue/size", get(OPERATORS, events::no_queues))
        .route(
            "/api/queue/update/{a}/{b}/{c}",
            post(OPERATORS, events::update_by_reference),
        )
        .route(
            "/api/queue/update/{a}/task/{b}/{c}",
            post(OPERATORS, events::update_by_id),
        )
}

routing_functions! { &'static [Role], Call => Answer; get post put delete }

async fn serve<F, A>(
    roles: &'static [Role],
    app: App,
    request: Request<HttpBody>,
    handler: F,
) -> Response
where
    F: Fn(Call) -> A,
    A: Future<Output = Result<Answer, Refusal>>,
{
    // A HEAD is routed as a GET, and a poll hands out tasks.
    let is_head_of_poll =
        request.method() == Method::HEAD && request.uri().path().starts_with("/api/tasks/poll/");
    if is_head_of_poll || is_unserved(request.uri().path()) {
        return method_not_allowed(State(app), request).await;
    }
    let answer = match Call::read(&app, request, roles).await {
        Ok(call) => handler(call).await,
        Err(refusal) => Err(refusal),
    };
    match answer {
        Ok(answer) => answer.into_response(),
        Err(refusal) => refused(&app, refusal),
    }
}

/// The first segments below `/api/` that belong to this plane, also where no route exists: clients expect refusals in its form.
const SEGMENTS: [&str; 26] = [
    "admin",
    "agent",
    "applications",
    "auth",
    "environment",
    "event",
    "files",
    "gateway",
    "groups",
    "human",
    "integrations",
    "metadata",
    "prompts",
    "queue",
    "registry",
    "roles",
    "scheduler",
    "schema",
    "secrets",
    "secrets-v2",
    "tasks",
    "token",
    "users",
    "version",
    "webhook",
    "workflow",
];

/// Returns whether a path belongs to this plane.
pub(crate) fn owns(path: &str) -> bool {
    let segment = path
        .strip_prefix("/api/")
        .and_then(|rest| rest.split('/').next());
    segment.is_some_and(|segment| SEGMENTS.contains(&segment))
}

/// Returns whether a path is one of other servers that this one does not have, and that a route with a variable would take: a name such
/// as `test` must not be taken for the name of a workflow.
fn is_unserved(path: &str) -> bool {
    let mut segments = path.split('/').skip(2);
    let segments: [&str; 5] = std::array::from_fn(|_| segments.next().unwrap_or_default());
    is_unknown_bulk(&segments)
}

/// Returns whether a path names many workflows and no operation: `bulk` is not the name of a workflow.
fn is_unknown_bulk(segments: &[&str; 5]) -> bool {
    const OPERATIONS: [&str; 9] = [
        "delete",
        "pause",
        "remove",
        "restart",
        "resume",
        "retry",
        "search",
        "terminate",
        "terminate-remove",
    ];
    let ["workflow", "bulk", operation, rest, _] = segments else {
        return false;
    };
    !OPERATIONS.contains(operation) || !rest.is_empty()
}

/// Answers a request for a path of this plane that no route has.
pub(crate) fn not_found(app: &App, headers: &HeaderMap, path: &str) -> Response {
    let refusal = match call::admit(app, headers, WORKERS) {
        Ok(_) => call::no_route(path),
        Err(refusal) => refusal,
    };
    refused(app, refusal)
}

async fn method_not_allowed(State(app): State<App>, request: Request<HttpBody>) -> Response {
    let path = request.uri().path();
    let refusal = match call::admit(&app, request.headers(), WORKERS) {
        Ok(_) if is_unserved(path) => call::no_route(path),
        Ok(_) => Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            Reason::MethodNotAllowed,
            format!("This route does not take {}.", request.method()),
        ),
        Err(refusal) => refusal,
    };
    refused(&app, refusal)
}

/// Answers a request whose handler panicked.
pub(crate) fn panicked(app: &App, panic: &(dyn std::any::Any + Send)) -> Response {
    refused(app, crate::error::panic_refusal(panic))
}

/// Renders a refusal in the envelope of this plane.
pub(crate) fn refused(app: &App, refusal: Refusal) -> Response {
    refusal.into_answer(&app.options().server_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_plane_by_its_first_segment() {
        for (path, is_owned) in [
            ("/api/workflow", true),
            ("/api/workflow/", true),
            ("/api/tasks/x/y", true),
            ("/api/workflows", false),
            ("/api/workers", false),
            ("/workflow", false),
            ("/api/", false),
            ("/api", false),
        ] {
            assert_eq!(owns(path), is_owned, "{path}");
        }
    }

    #[test]
    fn every_route_is_below_a_segment_of_the_plane() {
        for route in routes().below("") {
            assert!(owns(&route.path), "{}", route.path);
        }
    }

    #[test]
    fn literal_segments_of_other_servers_are_not_variables() {
        for path in [
            "/api/workflow/bulk",
            "/api/workflow/bulk/status",
            "/api/workflow/bulk/pause/x",
        ] {
            assert!(is_unserved(path), "{path}");
        }
        for path in [
            "/api/workflow",
            "/api/workflow/test",
            "/api/workflow/tests",
            "/api/workflow/w/pause",
            "/api/workflow/bulk/pause",
            "/api/tasks/w/COMPLETED/signal",
            "/api/tasks/w/COMPLETED/signal/sync",
            "/api/workflow/search",
            "/api/tasks/search/log",
            "/api/tasks/w/signal/COMPLETED",
            "/api/tasks/w/signal/COMPLETED/sync",
            "/api/metadata/workflow/tags",
            "/api/metadata/workflow/w/1",
        ] {
            assert!(!is_unserved(path), "{path}");
        }
    }
}
