//! Takes events from runners and gives them to listeners.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};

use super::{Event, TaskRunnerEventsListener};

/// How many events wait for slow listeners at most.
pub const QUEUE_EVENTS_MAX: usize = 10_000;

/// Takes events and gives them to listeners, apart from the tasks. Cheap to clone.
#[derive(Clone)]
pub struct EventDispatcher {
    /// `None` without listeners.
    queue: Option<mpsc::Sender<(Event, SystemTime)>>,
    dropped: Arc<AtomicU64>,
}

/// The listeners of a dispatcher, in the order in which they are called.
#[derive(Default)]
pub struct EventDispatcherBuilder {
    listeners: Vec<Box<dyn TaskRunnerEventsListener>>,
}

impl EventDispatcherBuilder {
    /// Adds a listener.
    #[must_use]
    pub fn register(mut self, listener: impl TaskRunnerEventsListener) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Starts the dispatcher, on a thread of its own because listeners may block.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self) -> std::io::Result<(EventDispatcher, Dispatching)> {
        if self.listeners.is_empty() {
            return Ok((EventDispatcher::silent(), Dispatching(None)));
        }
        let (queue, mut events) = mpsc::channel::<(Event, SystemTime)>(QUEUE_EVENTS_MAX);
        let (done, ended) = oneshot::channel();
        let listeners = self.listeners;
        std::thread::Builder::new()
            .name("conductor-events".to_owned())
            .spawn(move || {
                while let Some((event, at)) = events.blocking_recv() {
                    for listener in &listeners {
                        tell(&**listener, &event, at);
                    }
                }
                // It is not an error if no caller waits for the end.
                let _ = done.send(());
            })?;
        let dispatcher = EventDispatcher {
            queue: Some(queue),
            dropped: Arc::default(),
        };
        Ok((dispatcher, Dispatching(Some(ended))))
    }
}

/// The thread that calls the listeners. There is none without listeners.
#[derive(Debug)]
pub struct Dispatching(Option<oneshot::Receiver<()>>);

impl Dispatching {
    /// Waits until the last clone of the dispatcher is dropped and the listeners have received all events.
    pub async fn ended(self) {
        if let Some(ended) = self.0 {
            // A thread that is gone has ended, too.
            let _ = ended.await;
        }
    }
}

fn tell(listener: &dyn TaskRunnerEventsListener, event: &Event, at: SystemTime) {
    if catch_unwind(AssertUnwindSafe(|| event.tell(listener, at))).is_err() {
        tracing::error!("an event listener failed: it panicked");
    }
}

impl EventDispatcher {
    /// Returns a builder without listeners.
    #[must_use]
    pub fn builder() -> EventDispatcherBuilder {
        EventDispatcherBuilder::default()
    }

    /// A dispatcher without listeners.
    #[must_use]
    pub fn silent() -> Self {
        Self {
            queue: None,
            dropped: Arc::default(),
        }
    }

    /// Publishes an event. Never waits: if the queue is full, the event is dropped.
    pub fn publish(&self, event: impl Into<Event>) {
        let Some(queue) = &self.queue else {
            return;
        };
        if queue.try_send((event.into(), SystemTime::now())).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // The first loss, and then ever fewer lines.
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "listeners are too slow; events were dropped");
            }
        }
    }

    /// Returns how many events were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for EventDispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventDispatcher({} dropped)", self.dropped())
    }
}

impl fmt::Debug for EventDispatcherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventDispatcherBuilder({})", self.listeners.len())
    }
}
