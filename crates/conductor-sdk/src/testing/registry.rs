//! Definitions and schemas of the test: what a worker registers is kept, or refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_protocol::conductor::{SchemaDef, TaskDef};
use longhaul_transport::RequestError;
use parking_lot::Mutex;

use super::refused;
use crate::runner::{MetadataApi, Registration, SchemaApi};

/// Task definitions in memory. Cheap to clone: clones are one fake.
#[derive(Clone, Debug, Default)]
pub struct FakeMetadata {
    state: Arc<Mutex<Definitions>>,
}

#[derive(Debug, Default)]
struct Definitions {
    by_name: BTreeMap<String, TaskDef>,
    refuses: Option<u16>,
}

impl FakeMetadata {
    /// A server without definitions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses every request with this status.
    #[must_use]
    pub fn refusing(status: u16) -> Self {
        let fake = Self::new();
        fake.state.lock().refuses = Some(status);
        fake
    }

    /// Adds a definition that exists already.
    #[must_use]
    pub fn with(self, definition: TaskDef) -> Self {
        let name = definition.name.clone();
        self.state.lock().by_name.insert(name, definition);
        self
    }

    /// Returns the definitions by name.
    #[must_use]
    pub fn definitions(&self) -> BTreeMap<String, TaskDef> {
        self.state.lock().by_name.clone()
    }

    fn save(&self, registration: &Registration, only_known: bool) -> Result<(), RequestError> {
        let definition = registration.definition();
        let mut state = self.state.lock();
        if let Some(status) = state.refuses {
            return Err(refused(status));
        }
        if only_known && !state.by_name.contains_key(&definition.name) {
            return Err(refused(404));
        }
        let name = definition.name.clone();
        state.by_name.insert(name, definition.clone());
        Ok(())
    }
}

impl MetadataApi for FakeMetadata {
    fn task<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<TaskDef, RequestError>> {
        let state = self.state.lock();
        let found = match state.refuses {
            Some(status) => Err(refused(status)),
            None => state.by_name.get(name).cloned().ok_or_else(|| refused(404)),
        };
        Box::pin(std::future::ready(found))
    }

    fn update_task<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async { self.save(registration, true) })
    }

    fn register_task<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async { self.save(registration, false) })
    }

    fn task_page(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Schemas in memory. Cheap to clone: clones are one fake.
#[derive(Clone, Debug, Default)]
pub struct FakeSchemas {
    state: Arc<Mutex<Schemas>>,
}

#[derive(Debug, Default)]
struct Schemas {
    by_name: BTreeMap<(String, i32), SchemaDef>,
    refuses: Option<u16>,
}

impl FakeSchemas {
    /// A registry without schemas.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses every request with this status; 404 is a server without a registry.
    #[must_use]
    pub fn refusing(status: u16) -> Self {
        let fake = Self::new();
        fake.state.lock().refuses = Some(status);
        fake
    }

    /// Returns the schemas by name and version.
    #[must_use]
    pub fn schemas(&self) -> BTreeMap<(String, i32), SchemaDef> {
        self.state.lock().by_name.clone()
    }
}

impl SchemaApi for FakeSchemas {
    fn schema<'a>(
        &'a self,
        name: &'a str,
        version: i32,
    ) -> BoxFuture<'a, Result<SchemaDef, RequestError>> {
        let state = self.state.lock();
        let key = (name.to_owned(), version);
        let found = match state.refuses {
            Some(status) => Err(refused(status)),
            None => state.by_name.get(&key).cloned().ok_or_else(|| refused(404)),
        };
        Box::pin(std::future::ready(found))
    }

    fn register_schema<'a>(
        &'a self,
        schema: &'a SchemaDef,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        let mut state = self.state.lock();
        let saved = match state.refuses {
            Some(status) => Err(refused(status)),
            None => {
                let key = (schema.name.clone(), schema.version);
                state.by_name.insert(key, schema.clone());
                Ok(())
            }
        };
        Box::pin(std::future::ready(saved))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::EventDispatcher;
    use crate::runner::TaskRunner;
    use crate::settings::{CodeSettings, resolve};
    use crate::testing::{FakeTasks, task};
    use crate::worker::{AnyWorker, function};

    fn worker(settings: CodeSettings) -> AnyWorker {
        function("double", |number: u64| Ok(number * 2))
            .input_schema(json!({"type": "object"}))
            .settings(settings.register_task_def(true))
    }

    async fn register(worker: AnyWorker, metadata: &FakeMetadata, schemas: &FakeSchemas) {
        let resolved = resolve("double", worker.code_settings(), &|_| None).unwrap();
        let events = EventDispatcher::silent();
        let runner = TaskRunner::with_settings(worker, FakeTasks::new(), events, resolved)
            .registering(metadata.clone(), schemas.clone());
        runner.register_task_definition().await;
    }

    #[tokio::test]
    async fn a_worker_registers_with_fakes_of_all_three_clients() {
        let (metadata, schemas) = (FakeMetadata::new(), FakeSchemas::new());
        register(worker(CodeSettings::new()), &metadata, &schemas).await;
        let definition = &metadata.definitions()["double"];
        let link = definition.input_schema.as_ref().unwrap();
        assert_eq!((&*link.name, link.version), ("double_input", 1));
        let registered = schemas.schemas();
        assert!(registered.contains_key(&("double_input".to_owned(), 1)));

        let missing = FakeSchemas::refusing(404);
        let metadata = FakeMetadata::new();
        register(worker(CodeSettings::new()), &metadata, &missing).await;
        assert!(metadata.definitions()["double"].input_schema.is_none());

        let known = TaskDef {
            name: "double".to_owned(),
            retry_count: 9,
            ..TaskDef::default()
        };
        let metadata = FakeMetadata::new().with(known);
        let keeps = CodeSettings::new().overwrite_task_def(false);
        register(worker(keeps), &metadata, &FakeSchemas::new()).await;
        assert_eq!(metadata.definitions()["double"].retry_count, 9);

        let refusing = FakeMetadata::refusing(500);
        register(worker(CodeSettings::new()), &refusing, &FakeSchemas::new()).await;
        assert!(refusing.definitions().is_empty());
    }

    #[tokio::test]
    async fn a_task_is_executed_and_reported_by_hand() {
        let tasks = FakeTasks::new();
        let worker = function("double", |number: u64| Ok(number * 2));
        let resolved = resolve("double", worker.code_settings(), &|_| None).unwrap();
        let events = EventDispatcher::silent();
        let runner = TaskRunner::with_settings(worker, tasks.clone(), events, resolved);
        let failed = runner.execute_task(task("double", json!({}))).await;
        assert!(failed.reason_for_incompletion.is_some());
        assert!(runner.update_task(failed).await.is_none());
        assert_eq!(tasks.results().len(), 1);
        assert!(tasks.polls().is_empty());
    }
}
