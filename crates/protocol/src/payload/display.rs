//! Values as JSON in control-plane replies. The projection is one-way: bytes become an object, which would read back as a
//! map. Longs keep all digits; doubles always look like doubles (`7.0`, `-0.0`, `5e-324`).

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::{Value, blob};

/// A value seen as JSON: serialize it into a reply, or print it as compact JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Projection<'a>(&'a Value);

/// The JSON projection of `value`.
#[must_use]
pub fn display(value: &Value) -> Projection<'_> {
    Projection(value)
}

impl Projection<'_> {
    /// The projection as a JSON tree. Object members may come out in another order; their order has no meaning.
    #[must_use]
    pub fn to_json(self) -> serde_json::Value {
        serde_json::to_value(self).expect("keys are strings, so the tree can always be built")
    }
}

impl Serialize for Projection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Long(value) => serializer.serialize_i64(*value),
            Value::Double(value) => serializer.serialize_f64(*value),
            Value::Bytes(bytes) => {
                let mut object = serializer.serialize_map(Some(2))?;
                object.serialize_entry("$type", "bytes")?;
                object.serialize_entry("base64", &blob::to_text(bytes))?;
                object.end()
            }
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Projection)),
            Value::Map(map) => {
                serializer.collect_map(map.iter().map(|(key, value)| (key, Projection(value))))
            }
        }
    }
}

impl fmt::Display for Projection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::from_json;

    fn check(value: &Value, expected: &str) {
        assert_eq!(display(value).to_string(), expected);
        assert_eq!(
            display(value).to_json(),
            serde_json::from_str::<serde_json::Value>(expected).unwrap()
        );
    }

    #[test]
    fn numbers_keep_their_kind_and_every_digit() {
        check(&Value::Long(7), "7");
        check(&Value::Double(7.0), "7.0");
        check(&Value::Double(-0.0), "-0.0");
        check(&Value::Double(5e-324), "5e-324");
        check(&Value::Double(f64::MAX), "1.7976931348623157e+308");
        check(&Value::Long(9_007_199_254_740_993), "9007199254740993");
        check(&Value::Long(i64::MIN), "-9223372036854775808");
        check(&Value::Long(i64::MAX), "9223372036854775807");
    }

    #[test]
    fn bytes_are_marked_and_the_mark_is_ordinary_data_on_the_way_in() {
        let shown = r#"{"$type":"bytes","base64":"AP8="}"#;
        check(&Value::Bytes(vec![0, 0xff]), shown);
        assert!(from_json(shown).unwrap().as_map().is_some());
    }

    #[test]
    fn containers_keep_order_and_stay_distinct() {
        for text in [
            "[]",
            "{}",
            r#"{"b":1,"a":[null,true,"héllo"]}"#,
            r#"[{"0":"zero"},[]]"#,
        ] {
            check(&from_json(text).unwrap(), text);
        }
    }
}
