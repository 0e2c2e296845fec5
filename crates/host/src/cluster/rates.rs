//! Exchanges shares of rates with the store. What all servers used and hold of a rate is one volatile document, which is written with
//! compare and set and without hints. Matching asks for shares and does not wait: a poll is served when its share arrives.

use std::borrow::Cow;

use futures::StreamExt as _;
use longhaul_engine::queue::{Exchanged, SharedRate};
use longhaul_store::{DocumentKey, DocumentKind, Error as StoreError, Record, document};
use serde::{Deserialize, Serialize};

use crate::Host;
use crate::cluster::looks::NewTasks;
use crate::error::Result;
use crate::matching::shares::{Scope, ShareRequest};
use crate::sweeps::Sweep;

/// Exchanges at the same time; their commits share transactions.
const CONCURRENT: usize = 32;

/// What all servers used and hold of a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RateRow {
    namespace: String,
    /// What is counted: the tasks of a queue, of a namespace, of a budget group, or of a task definition.
    counts: String,
    name: String,
    rate: SharedRate,
}

impl Record for RateRow {
    const KIND: DocumentKind = DocumentKind::Rate;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.counts.as_str().into(),
            self.name.as_str().into(),
        )
    }
}

/// Returns the document of a scope.
fn key_of(scope: &Scope) -> DocumentKey {
    let key = |namespace: &str, counts: &str, name: &str| {
        document::key::<RateRow>(namespace, counts, name)
    };
    match scope {
        Scope::Queue(queue) => {
            let counts = format!("queue:{}", queue.kind.as_str());
            key(queue.namespace.as_str(), &counts, queue.queue.as_str())
        }
        Scope::Namespace(namespace, kind) => {
            let counts = format!("namespace:{}", kind.as_str());
            key(namespace.as_str(), &counts, "")
        }
        Scope::Group(namespace, kind, name) => {
            let counts = format!("group:{}", kind.as_str());
            key(namespace.as_str(), &counts, name)
        }
        Scope::TaskDef(namespace, name) => key(namespace.as_str(), "task_def", name),
    }
}

/// Exchanges shares when matching asks for it.
#[derive(Default)]
pub(crate) struct RateSweep;

impl Sweep for RateSweep {
    const NAME: &'static str = "rates";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let dispatch = &host.inner.wakes.dispatch;
        dispatch.share_check.clear();
        let outcome = host.exchange_shares(dispatch.begin_exchanges()).await;
        if let Some(at) = dispatch.next_exchange() {
            dispatch.share_check.set_no_later_than(at);
        }
        outcome
    }

    async fn wait(&self, host: &Host) {
        let check = &host.inner.wakes.dispatch.share_check;
        check.wait(&*host.inner.clock).await;
    }
}

/// Why a record was not written.
enum Unchanged {
    /// Nothing is free, and nothing has to be recorded.
    Nothing(Exchanged),
    Failed(StoreError),
}

impl From<StoreError> for Unchanged {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Host {
    /// Gives back all shares: this server stops.
    pub(crate) async fn give_back_shares(&self) -> Result<()> {
        let requests = self.inner.wakes.dispatch.give_back_shares();
        self.exchange_shares(requests).await
    }

    async fn exchange_shares(&self, requests: Vec<ShareRequest>) -> Result<()> {
        let dispatch = &self.inner.wakes.dispatch;
        let mut failed = None;
        let exchange = |request: ShareRequest| async move {
            let outcome = self.exchange(&request).await;
            (request, outcome)
        };
        let mut outcomes = futures::stream::iter(requests)
            .map(exchange)
            .buffer_unordered(CONCURRENT);
        while let Some((request, outcome)) = outcomes.next().await {
            match outcome {
                Ok(outcome) => {
                    for queue in dispatch.share_arrived(&request.key, &outcome) {
                        self.inner.wakes.looks.ask(&queue, NewTasks::All);
                    }
                }
                Err(error) => {
                    dispatch.share_failed(&request);
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn exchange(&self, request: &ShareRequest) -> std::result::Result<Exchanged, StoreError> {
        let ShareRequest { key, settlement } = request;
        let document = key_of(&key.scope);
        // A rate has one record for all its limits, and a share is of one of them.
        let limit = key.limit;
        let holder = format!(
            "{}/{}/{}",
            self.server_id(),
            limit.max,
            limit.window_seconds
        );
        let now = self.now();
        let mut outcome = None;
        let change = |row: Option<RateRow>| {
            let mut rate = row.map(|row| row.rate).unwrap_or_default();
            let exchanged = rate.exchange(&holder, limit, settlement, now);
            if exchanged.granted == 0 && !settlement.has_news() {
                return Err(Unchanged::Nothing(exchanged));
            }
            outcome = Some(exchanged);
            Ok((!rate.is_over(now)).then(|| RateRow {
                namespace: document.namespace.clone(),
                counts: document.name.clone(),
                name: document.qualifier.clone(),
                rate,
            }))
        };
        let store = &self.inner.store;
        let changed = store.change_quietly(document.clone(), now, change).await;
        match changed {
            Ok(_) => outcome.ok_or(StoreError::Conflict),
            Err(Unchanged::Nothing(outcome)) => Ok(outcome),
            Err(Unchanged::Failed(error)) => Err(error),
        }
    }

    /// Deletes the records that count nothing any more. Usually the last server that used one does, unless it is lost.
    pub(crate) async fn delete_old_rates(&self) -> Result<()> {
        let (store, now) = (&self.inner.store, self.now());
        for row in store.list::<RateRow>(None).await? {
            if !row.rate.clone().is_over(now) {
                continue;
            }
            let keep_used = |row: Option<RateRow>| {
                Ok::<_, StoreError>(row.filter(|row| !row.rate.clone().is_over(now)))
            };
            let key = document::key_of(&row);
            store.change_quietly(key, now, keep_used).await?;
        }
        Ok(())
    }
}
