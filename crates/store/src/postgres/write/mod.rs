//! Group commit: a few writing connections, each with a queue of waiting commits. What waits when the previous transaction of a
//! connection is durable becomes the next one.
//!
//! Commits of one run, session or document keep the order of their calls: while one of them waits, the next goes to the same queue.
//! `writer` writes the batches of one connection, `checks` decides which commits of a batch are refused, `rows` collects the rows of
//! the others, `statements` writes them with the texts of `sql`. `import` writes the rows of a copied store. `registered` removes the
//! rows of writers that ended, `removal` those of removed runs.

mod checks;
pub(super) mod import;
mod registered;
pub(super) mod removal;
mod rows;
mod sql;
mod statements;
mod writer;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_engine::change::{Changes, RunChange};
use longhaul_engine::session::Session;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::registered::Registered;
use self::writer::Writer;
use super::hints::Exchange;
use super::options::Options;
use crate::encode::{Bodies, json};
use crate::group::Counters;
use crate::{Error, shape};

/// Writing connections of one server. One leaves the database idle while it waits for a disk; many make small batches.
const WRITERS: usize = 2;

/// Commits that wait for one connection before the next one is used: those of a batch on its way, and as many again.
const FILL_FIRST: usize = 128;

/// Commits that may wait. Far above what request limits allow; beyond it the database has stopped, and memory would be exhausted
/// next.
const WAITING_MAX: usize = 100_000;

/// The writing connections.
pub(super) struct Writers {
    queues: Vec<Queue>,
    routes: Arc<Mutex<Routes>>,
    pub(super) counters: Arc<Counters>,
    pub(super) registered: Registered,
}

/// The queue of one connection.
struct Queue {
    sender: mpsc::UnboundedSender<Waiting>,
    waiting: Arc<AtomicUsize>,
}

/// A commit that waits for its connection.
pub(super) struct Waiting {
    pub(super) commit: Commit,
    pub(super) answer: oneshot::Sender<Result<(), Error>>,
    /// Removes its routes when it is answered.
    _route: Route,
}

