//! Registers the schemas of a worker, to which its task definition has links.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::future::BoxFuture;
use longhaul_protocol::conductor::{SchemaDef, SchemaType};
use longhaul_transport::RequestError;
use serde_json::Value;

use super::register::is_missing;
use crate::client::SchemaClient;
use crate::schema::Strictness;
use crate::settings::Settings;
use crate::worker::AnyWorker;

/// The version under which workers register. A worker that starts again replaces it.
const VERSION: i32 = 1;

/// Registers and reads schemas.
pub trait SchemaApi: fmt::Debug + Send + Sync + 'static {
    /// Returns a version of a schema. The status of the refusal is 404 if there is none.
    fn schema<'a>(
        &'a self,
        name: &'a str,
        version: i32,
    ) -> BoxFuture<'a, Result<SchemaDef, RequestError>>;

    /// Registers a version of a schema, or replaces it. The status of the refusal is 404 if the server has no registry.
    fn register_schema<'a>(
        &'a self,
        schema: &'a SchemaDef,
    ) -> BoxFuture<'a, Result<(), RequestError>>;
}

impl SchemaApi for SchemaClient {
    fn schema<'a>(
        &'a self,
        name: &'a str,
        version: i32,
    ) -> BoxFuture<'a, Result<SchemaDef, RequestError>> {
        Box::pin(self.get(name, Some(version)))
    }

    fn register_schema<'a>(
        &'a self,
        schema: &'a SchemaDef,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.register(schema))
    }
}

/// The links of a definition to the schemas that the server has.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) input: Option<SchemaDef>,
    pub(super) output: Option<SchemaDef>,
}

/// Registers the schemas of a worker. A schema that cannot be registered has no link.
pub(super) async fn register_schemas(
    schemas: &dyn SchemaApi,
    worker: &AnyWorker,
    settings: &Settings,
) -> Links {
    let mut links = Links::default();
    let task_type = &worker.task_type;
    let strictness = Strictness::of(settings.strict_schema);
    let outgoing = [
        ("input", &worker.input_schema, &mut links.input),
        ("output", &worker.output_schema, &mut links.output),
    ];
    for (direction, schema, link) in outgoing {
        let Some(schema) = schema else {
            continue;
        };
        let name = format!("{task_type}_{direction}");
        // Types can describe themselves, with code of the user.
        let made = catch_unwind(AssertUnwindSafe(|| schema.render(strictness)));
        let Ok(made) = made else {
            tracing::warn!(
                schema = name,
                "the schema is not registered because its type panicked when it described itself"
            );
            continue;
        };
        let Some(schema) = made else {
            continue;
        };
        let Value::Object(data) = schema else {
            tracing::warn!(
                schema = name,
                "the schema is not registered because it is not a JSON object"
            );
            continue;
        };
        let schema = SchemaDef {
            schema_type: Some(SchemaType::Json),
            data: Some(data),
            ..link_to(&name)
        };
        match register(schemas, &schema, settings.overwrite_task_def).await {
            Ok(()) => {
                tracing::info!(schema = name, "registered the schema");
                *link = Some(link_to(&name));
            }
            Err(error) if is_missing(&error) => {
                tracing::warn!(
                    task_definition = &**task_type,
                    "the server has no schema registry (status 404); the task definition is registered without schemas. Set \
                     `register_schema` to false to leave them out"
                );
                // The other schema would get the same answer.
                return Links::default();
            }
            Err(error) => tracing::warn!(
                schema = name, %error,
                "the schema was not registered; the task definition is registered without it"
            ),
        }
    }
    links
}

/// Registers a schema. Without overwriting, one that exists is kept.
async fn register(
    schemas: &dyn SchemaApi,
    schema: &SchemaDef,
    overwrite: bool,
) -> Result<(), RequestError> {
    if !overwrite {
        match schemas.schema(&schema.name, schema.version).await {
            Ok(_) => return Ok(()),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    schemas.register_schema(schema).await
}

/// Returns the link of a definition to a schema.
fn link_to(name: &str) -> SchemaDef {
    SchemaDef {
        name: name.to_owned(),
        version: VERSION,
        ..SchemaDef::default()
    }
}
