//! A poll, from the worker's registration to a lease. A client may hang up at any time: the task that it was waiting for goes to
//! the next poll, and one that it was about to get is found again by its poll request id.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_engine::Rejection;
use longhaul_engine::change::{CapScope, TaskKind, TaskRow};
use longhaul_engine::queue::{PollFilter, Withheld};
use longhaul_engine::run::state::Program;
use longhaul_protocol::id::{Namespace, TaskQueue, WorkerId};
use longhaul_store::{PollId, QueueKey, TaskPlace};
use tokio::time::Instant;

use crate::Host;
use crate::cluster::looks::{NewTasks, PendingLook};
use crate::error::{Error, Result};
use crate::matching::admission::Throttle;
use crate::matching::dispatch::{
    Asked, Dispatch, Extent, FETCHED_WHEN_FULL, Found, READY_IN_SESSION_MAX, READY_PER_QUEUE_MAX,
    ReadyTask, Reservation, Ticket,
};
use crate::matching::poll_dedup::{ClaimTarget, DedupOutcome, FirstPoll, PollKey, Polls};
use crate::registry::workers::RegisteredWorker;
use crate::views::Matching;

/// A poll that waits is part of a look for everything within this time.
const LOOKED_FOR_WITHIN: Duration = Duration::from_secs(2);

/// A poll at its deadline waits this much longer for a share of a rate that is on its way.
const SHARE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A worker's request for one task.
#[derive(Clone, Debug)]
pub struct Poll {
    pub namespace: Namespace,
    pub worker_id: WorkerId,
    pub task_queue: TaskQueue,
    pub build_id: Option<String>,
    pub poll_request_id: Option<String>,
    /// Zero returns at once.
    pub timeout: Duration,
}

/// How a poll ended.
#[derive(Clone, Debug)]
pub enum Polled<T> {
    Leased(T),
    /// No task came before the timeout, or the server began to stop.
    Empty,
    /// There is work, but a cap withholds it.
    Throttled(Throttle),
}

/// The outcome of waiting.
enum Next {
    Task(ReadyTask),
    Empty,
    Throttled(Throttle),
}

impl<T> Polled<T> {
    /// Returns the same outcome with another view of the task.
    pub fn map<U>(self, view: impl FnOnce(T) -> U) -> Polled<U> {
        match self {
            Self::Leased(task) => Polled::Leased(view(task)),
            Self::Empty => Polled::Empty,
            Self::Throttled(throttle) => Polled::Throttled(throttle),
        }
    }
}

/// How a kind of task is claimed.
pub(crate) trait Claim: Send + Sync + Clone + 'static {
    type Reply: Send + 'static;

    fn kind(&self) -> TaskKind;
    /// Returns the name of the task in counters.
    fn label(&self) -> &'static str {
        self.kind().as_str()
    }
    fn poll_filter(&self, worker: &RegisteredWorker) -> PollFilter;
    /// Returns where polls of this kind wait, and their recent replies.
    fn poll_queues<'a>(&self, host: &'a Host) -> PollQueues<'a> {
        PollQueues {
            dispatch: &host.inner.wakes.dispatch,
            polls: &host.inner.wakes.polls,
            is_stored: true,
        }
    }
    /// Leases the task, or leases it again to the same poll; returns `None` if it cannot be leased.
    fn claim(
        &self,
        host: &Host,
        granted: &ClaimTarget,
        worker: &RegisteredWorker,
        poll: &Poll,
    ) -> impl Future<Output = Result<Option<Self::Reply>>> + Send;
}

/// Where polls of one kind wait.
#[derive(Clone, Copy)]
pub(crate) struct PollQueues<'a> {
    pub(crate) dispatch: &'a Dispatch,
    pub(crate) polls: &'a Arc<Polls>,
    /// Whether the store may hold ready tasks that are not in memory.
    pub(crate) is_stored: bool,
}

