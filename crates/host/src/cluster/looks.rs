//! Looks at the store for everything that waits here: the tasks that polls accept, replies to polls that another server gave, and
//! watched runs. All of them share a look. A poll asks for one when it begins to wait; a hint asks for one; and there is one a second
//! as long as anything waits, whatever hints are lost.

use std::collections::HashSet;
use std::time::Duration;

use longhaul_store::{Error as StoreError, Look, Looked, QueueKey, Shared};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::Host;
use crate::error::Result;
use crate::matching::dispatch::{PollExtent, RESERVED_SECONDS, UncheckedPolls};
use crate::sweeps::Sweep;

/// Between two looks for everything.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a new task is left to the server that made it. Longer than the claim of a poll there usually takes, and much shorter than
/// the time between two looks for everything.
const YOUNG_MS: u64 = 200;

/// Rollouts and questions are read with every so many looks for everything: hints of them are seldom lost, and each read is a statement.
const REGISTRY_LOOKS: u64 = 4;

/// Sessions with waiting tasks that are read again with a look for everything.
const SESSIONS_MAX: usize = 100;

/// Looks that were asked for.
pub(crate) struct Looks {
    asked: Mutex<Asked>,
    more: Notify,
    done: watch::Sender<Done>,
}

/// Which tasks a look takes of those that became available a moment ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NewTasks {
    /// Those that other servers offered. The rest is left to the servers that made them, which give them to their own polls.
    #[default]
    Offered,
    All,
}

#[derive(Default)]
struct Asked {
    queues: HashSet<QueueKey>,
    new_tasks: NewTasks,
    is_for_all: bool,
    /// The number of the newest look that has begun.
    begun: u64,
}

#[derive(Clone, Debug, Default)]
struct Done {
    /// The number of the newest look that has ended.
    number: u64,
    error: Option<StoreError>,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            more: Notify::new(),
            done: watch::Sender::new(Done::default()),
        }
    }
}

impl Looks {
    /// Asks for a look at a queue. The result resolves when a look that began after this has ended.
    pub(crate) fn ask(&self, queue: &QueueKey, new_tasks: NewTasks) -> PendingLook {
        let mut asked = self.asked.lock();
        asked.queues.insert(queue.clone());
        asked.new_tasks = asked.new_tasks.max(new_tasks);
        let number = asked.begun + 1;
        drop(asked);
        self.more.notify_one();
        PendingLook {
            number,
            done: self.done.subscribe(),
        }
    }

    /// Asks for a look for everything.
    pub(crate) fn ask_for_all(&self) {
        self.asked.lock().is_for_all = true;
        self.more.notify_one();
    }

    fn begin(&self) -> Begun {
        let mut asked = self.asked.lock();
        asked.begun += 1;
        Begun {
            number: asked.begun,
            queues: std::mem::take(&mut asked.queues),
            new_tasks: std::mem::take(&mut asked.new_tasks),
            is_for_all: std::mem::take(&mut asked.is_for_all),
        }
    }

    fn end(&self, number: u64, error: Option<StoreError>) {
        self.done.send_replace(Done { number, error });
    }
}

struct Begun {
    number: u64,
    queues: HashSet<QueueKey>,
    new_tasks: NewTasks,
    is_for_all: bool,
}

/// A look that someone waits for.
pub(crate) struct PendingLook {
    number: u64,
    done: watch::Receiver<Done>,
}

