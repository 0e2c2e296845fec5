//! Queries: a caller asks, a worker replays the run's history and answers, nothing is recorded. Closed runs can be queried like
//! open ones.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::change::TaskKind;
use longhaul_engine::queue::PollFilter;
use longhaul_engine::run::state::{Program, Run};
use longhaul_protocol::history::LimitBreach;
use longhaul_protocol::id::{Namespace, RunId, TaskQueue, WorkerId, WorkflowId};
use longhaul_protocol::workflow_command::FieldErrors;
use longhaul_protocol::{Payload, Reason};
use parking_lot::Mutex;

use crate::Host;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::matching::dispatch::{Dispatch, PollCaps};
use crate::matching::poll::{Claim, Poll, PollQueues, Polled};
use crate::matching::poll_dedup::{ClaimTarget, Polls};
use crate::operations::workflows::Handlers;
use crate::questions::progress::{
    Held, QueryResult, QuestionAnswer, QuestionFailure, QuestionHolder, QuestionKind, TimeoutStage,
};
use crate::questions::table::{Outcome, Question};
use crate::questions::waiter::{LeasedQuestion, required_capability, too_long_to_ask};
use crate::registry::workers::RegisteredWorker;
use crate::views::Queries;

/// The capability of a worker that answers queries.
const CAPABILITY: &str = "query_tasks";

/// Where query polls wait.
pub(crate) struct QueryQueues {
    pub(crate) dispatch: Dispatch,
    pub(crate) polls: Arc<Polls>,
    open: Mutex<HashMap<(Namespace, WorkerId), usize>>,
}

impl QueryQueues {
    /// Caps on leases and dispatches are for stored work: queries have a limit of their own.
    pub(crate) fn new(clock: Arc<dyn Clock>, poll_caps: PollCaps) -> Self {
        Self {
            dispatch: Dispatch::of_questions(clock, poll_caps),
            polls: Arc::default(),
            open: Mutex::default(),
        }
    }
}

impl QueryQueues {
    /// Returns whether the worker waits for queries here.
    pub(crate) fn is_polled_by(&self, worker: &(Namespace, WorkerId)) -> bool {
        self.open.lock().contains_key(worker)
    }
}

/// Why a query has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryRefusal {
    #[error("the workflow does not declare this query")]
    Unknown { declared: Vec<String> },
    #[error("the arguments do not match the declared query")]
    InvalidArguments { errors: FieldErrors },
    #[error("no live worker runs this workflow type on queue `{0}`")]
    WorkerUnavailable(TaskQueue),
    #[error("no live worker of queue `{0}` answers queries for this run's type and build")]
    WorkerIncompatible(TaskQueue),
    #[error("the queue already has its maximum of {limit} waiting queries")]
    QueueFull { limit: usize },
    #[error("the server is stopping and accepts no queries")]
    QueueUnavailable,
    #[error("no worker answered the query in time ({})", .0.as_str())]
    TimedOut(TimeoutStage),
    /// The message of the worker.
    #[error("{}", .0.message)]
    Failed(QuestionFailure),
}

impl QueryRefusal {
    /// Returns the machine-readable reason; a worker may report another one.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unknown { .. } => Reason::RejectedUnknownQuery,
            Self::InvalidArguments { .. } => Reason::InvalidQueryArguments,
            Self::WorkerUnavailable(_) => Reason::QueryWorkerUnavailable,
            Self::WorkerIncompatible(_) => Reason::QueryWorkerIncompatible,
            Self::QueueFull { .. } => Reason::QueryTaskQueueFull,
            Self::QueueUnavailable => Reason::QueryTaskQueueUnavailable,
            Self::TimedOut(_) => Reason::QueryWorkerTimeout,
            Self::Failed(failure) => match failure.reason.as_deref() {
                Some("rejected_unknown_query") => Reason::RejectedUnknownQuery,
                Some("invalid_query_arguments") => Reason::InvalidQueryArguments,
                Some(_) | None => Reason::QueryRejected,
            },
        }
    }
}

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Queried {
    pub run_id: RunId,
    pub workflow_type: String,
    pub result: QueryResult,
}