impl Writers {
    /// Starts the writing connections. They are opened when there is something to write.
    pub(super) fn start(
        options: &Options,
        counters: Arc<Counters>,
        exchange: &Arc<Exchange>,
    ) -> Self {
        let routes = Arc::<Mutex<Routes>>::default();
        let mut names = Vec::new();
        let queues = (0..WRITERS).map(|_| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let waiting = Arc::<AtomicUsize>::default();
            let writer = Writer::new(
                options.clone(),
                Arc::clone(&counters),
                Arc::clone(&waiting),
                Arc::clone(exchange),
            );
            names.push(writer.name().to_owned());
            tokio::spawn(writer.run(receiver));
            Queue { sender, waiting }
        });
        Self {
            queues: queues.collect(),
            routes,
            counters,
            registered: Registered::new(names),
        }
    }

    /// Adds a commit to the order now. The future only waits for the result.
    pub(super) fn enqueue(
        &self,
        changes: Arc<Changes>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let answered = Commit::encode(changes).and_then(|commit| self.send(commit));
        async move {
            match answered?.await {
                Ok(result) => result,
                Err(_) => Err(Error::Unavailable(
                    "the writer stopped; it is unknown whether the commit is stored".to_owned(),
                )),
            }
        }
    }

    fn send(&self, commit: Commit) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let (answer, answered) = oneshot::channel();
        let keys = commit.route_keys();
        // Held until the commit is in its queue: the next commit of the same run must come behind it.
        let mut routes = self.routes.lock();
        let place = routes.find(&keys).unwrap_or_else(|| self.best());
        let queue = &self.queues[place];
        if queue.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return Err(Error::Unavailable(format!(
                "{WAITING_MAX} commits are waiting for PostgreSQL"
            )));
        }
        routes.add(&keys, place);
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        let route = Route {
            keys,
            routes: Arc::clone(&self.routes),
        };
        let waiting = Waiting {
            commit,
            answer,
            _route: route,
        };
        // The queue is closed only when the runtime ends, and with it the caller.
        let refused = queue.sender.send(waiting);
        drop(routes);
        drop(refused);
        Ok(answered)
    }

    /// Returns how many commits wait now, those of batches on their way included.
    pub(super) fn waiting(&self) -> usize {
        let queues = self.queues.iter();
        queues
            .map(|queue| queue.waiting.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the queue for a commit. The first one is filled first: a batch costs a number of statements, however small it is.
    fn best(&self) -> usize {
        let waiting = |queue: &Queue| queue.waiting.load(Ordering::Relaxed);
        let has_room = self
            .queues
            .iter()
            .position(|queue| waiting(queue) < FILL_FIRST);
        has_room.unwrap_or_else(|| {
            let queues = self.queues.iter().enumerate();
            let shortest = queues.min_by_key(|(_, queue)| waiting(queue));
            shortest.map_or(0, |(place, _)| place)
        })
    }
}

/// The queue of each run, session and document that a waiting commit writes, by hash, and how many commits wait. A hash that two
/// share only puts both into one queue.
#[derive(Default)]
struct Routes(HashMap<u64, (usize, usize)>);

impl Routes {
    fn find(&self, keys: &[u64]) -> Option<usize> {
        let found = keys.iter().find_map(|key| self.0.get(key));
        found.map(|(place, _)| *place)
    }

    fn add(&mut self, keys: &[u64], place: usize) {
        for key in keys {
            let (stays, count) = self.0.entry(*key).or_insert((place, 0));
            // If another commit of this key waits elsewhere, the version decides between them.
            *stays = place;
            *count += 1;
        }
    }
}

/// The routes of one waiting commit.
struct Route {
    keys: Vec<u64>,
    routes: Arc<Mutex<Routes>>,
}

impl Drop for Route {
    fn drop(&mut self) {
        let mut routes = self.routes.lock();
        for key in &self.keys {
            if let Some((_, count)) = routes.0.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    routes.0.remove(key);
                }
            }
        }
    }
}

/// The changes of one commit and their bodies, side by side.
pub(super) struct Commit {
    pub(super) changes: Arc<Changes>,
    bodies: Vec<Bodies>,
    sessions: Vec<String>,
    pub(super) size: usize,
}

impl Commit {
    fn encode(changes: Arc<Changes>) -> Result<Self, Error> {
        shape::check(&changes)?;
        let mut size = 0;
        let bodies = changes
            .runs()
            .map(|change| Bodies::encode(change, &mut size))
            .collect::<Result<_, _>>()?;
        let sessions: Vec<String> = changes
            .sessions
            .iter()
            .map(json)
            .collect::<Result<_, _>>()?;
        size += sessions.iter().map(String::len).sum::<usize>();
        let documents = changes.documents.iter();
        let texts = documents.filter_map(|change| change.body.as_ref());
        size += texts.map(String::len).sum::<usize>();
        Ok(Self {
            changes,
            bodies,
            sessions,
            size,
        })
    }

    /// Returns the runs it writes, each with its bodies.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&RunChange, &Bodies)> {
        self.changes.runs().zip(&self.bodies)
    }

    /// Returns the sessions it writes, each with its body.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (&Session, &str)> {
        let bodies = self.sessions.iter().map(String::as_str);
        self.changes.sessions.iter().zip(bodies)
    }

    /// Returns what must keep its order, as hashes.
    fn route_keys(&self) -> Vec<u64> {
        let runs = self.changes.runs();
        let runs = runs.map(|change| hash(("run", change.spec.run_id.as_str())));
        let sessions = self.changes.sessions.iter();
        let sessions = sessions.map(|session| {
            hash((
                "session",
                session.namespace.as_str(),
                session.session_id.as_str(),
            ))
        });
        let documents = self.changes.documents.iter();
        let documents = documents.map(|change| hash(("document", &change.key)));
        runs.chain(sessions).chain(documents).collect()
    }
}

fn hash(value: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
