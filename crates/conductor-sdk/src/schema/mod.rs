//! JSON Schemas (draft-07) of what workers read and return, made of Rust types.
//!
//! `schemars` describes a type. The transforms in `normal` and `strict` give the description the form that Conductor SDKs share:
//! `nullable` in place of a union with null, no formats of Rust numbers, and `additionalProperties` at every object.

mod normal;
mod strict;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use longhaul_protocol::conductor::Object;
use schemars::generate::SchemaSettings;
use schemars::transform::{ReplaceBoolSchemas, ReplaceUnevaluatedProperties};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use normal::Normalize;
use strict::SetAdditionalProperties;
pub(crate) use strict::Strictness;

/// The value of `$schema`.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// Describes a type.
pub(crate) type TypeSchema = fn(&mut SchemaGenerator) -> Schema;

/// Returns the function that describes a type.
pub(crate) fn of<T: JsonSchema>() -> TypeSchema {
    |generator| generator.subschema_for::<T>()
}

/// A parameter of a function, which is a member of the input.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// `None` for a type that has no schema.
    pub(crate) schema: Option<TypeSchema>,
    pub(crate) presence: Presence,
}

/// Whether the input must have a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    /// The parameter has a default.
    Defaulted,
    /// The parameter is an `Option`.
    Nullable,
}

/// The schema of an input or output of a worker, as the worker declares it.
#[derive(Clone, Debug)]
pub(crate) enum WorkerSchema {
    /// The program has written it. It is registered unchanged.
    Given(Value),
    /// Made of the parameters of a function.
    Parameters(Arc<[Parameter]>),
    /// Made of the type that is read from the input.
    Input(TypeSchema),
    /// Made of the type that the function returns.
    Output(TypeSchema),
}

impl WorkerSchema {
    /// Returns the schema, or `None` if a type has none.
    pub(crate) fn render(&self, strictness: Strictness) -> Option<Value> {
        match self {
            Self::Given(schema) => Some(schema.clone()),
            Self::Parameters(parameters) => {
                input_of(parameters, strictness.generator()).map(Value::Object)
            }
            Self::Input(schema) => Some(Value::Object(whole(*schema, strictness.generator()))),
            Self::Output(schema) => {
                let settings = settings(strictness).for_serialize();
                let output = whole(*schema, settings.into_generator());
                // A function that returns nothing has no output to describe.
                (output.get("type") != Some(&json!("null"))).then_some(Value::Object(output))
            }
        }
    }
}

impl Strictness {
    /// Returns a generator for what is read.
    fn generator(self) -> SchemaGenerator {
        settings(self).for_deserialize().into_generator()
    }
}

fn settings(strictness: Strictness) -> SchemaSettings {
    let mut bools = ReplaceBoolSchemas::default();
    bools.skip_additional_properties = true;
    SchemaSettings::draft07()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(Normalize)
        .with_transform(SetAdditionalProperties(strictness))
        // It closes objects that are made of several parts, which the transform before it has marked.
        .with_transform(ReplaceUnevaluatedProperties::default())
        .with_transform(bools)
}

/// Returns the schema of an object with one property for each parameter. `None` if a parameter has no schema.
fn input_of(parameters: &[Parameter], mut generator: SchemaGenerator) -> Option<Object> {
    let mut properties = Object::new();
    let mut required = Vec::new();
    let mut nullable = Vec::new();
    for parameter in parameters {
        let schema = parameter.schema?(&mut generator);
        properties.insert(parameter.name.to_owned(), schema.to_value());
        match parameter.presence {
            Presence::Required => required.push(parameter.name),
            Presence::Defaulted => {}
            Presence::Nullable => nullable.push(parameter.name),
        }
    }
    let schema = json_schema!({"type": "object", "properties": properties, "required": required});
    let mut schema = finish(schema, generator);
    // The schema of any value has no type to which null could be added, so an `Option` of it is not recognised by its schema.
    for name in nullable {
        if let Some(Value::Object(property)) = schema["properties"].get_mut(name) {
            property.insert("nullable".to_owned(), true.into());
        }
    }
    Some(schema)
}

/// Returns the schema of a whole input or output.
fn whole(schema: TypeSchema, mut generator: SchemaGenerator) -> Object {
    let schema = schema(&mut generator);
    finish(schema, generator)
}

/// Adds the definitions of recursive types, and gives the schema its final form.
fn finish(mut schema: Schema, mut generator: SchemaGenerator) -> Object {
    let definitions = generator.take_definitions(false);
    if !definitions.is_empty() {
        schema.insert("definitions".to_owned(), definitions.into());
    }
    for transform in generator.transforms_mut() {
        transform.transform(&mut schema);
    }
    let schema = schema.ensure_object();
    schema.insert("$schema".to_owned(), DRAFT.into());
    std::mem::take(schema)
}
