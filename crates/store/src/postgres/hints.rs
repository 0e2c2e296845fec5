//! Hints between servers: LISTEN and NOTIFY on a connection of its own. A notification is sent after the commit and outside its
//! transaction: inside, PostgreSQL would make all commits of the cluster wait for each other.
//!
//! While one notification is on its way, further hints gather for the next.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::stream::{BoxStream, StreamExt as _};
use longhaul_protocol::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::connect::{Connected, Role, connect_and_listen};
use super::options::Options;
use crate::{Error, Hints, Quiet};

/// The channel of the database.
const CHANNEL: &str = "longhaul";

/// PostgreSQL refuses payloads of 8,000 bytes and more.
const TEXT_BYTES_MAX: usize = 7900;

/// Notifications in one statement. Beyond them the receivers look by themselves.
const TEXTS_MAX: usize = 16;

/// Between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Lost connections.
static LOST: Quiet = Quiet::new();

/// Hints that gather until someone takes them. They are merged, so that their number is bounded.
#[derive(Default)]
pub(super) struct Gathered {
    hints: Mutex<Hints>,
    more: Notify,
}

impl Gathered {
    pub(super) fn add(&self, hints: Hints) {
        if hints.is_empty() {
            return;
        }
        self.hints.lock().merge(hints);
        self.more.notify_one();
    }

    async fn take(&self) -> Hints {
        loop {
            self.more.notified().await;
            let hints = std::mem::take(&mut *self.hints.lock());
            if !hints.is_empty() {
                return hints;
            }
        }
    }
}

/// The hints of one server.
pub(super) struct Exchange {
    /// To the others.
    pub(super) outgoing: Arc<Gathered>,
    /// From the others.
    incoming: Arc<Gathered>,
}

impl Exchange {
    /// Returns an exchange, and the work that keeps it going.
    pub(super) fn new(
        options: &Options,
        server: &str,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (outgoing, incoming) = (Arc::<Gathered>::default(), Arc::<Gathered>::default());
        let line = Line {
            options: options.clone(),
            server: server.to_owned(),
            outgoing: Arc::clone(&outgoing),
            incoming: Arc::clone(&incoming),
        };
        let exchange = Self { outgoing, incoming };
        (exchange, line.run())
    }

    /// Adds hints for the other servers.
    pub(super) fn announce(&self, mut hints: Hints) {
        hints.sent_at = Some(now());
        self.outgoing.add(hints);
    }

    /// Returns the hints of the other servers.
    pub(super) fn hints(&self) -> BoxStream<'static, Hints> {
        let next = |incoming: Arc<Gathered>| async move { Some((incoming.take().await, incoming)) };
        futures::stream::unfold(Arc::clone(&self.incoming), next).boxed()
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// The connection of an exchange.
struct Line {
    options: Options,
    server: String,
    outgoing: Arc<Gathered>,
    incoming: Arc<Gathered>,
}

impl Line {
    async fn run(self) {
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.connect().await {
                Ok((client, notifications)) => {
                    pause = PAUSE_MIN;
                    // What was announced meanwhile is lost.
                    self.incoming.add(Hints::incomplete());
                    self.exchange(&client, notifications).await
                }
                Err(error) => error,
            };
            if let Some(unlogged) = LOST.occurred() {
                tracing::warn!(%error, unlogged, "no hints between servers; they find each other's work by looking");
            }
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn connect(&self) -> Result<(Connected, mpsc::UnboundedReceiver<String>), Error> {
        let (sender, notifications) = mpsc::unbounded_channel();
        let client = connect_and_listen(&self.options, Role::Reader, sender).await?;
        // A notification that a crash loses is of no use after it.
        client
            .batch_execute(&format!("SET synchronous_commit = off; LISTEN {CHANNEL}"))
            .await?;
        Ok((client, notifications))
    }

    /// Sends and receives until the connection is lost. Returns why.
    async fn exchange(
        &self,
        client: &Connected,
        mut notifications: mpsc::UnboundedReceiver<String>,
    ) -> Error {
        loop {
            tokio::select! {
                text = notifications.recv() => match text {
                    Some(text) => {
                        if let Some(hints) = Hints::from_text(&text, &self.server) {
                            self.incoming.add(hints);
                        }
                    }
                    None => return Error::Unavailable("the connection was closed".to_owned()),
                },
                hints = self.outgoing.take() => {
                    if let Err(error) = self.send(client, &hints).await {
                        // They are sent again: a hint may come twice.
                        self.outgoing.add(hints);
                        return error;
                    }
                }
            }
        }
    }

    async fn send(&self, client: &Connected, hints: &Hints) -> Result<(), Error> {
        let texts = hints.to_texts(&self.server, TEXT_BYTES_MAX, TEXTS_MAX);
        let statement = client
            .prepare_cached("SELECT count(pg_notify($1, text)) FROM unnest($2::text[]) text")
            .await?;
        client.query(&statement, &[&CHANNEL, &texts]).await?;
        Ok(())
    }
}
