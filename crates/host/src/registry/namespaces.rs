//! Namespaces: everything inside one is invisible to the others. The names are few and every request needs one, so they are kept in
//! memory; an unknown one may have been created by another server, so the store is read before a refusal.

use std::collections::HashMap;

use longhaul_protocol::id::Namespace;
use longhaul_store::{NamespaceRow, document};
use parking_lot::RwLock;
use tokio::sync::{Mutex, Notify};

use crate::Host;
use crate::error::{Error, Result};
use crate::views::Namespaces;

/// The namespace that exists from the start.
pub const DEFAULT_NAMESPACE: &str = "default";

/// How long closed runs are kept unless the namespace sets another time.
const RETENTION_DAYS_DEFAULT: u32 = 30;

#[derive(Default)]
pub(crate) struct NamespaceTable {
    known: RwLock<HashMap<Namespace, NamespaceRow>>,
    /// Held while the rows are read or written, so that the copy is never older than they are.
    changing: Mutex<()>,
    /// A namespace may have been added.
    changed: Notify,
}

impl NamespaceTable {
    /// Returns the names that this server knows.
    pub(crate) fn names(&self) -> Vec<Namespace> {
        self.known.read().keys().cloned().collect()
    }

    /// Resolves when there may be a new one. For one waiter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The settings of a namespace from a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    pub description: Option<String>,
    /// `None` keeps closed runs without limit.
    pub retention_days: Option<u32>,
}

impl Default for NamespaceSpec {
    fn default() -> Self {
        Self {
            description: None,
            retention_days: Some(RETENTION_DAYS_DEFAULT),
        }
    }
}

impl Namespaces<'_> {
    pub(crate) async fn load(self) -> Result<()> {
        let default = Namespace::from(DEFAULT_NAMESPACE);
        match self.create(&default, &NamespaceSpec::default()).await {
            Ok(_) | Err(Error::NamespaceExists(_)) => {}
            Err(error) => return Err(error),
        }
        self.list().await.map(drop)
    }

    /// Checks that the namespace exists.
    pub async fn require(self, name: &Namespace) -> Result<()> {
        if self.host.inner.namespaces.known.read().contains_key(name) {
            return Ok(());
        }
        self.get(name).await.map(drop)
    }

    /// Returns one namespace.
    pub async fn get(self, name: &Namespace) -> Result<NamespaceRow> {
        if let Some(row) = self.host.inner.namespaces.known.read().get(name) {
            return Ok(row.clone());
        }
        let all = self.list().await?;
        all.into_iter()
            .find(|row| row.name == *name)
            .ok_or_else(|| Error::NamespaceNotFound(name.clone()))
    }

    /// Returns all namespaces by name.
    pub async fn list(self) -> Result<Vec<NamespaceRow>> {
        let _changing = self.host.inner.namespaces.changing.lock().await;
        let rows = self.host.inner.store.list::<NamespaceRow>(None).await?;
        *self.host.inner.namespaces.known.write() = rows
            .iter()
            .map(|row| (row.name.clone(), row.clone()))
            .collect();
        self.host.inner.namespaces.changed.notify_one();
        Ok(rows)
    }

    /// Creates a namespace.
    pub async fn create(self, name: &Namespace, spec: &NamespaceSpec) -> Result<NamespaceRow> {
        let (name, spec) = (name.clone(), spec.clone());
        let write = |host: Host| async move { host.namespaces().write_new(&name, &spec).await };
        self.host.to_the_end(write).await
    }

    async fn write_new(self, name: &Namespace, spec: &NamespaceSpec) -> Result<NamespaceRow> {
        let now = self.host.now();
        let row = NamespaceRow {
            name: name.clone(),
            description: spec.description.clone(),
            retention_days: spec.retention_days,
            created_at: now,
            updated_at: now,
        };
        let _changing = self.host.inner.namespaces.changing.lock().await;
        if !self.host.inner.store.create(&row, now).await? {
            return Err(Error::NamespaceExists(name.clone()));
        }
        self.host
            .inner
            .namespaces
            .known
            .write()
            .insert(name.clone(), row.clone());
        self.host.inner.namespaces.changed.notify_one();
        Ok(row)
    }

    /// Changes a namespace's description and retention.
    pub async fn update(self, name: &Namespace, spec: &NamespaceSpec) -> Result<NamespaceRow> {
        let (name, spec) = (name.clone(), spec.clone());
        let write = |host: Host| async move { host.namespaces().write_changed(&name, &spec).await };
        self.host.to_the_end(write).await
    }

    async fn write_changed(self, name: &Namespace, spec: &NamespaceSpec) -> Result<NamespaceRow> {
        let now = self.host.now();
        let not_found = || Error::NamespaceNotFound(name.clone());
        let _changing = self.host.inner.namespaces.changing.lock().await;
        let change = |stored: Option<NamespaceRow>| {
            let mut row = stored.ok_or_else(not_found)?;
            row.description.clone_from(&spec.description);
            row.retention_days = spec.retention_days;
            row.updated_at = now;
            Ok::<_, Error>(Some(row))
        };
        let key = document::key::<NamespaceRow>("", name.as_str(), "");
        let changed = self.host.inner.store.change(key, now, change).await?;
        let row = changed.ok_or_else(not_found)?;
        self.host
            .inner
            .namespaces
            .known
            .write()
            .insert(name.clone(), row.clone());
        Ok(row)
    }
}
