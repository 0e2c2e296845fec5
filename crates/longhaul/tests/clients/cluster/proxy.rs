//! A TCP proxy between servers and PostgreSQL. It delays bytes, cuts connections, and cuts them around COMMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A statement as it is sent, and the answer to it: both contain these bytes.
const COMMIT: &[u8] = b"COMMIT\0";

/// Type and length of a message, before the text of a statement.
const HEAD_BYTES: usize = 5;

const BUFFER_BYTES: usize = 256 << 10;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// PostgreSQL does not get the COMMIT.
    BeforeCommit,
    /// PostgreSQL has committed, and its answer is lost.
    AfterCommit,
}

/// What happens to connections.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    delay: Duration,
    /// Connections that began before this change of the orders are cut.
    cut_at: u64,
    /// The next connections that commit are cut here.
    place: Option<Place>,
}

/// A running proxy. Dropping it ends it.
pub(super) struct Proxy {
    url: String,
    orders: watch::Sender<Orders>,
    cuts: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens in front of the server of an address.
    pub(super) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (_, rest) = url.split_once('@').expect("an address with a user");
        let place = rest.split('/').next().expect("a server").to_owned();
        let url = url.replace(&place, &format!("127.0.0.1:{port}"));
        let separator = if url.contains('?') { '&' } else { '?' };
        let (orders, given) = watch::channel(Orders::default());
        let cuts = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&cuts);
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                let (given, place, cuts) = (given.clone(), place.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    // While PostgreSQL is away, the connection ends at once.
                    if let Ok(server) = TcpStream::connect(&place).await {
                        pass_on(client, server, given, &cuts).await;
                    }
                });
            }
        });
        Self {
            url: format!("{url}{separator}sslmode=disable"),
            orders,
            cuts,
            accepting,
        }
    }

    /// Returns the address of the database behind this proxy.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Delays all bytes in both directions.
    pub(super) fn delay(&self, delay: Duration) {
        self.orders.send_modify(|orders| orders.delay = delay);
    }

    /// Cuts all connections.
    pub(super) fn cut(&self) {
        self.orders.send_modify(|orders| orders.cut_at += 1);
    }

    /// Cuts each connection that commits, until this is called with `None`.
    pub(super) fn cut_at_commits(&self, place: Option<Place>) {
        self.orders.send_modify(|orders| orders.place = place);
    }

    /// Returns how many connections were cut at a COMMIT.
    pub(super) fn cuts_at_commits(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes bytes on in both directions until one side ends or the connection is cut.
async fn pass_on(
    mut client: TcpStream,
    mut server: TcpStream,
    mut given: watch::Receiver<Orders>,
    cuts: &AtomicU64,
) {
    let began = given.borrow_and_update().cut_at;
    let (mut to_server, mut to_client) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    // The end of what was sent before: a statement may come in two parts.
    let mut tail = Vec::new();
    loop {
        tokio::select! {
            changed = given.changed() => {
                if changed.is_err() || given.borrow_and_update().cut_at != began { return }
            }
            read = client.read(&mut to_server) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &to_server[..length];
                let orders = *given.borrow();
                tokio::time::sleep(orders.delay).await;
                tail.extend_from_slice(sent);
                let commit = place_of(&tail, COMMIT);
                let earlier = tail.len() - length;
                tail.drain(..tail.len().saturating_sub(COMMIT.len() - 1));
                match orders.place.filter(|_| commit.is_some()) {
                    None => if server.write_all(sent).await.is_err() { return },
                    Some(Place::BeforeCommit) => {
                        let end = commit.unwrap_or_default().saturating_sub(earlier + HEAD_BYTES);
                        let _ = server.write_all(&sent[..end]).await;
                        cuts.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    Some(Place::AfterCommit) => {
                        let _ = server.write_all(sent).await;
                        // PostgreSQL answers when the commit is durable. The client never gets the answer.
                        let mut answer = Vec::new();
                        while place_of(&answer, COMMIT).is_none() {
                            let Ok(1..) = server.read_buf(&mut answer).await else { return };
                        }
                        cuts.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
            }
            read = server.read(&mut to_client) => {
                let Ok(length @ 1..) = read else { return };
                let delay = given.borrow().delay;
                tokio::time::sleep(delay).await;
                if client.write_all(&to_client[..length]).await.is_err() { return }
            }
        }
    }
}

fn place_of(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}
