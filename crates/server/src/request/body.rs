//! A request's JSON object, read field by field. Fields are kept as text until they are read, so a large payload is never parsed
//! into a tree just to be passed on. Mistakes are collected, and the request is refused with all of them together.
//!
//! A reader that cannot return a value returns a [`Mistake`], and [`Body::finish`] turns it into the refusal. Readers of plain
//! fields return an empty value instead, so that reading goes on; the handler must then call [`Body::check`] before it uses any.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use http::StatusCode;
use longhaul_protocol::Reason;
use longhaul_protocol::payload::{FieldError, payload_codec};
use longhaul_protocol::workflow_command::FieldErrors;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::gate::Refusal;
use crate::heavy::Room;

/// The fields of a body; an absent or empty body has none.
pub(crate) struct Body {
    fields: HashMap<String, Box<RawValue>>,
    errors: RefCell<FieldErrors>,
    /// Memory that a large body reserves until the response is sent. Held, never read.
    room: Option<Room>,
}

/// Proof that a mistake in the body was recorded. Only [`Body`] makes one, so there is always something to refuse.
#[derive(Debug)]
pub(crate) struct Mistake(());

impl Body {
    pub(crate) fn parse(bytes: Bytes) -> Result<Self, Refusal> {
        let fields = if bytes.is_empty() {
            HashMap::new()
        } else {
            serde_json::from_slice(&bytes).map_err(|_| not_an_object(&bytes))?
        };
        Ok(Self {
            fields,
            errors: RefCell::default(),
            room: None,
        })
    }

    /// Keeps the reservation until the body is dropped.
    pub(crate) fn holding(mut self, room: Option<Room>) -> Self {
        self.room = room;
        self
    }

    /// Returns a field's text; null counts as absent.
    pub(crate) fn raw(&self, field: &str) -> Option<&RawValue> {
        self.fields
            .get(field)
            .map(|value| &**value)
            .filter(|value| value.get() != "null")
    }

