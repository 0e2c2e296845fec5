//! Asking a worker and waiting for its answer: the shared part of queries and validations of updates above the table of questions.

use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::change::TaskKind;
use longhaul_engine::run::cancellation::CAPABILITY;
use longhaul_engine::run::state::{Run, Spec, Status};
use longhaul_protocol::id::{Namespace, TaskId, WorkerId};
use longhaul_protocol::sequence::HistorySeq;
use longhaul_protocol::{Ids, Payload};
use longhaul_store::{Page, QueueKey, StoredEvent};
use tokio::sync::Notify;

use crate::Host;
use crate::error::Result;
use crate::matching::dispatch::ReadyTask;
use crate::matching::poll::{Poll, PollQueues};
use crate::matching::poll_dedup::ClaimTarget;
use crate::questions::progress::{QuestionKind, QuestionLease, QuestionTimes};
use crate::questions::table::{Full, Outcome, Question, WaitStatus};
use crate::views::Questions;

/// A leased question.
#[derive(Clone, Debug)]
pub struct LeasedQuestion {
    pub task_id: TaskId,
    pub run: Arc<Spec>,
    /// The query, or the update.
    pub name: String,
    pub arguments: Payload,
    pub lease: QuestionLease,
    pub times: QuestionTimes,
    pub run_status: Status,
    /// The whole history as it was committed when the question was leased, read once.
    pub history: Vec<StoredEvent>,
}

impl LeasedQuestion {
    /// Returns the bytes of the payloads of its history.
    pub fn bytes(&self) -> usize {
        self.history.iter().map(|event| event.payload.len()).sum()
    }
}

/// A question whose caller waits. Dropping it ends the wait: no worker gets the question any more.
pub(crate) struct Asked<'a> {
    host: &'a Host,
    kind: QuestionKind,
    task_id: TaskId,
    changed: Arc<Notify>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.host.inner.questions.abandon(&self.task_id);
        self.host.questions().release(self.kind, &self.task_id);
        self.host.questions().end_shown(&self.task_id);
    }
}

impl Asked<'_> {
    /// Waits for the end of the question.
    pub(crate) async fn outcome(self) -> Outcome {
        let inner = &self.host.inner;
        let is_shared = inner.store.shared().is_some();
        loop {
            if is_shared && let Err(error) = self.host.questions().show(&self.task_id).await {
                tracing::debug!(%error, "a question could not be shown to other servers");
            }
            match inner.questions.look(&self.task_id, self.host.now()) {
                WaitStatus::Over(outcome) => return outcome,
                WaitStatus::Until(at) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = inner.clock.sleep_until(at) => {}
                    // A poll may have given it back.
                    () = tokio::time::sleep(SHOW_AGAIN), if is_shared => {}
                    () = inner.stopping.cancelled() => return Outcome::Stopping,
                },
            }
        }
    }
}

/// How often a question that waits is shown to other servers, if it is not yet.
const SHOW_AGAIN: Duration = Duration::from_secs(1);

/// The most bytes of history that a question may carry. A question carries the whole history, because the protocol has no pages for
/// it. The history budget recommends workers to continue as new at a third of this.
const HISTORY_BYTES_MAX: u64 = 16 << 20;

/// Returns why no worker can be asked about this run: its history is too long to be sent at once.
pub(crate) fn too_long_to_ask(run: &Run) -> Option<String> {
    let bytes = run.core.history_size_bytes;
    (bytes > HISTORY_BYTES_MAX).then(|| {
        format!(
            "the run's history has {bytes} bytes, and a worker that is asked about it gets at most {HISTORY_BYTES_MAX}; \
             let the workflow continue as new"
        )
    })
}

