//! Delivers the changes of a commit to waiting polls and callers, in the order of each run's versions. The task of a caller may see
//! at any time that its commit is durable, and a late hint would undo a newer one: a finished task would be counted as leased
//! without end. So each run has a queue of hints, in the order of its commits, and each finished commit delivers all that are due,
//! oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use longhaul_engine::{Changes, RunChange};
use longhaul_store::Error as StoreError;
use parking_lot::Mutex;

use crate::commit::wakes::Wakes;

/// A commit that several tasks may wait for.
pub(crate) type Commit = Shared<BoxFuture<'static, Result<(), StoreError>>>;

/// The hints of one run that are not delivered yet.
#[derive(Default)]
pub(crate) struct Hints {
    waiting: Mutex<VecDeque<Hint>>,
}

struct Hint {
    commit: Commit,
    changes: Arc<Changes>,
    about: About,
}

/// Which of the runs of a change a hint is about.
enum About {
    /// The run it was decided on, and sessions.
    Decided,
    /// The created run with this index.
    Created(usize),
}

impl Hints {
    /// Adds the next commit of the run. Called in the order of versions: under the lock of the run, or before the run is known.
    pub(crate) fn expect(&self, commit: &Commit, changes: &Arc<Changes>) {
        self.push(commit, changes, About::Decided);
    }

    /// Adds the commit that creates the run.
    pub(crate) fn expect_created(&self, commit: &Commit, changes: &Arc<Changes>, place: usize) {
        self.push(commit, changes, About::Created(place));
    }

    fn push(&self, commit: &Commit, changes: &Arc<Changes>, about: About) {
        self.waiting.lock().push_back(Hint {
            commit: commit.clone(),
            changes: Arc::clone(changes),
            about,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Delivers every hint whose commit is known to be durable, and those before it. A store resolves the commits of a run in
    /// order, so when one is resolved all before it are. If another task is still polling one of them, the rest is left to that
    /// task, which comes here when it is done.
    pub(crate) fn deliver(&self, wakes: &Wakes) {
        let mut waiting = self.waiting.lock();
        while let Some(first) = waiting.front() {
            let Some(outcome) = first.commit.clone().now_or_never() else {
                return;
            };
            if let (Some(hint), true) = (waiting.pop_front(), outcome.is_ok()) {
                hint.tell(wakes);
            }
        }
        // A run at rest keeps no room for hints.
        waiting.shrink_to_fit();
    }
}

impl Hint {
    fn tell(&self, wakes: &Wakes) {
        let run: Option<&RunChange> = match self.about {
            About::Decided => {
                // Sessions first: a task that follows is matched with the newest state of its session.
                wakes.wake_sessions(&self.changes.sessions);
                self.changes.run.as_deref()
            }
            About::Created(place) => self.changes.created.get(place),
        };
        if let Some(change) = run {
            wakes.wake_run(change);
        }
    }
}