impl PendingLook {
    /// Waits for its end.
    ///
    /// # Errors
    /// The store could not be read.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        let number = self.number;
        // The sender is as old as the host.
        let done = self.done.wait_for(|done| done.number >= number).await;
        match done.ok().and_then(|done| done.error.clone()) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Looks whenever something asks for it, and once a second.
#[derive(Default)]
pub(crate) struct LookSweep {
    /// When everything was last looked for.
    all_at: Option<Instant>,
    looks: u64,
}

impl Sweep for LookSweep {
    const NAME: &'static str = "looks";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let Some(shared) = host.inner.store.shared() else {
            return Ok(());
        };
        let all_at = self.all_at.get_or_insert_with(Instant::now);
        let begun = host.inner.wakes.looks.begin();
        let is_for_all = begun.is_for_all || all_at.elapsed() >= INTERVAL;
        if is_for_all {
            *all_at = Instant::now();
            host.inner.wakes.dispatch.remove_expired();
            host.inner.wakes.dispatch.try_withheld(None);
        }
        let queues = (!is_for_all).then_some(&begun.queues);
        let new_tasks = if is_for_all {
            NewTasks::All
        } else {
            begun.new_tasks
        };
        // Another server may also give a task to a poll that has come here since: the first request was still on its way.
        let extent = if is_for_all && self.looks.is_multiple_of(2) {
            PollExtent::All
        } else {
            PollExtent::Unchecked
        };
        let polls = host.inner.wakes.dispatch.waiting_polls(extent);
        let error = look(host, shared, queues, new_tasks, polls).await.err();
        host.inner.wakes.looks.end(begun.number, error);
        if is_for_all {
            self.follow_registry(host).await?;
        }
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        let next = self.all_at.map_or_else(Instant::now, |at| at + INTERVAL);
        tokio::select! {
            () = host.inner.wakes.looks.more.notified() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

impl LookSweep {
    /// Reads what hints usually tell: a drain reaches every waiting poll, and a question every poll that may take it.
    async fn follow_registry(&mut self, host: &Host) -> Result<()> {
        self.looks = self.looks.wrapping_add(1);
        let waiting = host.inner.wakes.dispatch.waiting() + host.inner.queries.dispatch.waiting();
        if waiting > 0 && self.looks.is_multiple_of(REGISTRY_LOOKS) {
            host.rollouts().load().await?;
        }
        if self.looks % REGISTRY_LOOKS == REGISTRY_LOOKS / 2 {
            host.questions().follow_all().await?;
        }
        let sessions = host.inner.wakes.dispatch.sessions_waited_for(SESSIONS_MAX);
        for (namespace, session_id) in sessions {
            host.sessions().read_again(&namespace, &session_id).await?;
        }
        Ok(())
    }
}

/// Looks for the polls of these queues, or for everything.
async fn look(
    host: &Host,
    shared: &dyn Shared,
    queues: Option<&HashSet<QueueKey>>,
    new_tasks: NewTasks,
    polls: UncheckedPolls,
) -> std::result::Result<(), StoreError> {
    let wakes = &host.inner.wakes;
    let is_for_all = queues.is_none();
    let now = host.now();
    // A server that is alone takes nothing from others. One that starts now may try the same tasks for a moment.
    let has_others = host.inner.presence.had_others();
    // A server that is alone leaves nothing to others.
    let new_tasks = if has_others { new_tasks } else { NewTasks::All };
    let wanted = wakes.dispatch.wanted(queues, new_tasks);
    let look = Look {
        now,
        reserved_until: if has_others {
            now.plus_seconds(RESERVED_SECONDS)
        } else {
            now
        },
        known: wakes.dispatch.known(&wanted),
        young_since: (new_tasks == NewTasks::Offered).then(|| now.minus_millis(YOUNG_MS)),
        offered: wakes.dispatch.offered(&wanted),
        released: wakes.dispatch.take_released(),
        queues: wanted,
        polls: polls.ids.clone(),
        runs: if is_for_all {
            wakes.watched_runs()
        } else {
            Vec::new()
        },
    };
    if look.is_for_nothing() && look.released.is_empty() {
        return Ok(());
    }
    let Looked {
        tasks,
        in_sessions,
        leased,
        runs,
    } = shared.look(&look).await?;
    wakes.metrics.looked();
    for row in &leased {
        wakes.dispatch.hand_again(row);
    }
    polls.check();
    if has_others {
        for row in &tasks {
            host.inner.executor.mark_unsure(&row.run_id);
        }
    }
    let found = [tasks, in_sessions].concat();
    wakes.dispatch.add_found(&look.queues, &found);
    for (run_id, version) in runs {
        host.inner.executor.mark_older(&run_id, version);
        wakes.wake_watchers(&run_id, version);
    }
    Ok(())
}
