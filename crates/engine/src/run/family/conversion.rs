//! Values that pass between the families. A run of code has payloads, a definition run has JSON. The receiver converts, here, and no
//! other code knows both forms.

use longhaul_protocol::Payload;
use longhaul_protocol::conductor::Object;
use longhaul_protocol::payload::{CodecError, Kind, from_json};
use serde_json::{Value, json};

/// The largest result that code gets, as long as the payloads of workers. The output of a definition run may be larger.
const RESULT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Returns the argument list for code: the elements of a list, nothing for null, and any other value as the only argument.
pub(crate) fn arguments(value: &Value) -> Result<Payload, CodecError> {
    let list = match value {
        Value::Null => return Ok(Payload::empty_list()),
        Value::Array(_) => value.to_string(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            format!("[{value}]")
        }
    };
    Payload::encode(&from_json(&list)?)
}

/// Returns a payload as JSON. Bytes become text.
pub(crate) fn json_of(payload: &Payload) -> Result<Value, CodecError> {
    payload.display()
}

/// Returns the result that code gets from a definition run.
pub(crate) fn result(output: &Value) -> Result<Payload, String> {
    let value = from_json(&output.to_string()).map_err(|error| error.to_string())?;
    let result = Payload::encode(&value).map_err(|error| error.to_string())?;
    if result.exceeds(RESULT_BYTES_MAX) {
        return Err(format!(
            "it has more than {RESULT_BYTES_MAX} bytes (limit: payload)"
        ));
    }
    Ok(result)
}

/// Returns the input of a definition run that code started: its only argument if that is a map, otherwise all of them.
pub(crate) fn input(arguments: &Payload) -> Result<Object, CodecError> {
    if arguments.kind() != Some(Kind::Array) {
        return Ok(Object::new());
    }
    let Value::Array(mut list) = json_of(arguments)? else {
        return Ok(Object::new());
    };
    Ok(match list.pop() {
        None => Object::new(),
        Some(Value::Object(only)) if list.is_empty() => only,
        Some(last) => {
            list.push(last);
            Object::from_iter([("arguments".to_owned(), json!(list))])
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_the_arguments_and_other_values_are_one() {
        let shown = |value: Value| json_of(&arguments(&value).unwrap()).unwrap();
        assert_eq!(
            shown(json!([1, "a", {"b": null}])),
            json!([1, "a", {"b": null}])
        );
        assert_eq!(shown(json!({"a": 1})), json!([{"a": 1}]));
        assert_eq!(shown(json!("a")), json!(["a"]));
        assert_eq!(shown(Value::Null), json!([]));
        assert!(arguments(&json!(u64::MAX)).is_err());
    }

    #[test]
    fn one_map_is_the_input_and_anything_else_a_list() {
        let read = |value: Value| {
            let payload = Payload::encode(&from_json(&value.to_string()).unwrap()).unwrap();
            Value::Object(input(&payload).unwrap())
        };
        assert_eq!(read(json!([{"a": 1}])), json!({"a": 1}));
        assert_eq!(read(json!([])), json!({}));
        assert_eq!(read(json!([1])), json!({"arguments": [1]}));
        assert_eq!(
            read(json!([{"a": 1}, 2])),
            json!({"arguments": [{"a": 1}, 2]})
        );
    }
}
