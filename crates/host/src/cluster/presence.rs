//! The presence of servers. Each one writes a document every few seconds: that it is alive, which workers it heard of, and which queues
//! were polled. It reads those of the others at the same time. So a worker that polls at one server is alive for all of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkerId};
use longhaul_store::{HeardWorker, PolledQueue, ServerRow, document};
use parking_lot::RwLock;

use crate::Host;
use crate::conductor::poll_data::LastPoll;
use crate::error::{Error, Result};
use crate::sweeps::Sweep;

/// Between two writes, unless workers become stale sooner than that.
const INTERVAL_MAX: Duration = Duration::from_secs(5);
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// A server that was silent for this long is gone.
const GONE_SECONDS: u64 = 60;

/// Workers and queues in one document. Far above what one server serves.
const LISTED_MAX: usize = 20_000;

/// What this server shows, and what it read of the others.
pub(crate) struct Presence {
    server_id: String,
    /// Workers that wait for queries at other servers.
    query_pollers: RwLock<HashSet<(Namespace, WorkerId)>>,
    started_at: RwLock<Option<Timestamp>>,
    /// Whether other servers lived when they were last read.
    has_others: AtomicBool,
}

impl Default for Presence {
    fn default() -> Self {
        Self {
            server_id: format!("{:032x}", rand::random::<u128>()),
            query_pollers: RwLock::default(),
            started_at: RwLock::default(),
            has_others: AtomicBool::new(true),
        }
    }
}

impl Presence {
    /// Returns whether other servers lived a few seconds ago.
    pub(crate) fn had_others(&self) -> bool {
        self.has_others.load(Ordering::Relaxed)
    }

    /// Returns whether the worker waits for queries at another server.
    pub(crate) fn polls_queries(&self, worker: &(Namespace, WorkerId)) -> bool {
        self.query_pollers.read().contains(worker)
    }
}

/// Shows this server to the others, and reads them.
#[derive(Default)]
pub(crate) struct PresenceSweep;

impl Sweep for PresenceSweep {
    const NAME: &'static str = "presence";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        host.publish().await?;
        host.read_others().await?;
        host.questions().delete_ended().await
    }

    async fn wait(&self, host: &Host) {
        let stale = Duration::from_secs(host.inner.config.worker_stale_seconds);
        tokio::time::sleep((stale / 4).clamp(INTERVAL_MIN, INTERVAL_MAX)).await;
    }
}

impl Host {
    /// Returns the live servers on this store, by the time of their start. A server on a store of its own is alone.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn servers(&self) -> Result<Vec<ServerRow>> {
        if self.inner.store.shared().is_none() {
            return Ok(vec![self.own_row()]);
        }
        let mut servers: Vec<ServerRow> = self.inner.store.list(None).await?;
        let now = self.now();
        servers.retain(|server| is_live(server, now));
        servers.sort_by(|one, other| {
            (one.started_at, &one.server_id).cmp(&(other.started_at, &other.server_id))
        });
        Ok(servers)
    }

    /// Returns the id of this server.
    pub fn server_id(&self) -> &str {
        &self.inner.presence.server_id
    }

    /// Joins the other servers at start.
    pub(crate) async fn join(&self) -> Result<()> {
        self.publish().await?;
        self.read_others().await
    }

    /// Removes this server from the list. It is gone anyway after a while.
    pub(crate) async fn part(&self) -> Result<()> {
        self.give_back_shares().await?;
        let key = document::key::<ServerRow>("", self.server_id(), "");
        let now = self.now();
        self.inner.store.delete::<ServerRow>(key, now).await?;
        Ok(())
    }

    /// Returns whether another server is alive, as the store has it.
    pub(crate) async fn has_others(&self) -> Result<bool> {
        let servers = self.servers().await?;
        Ok(servers
            .iter()
            .any(|server| server.server_id != self.server_id()))
    }

    async fn publish(&self) -> Result<()> {
        let row = self.own_row();
        let key = document::key_of(&row);
        let put = |_| Ok::<_, Error>(Some(row.clone()));
        let store = &self.inner.store;
        store.change_quietly(key, self.now(), put).await?;
        Ok(())
    }

    fn own_row(&self) -> ServerRow {
        let (now, presence) = (self.now(), &self.inner.presence);
        let started_at = *presence.started_at.write().get_or_insert(now);
        ServerRow {
            server_id: presence.server_id.clone(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.inner.config.server_name.clone(),
            process_id: std::process::id(),
            started_at,
            seen_at: now,
            workers: self.heard_workers(now),
            polled: self.polled_queues(now),
        }
    }

    /// Returns the workers that this server heard of since they might have become stale.
    fn heard_workers(&self, now: Timestamp) -> Vec<HeardWorker> {
        let since = now.minus_seconds(self.inner.config.worker_stale_seconds);
        let known = self.inner.workers.known.read();
        let workers = known.iter().filter_map(|((namespace, worker_id), worker)| {
            let heard_at = worker.heard_here().filter(|at| *at >= since)?;
            let key = (namespace.clone(), worker_id.clone());
            Some(HeardWorker {
                polls_queries: self.inner.queries.is_polled_by(&key),
                namespace: key.0,
                worker_id: key.1,
                heard_at,
            })
        });
        workers.take(LISTED_MAX).collect()
    }

    fn polled_queues(&self, now: Timestamp) -> Vec<PolledQueue> {
        let polls = self.inner.executor.finder.polls.recorded_here(now);
        let queues = polls.into_iter().map(|(namespace, poll)| PolledQueue {
            namespace,
            task_type: poll.task_type,
            domain: poll.domain,
            worker_id: poll.worker_id,
            at: poll.at,
        });
        queues.take(LISTED_MAX).collect()
    }

    async fn read_others(&self) -> Result<()> {
        let now = self.now();
        let servers: Vec<ServerRow> = self.inner.store.list(None).await?;
        let others = servers
            .into_iter()
            .filter(|server| server.server_id != self.server_id());
        let mut query_pollers = HashSet::new();
        let mut has_others = false;
        for server in others {
            if !is_live(&server, now) {
                let key = document::key_of(&server);
                self.questions().delete_of_server(&server.server_id).await?;
                self.inner.store.delete::<ServerRow>(key, now).await?;
                tracing::info!(server_id = server.server_id, "another server is gone");
                continue;
            }
            has_others = true;
            for heard in server.workers {
                if heard.polls_queries {
                    query_pollers.insert((heard.namespace.clone(), heard.worker_id.clone()));
                }
                self.workers().heard_elsewhere(&heard).await?;
            }
            for queue in server.polled {
                let poll = LastPoll {
                    task_type: queue.task_type,
                    domain: queue.domain,
                    worker_id: queue.worker_id,
                    at: queue.at,
                };
                let polls = &self.inner.executor.finder.polls;
                polls.record_elsewhere(&queue.namespace, poll);
            }
        }
        let presence = &self.inner.presence;
        *presence.query_pollers.write() = query_pollers;
        self.set_others(has_others);
        Ok(())
    }

    /// Records whether other servers live.
    pub(crate) fn set_others(&self, has_others: bool) {
        let before = &self.inner.presence.has_others;
        if before.swap(has_others, Ordering::Relaxed) != has_others {
            self.inner.wakes.dispatch.set_alone(!has_others);
        }
    }
}

fn is_live(server: &ServerRow, now: Timestamp) -> bool {
    server.seen_at.plus_seconds(GONE_SECONDS) > now
}
