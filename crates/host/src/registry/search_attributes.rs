//! Search attribute definitions of each namespace. They are few, change seldom and are needed whenever attributes are set or
//! queried, so they are kept in memory. If other servers write to the same store too, they are read each time: an attribute that was
//! just defined at another server is known here.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::visibility::{Definitions, Type, attribute};
use longhaul_protocol::id::Namespace;
use longhaul_protocol::workflow_command::WorkflowCommand;
use longhaul_store::{SearchAttributeRow, document};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::Host;
use crate::error::{Error, Result};
use crate::views::SearchAttributes;

/// Held while definitions are read or written, so that the copy is never older than the stored rows.
#[derive(Default)]
pub(crate) struct AttributeTable {
    known: Mutex<HashMap<Namespace, Arc<Definitions>>>,
}

impl SearchAttributes<'_> {
    /// Returns the definitions of the namespace.
    pub async fn list(self, namespace: &Namespace) -> Result<Arc<Definitions>> {
        if self.host.inner.store.shared().is_some() {
            return self.read(namespace).await;
        }
        let mut known = self.host.inner.search_attributes.known.lock().await;
        self.definitions(&mut known, namespace).await
    }

    async fn read(self, namespace: &Namespace) -> Result<Arc<Definitions>> {
        let store = &self.host.inner.store;
        let rows = store.list::<SearchAttributeRow>(Some(namespace)).await?;
        let defined = rows.into_iter().map(|row| (row.name, row.attribute_type));
        Ok(Arc::new(defined.collect::<Definitions>()))
    }

    async fn definitions(
        self,
        known: &mut HashMap<Namespace, Arc<Definitions>>,
        namespace: &Namespace,
    ) -> Result<Arc<Definitions>> {
        let is_shared = self.host.inner.store.shared().is_some();
        if let Some(definitions) = known.get(namespace).filter(|_| !is_shared) {
            return Ok(Arc::clone(definitions));
        }
        let definitions = self.read(namespace).await?;
        known.insert(namespace.clone(), Arc::clone(&definitions));
        Ok(definitions)
    }

    /// Defines an attribute. A namespace has at most as many as a run may carry.
    pub async fn define(
        self,
        namespace: &Namespace,
        name: &str,
        attribute_type: Type,
    ) -> Result<()> {
        if attribute::check_name(name).is_err() {
            return Err(Error::AttributeNameReserved(name.to_owned()));
        }
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let write = |host: Host| async move {
            let attributes = host.search_attributes();
            attributes.write(&namespace, &name, attribute_type).await
        };
        self.host.to_the_end(write).await
    }

    async fn write(self, namespace: &Namespace, name: &str, attribute_type: Type) -> Result<()> {
        let mut known = self.host.inner.search_attributes.known.lock().await;
        let defined = self.definitions(&mut known, namespace).await?;
        if let Some(existing) = defined.get(name) {
            return Err(Error::AttributeExists(name.to_owned(), existing));
        }
        let limit = self.host.inner.config.limits.search_attribute_count;
        if defined.len() as u64 >= limit {
            return Err(Error::TooManyAttributes { limit });
        }
        known.remove(namespace);
        let row = SearchAttributeRow {
            namespace: namespace.clone(),
            name: name.to_owned(),
            attribute_type,
        };
        if self.host.inner.store.create(&row, self.host.now()).await? {
            return Ok(());
        }
        // Another server came first.
        let defined = self.definitions(&mut known, namespace).await?;
        let existing = defined.get(name).unwrap_or(attribute_type);
        Err(Error::AttributeExists(name.to_owned(), existing))
    }

    /// Deletes a definition. Values that runs have stay and can be found once the name is defined again.
    pub async fn delete(self, namespace: &Namespace, name: &str) -> Result<()> {
        if attribute::is_system(name) {
            return Err(Error::SystemAttribute(name.to_owned()));
        }
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let delete = |host: Host| async move {
            let delete = host.search_attributes().erase(&namespace, &name);
            delete.await
        };
        self.host.to_the_end(delete).await
    }

    async fn erase(self, namespace: &Namespace, name: &str) -> Result<()> {
        let mut known = self.host.inner.search_attributes.known.lock().await;
        known.remove(namespace);
        let store = &self.host.inner.store;
        let key = document::key::<SearchAttributeRow>(namespace.as_str(), name, "");
        let now = self.host.now();
        if store.delete::<SearchAttributeRow>(key, now).await? {
            Ok(())
        } else {
            Err(Error::AttributeNotFound(name.to_owned()))
        }
    }

    /// Refuses attributes from outside that do not match the definitions of the namespace.
    pub(crate) async fn check(
        self,
        namespace: &Namespace,
        attributes: &Map<String, Value>,
    ) -> Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        let definitions = self.list(namespace).await?;
        definitions
            .check(attributes)
            .map_err(|errors| Error::Rejected(Rejection::InvalidSearchAttributes { errors }))
    }

    /// Returns the definitions that are needed to decide these commands: none unless one of them sets attributes.
    pub(crate) async fn definitions_for(
        self,
        namespace: &Namespace,
        commands: &[WorkflowCommand],
    ) -> Result<Arc<Definitions>> {
        let sets = |command: &WorkflowCommand| {
            matches!(command, WorkflowCommand::UpsertSearchAttributes { .. })
        };
        if commands.iter().any(sets) {
            self.list(namespace).await
        } else {
            Ok(Arc::default())
        }
    }
}
