//! Gives a schema the form that Conductor SDKs share.

use longhaul_protocol::conductor::Object;
use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Value, json};

/// Rewrites a schema and all schemas in it:
///
/// - A type or null is the type with `nullable: true`, and such a property is not required.
/// - A number has no format and no bounds of its Rust type.
/// - A list of any values has no `items`.
/// - Defaults are left out, because those of parameters are not known.
#[derive(Clone, Debug)]
pub(super) struct Normalize;

impl Transform for Normalize {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(schema) = schema.as_object_mut() else {
            return;
        };
        schema.remove("default");
        remove_number_format(schema);
        remove_null_type(schema);
        for union in ["anyOf", "oneOf"] {
            remove_null_branch(schema, union);
        }
        if schema.get("items").is_some_and(is_any) {
            schema.remove("items");
        }
        leave_out_nullable(schema);
    }
}

/// Returns whether a schema accepts every value.
fn is_any(schema: &Value) -> bool {
    *schema == Value::Bool(true) || *schema == json!({})
}

/// Returns whether a schema accepts null only.
fn is_null(schema: &Value) -> bool {
    schema.get("type") == Some(&json!("null"))
}

/// Removes the format of a Rust number, and the bounds that follow from it. Bounds that the program sets are kept.
fn remove_number_format(schema: &mut Object) {
    let Some(format) = schema.get("format").and_then(Value::as_str) else {
        return;
    };
    let (minimum, maximum) = match format {
        "int8" => (Some(i64::from(i8::MIN)), Some(i64::from(i8::MAX))),
        "int16" => (Some(i64::from(i16::MIN)), Some(i64::from(i16::MAX))),
        "uint8" => (Some(0), Some(i64::from(u8::MAX))),
        "uint16" => (Some(0), Some(i64::from(u16::MAX))),
        "uint" | "uint32" | "uint64" | "uint128" => (Some(0), None),
        "int" | "int32" | "int64" | "int128" | "float" | "double" => (None, None),
        _ => return,
    };
    schema.remove("format");
    for (name, bound) in [("minimum", minimum), ("maximum", maximum)] {
        if bound.is_some() && schema.get(name).and_then(Value::as_i64) == bound {
            schema.remove(name);
        }
    }
}

/// Makes `nullable` of a list of types with null in it.
fn remove_null_type(schema: &mut Object) {
    let Some(Value::Array(types)) = schema.get_mut("type") else {
        return;
    };
    let before = types.len();
    types.retain(|name| name != "null");
    if types.len() == before || types.is_empty() {
        return;
    }
    if let [only] = &mut types[..] {
        let only = only.take();
        schema.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    schema.insert("nullable".to_owned(), true.into());
}

/// Makes `nullable` of a union with null. A union of one is that one.
fn remove_null_branch(schema: &mut Object, union: &str) {
    let Some(Value::Array(branches)) = schema.get_mut(union) else {
        return;
    };
    let before = branches.len();
    branches.retain(|branch| !is_null(branch));
    if branches.len() == before || branches.is_empty() {
        return;
    }
    let only = match &mut branches[..] {
        [only] => Some(only.take()),
        _ => None,
    };
    schema.insert("nullable".to_owned(), true.into());
    match only {
        Some(Value::Object(only)) => merge(schema, union, only),
        // Any value, or none.
        Some(only) => {
            schema.remove(union);
            if !is_any(&only) {
                schema.insert("allOf".to_owned(), json!([only]));
            }
        }
        None => {}
    }
}

/// Replaces a union by its only branch.
fn merge(schema: &mut Object, union: &str, only: Object) {
    schema.remove(union);
    // Draft-07 ignores everything beside a `$ref`, and a nested member must not replace one of the schema around it.
    let is_description = |name: &str| name == "description" || name == "nullable";
    let collides = |name: &String| !is_description(name) && schema.contains_key(name);
    if only.contains_key("$ref") || only.keys().any(collides) {
        schema.insert("allOf".to_owned(), json!([only]));
        return;
    }
    for (name, value) in only {
        // The description of the field comes before that of its type.
        schema.entry(name).or_insert(value);
    }
}

/// Removes nullable properties from those that are required.
fn leave_out_nullable(schema: &mut Object) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    let nullable = |name: &Value| {
        let property = name.as_str().and_then(|name| properties.get(name));
        property.and_then(|property| property.get("nullable")) == Some(&Value::Bool(true))
    };
    let Some(Value::Array(required)) = schema.get("required") else {
        return;
    };
    let kept: Vec<_> = required.iter().filter(|name| !nullable(name)).collect();
    let kept = json!(kept);
    schema.insert("required".to_owned(), kept);
}