impl Matching<'_> {
    pub(crate) async fn poll<C: Claim>(self, poll: &Poll, claim: &C) -> Result<Polled<C::Reply>> {
        let deadline = Instant::now() + poll.timeout;
        if self.host.inner.stopping.is_cancelled() {
            return Err(Error::Stopping);
        }
        let worker = self.host.workers().polling(poll).await?;
        let queue = QueueKey {
            namespace: poll.namespace.clone(),
            kind: claim.kind(),
            queue: poll.task_queue.clone(),
        };
        let mut first = None;
        if let Some(request_id) = &poll.poll_request_id {
            let key = PollKey {
                queue: queue.clone(),
                worker_id: poll.worker_id.clone(),
                request_id: request_id.clone(),
            };
            match self
                .deduplicate(&key, &worker, poll, claim, deadline)
                .await?
            {
                DedupResult::Answered(answer) => return Ok(answer),
                DedupResult::First(turn) => first = Some(turn),
            }
        }
        let poll_queues = claim.poll_queues(self.host);
        let (mut worker, mut filter) = (Arc::clone(&worker), claim.poll_filter(&worker));
        let asked = Asked {
            count: 1,
            request_id: poll.poll_request_id.clone(),
            ..Asked::default()
        };
        loop {
            let next = self
                .next_task(&queue, poll_queues, &worker, &filter, &asked, deadline)
                .await?;
            let task = match next {
                Next::Task(task) => {
                    self.instead_of(&queue, poll_queues, poll, &asked, task)
                        .await?
                }
                Next::Empty => {
                    self.host.inner.wakes.metrics.polled(Program::Code, "empty");
                    return Ok(Polled::Empty);
                }
                Next::Throttled(throttle) => {
                    self.host
                        .inner
                        .wakes
                        .metrics
                        .polled(Program::Code, "throttled");
                    return Ok(Polled::Throttled(throttle));
                }
            };
            let claimed = self
                .claim(&queue, task, &worker, poll, claim, &mut first)
                .await?;
            // `None`: another worker was quicker, or the task is gone. Try the next one.
            if let Some(reply) = claimed {
                self.host
                    .inner
                    .wakes
                    .metrics
                    .polled(Program::Code, "leased");
                self.host.inner.wakes.metrics.leased(claim.label(), 1);
                return Ok(Polled::Leased(reply));
            }
            // The registration may have changed while the poll waited, and with it the tasks that the worker may lease.
            worker = self.host.workers().polling(poll).await?;
            filter = claim.poll_filter(&worker);
        }
    }

    /// Waits behind a poll with the same id, or replaces it, or gets the same reply.
    async fn deduplicate<C: Claim>(
        self,
        key: &PollKey,
        worker: &RegisteredWorker,
        poll: &Poll,
        claim: &C,
        deadline: Instant,
    ) -> Result<DedupResult<C::Reply>> {
        let polls = claim.poll_queues(self.host).polls;
        let mut waited = false;
        loop {
            match polls.enter(key) {
                // The first one ended without a task: so does this one.
                DedupOutcome::First(_) if waited => {
                    self.refuse_draining(worker)?;
                    return Ok(DedupResult::Answered(Polled::Empty));
                }
                DedupOutcome::First(first) => return Ok(DedupResult::First(first)),
                DedupOutcome::After(mut done) => {
                    waited = true;
                    if tokio::time::timeout_at(deadline, done.changed())
                        .await
                        .is_err()
                    {
                        return Ok(DedupResult::Answered(Polled::Empty));
                    }
                }
                DedupOutcome::Again(granted) => {
                    match claim.claim(self.host, &granted, worker, poll).await {
                        Ok(Some(reply)) => return Ok(DedupResult::Answered(Polled::Leased(reply))),
                        Ok(None) | Err(Error::Rejected(_)) => polls.remove(key),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Refuses a worker whose build drains: it gets nothing new.
    pub(crate) fn refuse_draining(self, worker: &RegisteredWorker) -> Result<()> {
        let row = &worker.row;
        if self.host.rollouts().is_draining(
            &row.namespace,
            &row.task_queue,
            row.build_id.as_deref(),
        ) {
            self.host
                .inner
                .wakes
                .metrics
                .polled(Program::Code, "draining");
            return Err(Error::WorkerDraining(row.worker_id.clone()));
        }
        Ok(())
    }

    /// Returns the next task for this worker, or the outcome of waiting. Nothing is read while it waits, except that a look at a store
    /// with other servers serves all polls together.
    async fn next_task(
        self,
        queue: &QueueKey,
        poll_queues: PollQueues<'_>,
        worker: &RegisteredWorker,
        filter: &PollFilter,
        asked: &Asked,
        deadline: Instant,
    ) -> Result<Next> {
        let inner = &self.host.inner;
        let mut rollouts = inner.rollouts.watch();
        loop {
            if inner.stopping.is_cancelled() {
                return Ok(Next::Empty);
            }
            rollouts.mark_unchanged();
            self.refuse_draining(worker)?;
            match poll_queues.dispatch.take(queue, filter, asked) {
                Found::Task(task) => return Ok(Next::Task(task)),
                Found::AskStore => self.refill(queue).await?,
                Found::Full => return Err(Error::TooManyPolls),
                Found::Wait(ticket, withheld) => {
                    let mut line = WaitingPoll::new(poll_queues.dispatch, ticket);
                    // In line first: what the look finds is handed to those who wait.
                    let look = self.look_for(queue, filter, asked, deadline, poll_queues);
                    inner.wakes.idle.notify();
                    let room = async {
                        match withheld.and_then(|throttle| throttle.room_at) {
                            Some(at) => inner.clock.sleep_until(at).await,
                            None => std::future::pending().await,
                        }
                    };
                    let ended = tokio::select! {
                        biased;
                        ended = line.wait(look, deadline) => ended?,
                        () = inner.stopping.cancelled() => return Ok(Next::Empty),
                        _ = rollouts.changed() => continue,
                        () = room => continue,
                    };
                    match ended {
                        // Drained while the task was handed over: the next waiting poll gets it.
                        Waited::Handed(task) if self.refuse_draining(worker).is_err() => {
                            let reservation = task.reservation();
                            let dispatch = poll_queues.dispatch;
                            dispatch.end_reservation(queue, &reservation, Some(*task));
                        }
                        Waited::Handed(task) => return Ok(Next::Task(*task)),
                        Waited::Closed => return Ok(Next::Empty),
                        Waited::TimedOut => {
                            drop(line);
                            let withheld = poll_queues.dispatch.withheld(queue, filter);
                            return Ok(withheld.map_or(Next::Empty, Next::Throttled));
                        }
                    }
                }
            }
        }
    }

    /// Asks for a look at a queue, if the store may have tasks that this server does not know of.
    pub(crate) fn look_for(
        self,
        queue: &QueueKey,
        filter: &PollFilter,
        asked: &Asked,
        deadline: Instant,
        poll_queues: PollQueues<'_>,
    ) -> Option<PendingLook> {
        let inner = &self.host.inner;
        if !poll_queues.is_stored || inner.store.shared().is_none() {
            return None;
        }
        // A poll with an id may have a lease from another server. If it waits long enough, the look for everything finds that.
        let waits_long = Instant::now() + LOOKED_FOR_WITHIN < deadline;
        let may_rest = asked.request_id.is_none() || waits_long;
        let new_tasks = if waits_long {
            NewTasks::Offered
        } else {
            NewTasks::All
        };
        let is_quiet = may_rest && poll_queues.dispatch.is_quiet(queue, filter, new_tasks);
        (!is_quiet).then(|| inner.wakes.looks.ask(queue, new_tasks))
    }

    /// Returns the task that another server leased to the same poll, whose reply was lost, instead of the one that it is about to get.
    /// The store is asked once for each poll, usually by a look that it shares with others.
    async fn instead_of(
        self,
        queue: &QueueKey,
        poll_queues: PollQueues<'_>,
        poll: &Poll,
        asked: &Asked,
        task: ReadyTask,
    ) -> Result<ReadyTask> {
        let (Some(request_id), Some(_)) = (&asked.request_id, self.host.inner.store.shared())
        else {
            return Ok(task);
        };
        if !poll_queues.is_stored || asked.is_checked() {
            return Ok(task);
        }
        let taken = TakenTask::new(poll_queues.dispatch, queue, task);
        let poll = PollId {
            queue: queue.clone(),
            worker_id: poll.worker_id.clone(),
            request_id: request_id.clone(),
        };
        let leased = self.host.lease_of(poll).await?;
        asked.is_checked.store(true, Ordering::Relaxed);
        Ok(taken.unless_leased(leased.as_ref()))
    }

    /// Claims a task that was taken from the queue; returns `None` if it can no longer be leased. The id of the poll is bound to
    /// the task before the claim: a client that hangs up now and repeats the poll gets this task, leased or not yet.
    async fn claim<C: Claim>(
        self,
        queue: &QueueKey,
        task: ReadyTask,
        worker: &RegisteredWorker,
        poll: &Poll,
        claim: &C,
        first: &mut Option<FirstPoll>,
    ) -> Result<Option<C::Reply>> {
        let granted = ClaimTarget {
            task_id: task.task_id.clone(),
            run_id: task.run_id.clone(),
            sequence: task.sequence,
            session_id: task
                .session
                .as_ref()
                .map(|options| options.session_id.clone()),
        };
        let poll_queues = claim.poll_queues(self.host);
        let bound = first.take().map(|turn| turn.grant(granted.clone()));
        let mut taken = TakenTask::new(poll_queues.dispatch, queue, task);
        match claim.claim(self.host, &granted, worker, poll).await {
            Ok(Some(reply)) => {
                if let Some(task) = taken.task.take() {
                    poll_queues.dispatch.dispatched(queue, &task);
                }
                Ok(Some(reply))
            }
            // The task stays ready; the next worker that its session admits gets it.
            Err(Error::Rejected(Rejection::SessionRefused(refusal))) => {
                if let Some(session_id) = &granted.session_id {
                    self.host
                        .sessions()
                        .note_refusal(&queue.namespace, session_id, &refusal);
                    let store = &self.host.inner.store;
                    let stored = store.session(&queue.namespace, session_id).await?;
                    let fresh = self.host.workers().polling(poll).await?;
                    let filter = claim.poll_filter(&fresh);
                    // Nothing waits from here on: a poll that ends early has returned the task.
                    if let Some(task) = taken.task.take() {
                        poll_queues
                            .dispatch
                            .refused(queue, task, stored.as_ref(), &filter);
                    }
                }
                *first = bound.and_then(|key| poll_queues.polls.regain(&key));
                Ok(None)
            }
            // The task stays ready until a lease ends.
            Err(Error::CapReached(scope)) => {
                taken.withhold(withheld_by(&scope));
                self.host.inner.wakes.looks.ask(queue, NewTasks::All);
                *first = bound.and_then(|key| poll_queues.polls.regain(&key));
                Ok(None)
            }
            Ok(None) | Err(Error::Rejected(Rejection::NotClaimable { .. })) => {
                taken.task = None;
                *first = bound.and_then(|key| poll_queues.polls.regain(&key));
                Ok(None)
            }
            Err(error) => {
                if let Some(key) = bound {
                    poll_queues.polls.remove(&key);
                }
                Err(error)
            }
        }
    }

    /// Fills the in-memory queue from the store, with fewer tasks if memory is full.
    pub(crate) async fn refill(self, queue: &QueueKey) -> Result<()> {
        let dispatch = &self.host.inner.wakes.dispatch;
        let limit = |max: usize| {
            if dispatch.has_room() {
                max
            } else {
                FETCHED_WHEN_FULL
            }
        };
        let max = limit(READY_PER_QUEUE_MAX);
        let store = &self.host.inner.store;
        let rows = store.ready_tasks(queue, TaskPlace::Anywhere, max).await?;
        dispatch.fill(queue, &rows, Extent::of(rows.len(), max));
        if queue.kind == TaskKind::Activity {
            let max = limit(READY_IN_SESSION_MAX);
            let rows = store.ready_tasks(queue, TaskPlace::Session, max).await?;
            dispatch.fill_session_queues(queue, &rows, Extent::of(rows.len(), max));
        }
        Ok(())
    }
}

enum DedupResult<R> {
    First(FirstPoll),
    Answered(Polled<R>),
}

/// A task that was taken from the queue and is not leased yet. It goes back if the claim ends early; if it was leased after all,
/// the next claim of it is refused and nothing else happens.
pub(crate) struct TakenTask<'a> {
    dispatch: &'a Dispatch,
    queue: &'a QueueKey,
    reservation: Reservation,
    task: Option<ReadyTask>,
    /// The reservation was passed on.
    is_reserved_by_another: bool,
}

impl<'a> TakenTask<'a> {
    pub(crate) fn new(dispatch: &'a Dispatch, queue: &'a QueueKey, task: ReadyTask) -> Self {
        dispatch.begin_claim(&task.task_id);
        Self {
            dispatch,
            queue,
            reservation: task.reservation(),
            task: Some(task),
            is_reserved_by_another: false,
        }
    }

    /// Returns the task.
    pub(crate) fn task(&self) -> Option<&ReadyTask> {
        self.task.as_ref()
    }

    /// Returns its queue.
    pub(crate) fn queue(&self) -> &'a QueueKey {
        self.queue
    }

    /// Returns the task, or the leased one instead if there is one. Then the task goes back.
    fn unless_leased(mut self, leased: Option<&TaskRow>) -> ReadyTask {
        let task = self.task.take().expect("a taken task is taken once");
        let task = match leased {
            None => task,
            Some(row) => self.dispatch.swap(self.queue, task, row),
        };
        self.is_reserved_by_another = true;
        task
    }

    /// Puts the task back and withholds its queue for a moment: a cap is reached.
    pub(crate) fn withhold(self, withheld: Withheld) {
        let (dispatch, queue) = (self.dispatch, self.queue);
        drop(self);
        dispatch.withhold(queue, withheld);
    }

    /// Ends the reservation: the task was leased, or no poll may get it any more.
    pub(crate) fn finish(mut self) {
        self.task = None;
    }
}

impl Drop for TakenTask<'_> {
    fn drop(&mut self) {
        self.dispatch.end_claim(self.reservation.task_id());
        if !self.is_reserved_by_another {
            self.dispatch
                .end_reservation(self.queue, &self.reservation, self.task.take());
        }
    }
}

/// Returns the setting that a scope is about.
fn withheld_by(scope: &CapScope) -> Withheld {
    match scope {
        CapScope::Namespace(..) => Withheld::NamespaceActiveLeases,
        CapScope::Queue(..) | CapScope::TaskDef(..) | CapScope::WorkerSessions(..) => {
            Withheld::ActiveLeases
        }
    }
}

/// How a poll stopped waiting.
pub(crate) enum Waited {
    Handed(Box<ReadyTask>),
    TimedOut,
    /// Matching gave it up.
    Closed,
}

/// A poll in line. Leaves the queue when it ends, for any reason.
pub(crate) struct WaitingPoll<'a> {
    dispatch: &'a Dispatch,
    ticket: Option<Ticket>,
}

