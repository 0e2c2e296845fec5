//! Tags of definitions and event handlers, and rate limits of workflows.

use http::StatusCode;
use longhaul_host::Tagged;
use longhaul_protocol::Reason;
use longhaul_protocol::conductor::{RateLimitConfig, Tag};

use super::answer::Answer;
use super::call::{Call, refused};
use crate::gate::Refusal;

/// Which definitions or handlers a route is about.
type Subject = for<'a> fn(&'a str) -> Tagged<'a>;

async fn read(call: &Call, subject: Subject) -> Result<Answer, Refusal> {
    let definitions = call.host().definitions();
    let tags = definitions.tags(&call.namespace, subject(call.segment("a")));
    Ok(Answer::json(&tags.await.map_err(refused)?))
}

async fn add(call: &Call, subject: Subject) -> Result<Answer, Refusal> {
    let tags: Vec<Tag> = call.one_or_many()?;
    let definitions = call.host().definitions();
    let added = definitions.add_tags(&call.namespace, subject(call.segment("a")), tags);
    added.await.map_err(refused)?;
    Ok(Answer::Void)
}

async fn replace(call: &Call, subject: Subject) -> Result<Answer, Refusal> {
    let tags: Vec<Tag> = call.one_or_many()?;
    let definitions = call.host().definitions();
    let replaced = definitions.replace_tags(&call.namespace, subject(call.segment("a")), tags);
    replaced.await.map_err(refused)?;
    Ok(Answer::Void)
}

async fn remove(call: &Call, subject: Subject) -> Result<Answer, Refusal> {
    let tags: Vec<Tag> = call.one_or_many()?;
    let definitions = call.host().definitions();
    let removed = definitions.remove_tags(&call.namespace, subject(call.segment("a")), tags);
    removed.await.map_err(refused)?;
    Ok(Answer::Void)
}

macro_rules! handlers {
    ($($subject:ident: $get:ident $post:ident $put:ident $delete:ident;)+) => {$(
        pub(super) async fn $get(call: Call) -> Result<Answer, Refusal> {
            read(&call, |name| Tagged::$subject(name)).await
        }

        pub(super) async fn $post(call: Call) -> Result<Answer, Refusal> {
            add(&call, |name| Tagged::$subject(name)).await
        }

        pub(super) async fn $put(call: Call) -> Result<Answer, Refusal> {
            replace(&call, |name| Tagged::$subject(name)).await
        }

        pub(super) async fn $delete(call: Call) -> Result<Answer, Refusal> {
            remove(&call, |name| Tagged::$subject(name)).await
        }
    )+};
}

handlers! {
    Task: of_task add_to_task replace_of_task remove_from_task;
    Workflow: of_workflow add_to_workflow replace_of_workflow remove_from_workflow;
    EventHandler: of_handler add_to_handler replace_of_handler remove_from_handler;
}

pub(super) async fn all(call: Call) -> Result<Answer, Refusal> {
    let tags = call.host().definitions().all_tags(&call.namespace).await;
    Ok(Answer::json(&tags.map_err(refused)?))
}

pub(super) async fn rate_limit(call: Call) -> Result<Answer, Refusal> {
    let name = call.segment("a");
    let definitions = call.host().definitions();
    let limit = definitions.rate_limit(&call.namespace, name).await;
    match limit.map_err(refused)? {
        Some(limit) => Ok(Answer::json(&limit)),
        None => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            Reason::DefinitionNotFound,
            format!("Workflow {name} has no rate limit"),
        )),
    }
}

pub(super) async fn set_rate_limit(call: Call) -> Result<Answer, Refusal> {
    let limit: RateLimitConfig = call.body()?;
    change_rate_limit(&call, Some(limit)).await
}

pub(super) async fn remove_rate_limit(call: Call) -> Result<Answer, Refusal> {
    change_rate_limit(&call, None).await
}

async fn change_rate_limit(call: &Call, limit: Option<RateLimitConfig>) -> Result<Answer, Refusal> {
    let definitions = call.host().definitions();
    let set = definitions.set_rate_limit(&call.namespace, call.segment("a"), limit);
    set.await.map_err(refused)?;
    Ok(Answer::Void)
}
