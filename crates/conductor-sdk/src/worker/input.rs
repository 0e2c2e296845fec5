//! Reads the parameters of a function from the input of a task.

use longhaul_protocol::conductor::Object;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use super::{TaskFailure, TaskResponse};

/// Reads the parameter of a name. A parameter that is missing is null, which an `Option` takes for `None`.
///
/// Text that is a number becomes one, and a number or flag becomes text, if the type asks for it. Nothing is rounded or cut.
pub(crate) fn parameter<T: DeserializeOwned>(input: &Object, name: &str) -> TaskResponse<T> {
    let given = input.get(name).unwrap_or(&Value::Null);
    read(given, name).or_else(|error| {
        if let Some(converted) = converted(given)
            && let Ok(read) = serde_json::from_value(converted)
        {
            return Ok(read);
        }
        Err(if given.is_null() {
            TaskFailure::new(format!("the parameter `{name}` is missing in the input"))
        } else {
            TaskFailure::new(format!("the parameter `{name}` does not fit: {error}"))
        })
    })
}

/// Reads a value. The error begins with the path of what does not fit, below the name of the value: `order.items[2].cents: …`.
pub(crate) fn read<T: DeserializeOwned>(given: &Value, name: &str) -> Result<T, String> {
    serde_json::from_value(given.clone()).map_err(|error| {
        // The path costs time, so only a value that does not fit is read a second time.
        match serde_path_to_error::deserialize::<_, T>(given) {
            Err(found) => match place(name, found.path()) {
                Some(place) => format!("{place}: {}", found.inner()),
                None => error.to_string(),
            },
            Ok(_) => error.to_string(),
        }
    })
}

/// Returns the path of a part of a value, or `None` if it is the whole value.
fn place(name: &str, path: &serde_path_to_error::Path) -> Option<String> {
    path.iter().next()?;
    let path = path.to_string();
    let separator = if name.is_empty() || path.starts_with('[') {
        ""
    } else {
        "."
    };
    Some(format!("{name}{separator}{path}"))
}

/// Returns the other form of a value: the number of a text, or the text of a number or flag.
fn converted(given: &Value) -> Option<Value> {
    match given {
        Value::String(text) => match text.trim() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            text => text.parse::<Number>().ok().map(Value::Number),
        },
        Value::Number(_) | Value::Bool(_) => Some(Value::String(given.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
        let input = Object::from_iter([("p".to_owned(), value)]);
        parameter(&input, "p").map_err(|failure| failure.message())
    }

    #[test]
    fn text_and_numbers_are_converted_where_nothing_is_lost() {
        assert_eq!(read::<i64>(json!("42")), Ok(42));
        assert_eq!(read::<f64>(json!(" 1.5 ")), Ok(1.5));
        assert_eq!(read::<bool>(json!("true")), Ok(true));
        assert_eq!(read::<String>(json!(42)), Ok("42".to_owned()));
        assert_eq!(read::<String>(json!(false)), Ok("false".to_owned()));
        assert_eq!(read::<Option<u8>>(json!("7")), Ok(Some(7)));
        for wrong in [
            json!("4.5"),
            json!("300"),
            json!(-1),
            json!("x"),
            json!([1]),
        ] {
            let error = read::<u8>(wrong).unwrap_err();
            assert!(
                error.starts_with("the parameter `p` does not fit: "),
                "{error}"
            );
        }
    }

    #[test]
    fn a_missing_parameter_is_null() {
        let none = Object::new();
        assert_eq!(parameter::<Option<u8>>(&none, "p").unwrap(), None);
        let error = parameter::<u8>(&none, "p").unwrap_err().message();
        assert_eq!(error, "the parameter `p` is missing in the input");
        assert_eq!(read::<u8>(Value::Null).unwrap_err(), error);
    }

    #[test]
    fn objects_become_structs() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Address {
            city: String,
            #[serde(default)]
            zip: u32,
        }
        let wanted = Address {
            city: "Bern".to_owned(),
            zip: 0,
        };
        assert_eq!(read(json!({"city": "Bern"})), Ok(wanted));
        let error = read::<Address>(json!({})).unwrap_err();
        assert_eq!(
            error,
            "the parameter `p` does not fit: missing field `city`"
        );
    }

    #[test]
    fn an_error_names_the_field_that_does_not_fit() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Item {
            cents: u32,
        }
        #[derive(Debug, Deserialize, PartialEq)]
        struct Order {
            items: Vec<Item>,
            by_name: BTreeMap<String, Item>,
        }
        let item = json!({"cents": 1});
        for (order, wanted) in [
            (
                json!({"items": [item, item, {"cents": "x"}], "by_name": {}}),
                "p.items[2].cents: invalid type: string \"x\", expected u32",
            ),
            (
                json!({"items": [{}], "by_name": {}}),
                "p.items[0]: missing field `cents`",
            ),
            (
                json!({"items": [], "by_name": {"tea": {"cents": -1}}}),
                "p.by_name.tea.cents: invalid value: integer `-1`, expected u32",
            ),
            (json!({"items": []}), "missing field `by_name`"),
        ] {
            let error = read::<Order>(order).unwrap_err();
            assert_eq!(error, format!("the parameter `p` does not fit: {wanted}"));
        }
        let error = read::<Vec<u8>>(json!([1, "x"])).unwrap_err();
        let wanted = "p[1]: invalid type: string \"x\", expected u8";
        assert_eq!(error, format!("the parameter `p` does not fit: {wanted}"));
    }
}
