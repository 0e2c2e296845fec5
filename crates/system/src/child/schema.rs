//! Compares a value with a JSON Schema.
//!
//! A schema is text from a user, like a script. References can make a comparison take exponential time, so it is watched. Nothing is
//! fetched: a reference to another document is an error. `nullable` is not a word of JSON Schema, but Conductor SDKs use it.

use jsonschema::{PatternOptions, ValidationError};
use serde_json::{Map, Value, json};

use super::sandbox::Meter;
use super::thrown::shorten;
use super::watch::watched;
use crate::script::Limits;
use crate::script::frame::Outcome;

/// The most differences that are listed. The first few say what is wrong.
const DIFFERENCES_MAX: usize = 5;

/// The longest text of one difference in characters. A schema may list many names or values.
const DIFFERENCE_CHARS_MAX: usize = 300;

/// The largest compiled pattern in bytes. A short pattern can describe a very large one.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Returns the JSON list of the differences between a value and a schema, at most a few.
pub(super) fn run(schema: &str, value: &str, limits: &Limits, meter: &Meter) -> Outcome<Vec<u8>> {
    watched(limits, meter, || match differences(schema, value) {
        Ok(json) => Outcome::Value(json),
        Err(message) => Outcome::Thrown {
            message: shorten(message),
            line: None,
        },
    })
}

fn differences(schema: &str, value: &str) -> Result<Vec<u8>, String> {
    let mut schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_str(value).map_err(|error| error.to_string())?;
    accept_null(&mut schema);
    // This engine for patterns takes linear time. It has no look-around and no back-references.
    let validator = jsonschema::options()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
        .build(&schema)
        .map_err(|error| format!("it is not a valid JSON Schema: {}", text_of(&error)))?;
    let found: Vec<String> = validator
        .iter_errors(&value)
        .take(DIFFERENCES_MAX)
        .map(|error| text_of(&error))
        .collect();
    serde_json::to_vec(&found).map_err(|error| error.to_string())
}

/// Returns the place and the text of an error, without the value: it may be large, or secret.
fn text_of(error: &ValidationError<'_>) -> String {
    let mut text = match error.instance_path().as_str() {
        "" => error.masked().to_string(),
        place => format!("{place}: {}", error.masked()),
    };
    if let Some((end, _)) = text.char_indices().nth(DIFFERENCE_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Members of a schema that are a schema or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];

/// Members of a schema that have schemas by name.
const NAMED_SCHEMAS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Rewrites every schema with `nullable: true` as one that also accepts null. The depth is that of the text, which the reader of JSON
/// bounds.
fn accept_null(schema: &mut Value) {
    let members = match schema {
        Value::Array(schemas) => return schemas.iter_mut().for_each(accept_null),
        Value::Object(members) => members,
        _ => return,
    };
    for name in SCHEMAS {
        members.get_mut(name).into_iter().for_each(accept_null);
    }
    for name in NAMED_SCHEMAS {
        let named = members.get_mut(name).and_then(Value::as_object_mut);
        named
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(accept_null);
    }
    if members.remove("nullable") != Some(Value::Bool(true)) {
        return;
    }
    let has_condition = CONDITIONS.iter().any(|name| members.contains_key(*name));
    match members.get("type").and_then(Value::as_str) {
        // A difference then names the types.
        Some(name) if !has_condition => {
            let types = json!([name, "null"]);
            members.insert("type".to_owned(), types);
        }
        _ => {
            let rest = Value::Object(std::mem::take(members));
            *schema = json!({"anyOf": [rest, {"type": "null"}]});
        }
    }
}

/// Members of a schema that a null must satisfy, too.
const CONDITIONS: [&str; 8] = [
    "$ref", "allOf", "anyOf", "const", "enum", "if", "not", "oneOf",
];
