//! Registers the task definition of a worker before its first poll, with its schemas.
//!
//! Nothing here stops a worker: the definition may exist already, and a worker needs no schema. So every failure is logged.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_protocol::conductor::TaskDef;
use longhaul_transport::RequestError;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::TaskRunner;
use super::schemas::{Links, SchemaApi, register_schemas};
use crate::client::MetadataClient;
use crate::worker::AnyWorker;

/// Registers and reads task definitions.
pub trait MetadataApi: fmt::Debug + Send + Sync + 'static {
    /// Returns a definition. The status of the refusal is 404 if there is none of this name.
    fn task<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<TaskDef, RequestError>>;

    /// Replaces a definition. Some servers refuse it with status 404 if there is none of this name.
    fn update_task<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<(), RequestError>>;

    /// Registers a definition.
    fn register_task<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<(), RequestError>>;

    /// Returns the address of the page that shows a definition to people, for the log.
    fn task_page(&self, name: &str) -> Option<String>;
}

impl MetadataApi for MetadataClient {
    fn task<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<TaskDef, RequestError>> {
        Box::pin(self.task(name))
    }

    fn update_task<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.update_task_with(registration))
    }

    fn register_task<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.register_tasks_with(std::slice::from_ref(registration)))
    }

    fn task_page(&self, name: &str) -> Option<String> {
        self.task_page(name)
    }
}

/// The definition that a worker registers. As JSON it has only what the program sets; the server sets everything else.
#[derive(Clone, Debug)]
pub struct Registration {
    definition: TaskDef,
    /// The program has a template, which sets everything.
    has_template: bool,
}

impl Registration {
    /// Returns the registration of a worker. Its template is not changed.
    fn of(worker: &AnyWorker, links: Links) -> Self {
        let template = worker.task_definition.clone();
        let has_template = template.is_some();
        let template = template.unwrap_or_default();
        Self {
            has_template,
            definition: TaskDef {
                name: worker.task_type.to_string(),
                input_schema: links.input.or(template.input_schema),
                output_schema: links.output.or(template.output_schema),
                ..template
            },
        }
    }

    /// Returns the definition. What the program does not set has its default.
    #[must_use]
    pub fn definition(&self) -> &TaskDef {
        &self.definition
    }
}

impl Serialize for Registration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let definition = &self.definition;
        if self.has_template {
            return definition.serialize(serializer);
        }
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("name", &definition.name)?;
        for (name, link) in [
            ("inputSchema", &definition.input_schema),
            ("outputSchema", &definition.output_schema),
        ] {
            if let Some(link) = link {
                members.serialize_entry(name, link)?;
            }
        }
        members.end()
    }
}

/// The parts of the server with which a worker registers.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    metadata: Arc<dyn MetadataApi>,
    schemas: Arc<dyn SchemaApi>,
}

impl TaskRunner {
    /// Registers the task definition and its schemas with this server before the first poll, if the setting `register_task_def` asks
    /// for it.
    #[must_use]
    pub fn registering(mut self, metadata: impl MetadataApi, schemas: impl SchemaApi) -> Self {
        self.registry = Some(Registry {
            metadata: Arc::new(metadata),
            schemas: Arc::new(schemas),
        });
        self
    }

    /// Registers the schemas and the task definition. A failure is logged and the worker goes on, because the definition may exist
    /// already.
    pub async fn register_task_definition(&self) {
        let settings = &self.shared.settings;
        let Some(registry) = self
            .registry
            .as_ref()
            .filter(|_| settings.register_task_def)
        else {
            return;
        };
        let name = &*self.shared.worker.task_type;
        let page = || registry.metadata.task_page(name).unwrap_or_default();
        match self.register_with(registry).await {
            Ok(Registered::Sent) => tracing::info!(
                task_definition = name,
                page = page(),
                "registered the task definition"
            ),
            Ok(Registered::Kept) => tracing::info!(
                task_definition = name,
                page = page(),
                "the task definition exists and is kept"
            ),
            Err(error) => tracing::warn!(
                task_definition = name, %error,
                "the task definition was not registered; the worker goes on"
            ),
        }
    }

    async fn register_with(&self, registry: &Registry) -> Result<Registered, RequestError> {
        let (settings, worker) = (&self.shared.settings, &self.shared.worker);
        let metadata = &*registry.metadata;
        if !settings.overwrite_task_def {
            match metadata.task(&worker.task_type).await {
                // The definition keeps its links, too, so other schemas would have no use.
                Ok(_) => return Ok(Registered::Kept),
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let links = if settings.register_schema {
            register_schemas(&*registry.schemas, worker, settings).await
        } else {
            Links::default()
        };
        let registration = Registration::of(worker, links);
        if settings.overwrite_task_def {
            match metadata.update_task(&registration).await {
                Err(error) if is_missing(&error) => metadata.register_task(&registration).await?,
                outcome => outcome?,
            }
        } else {
            metadata.register_task(&registration).await?;
        }
        Ok(Registered::Sent)
    }
}

/// What became of a definition.
enum Registered {
    /// The server has it.
    Sent,
    /// The server had one already.
    Kept,
}

pub(super) fn is_missing(error: &RequestError) -> bool {
    error
        .refusal()
        .is_some_and(|refusal| refusal.status() == 404)
}
