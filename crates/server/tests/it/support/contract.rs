//! Published schemas that several tests validate responses with.

use std::path::Path;

use serde_json::Value;

/// Returns the schema of local activities.
pub(crate) fn local_activities() -> Value {
    document("local-activity-runtime.schema.json")
}

/// Returns the schema of worker sessions.
pub(crate) fn worker_sessions() -> Value {
    document("worker-sessions-runtime.schema.json")
}

fn document(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/contract")
        .join(name);
    let text = std::fs::read_to_string(path).expect("the copied schema");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the errors of a value under one definition of the local-activity schema.
pub(crate) fn local_activity_errors(definition: &str, value: &Value) -> Vec<String> {
    let document = local_activities();
    let mut schema = document["$defs"][definition].clone();
    schema["$defs"] = document["$defs"].clone();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}