impl<'a> WaitingPoll<'a> {
    pub(crate) fn new(dispatch: &'a Dispatch, ticket: Ticket) -> Self {
        Self {
            dispatch,
            ticket: Some(ticket),
        }
    }

    /// Waits for a task until the deadline, and at least until the look has ended and a share that it needs has arrived: a poll that does
    /// not want to wait gets what is stored.
    pub(crate) async fn wait(
        &mut self,
        mut look: Option<PendingLook>,
        deadline: Instant,
    ) -> Result<Waited> {
        let Some(ticket) = &mut self.ticket else {
            return Ok(Waited::Closed);
        };
        let latest = deadline + SHARE_WAIT_MAX;
        let handed = loop {
            tokio::select! {
                biased;
                handed = &mut ticket.handed => break handed.ok(),
                looked = async {
                    match &mut look {
                        Some(look) => look.ended().await,
                        None => std::future::pending().await,
                    }
                } => {
                    look = None;
                    looked?;
                }
                () = tokio::time::sleep_until(deadline), if look.is_none() => {
                    let share_ended = self.dispatch.share_ended();
                    if Instant::now() >= latest || !self.dispatch.awaits_share(&ticket.queue) {
                        return Ok(Waited::TimedOut);
                    }
                    tokio::select! {
                        biased;
                        handed = &mut ticket.handed => break handed.ok(),
                        () = share_ended => {}
                        () = tokio::time::sleep_until(latest) => {}
                    }
                }
            }
        };
        self.ticket = None;
        Ok(handed.map_or(Waited::Closed, |task| Waited::Handed(Box::new(task))))
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.dispatch.leave(ticket);
        }
    }
}