    /// Returns whether the field is present, null or not.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Returns a field as a tree; null counts as absent.
    pub(crate) fn value(&self, field: &str) -> Option<Value> {
        let raw = self.raw(field)?;
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(_) => {
                self.refuse(field, "is nested too deeply");
                None
            }
        }
    }

    /// Records a mistake.
    pub(crate) fn refuse(&self, field: &str, message: &str) -> Mistake {
        self.errors
            .borrow_mut()
            .entry(field.to_owned())
            .or_default()
            .push(message.to_owned());
        Mistake(())
    }

    /// Records the mistakes that a parser of a field found.
    pub(crate) fn refuse_all(&self, errors: FieldErrors) -> Mistake {
        for (field, messages) in errors {
            for message in messages {
                self.refuse(&field, &message);
            }
        }
        Mistake(())
    }

    /// Takes what a payload parser returned.
    pub(crate) fn payload<T>(&self, result: Result<T, FieldError>) -> Result<T, Mistake> {
        result.map_err(|error| self.refuse(&error.path, &error.message))
    }

    /// Checks that `payload_codec`, if present, names a codec of this server.
    pub(crate) fn check_codec(&self) {
        let field = "payload_codec";
        // A mistake is recorded; there is no value to return.
        let _ = self.payload(payload_codec(self.value(field).as_ref(), field));
    }

    fn typed<T: serde::de::DeserializeOwned>(&self, field: &str, wanted: &str) -> Option<T> {
        let raw = self.raw(field)?;
        let parsed = serde_json::from_str(raw.get());
        if parsed.is_err() {
            self.refuse(field, &format!("must be {wanted}"));
        }
        parsed.ok()
    }

    /// Reads an optional string of 1 to `max` bytes.
    pub(crate) fn text(&self, field: &str, max: usize) -> Option<String> {
        let text: String = self.typed(field, "a string")?;
        if text.is_empty() || text.len() > max {
            self.refuse(field, &format!("must have 1 to {max} bytes"));
            return None;
        }
        Some(text)
    }

    /// Reads an optional string of 1 to `max` characters, where the protocol counts characters and not bytes.
    pub(crate) fn characters(&self, field: &str, max: usize) -> Option<String> {
        let text: String = self.typed(field, "a string")?;
        if text.is_empty() || text.chars().count() > max {
            self.refuse(field, &format!("must have 1 to {max} characters"));
            return None;
        }
        Some(text)
    }

    /// Reads an optional text for people of at most `max` characters; an empty one counts as absent.
    pub(crate) fn note(&self, field: &str, max: usize) -> Option<String> {
        let is_empty = self.raw(field).is_some_and(|raw| raw.get() == "\"\"");
        if is_empty {
            None
        } else {
            self.characters(field, max)
        }
    }

    /// Reads a required string. Returns an empty one after recording the mistake, so that reading goes on.
    pub(crate) fn required_text(&self, field: &str, max: usize) -> String {
        if self.raw(field).is_none() {
            self.refuse(field, "is required");
        }
        self.text(field, max).unwrap_or_default()
    }

    /// Reads a required string that may have several names; the first one present counts.
    pub(crate) fn required_text_of(&self, names: &[&str], max: usize) -> String {
        let name = names
            .iter()
            .find(|name| self.raw(name).is_some())
            .unwrap_or(&names[0]);
        self.required_text(name, max)
    }

    pub(crate) fn integer(&self, field: &str) -> Option<i64> {
        self.typed(field, "an integer")
    }

    /// Reads an optional integer of at least `least`.
    pub(crate) fn count(&self, field: &str, least: u64) -> Option<u64> {
        let number: i64 = self.integer(field)?;
        match u64::try_from(number).ok().filter(|number| *number >= least) {
            Some(number) => Some(number),
            None => {
                self.refuse(field, &format!("must be at least {least}"));
                None
            }
        }
    }

    pub(crate) fn required_count(&self, field: &str, least: u64) -> u64 {
        if self.raw(field).is_none() {
            self.refuse(field, "is required");
        }
        self.count(field, least).unwrap_or_default()
    }

    pub(crate) fn flag(&self, field: &str) -> Option<bool> {
        self.typed(field, "true or false")
    }

    pub(crate) fn object(&self, field: &str) -> Option<Map<String, Value>> {
        self.typed(field, "an object")
    }

    pub(crate) fn texts(&self, field: &str) -> Option<Vec<String>> {
        self.typed(field, "a list of strings")
    }

    /// Reads an object inside the body. Its mistakes are recorded under `field.`. Returns `None` if the field is absent or is not
    /// an object.
    pub(crate) fn nested<T>(&self, field: &str, read: impl FnOnce(&Self) -> T) -> Option<T> {
        let raw = self.raw(field)?;
        let Ok(fields) = serde_json::from_str(raw.get()) else {
            self.refuse(field, "must be an object");
            return None;
        };
        let nested = Self {
            fields,
            errors: RefCell::default(),
            room: None,
        };
        let value = read(&nested);
        for (name, messages) in nested.errors.into_inner() {
            for message in messages {
                self.refuse(&format!("{field}.{name}"), &message);
            }
        }
        Some(value)
    }

    /// Reads an object that must be there.
    pub(crate) fn required_nested<T>(
        &self,
        field: &str,
        read: impl FnOnce(&Self) -> T,
    ) -> Result<T, Mistake> {
        if self.raw(field).is_none() {
            return Err(self.refuse(field, "is required"));
        }
        // Without a value, `nested` recorded why.
        self.nested(field, read).ok_or(Mistake(()))
    }

    /// Ends the reading. Fails with every mistake that was recorded.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let errors = self.errors.borrow();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Refusal::invalid(&errors))
        }
    }

    /// Ends the reading and returns `value`. Fails with every mistake that was recorded.
    pub(crate) fn finish<T>(&self, value: Result<T, Mistake>) -> Result<T, Refusal> {
        match value {
            Ok(value) => self.check().map(|()| value),
            Err(Mistake(())) => Err(Refusal::invalid(&self.errors.borrow())),
        }
    }
}

/// Returns the refusal of a body that is not a JSON object: 400 if it is not JSON, 422 if it is JSON of another shape.
fn not_an_object(bytes: &[u8]) -> Refusal {
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(_) => Refusal::invalid(&FieldErrors::from([(
            "body".to_owned(),
            vec!["must be a JSON object".to_owned()],
        )])),
        Err(error) => Refusal::new(
            StatusCode::BAD_REQUEST,
            Reason::MalformedJson,
            format!("The request body is not JSON: {error}"),
        )
        .with("json_error", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_are_collected() {
        let body = Body::parse(Bytes::from_static(
            br#"{"a": 1, "b": "", "n": -3, "ok": "yes", "nil": null}"#,
        ))
        .ok()
        .unwrap();
        assert_eq!(body.text("ok", 10).as_deref(), Some("yes"));
        assert_eq!(body.text("nil", 10), None);
        body.text("a", 10);
        body.text("b", 10);
        body.count("n", 0);
        body.required_text("missing", 10);
        let refusal = body.check().unwrap_err();
        let fields: Vec<&String> = refusal.extra["errors"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(fields, ["a", "b", "missing", "n"]);
    }

    #[test]
    fn bad_json_and_a_bad_shape_have_different_reasons() {
        assert_eq!(
            Body::parse(Bytes::from_static(b"{nope"))
                .err()
                .unwrap()
                .reason,
            Reason::MalformedJson
        );
        assert_eq!(
            Body::parse(Bytes::from_static(b"[1]"))
                .err()
                .unwrap()
                .reason,
            Reason::ValidationFailed
        );
        assert!(Body::parse(Bytes::new()).is_ok());
    }
}
