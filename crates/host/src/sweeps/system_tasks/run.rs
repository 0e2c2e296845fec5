//! The loop of one queue, and the life of one task: claimed, run under a lease, reported.

use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::command::{RenewExecutionTask, UpdateExecutionTask};
use longhaul_engine::conductor::execution::command::claim::HeldTask;
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_protocol::conductor::{Object, ResultStatus, Task};
use longhaul_protocol::id::RunId;
use longhaul_store::QueueKey;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{RunTask, TaskEnd};
use crate::Host;
use crate::conductor::poll_data::LastPoll;
use crate::conductor::tasks::{Holder, poll_filter};
use crate::error::{Error, Result};
use crate::idle::Busy;
use crate::matching::poll::TakenTask;

/// How long a server holds a task without a renewal. A server that is cut off from its store for longer may run a task that another one
/// runs too; a server that died delays its tasks by this.
const LEASE_SECONDS: u64 = 20;

/// How often a lease is renewed. Two renewals may fail before it ends.
const RENEWAL_SECONDS: u64 = 6;

/// How long one poll of the server waits. Each is recorded, so that operators see that the queue is served.
const POLL: Duration = Duration::from_secs(20);

/// How long a server that stops lets its tasks run to their end.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The pause after a store did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// One queue that the server serves.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) queue: QueueKey,
    pub(super) task_type: &'static str,
    pub(super) runner: Arc<dyn RunTask>,
    pub(super) slots: Arc<Semaphore>,
}

/// Takes tasks of a queue until the host stops. A task is taken only if the server has a slot for it; otherwise it stays in the queue,
/// where other servers get it.
pub(super) async fn serve(host: Host, served: Served) {
    let inner = &host.inner;
    while !inner.stopping.is_cancelled() {
        let room = tokio::select! {
            room = served.slots.acquire() => room,
            () = inner.stopping.cancelled() => return,
        };
        drop(room);
        if let Err(error) = take_one(&host, &served).await {
            tracing::debug!(%error, task_type = served.task_type, "a task could not be taken");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = inner.stopping.cancelled() => return,
            }
        }
    }
}

async fn take_one(host: &Host, served: &Served) -> Result<()> {
    let (inner, tasks) = (&host.inner, host.execution_tasks());
    let dispatch = &inner.wakes.dispatch;
    let server_name = inner.config.server_name.as_deref().unwrap_or("server");
    tasks.record_poll(
        &served.queue.namespace,
        LastPoll {
            task_type: served.task_type.to_owned(),
            domain: None,
            worker_id: Some(server_name.to_owned()),
            at: host.now(),
        },
    );
    let filter = poll_filter(Some(server_name));
    let in_line = inner.own_polls.wait_at(&served.queue);
    let until = Instant::now() + POLL;
    let first = tasks.take_first(dispatch, &served.queue, &filter, 1, until);
    let first = first.await;
    // The host is busy before the poll no longer counts as waiting.
    let busy = inner.wakes.idle.busy();
    drop(in_line);
    let Some(task) = first? else {
        return Ok(());
    };
    let seq = task.sequence.get();
    let taken = TakenTask::new(dispatch, &served.queue, task);
    let Ok(slot) = Arc::clone(&served.slots).try_acquire_owned() else {
        return Ok(());
    };
    let begun_at = Instant::now();
    let holder = Holder {
        worker_id: Some(server_name),
        served_seconds: Some(LEASE_SECONDS),
    };
    let Some(task) = tasks.claim(vec![taken], holder).await?.pop() else {
        return Ok(());
    };
    let running = Running {
        host: host.clone(),
        runner: Arc::clone(&served.runner),
        held: HeldTask {
            task_id: task.task_id.as_str().into(),
            // The record shows another number after a restart.
            seq,
            poll_count: u32::try_from(task.poll_count).unwrap_or(0),
        },
        run_id: RunId::from(task.workflow_instance_id.as_str()),
        held_until: begun_at + Duration::from_secs(LEASE_SECONDS),
    };
    inner.tasks.spawn(running.finish(task, slot, busy));
    Ok(())
}

/// A task that runs.
struct Running {
    host: Host,
    runner: Arc<dyn RunTask>,
    run_id: RunId,
    held: HeldTask,
    /// When the lease ends unless it is renewed.
    held_until: Instant,
}

impl Running {
    /// Runs the task and reports its end. The slot and the host are busy until then.
    async fn finish(mut self, task: Task, _slot: OwnedSemaphorePermit, _busy: Busy) {
        let runner = Arc::clone(&self.runner);
        let mut input = task.input_data.clone();
        let revealed = self.host.inner.config.environment.reveal(&mut input);
        let stopping = self.host.inner.stopping.clone();
        let stop = async {
            stopping.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        let end = tokio::select! {
            end = runner.run(&input) => Some(end),
            () = self.keep() => {
                tracing::debug!(task_id = %task.task_id, "a task that the server ran ended in another way");
                return;
            }
            () = stop => None,
        };
        let report = match end {
            Some(mut end) => {
                revealed.redact(&mut end);
                report_of(end, &task.input_data)
            }
            // Another server, or the next start of this one, runs it again, without waiting for the end of the lease.
            None => status_report(ResultStatus::InProgress, None, task.output_data.clone()),
        };
        self.report(report).await;
    }

    /// Renews the lease. Returns when the task is no longer held.
    async fn keep(&mut self) {
        let host = self.host.clone();
        loop {
            let next = host.now().plus_seconds(RENEWAL_SECONDS);
            host.inner.clock.sleep_until(next).await;
            let renewed_at = Instant::now();
            let command = RenewExecutionTask {
                held: self.held.clone(),
                seconds: LEASE_SECONDS,
            };
            match host.inner.executor.execute(&self.run_id, &command).await {
                Ok(Some(true)) => {
                    self.held_until = renewed_at + Duration::from_secs(LEASE_SECONDS);
                }
                Ok(Some(false) | None) | Err(Error::Rejected(_)) => return,
                Err(error) if Instant::now() < self.held_until => {
                    tracing::debug!(%error, "the lease of a task could not be renewed; trying again");
                }
                Err(_) => return,
            }
        }
    }

    /// Reports the end. A report that is lost is one that was never made: the task runs again.
    async fn report(&self, report: Report) {
        let command = UpdateExecutionTask {
            target: TaskTarget::Held(self.held.clone()),
            report,
            takes_next: false,
        };
        loop {
            let reported = self.host.executions().decide(&self.run_id, &command).await;
            match reported {
                Ok(_) => return,
                Err(Error::Rejected(_) | Error::Conductor(_)) => {
                    tracing::debug!(task_id = %self.held.task_id, "the result of a task came too late");
                    return;
                }
                Err(error) if Instant::now() >= self.held_until => {
                    tracing::warn!(%error, task_id = %self.held.task_id, "the result of a task could not be stored; it runs again");
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "the result of a task could not be stored; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn report_of(end: TaskEnd, input: &Object) -> Report {
    let waits = input.get("asyncComplete") == Some(&Value::Bool(true));
    if waits && end.status == ResultStatus::Completed {
        return Report::AwaitsUpdate { output: end.output };
    }
    status_report(end.status, end.reason, end.output)
}

fn status_report(status: ResultStatus, reason: Option<String>, output: Object) -> Report {
    Report::Status {
        status,
        output: Output::Replace(output),
        reason,
        worker_id: None,
        callback_after_seconds: 0,
        logs: Vec::new(),
    }
}
