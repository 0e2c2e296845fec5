//! Keeps a Rust worker running: when an outage ends it, another takes its place under the same id.

use std::time::Duration;

use durable_workflow::{Client, Error};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::shapes;
use crate::harness::DEADLINE;
use crate::rust_sdk::fixture::new_worker;

const RESTART_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Supervisor {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Supervisor {
    pub(super) fn start(client: Client, id: &'static str) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let mut worker = new_worker(client.clone(), id).local_activities(true);
                shapes::register(&mut worker);
                let mut stopped = stopped.clone();
                let shutdown = async move {
                    // An error means that the supervisor is gone, and its worker with it.
                    let _gone = stopped.wait_for(|stopped| *stopped).await;
                };
                match Box::pin(worker.run_until(shutdown)).await {
                    Ok(()) => return,
                    Err(error) => assert!(
                        is_outage(&error),
                        "{id} ended for a reason no outage explains: {error:?}"
                    ),
                }
                sleep(RESTART_PAUSE).await;
            }
        });
        Self { stop, task }
    }

    /// The server is up, so the last worker must stop cleanly.
    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        timeout(DEADLINE, self.task)
            .await
            .expect("the worker stops")
            .expect("every end was an outage");
    }
}

/// Returns whether a call failed because the server was down, or was down so long that a lease expired.
///
/// Everything else counts: a lost registration (412, 404), a refused command, a divergent replay.
pub(super) fn is_outage(error: &Error) -> bool {
    const LOST_LEASE: [&str; 5] = [
        "lease_expired",
        "task_not_leased",
        "lease_owner_mismatch",
        "workflow_task_attempt_mismatch",
        // The run was stopped by the close of its parent.
        "run_closed",
    ];
    match error {
        Error::Transport(_) => true,
        Error::Http { status, body } if status.as_u16() == 409 => {
            LOST_LEASE.iter().any(|reason| body.contains(reason))
        }
        Error::Http { status, .. } => status.is_server_error(),
        Error::WorkerShutdown {
            primary,
            deregistration,
        } => is_outage(primary) && is_outage(deregistration),
        _ => false,
    }
}
