//! The verbs of the bridge contracts that have no route: `claim` and `claimStatus`, by the host that the handlers call.

use std::time::Duration;

use longhaul_host::{ClaimStatus, Poll};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{Namespace, TaskId, TaskQueue, WorkerId};
use serde_json::{Value, json};

use crate::support::{
    Server, complete, decided, every_type, expect_no_task, fail, id, staffed, stop,
};

fn claim_by(worker_id: &str) -> Poll {
    Poll {
        namespace: Namespace::from("default"),
        worker_id: WorkerId::from(worker_id),
        task_queue: TaskQueue::from("default"),
        build_id: None,
        poll_request_id: None,
        timeout: Duration::ZERO,
    }
}

/// Returns a ready workflow task whose id is known, because it was leased before.
async fn ready_workflow_task(server: &Server) -> TaskId {
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    fail(server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    server.advance(1).await;
    TaskId::from(id(&task))
}

async fn refusal_of(server: &Server, worker_id: &str, task_id: &TaskId) -> Reason {
    let claimed = server
        .host
        .workflow_tasks()
        .claim(&claim_by(worker_id), task_id, 500)
        .await;
    claimed
        .map(|task| task.claim.attempt)
        .expect_err("a refusal")
        .reason()
}

#[tokio::test]
async fn one_of_two_claims_of_a_named_task_wins() {
    let server = staffed().await;
    server.register("v", every_type()).await;
    let task_id = ready_workflow_task(&server).await;
    let (first, second) = (claim_by("w"), claim_by("v"));
    let (first, second) = tokio::join!(
        server.host.workflow_tasks().claim(&first, &task_id, 500),
        server.host.workflow_tasks().claim(&second, &task_id, 500)
    );
    let claimed = first.expect("the first claim");
    assert_eq!(
        (claimed.claim.attempt, claimed.history.events.len()),
        (2, 2)
    );
    assert_eq!(
        second
            .map(|task| task.claim.attempt)
            .expect_err("the second")
            .reason(),
        Reason::LeasedByOther
    );
    expect_no_task(&server, "workflow").await;
    let leased = json!({"task_id": task_id, "lease_owner": "w", "workflow_task_attempt": 2});
    complete(&server, &leased, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_refused_claim_has_a_reason_and_changes_nothing() {
    let server = staffed().await;
    let task_id = ready_workflow_task(&server).await;
    assert_eq!(
        refusal_of(&server, "unknown", &task_id).await,
        Reason::WorkerNotRegistered
    );
    assert_eq!(
        refusal_of(&server, "w", &TaskId::from("unknown")).await,
        Reason::TaskNotFound
    );
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["workflow_task_attempt"], 2, "no attempt was used up");
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    assert_eq!(refusal_of(&server, "w", &task_id).await, Reason::NotDue);
    server.advance(2).await;
    let task = server.worker("w").workflow_task().await;
    complete(&server, &task, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    assert_eq!(
        refusal_of(&server, "w", &task_id).await,
        Reason::TaskNotReady
    );
    stop(&server, "cancel").await;
    assert_eq!(refusal_of(&server, "w", &task_id).await, Reason::RunClosed);
}

#[tokio::test]
async fn a_pinned_task_is_not_claimed_by_another_build() {
    let server = Server::open().await;
    server.register("w", json!({"build_id": "b"})).await;
    server.register("v", json!({})).await;
    server
        .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "build_id": "b"}))
        .await;
    let task = server.worker("w").workflow_task().await;
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    server.advance(1).await;
    assert_eq!(
        refusal_of(&server, "v", &TaskId::from(id(&task))).await,
        Reason::CompatibilityBlocked
    );
}

async fn status(server: &Server, task_id: &TaskId) -> ClaimStatus {
    let status = server
        .host
        .workflow_tasks()
        .claim_status(&Namespace::from("default"), task_id)
        .await;
    status.expect("a status")
}

#[tokio::test]
async fn the_status_of_a_claim_follows_the_task() {
    let server = staffed().await;
    let task_id = ready_workflow_task(&server).await;
    assert_eq!(status(&server, &task_id).await, ClaimStatus::Claimable);
    let task = server.worker("w").workflow_task().await;
    let claimed = ClaimStatus::Claimed {
        lease_owner: "w".to_owned(),
        lease_expires_at: "2026-01-01T00:05:01.000000Z".parse().expect("a time"),
    };
    assert_eq!(status(&server, &task_id).await, claimed);
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    assert_eq!(
        status(&server, &task_id).await,
        ClaimStatus::Refused(Reason::NotDue)
    );
    server.advance(2).await;
    let task = server.worker("w").workflow_task().await;
    complete(&server, &task, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    assert_eq!(
        status(&server, &task_id).await,
        ClaimStatus::Refused(Reason::TaskNotReady)
    );
    stop(&server, "cancel").await;
    assert_eq!(
        status(&server, &task_id).await,
        ClaimStatus::Refused(Reason::RunClosed)
    );
    assert_eq!(
        status(&server, &TaskId::from("unknown")).await,
        ClaimStatus::Refused(Reason::TaskNotFound)
    );
}

#[tokio::test]
async fn an_activity_task_is_claimed_by_its_id_too() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let commands = json!([{"type": "start_timer", "delay_seconds": 900}, {"type": "schedule_activity", "activity_type": "say"}]);
    let answer = complete(&server, &task, commands).accepted(200).await;
    let task_id = TaskId::from(answer["created_task_ids"][0].as_str().expect("an id"));
    let namespace = Namespace::from("default");
    let status = || {
        server
            .host
            .activity_tasks()
            .claim_status(&namespace, &task_id)
    };
    assert_eq!(status().await.expect("a status"), ClaimStatus::Claimable);
    let claimed = server
        .host
        .activity_tasks()
        .claim(&claim_by("w"), &task_id)
        .await
        .expect("a claim");
    assert_eq!(claimed.attempt.number, 1);
    assert!(matches!(
        status().await.expect("a status"),
        ClaimStatus::Claimed { .. }
    ));
    let again = server
        .host
        .activity_tasks()
        .claim(&claim_by("w"), &task_id)
        .await;
    assert!(again.is_err(), "it is leased");
    expect_no_task(&server, "activity").await;
    let leased: Value =
        json!({"task_id": task_id, "activity_attempt_id": claimed.attempt.id, "lease_owner": "w"});
    crate::support::activity_report(&server, &leased, "complete", json!({}))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn an_unknown_activity_cannot_be_claimed() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    let claimed = server
        .host
        .activity_tasks()
        .claim(&claim_by("w"), &TaskId::from("unknown"))
        .await;
    assert_eq!(
        claimed
            .map(|claim| claim.attempt.number)
            .expect_err("a refusal")
            .reason(),
        Reason::TaskNotFound
    );
}
