//! Search attribute definitions of a namespace.

use http::StatusCode;
use longhaul_host::api::{AttributeType, BadName, NAME_BYTES_MAX, SYSTEM_ATTRIBUTES, check_name};
use serde_json::{Map, Value, json};

use super::Call;
use super::envelope::Reply;
use crate::gate::Refusal;
use crate::request::body::Body;

/// Bytes of a type's name: more than any has.
const TYPE_MAX: usize = 64;

pub(super) async fn list(call: Call) -> Result<Reply, Refusal> {
    let defined = call
        .host()
        .search_attributes()
        .list(&call.namespace)
        .await?;
    Ok(Reply::ok(json!({
        "system_attributes": types(SYSTEM_ATTRIBUTES),
        "custom_attributes": types(defined.iter()),
    })))
}

fn types<'a>(attributes: impl IntoIterator<Item = (&'a str, AttributeType)>) -> Map<String, Value> {
    attributes
        .into_iter()
        .map(|(name, attribute)| (name.to_owned(), json!(attribute.as_str())))
        .collect()
}

pub(super) async fn create(call: Call) -> Result<Reply, Refusal> {
    let name = read_name(&call.body);
    let attribute = read_type(&call.body);
    call.body.check()?;
    call.host()
        .search_attributes()
        .define(&call.namespace, &name, attribute)
        .await?;
    Ok(Reply::new(
        StatusCode::CREATED,
        json!({"name": name, "type": attribute.as_str(), "outcome": "created"}),
    ))
}

pub(super) async fn remove(call: Call) -> Result<Reply, Refusal> {
    let name = call.segment("name");
    call.host()
        .search_attributes()
        .delete(&call.namespace, name)
        .await?;
    Ok(Reply::ok(json!({"name": name, "outcome": "deleted"})))
}

fn read_name(body: &Body) -> String {
    let name = body.required_text("name", NAME_BYTES_MAX);
    if !name.is_empty() && check_name(&name) == Err(BadName::Malformed) {
        body.refuse(
            "name",
            "must begin with a letter and contain only letters, digits and _",
        );
    }
    name
}

fn read_type(body: &Body) -> AttributeType {
    let word = body.required_text("type", TYPE_MAX);
    AttributeType::read(&word).unwrap_or_else(|| {
        if !word.is_empty() {
            let known = AttributeType::ALL.map(AttributeType::as_str).join(", ");
            body.refuse("type", &format!("must be one of {known}"));
        }
        AttributeType::Keyword
    })
}
