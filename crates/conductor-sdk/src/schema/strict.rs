//! Sets whether objects may have members that their schema does not name.

use longhaul_protocol::conductor::Object;
use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Value, json};

/// Whether objects may have members that their schema does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// They may.
    Lenient,
    /// They must not: the setting `strict_schema`.
    Strict,
}

impl Strictness {
    /// Returns the strictness of the setting `strict_schema`.
    pub(crate) fn of(strict_schema: bool) -> Self {
        if strict_schema {
            Self::Strict
        } else {
            Self::Lenient
        }
    }
}

/// The ways in which a schema is made of others that describe the same value.
const PARTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Sets `additionalProperties` and `required` of every object with properties. Maps and untyped objects stay open.
///
/// A type that sets `additionalProperties` itself keeps it: one that refuses unknown fields, or collects them in a map.
#[derive(Clone, Debug)]
pub(super) struct SetAdditionalProperties(pub(super) Strictness);

impl Transform for SetAdditionalProperties {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(schema) = schema.as_object_mut() {
            self.set(schema);
        }
        transform_subschemas(self, schema);
    }
}

impl SetAdditionalProperties {
    fn set(&self, schema: &mut Object) {
        if !schema.contains_key("properties") {
            // An untyped object.
            if schema.get("additionalProperties") == Some(&Value::Bool(true)) {
                schema.remove("additionalProperties");
            }
            return;
        }
        schema.entry("required").or_insert_with(|| json!([]));
        // A struct with a flattened enum has its own properties and those of a variant. A part cannot refuse the members of the
        // other parts, so the parts stay open, and the whole refuses what none of them names.
        let is_composed = open_parts(schema);
        if schema.contains_key("additionalProperties") {
            return;
        }
        let (name, allowed) = match self.0 {
            Strictness::Strict if is_composed => ("unevaluatedProperties", false),
            Strictness::Strict => ("additionalProperties", false),
            Strictness::Lenient => ("additionalProperties", true),
        };
        schema.insert(name.to_owned(), allowed.into());
    }
}

/// Leaves the parts of a schema open. Returns whether it has any.
fn open_parts(schema: &mut Object) -> bool {
    let mut is_composed = false;
    for name in PARTS {
        let Some(Value::Array(parts)) = schema.get_mut(name) else {
            continue;
        };
        is_composed = true;
        for part in parts.iter_mut().filter_map(Value::as_object_mut) {
            open_parts(part);
            if part.contains_key("properties") {
                let open = part.entry("additionalProperties");
                open.or_insert(Value::Bool(true));
            }
        }
    }
    is_composed
}
