//! Reads JSON: that of callers, and what the server wrote itself.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Members with such names mean something to the parser of this program. A caller could use them to pass text off as JSON that was
/// checked.
const RESERVED: &str = "$serde_json::private::";

/// The mark of UTF-8 that some editors write at the begin of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Parses JSON of a caller. Half a surrogate pair, which no text can have, becomes U+FFFD: a worker that cut a text in two must be able to
/// report it.
///
/// # Errors
/// An error with the position if the text is not JSON, is nested deeper than 127 levels, or has a member with a reserved name.
pub fn from_caller(text: &[u8]) -> serde_json::Result<Value> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let parsed = serde_json::from_slice::<Given>(text);
    let parsed = parsed.or_else(|error| match without_half_pairs(text) {
        Some(whole) => serde_json::from_slice::<Given>(&whole),
        None => Err(error),
    });
    parsed.map(|given| given.0)
}

/// Returns the text with an escaped U+FFFD in place of each escaped half of a surrogate pair. `None` if there is no such half.
fn without_half_pairs(text: &[u8]) -> Option<Vec<u8>> {
    let mut whole: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            at += 1;
            continue;
        }
        match (escaped(text, at), escaped(text, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                let whole = whole.get_or_insert_with(|| text.to_vec());
                whole[at + 2..at + 6].copy_from_slice(b"FFFD");
                at += 6;
            }
            // Every other escape has at least one letter more.
            (Some(_) | None, _) => at += 2,
        }
    }
    whole
}

/// Returns the number of the escape `\uXXXX` that begins here.
fn escaped(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

struct Given(Value);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor).map(Self)
    }
}

struct GivenVisitor;

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Given(element)) = elements.next_element()? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name.starts_with(RESERVED) {
                return Err(A::Error::custom(format!(
                    "the member name {name:?} is reserved"
                )));
            }
            let Given(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Parses stored JSON. The depth is not checked: what was accepted and stored can always be read, also where it was wrapped into
/// further levels. Writers limit the depth, so the stack suffices.
///
/// # Errors
/// An error of the parser if the text is not JSON of this type.
pub fn from_stored<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// How deeply the answer of a server may be nested. Values in it were accepted by the server, and are wrapped into further levels.
const ANSWER_DEPTH_MAX: usize = 1000;

/// Parses the answer of a server.
///
/// # Errors
/// An error with the position if the text is not JSON, or one that names the limit if it is nested too deeply for the stack.
pub fn from_server(text: &[u8]) -> serde_json::Result<Value> {
    if depth(text) > ANSWER_DEPTH_MAX {
        let message = format!("it is nested deeper than {ANSWER_DEPTH_MAX} levels");
        return Err(serde_json::Error::custom(message));
    }
    let text = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
    from_stored(text)
}

/// Returns how deeply a text of JSON is nested. Brackets in its texts do not count.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(inside) = bytes.next() {
                    match inside {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_may_send_every_value_but_no_reserved_names() {
        let text =
            r#"{"a":[null,true,-1,18446744073709551615,1.5,"é\u0000"],"b":{"":{}},"a2":1e400}"#;
        assert!(
            from_caller(text.as_bytes()).is_err(),
            "a number out of range"
        );
        let text = text.replace("1e400", "1e40");
        let parsed = from_caller(text.as_bytes()).unwrap();
        assert_eq!(parsed, serde_json::from_str::<Value>(&text).unwrap());
        for name in [
            "$serde_json::private::RawValue",
            "\\u0024serde_json::private::RawValue",
        ] {
            let text = format!(r#"{{"x":[{{"{name}":"[1]"}}]}}"#);
            let error = from_caller(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("is reserved"), "{error}");
        }
        let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
        assert!(from_caller(deep.as_bytes()).is_err());
    }

    #[test]
    fn half_a_surrogate_pair_becomes_a_replacement_character() {
        let read = |text: &str| from_caller(text.as_bytes()).map_err(|error| error.to_string());
        for (text, shown) in [
            (r#""caf\udce9.txt""#, "caf\u{fffd}.txt"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ud83d\ud83d\ude00!""#, "\u{fffd}\u{1f600}!"),
            (r#""\uDE00\uD83D""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            // A backslash that is escaped begins no escape.
            (r#""\\ud83d \udc00""#, "\\ud83d \u{fffd}"),
        ] {
            assert_eq!(read(text), Ok(Value::String(shown.to_owned())), "{text}");
        }
        assert_eq!(read(r#"{"a\ud800": 1}"#), read(r#"{"a\ufffd": 1}"#));
        for wrong in [r#""\ud83"#, r#""\ud83d"#, r#""\ud83d" x"#, r#"\ud83d"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("\u{feff}[]"), Ok(Value::Array(Vec::new())));
    }

    #[test]
    fn answers_are_read_to_a_depth_that_the_stack_can_hold() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(from_server(nested(1000).as_bytes()).is_ok());
        let error = from_server(nested(1001).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "it is nested deeper than 1000 levels");
        let brackets = format!(r#"{{"a":"\"{}"}}"#, "[".repeat(2000));
        assert!(from_server(brackets.as_bytes()).is_ok());
        assert!(from_server(b"\xff").is_err());
    }

    #[test]
    fn deep_values_are_read_and_other_text_is_not() {
        let deep = format!("{}{}", "[".repeat(600), "]".repeat(600));
        assert!(serde_json::from_str::<Value>(&deep).is_err());
        assert!(from_stored::<Value>(&deep).is_ok());
        for wrong in ["", "[", "[] []", "{\"a\":}"] {
            assert!(from_stored::<Value>(wrong).is_err(), "{wrong}");
        }
    }
}
