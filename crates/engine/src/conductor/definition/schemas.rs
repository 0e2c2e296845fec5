//! The schemas that definitions enforce. A definition contains a schema or names a registered one. A named one becomes a part of the
//! definition when a run begins, so that the run keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_protocol::conductor::{Object, SchemaDef, SchemaType, TaskDef, WorkflowDef};

/// The name and the version of a registered schema.
pub type SchemaKey = (String, i32);

/// The content of registered schemas.
pub type Schemas = BTreeMap<SchemaKey, Object>;

/// Returns the registered schemas that a definition enforces, also by the task definitions that were found for it.
pub fn needed_schemas(
    definition: &WorkflowDef,
    task_defs: &BTreeMap<String, Arc<TaskDef>>,
) -> BTreeSet<SchemaKey> {
    let mut keys = BTreeSet::new();
    if definition.enforce_schema {
        let schemas = [&definition.input_schema, &definition.output_schema];
        keys.extend(schemas.into_iter().flatten().filter_map(name_only));
    }
    definition.visit_nodes(&mut |_, node| {
        if let Some(own) = &node.task_definition {
            keys.extend(needed_task_schemas(own));
        }
    });
    keys.extend(
        task_defs
            .values()
            .flat_map(|found| needed_task_schemas(found)),
    );
    keys
}

/// Returns the registered schemas that a task definition enforces.
pub fn needed_task_schemas(definition: &TaskDef) -> Vec<SchemaKey> {
    let schemas = [&definition.input_schema, &definition.output_schema];
    let enforced = schemas.into_iter().flatten();
    enforced
        .filter(|_| definition.enforce_schema)
        .filter_map(name_only)
        .collect()
}

/// Returns a task definition with the content of the schemas that it names.
pub fn with_schemas(definition: &Arc<TaskDef>, schemas: &Schemas) -> Arc<TaskDef> {
    let mut definition = Arc::clone(definition);
    if needed_task_schemas(&definition)
        .iter()
        .any(|key| schemas.contains_key(key))
    {
        let changed = Arc::make_mut(&mut definition);
        fill_in(&mut changed.input_schema, schemas);
        fill_in(&mut changed.output_schema, schemas);
    }
    definition
}

/// Returns whether a task definition enforces a schema whose content is known.
pub(crate) fn enforces_schemas(definition: &TaskDef) -> bool {
    let schemas = [&definition.input_schema, &definition.output_schema];
    let mut known = schemas.into_iter().flatten();
    definition.enforce_schema && known.any(|schema| is_json(schema) && schema.data.is_some())
}

/// Adds the content of a schema that a definition names.
pub(super) fn fill_in(schema: &mut Option<SchemaDef>, schemas: &Schemas) {
    if let Some(schema) = schema
        && let Some(key) = name_only(schema)
    {
        schema.data = schemas.get(&key).cloned();
    }
}

/// Returns the key of a JSON Schema that is given by its name only.
fn name_only(schema: &SchemaDef) -> Option<SchemaKey> {
    let is_named = is_json(schema) && schema.data.is_none() && !schema.name.is_empty();
    is_named.then(|| (schema.name.clone(), schema.version))
}

/// Returns whether values can be compared with the schema. Schemas of other languages are stored only.
pub(crate) fn is_json(schema: &SchemaDef) -> bool {
    matches!(schema.schema_type, None | Some(SchemaType::Json))
}