/// The number of queries that a queue holds and may hold.
#[derive(Clone, Copy, Debug)]
pub struct QueryAdmission {
    pub pending: usize,
    pub pending_max: usize,
    /// No query is accepted while the server stops.
    pub is_stopping: bool,
}

#[derive(Clone)]
struct QueryTasks;

impl Claim for QueryTasks {
    type Reply = LeasedQuestion;

    fn kind(&self) -> TaskKind {
        TaskKind::Workflow
    }

    fn label(&self) -> &'static str {
        "query"
    }

    fn poll_filter(&self, worker: &RegisteredWorker) -> PollFilter {
        worker.poll_filter(&worker.workflow_types)
    }

    fn poll_queues<'a>(&self, host: &'a Host) -> PollQueues<'a> {
        host.questions().queues(QuestionKind::Query)
    }

    async fn claim(
        &self,
        host: &Host,
        granted: &ClaimTarget,
        _worker: &RegisteredWorker,
        poll: &Poll,
    ) -> Result<Option<LeasedQuestion>> {
        host.questions().lease(granted, poll).await
    }
}

impl Queries<'_> {
    /// Asks a run, open or closed, and waits for the answer.
    pub async fn ask(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        run_id: Option<&RunId>,
        name: &str,
        arguments: Payload,
    ) -> Result<Queried> {
        let (run, _) = self
            .host
            .workflows()
            .run(namespace, workflow_id, run_id)
            .await?;
        let program = run.spec.program;
        if program != Program::Code {
            return Err(Rejection::OtherProgram { program }.into());
        }
        let declared = self
            .host
            .workflows()
            .declared_handlers(&run, Handlers::Queries);
        if !declared.knows(name) {
            return Err(Error::Query(QueryRefusal::Unknown {
                declared: declared.names,
            }));
        }
        let errors = declared.check(name, &arguments);
        if !errors.is_empty() {
            return Err(Error::Query(QueryRefusal::InvalidArguments { errors }));
        }
        self.require_room(&arguments)?;
        if let Some(message) = too_long_to_ask(&run) {
            return Err(Error::Query(QueryRefusal::Failed(QuestionFailure {
                message,
                ..QuestionFailure::default()
            })));
        }
        self.require_query_worker(&run)?;
        let limit = self.host.inner.config.questions.pending_max;
        let asked = self.host.questions().ask(Question {
            kind: QuestionKind::Query,
            run: Arc::clone(&run.spec),
            name: name.to_owned(),
            arguments,
            required_capability: required_capability(&run),
        });
        let asked = asked.map_err(|_| Error::Query(QueryRefusal::QueueFull { limit }))?;
        let refusal = match asked.outcome().await {
            Outcome::Answered(QuestionAnswer::Done(Some(result))) => {
                return Ok(Queried {
                    run_id: run.spec.run_id.clone(),
                    workflow_type: run.spec.workflow_type.clone(),
                    result,
                });
            }
            Outcome::Answered(QuestionAnswer::Failed(failure)) => QueryRefusal::Failed(failure),
            Outcome::TimedOut(stage) => QueryRefusal::TimedOut(stage),
            // A query's answer always has a result, and the query of a lost worker is offered again: these cases do not occur.
            Outcome::Answered(QuestionAnswer::Done(None)) | Outcome::WorkerLost => {
                QueryRefusal::TimedOut(TimeoutStage::Executing)
            }
            Outcome::Stopping => QueryRefusal::QueueUnavailable,
        };
        Err(Error::Query(refusal))
    }

    pub(crate) fn require_room(self, arguments: &Payload) -> Result<()> {
        let value = arguments.blob().len() as u64;
        let configured = self.host.inner.config.limits.payload_bytes;
        if value <= configured {
            return Ok(());
        }
        Err(Error::Rejected(Rejection::LimitExceeded(LimitBreach {
            kind: "payload_size",
            value,
            configured,
        })))
    }

    /// Checks that some worker can answer; otherwise the caller gets the refusal at once and not after the whole wait.
    fn require_query_worker(self, run: &Run) -> Result<()> {
        let spec = &run.spec;
        let live = self
            .host
            .workers()
            .live(&spec.namespace, &spec.task_queue, &spec.workflow_type);
        if live.is_empty() {
            let queue = spec.task_queue.clone();
            return Err(Error::Query(QueryRefusal::WorkerUnavailable(queue)));
        }
        let pinned = spec.routing.compatibility.as_deref();
        let able = |worker: &RegisteredWorker| {
            required_capability(run).is_none_or(|name| worker.can(name))
        };
        if !live
            .iter()
            .any(|worker| self.answers_queries(worker) && worker.fits_build(pinned) && able(worker))
        {
            let queue = spec.task_queue.clone();
            return Err(Error::Query(QueryRefusal::WorkerIncompatible(queue)));
        }
        Ok(())
    }

    /// Returns whether a worker answers queries: it registered the capability, or it polls for them.
    fn answers_queries(self, worker: &RegisteredWorker) -> bool {
        let key = (worker.row.namespace.clone(), worker.row.worker_id.clone());
        worker.can(CAPABILITY)
            || self.host.inner.queries.is_polled_by(&key)
            || self.host.inner.presence.polls_queries(&key)
    }

    /// Waits for a query and leases it.
    pub async fn poll(self, poll: &Poll) -> Result<Polled<LeasedQuestion>> {
        let _open = OpenPoll::new(&self.host.inner.queries, poll);
        self.host.matching().poll(poll, &QueryTasks).await
    }

    /// Records the result of a query; returns true if it was reported before.
    pub async fn complete(self, holder: &QuestionHolder, result: QueryResult) -> Result<bool> {
        self.answer(
            QuestionKind::Query,
            holder,
            QuestionAnswer::Done(Some(result)),
        )
        .await
    }

    /// Records that a query has no result; returns true if it was reported before.
    pub async fn fail(self, holder: &QuestionHolder, failure: QuestionFailure) -> Result<bool> {
        self.answer(QuestionKind::Query, holder, QuestionAnswer::Failed(failure))
            .await
    }

    /// Returns the state of a query for its worker, with the reason to stop, if any. This renews nothing.
    pub async fn status(self, holder: &QuestionHolder) -> Result<Held> {
        let kind = QuestionKind::Query;
        if self.host.questions().is_passing(&holder.task_id) {
            return self.host.questions().held_passing(kind, holder).await;
        }
        let held = self
            .host
            .inner
            .questions
            .held(kind, holder, self.host.now());
        held.map_err(|refusal| Error::Question { kind, refusal })
    }

    pub(crate) async fn answer(
        self,
        kind: QuestionKind,
        holder: &QuestionHolder,
        answer: QuestionAnswer,
    ) -> Result<bool> {
        if self.host.questions().is_passing(&holder.task_id) {
            let questions = self.host.questions();
            return questions.answer_passing(kind, holder, answer).await;
        }
        let questions = &self.host.inner.questions;
        match questions.answer(kind, holder, answer, self.host.now()) {
            Ok(is_repeat) => {
                self.host.questions().release(kind, &holder.task_id);
                Ok(is_repeat)
            }
            Err(refusal) => Err(Error::Question { kind, refusal }),
        }
    }

    /// Returns how many queries a queue holds and may hold.
    pub fn admission(self, namespace: &Namespace, queue: &TaskQueue) -> QueryAdmission {
        let questions = &self.host.inner.questions;
        QueryAdmission {
            pending: questions.pending(QuestionKind::Query, namespace, queue),
            pending_max: self.host.inner.config.questions.pending_max,
            is_stopping: self.host.inner.stopping.is_cancelled(),
        }
    }
}

/// A waiting query poll: while it waits, its worker answers queries whatever it registered.
struct OpenPoll<'a> {
    poll_queues: &'a QueryQueues,
    key: (Namespace, WorkerId),
}

impl<'a> OpenPoll<'a> {
    fn new(poll_queues: &'a QueryQueues, poll: &Poll) -> Self {
        let key = (poll.namespace.clone(), poll.worker_id.clone());
        *poll_queues.open.lock().entry(key.clone()).or_default() += 1;
        Self { poll_queues, key }
    }
}

impl Drop for OpenPoll<'_> {
    fn drop(&mut self) {
        let mut open = self.poll_queues.open.lock();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}
