//! Poll loops. They poll while there are free slots, until the worker is asked to stop.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api::TaskQueueKind;
use super::registration::Registration;
use super::shared::{RunningTask, Shared};
use super::wire::{Polled, TaskKind};
use super::{activities, questions, workflow_tasks};
use crate::duration::seconds;
use crate::transport::RequestError;

/// The pauses after failed polls double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The shortest pause after a throttled poll.
const THROTTLED_PAUSE: Duration = Duration::from_secs(1);

/// The shared state of the poll loops.
#[derive(Clone)]
pub(super) struct Pollers {
    pub(super) shared: Arc<Shared>,
    pub(super) registration: Arc<Registration>,
    /// Cancelled when the worker must take no new tasks.
    pub(super) stop: CancellationToken,
    pub(super) drained: CancellationToken,
    /// Cancelled when running tasks must end.
    pub(super) abort: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) hold: Duration,
}

/// The next step of a poll loop.
enum Next {
    PollAgain,
    Pause(Duration),
    Fail(RequestError),
    Stop,
}

impl Pollers {
    /// Starts poll loops of one kind that share a number of slots.
    pub(super) fn start(
        &self,
        loops: &TaskTracker,
        kind: TaskQueueKind,
        pollers: usize,
        slots: usize,
    ) {
        let slots = Arc::new(Semaphore::new(slots));
        for _ in 0..pollers {
            loops.spawn(self.clone().poll_forever(kind, slots.clone()));
        }
    }

    async fn poll_forever(self, kind: TaskQueueKind, slots: Arc<Semaphore>) {
        let mut failures: u32 = 0;
        loop {
            let slot = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                slot = slots.clone().acquire_owned() => slot,
            };
            let Ok(slot) = slot else { return };
            let pause = match self.poll_once(kind, slot).await {
                Next::PollAgain => {
                    failures = 0;
                    continue;
                }
                Next::Pause(pause) => pause,
                Next::Stop => return,
                Next::Fail(error) => {
                    failures = failures.saturating_add(1);
                    self.shared.counters.polls_failed.add();
                    tracing::warn!(?kind, %error, failures, "poll failed");
                    pause_after(failures, &error)
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn poll_once(&self, kind: TaskQueueKind, slot: OwnedSemaphorePermit) -> Next {
        self.shared.counters.polls.add();
        let mut body = self.body(kind);
        let answer = tokio::select! {
            answer = self.shared.api.poll(kind, &body, self.hold) => answer,
            () = self.stop.cancelled() => {
                if self.abort.is_cancelled() {
                    return Next::Stop;
                }
                // The server may have dispatched a task while its response was on the way. The same request returns it again.
                body["timeout_seconds"] = json!(0);
                let last = self.shared.api.poll(kind, &body, Duration::ZERO).await;
                if let Ok(polled) = last {
                    self.take(kind, polled, slot);
                }
                return Next::Stop;
            }
        };
        match answer {
            Ok(polled) => self.take(kind, polled, slot),
            Err(error) => self.after_error(error).await,
        }
    }

    /// Handles the response to a poll: starts its task, or returns what to do next.
    fn take(&self, kind: TaskQueueKind, polled: Polled, slot: OwnedSemaphorePermit) -> Next {
        match polled.poll_status.as_deref() {
            Some("draining" | "stopped") => {
                self.drained.cancel();
                self.stop.cancel();
                return Next::Stop;
            }
            Some("throttled") => {
                self.shared.counters.polls_throttled.add();
                let asked = Duration::from_secs(polled.retry_after_seconds.unwrap_or(0));
                return Next::Pause(asked.max(THROTTLED_PAUSE));
            }
            // Older servers use `timeout` for an empty poll.
            _ => {}
        }
        let Some(task) = polled.task else {
            self.shared.counters.polls_empty.add();
            return Next::PollAgain;
        };
        let (shared, abort) = (self.shared.clone(), self.abort.clone());
        let running = RunningTask::new(&shared);
        self.tasks.spawn(async move {
            let _running = running;
            tokio::select! {
                () = process(&shared, kind, &task) => {}
                () = abort.cancelled() => {}
            }
            drop(slot);
        });
        Next::PollAgain
    }

    async fn after_error(&self, error: RequestError) -> Next {
        let reason = error.refusal().map_or("", |refusal| refusal.reason());
        match reason {
            "worker_draining" | "worker_stopped" => {
                tracing::info!("the server asked the worker to drain");
                self.drained.cancel();
                self.stop.cancel();
                Next::Stop
            }
            // The server does not know this worker any more: it was away for too long, or the store is a new one.
            "worker_not_registered" => match self.registration.register(&self.shared).await {
                Ok(()) => Next::PollAgain,
                Err(error) => Next::Fail(error),
            },
            _ => Next::Fail(error),
        }
    }

    fn body(&self, kind: TaskQueueKind) -> Value {
        let shared = &self.shared;
        let mut body = json!({
            "worker_id": shared.api.worker_id,
            "task_queue": shared.queue,
            "poll_request_id": format!("{:032x}", rand::random::<u128>()),
            "timeout_seconds": seconds(self.hold),
        });
        if let Some(build_id) = &shared.build_id {
            body["build_id"] = json!(build_id);
        }
        if kind == TaskQueueKind::Workflow {
            if let Some(page_size) = shared.history_page_size() {
                body["history_page_size"] = json!(page_size);
            }
            if self.registration.validates(shared) {
                body["task_kinds"] = json!(["workflow", "update_validation"]);
            }
        }
        body
    }
}

/// Returns the pause after a number of consecutive failures, with random jitter.
fn pause_after(failures: u32, error: &RequestError) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
    let pause = doubled
        .min(LONGEST_PAUSE)
        .mul_f64(rand::random_range(0.5..1.0));
    pause.max(error.retry_after().unwrap_or_default())
}

async fn process(shared: &Arc<Shared>, kind: TaskQueueKind, task: &RawValue) {
    match kind {
        TaskQueueKind::Activity => {
            if let Some(task) = read(task) {
                activities::process(shared, task).await;
            }
        }
        TaskQueueKind::Query => {
            if let Some(question) = read(task) {
                questions::answer_query(shared, question).await;
            }
        }
        TaskQueueKind::Workflow => {
            let named: Option<TaskKind> = read(task);
            if named.is_some_and(|named| named.task_kind.as_deref() == Some("update_validation")) {
                if let Some(question) = read(task) {
                    questions::validate_update(shared, question).await;
                }
            } else if let Some(task) = read(task) {
                // The future is large, so it is on the heap.
                Box::pin(workflow_tasks::process(shared, task)).await;
            }
        }
    }
}

fn read<T: DeserializeOwned>(task: &RawValue) -> Option<T> {
    serde_json::from_str(task.get())
        .inspect_err(|error| tracing::error!(%error, "could not read a task from the server"))
        .ok()
}