impl<'h> Questions<'h> {
    /// Returns where questions of a kind wait for a worker: queries in queues of their own, validations among the workflow tasks.
    pub(crate) fn queues(self, kind: QuestionKind) -> PollQueues<'h> {
        match kind {
            QuestionKind::Query => PollQueues {
                dispatch: &self.host.inner.queries.dispatch,
                polls: &self.host.inner.queries.polls,
                is_stored: false,
            },
            QuestionKind::UpdateValidation => PollQueues {
                dispatch: &self.host.inner.wakes.dispatch,
                polls: &self.host.inner.wakes.polls,
                is_stored: true,
            },
        }
    }

    /// Offers a question to the workers of its run's queue.
    pub(crate) fn ask(self, question: Question) -> std::result::Result<Asked<'h>, Full> {
        let now = self.host.now();
        let task_id: TaskId = Ids::new(now, rand::random()).mint();
        let kind = question.kind;
        let task = ReadyTask::question(task_id.clone(), &question, now);
        let queue = queue_of(&question.run);
        let changed = self.host.inner.questions.admit(
            &task_id,
            question,
            &self.host.inner.config.questions,
            now,
        )?;
        let asked = Asked {
            host: self.host,
            kind,
            task_id,
            changed,
        };
        self.queues(kind).dispatch.ask(&queue, task);
        Ok(asked)
    }

    /// Removes a question that has ended or was released: no poll gets it, or gets it again.
    pub(crate) fn release(self, kind: QuestionKind, task_id: &TaskId) {
        let poll_queues = self.queues(kind);
        poll_queues.dispatch.withdraw(task_id);
        poll_queues.polls.released(task_id);
    }

    /// Releases the questions of a worker that left. Its queries go to the next worker while their callers wait; its validations
    /// are lost.
    pub(crate) fn release_all(self, namespace: &Namespace, worker_id: &WorkerId) {
        for (task_id, question) in self.host.inner.questions.release(namespace, worker_id) {
            if let Some(question) = question {
                self.release(question.kind, &task_id);
                let task = ReadyTask::question(task_id, &question, self.host.now());
                let poll_queues = self.queues(question.kind);
                poll_queues.dispatch.ask(&queue_of(&question.run), task);
            }
        }
    }

    /// Leases a question with the history that it needs. The lease comes last: a failure before leaves the question to the next
    /// poll.
    pub(crate) async fn lease(
        self,
        granted: &ClaimTarget,
        poll: &Poll,
    ) -> Result<Option<LeasedQuestion>> {
        let is_passing = self.host.inner.passing.has(&granted.task_id);
        if !is_passing && !self.host.inner.questions.is_open(&granted.task_id) {
            return Ok(None);
        }
        let Some(run) = self.host.inner.executor.read(&granted.run_id).await? else {
            return Ok(None);
        };
        let end = run.core.last_history_sequence;
        // The whole history: its events are limited, and its bytes were checked when the question was asked. Little was added
        // since.
        let whole = Page {
            events: usize::try_from(end.get()).unwrap_or(usize::MAX),
            bytes: usize::MAX,
        };
        let store = &self.host.inner.store;
        let history = store
            .history(&granted.run_id, HistorySeq::ZERO, end, whole)
            .await?;
        let request_id = poll.poll_request_id.as_deref();
        let leased = if is_passing {
            let lease = self.lease_passing(
                &poll.namespace,
                &granted.task_id,
                &poll.worker_id,
                request_id,
            );
            let leased = lease.await?;
            leased.map(|(question, lease, times)| (Arc::new(question), lease, times))
        } else if self.host.inner.store.shared().is_some() {
            self.lease_and_show(&granted.task_id, &poll.worker_id, request_id)
                .await?
        } else {
            self.host.inner.questions.lease(
                &granted.task_id,
                &poll.worker_id,
                request_id,
                &self.host.inner.config.questions,
                self.host.now(),
            )
        };
        Ok(leased.map(|(question, lease, times)| LeasedQuestion {
            task_id: granted.task_id.clone(),
            run: Arc::clone(&question.run),
            name: question.name.clone(),
            arguments: question.arguments.clone(),
            lease,
            times,
            run_status: run.core.status,
            history,
        }))
    }
}

/// Returns the key of a run's queue. Queries have their own poll queues, so theirs do not mix with those of workflow tasks.
pub(crate) fn queue_of(run: &Spec) -> QueueKey {
    QueueKey {
        namespace: run.namespace.clone(),
        kind: TaskKind::Workflow,
        queue: run.task_queue.clone(),
    }
}

/// Returns the capability that a worker needs to replay the run: the history of a run that was asked to end contains the request.
pub(crate) fn required_capability(run: &Run) -> Option<&'static str> {
    run.core.cancellation.as_ref().map(|_| CAPABILITY)
}
