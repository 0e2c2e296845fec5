//! Secrets in a copy of an input.
//!
//! A stored input keeps the expression `${workflow.secrets.NAME}`. Only the copy that a worker polls, or that a system task uses,
//! contains the secret.

use std::borrow::Cow;

use serde_json::Value;

use super::resolve::text_form;
use crate::conductor::path::Path;
use crate::conductor::{Budget, Limit};

const OPENING: &str = "${workflow.secrets.";

/// Replaces the secrets in all texts of a value. `find` returns the text of a secret. With a path after the name, that text is parsed
/// as JSON. A secret that does not exist is null if it is the whole text, otherwise it is empty.
pub fn reveal_secrets(
    value: &mut Value,
    find: &dyn Fn(&str) -> Option<String>,
    budget: &mut Budget,
) -> Result<(), Limit> {
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        match value {
            Value::String(text) => {
                if text.contains(OPENING) {
                    *value = reveal(text, find, budget)?;
                }
            }
            Value::Array(list) => stack.extend(list),
            Value::Object(map) => stack.extend(map.values_mut()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    Ok(())
}

fn reveal(
    text: &str,
    find: &dyn Fn(&str) -> Option<String>,
    budget: &mut Budget,
) -> Result<Value, Limit> {
    let mut revealed = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPENING) {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        let end = start + length;
        let secret = secret(&rest[start + 2..end], find, budget)?;
        if start == 0 && rest.len() == text.len() && end + 1 == text.len() {
            return Ok(secret);
        }
        let secret = if secret.is_null() {
            Cow::Borrowed("")
        } else {
            Cow::Owned(text_form(secret, budget)?)
        };
        budget.bytes(start)?;
        revealed.push_str(&rest[..start]);
        revealed.push_str(&secret);
        rest = &rest[end + 1..];
    }
    budget.bytes(rest.len())?;
    revealed.push_str(rest);
    Ok(Value::String(revealed))
}

/// Returns the secret that a path names, or null.
fn secret(
    path: &str,
    find: &dyn Fn(&str) -> Option<String>,
    budget: &mut Budget,
) -> Result<Value, Limit> {
    budget.steps(1 + path.len())?;
    let Ok(path) = Path::parse(path) else {
        return Ok(Value::Null);
    };
    let (_, mut steps) = path.into_parts();
    let name = steps.take_member().and_then(|_| steps.take_member());
    let Some(text) = name.and_then(|name| find(&name)) else {
        return Ok(Value::Null);
    };
    budget.bytes(text.len())?;
    if steps.is_empty() {
        return Ok(Value::String(text));
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => steps.find(&value, budget)?.copy(budget, 0),
        Err(_) => Ok(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revealed(mut value: Value) -> Value {
        let find = |name: &str| match name {
            "KEY" => Some("k-1".to_owned()),
            "JSON" => Some(r#"{"user": "u", "n": 1}"#.to_owned()),
            _ => None,
        };
        reveal_secrets(&mut value, &find, &mut Budget::default()).unwrap();
        value
    }

    #[test]
    fn secrets_are_found_in_all_texts() {
        assert_eq!(
            revealed(
                json!({"a": ["${workflow.secrets.KEY}", 1], "b": "Bearer ${workflow.secrets.KEY}!", "c": "${x.output}"})
            ),
            json!({"a": ["k-1", 1], "b": "Bearer k-1!", "c": "${x.output}"})
        );
    }

    #[test]
    fn a_path_looks_into_the_json_of_a_secret() {
        assert_eq!(revealed(json!("${workflow.secrets.JSON.n}")), json!(1));
        assert_eq!(
            revealed(json!(
                "${workflow.secrets.JSON.user}:${workflow.secrets.KEY}"
            )),
            json!("u:k-1")
        );
        assert_eq!(revealed(json!("${workflow.secrets.KEY.x}")), json!(null));
    }

    #[test]
    fn a_missing_secret_is_null_or_empty() {
        assert_eq!(revealed(json!("${workflow.secrets.NONE}")), json!(null));
        assert_eq!(revealed(json!("a${workflow.secrets.NONE}b")), json!("ab"));
        assert_eq!(
            revealed(json!("a${workflow.secrets.KEY")),
            json!("a${workflow.secrets.KEY")
        );
        assert_eq!(revealed(json!("${workflow.secrets.}")), json!(null));
    }
}
