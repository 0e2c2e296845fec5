//! Reading a model from JSON, with the path of every member that is wrong.
//!
//! A derive of serde stops at the first error and cannot treat null as absent for every type, so the models read themselves: each
//! type that can be a member implements [`Member`], and a [`Reader`] keeps the path and the errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

/// A free map of JSON: input, output, variables. Nulls inside it have a meaning and are kept.
pub type Object = serde_json::Map<String, Value>;

/// How many wrong members are reported. A body with more of them is broken as a whole, and the answer must stay small.
pub const WRONG_MEMBERS_MAX: usize = 100;

/// How many nodes one body may define. Ten times the largest definitions in use; a node costs about a kilobyte of memory.
pub const NODES_MAX: usize = 20_000;

/// How many characters of a wrong value are repeated in the error.
const SHOWN_CHARS_MAX: usize = 200;

/// A member that does not have the type of its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongMember {
    /// Where the member is, such as `tasks[0].retryCount`. Empty for the whole body.
    pub path: String,
    /// What is wrong, in a sentence that names the allowed values.
    pub message: String,
    /// The value that was given, as text, cut to a readable length.
    pub invalid_value: Option<String>,
}

/// A body that is not JSON, or JSON of the wrong shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not JSON, or it is nested too deeply.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// Members have the wrong type or an unknown value.
    #[error("{}", describe(.0))]
    Members(Vec<WrongMember>),
}

/// Returns one sentence for several wrong members.
fn describe(wrong: &[WrongMember]) -> String {
    let mut text = String::new();
    for member in wrong.iter().take(3) {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let at = if member.path.is_empty() {
            "the body"
        } else {
            &member.path
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{at}: {}", member.message);
    }
    if wrong.len() > 3 {
        let _ = write!(text, "; and {} more", wrong.len() - 3);
    }
    text
}

/// Reads a model from the text of a body.
pub fn parse<T: Member>(body: &[u8]) -> Result<T, ParseError> {
    let value =
        crate::json::from_caller(body).map_err(|error| ParseError::Syntax(error.to_string()))?;
    read(value).map_err(ParseError::Members)
}

/// Reads a model from a JSON value. Returns all wrong members, at most [`WRONG_MEMBERS_MAX`].
pub fn read<T: Member>(value: Value) -> Result<T, Vec<WrongMember>> {
    let mut reader = Reader::default();
    let found = if value.is_null() {
        reader.wrong("must not be null", None);
        None
    } else {
        T::read(value, &mut reader)
    };
    match found {
        Some(found) if reader.wrong.is_empty() => Ok(found),
        _ => Err(reader.wrong),
    }
}

/// A type that a member of a model can have.
pub trait Member: Sized {
    /// Reads the value, which is not null. Returns `None` after it has recorded what is wrong with it.
    fn read(value: Value, reader: &mut Reader) -> Option<Self>;

    /// Returns whether the member is left out when the model is written.
    fn is_absent(&self) -> bool {
        false
    }
}

/// One step of the path to a member.
#[derive(Clone, Debug)]
enum Step {
    Member(&'static str),
    Key(String),
    Index(usize),
}

/// The place that is being read and the errors so far.
#[derive(Debug, Default)]
pub struct Reader {
    path: Vec<Step>,
    wrong: Vec<WrongMember>,
    nodes: usize,
}

impl Reader {
    /// Records that the value at the current path is wrong.
    pub fn wrong(&mut self, message: impl Into<String>, value: Option<&Value>) {
        if self.wrong.len() < WRONG_MEMBERS_MAX {
            self.wrong.push(WrongMember {
                path: self.path(),
                message: message.into(),
                invalid_value: value.map(shown),
            });
        }
    }

    /// Reads one member of an object. A null or absent member gives the default, and so does a wrong one, after it was recorded.
    pub fn member<T: Member>(
        &mut self,
        object: &mut Object,
        name: &'static str,
        default: impl FnOnce() -> T,
    ) -> T {
        match object.remove(name) {
            None | Some(Value::Null) => default(),
            Some(value) => {
                self.path.push(Step::Member(name));
                let found = T::read(value, self);
                self.path.pop();
                found.unwrap_or_else(default)
            }
        }
    }

    /// Takes the value as an object, or records that it is none.
    pub fn object(&mut self, value: Value) -> Option<Object> {
        match value {
            Value::Object(object) => Some(object),
            other => {
                self.wrong("must be an object", Some(&other));
                None
            }
        }
    }

    /// Counts a node of a definition. Returns whether there is room for it; the first node without room is recorded as wrong.
    pub fn count_node(&mut self) -> bool {
        self.nodes += 1;
        if self.nodes == NODES_MAX + 1 {
            self.wrong(format!("a definition has at most {NODES_MAX} tasks"), None);
        }
        self.nodes <= NODES_MAX
    }

    fn elements<T: Member>(&mut self, values: Vec<Value>) -> Vec<T> {
        let mut found = Vec::with_capacity(values.len().min(NODES_MAX));
        for (index, value) in values.into_iter().enumerate() {
            self.path.push(Step::Index(index));
            if value.is_null() {
                self.wrong("must not be null", None);
            } else if let Some(element) = T::read(value, self) {
                found.push(element);
            }
            self.path.pop();
            if self.wrong.len() >= WRONG_MEMBERS_MAX || self.nodes > NODES_MAX {
                break;
            }
        }
        found
    }

    fn path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            let _ = match step {
                Step::Member(name) => write!(text, "{}{name}", dot(&text)),
                Step::Key(name) => write!(text, "{}{name}", dot(&text)),
                Step::Index(index) => write!(text, "[{index}]"),
            };
        }
        text
    }
}

fn dot(before: &str) -> &'static str {
    if before.is_empty() { "" } else { "." }
}

/// Returns a value as the text of an error: texts as they are, other values as JSON, cut to a readable length.
pub fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("a list of {} elements", list.len()),
        Value::Object(map) => format!("an object of {} members", map.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

impl Member for String {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            other => {
                reader.wrong("must be text", Some(&other));
                None
            }
        }
    }
}

impl Member for bool {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        let found = match &value {
            Value::Bool(found) => Some(*found),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        };
        if found.is_none() {
            reader.wrong("must be true or false", Some(&value));
        }
        found
    }
}

/// Returns a number without a fraction, whether it is written `3`, `3.0` or `"3"`.
pub fn integer(value: &Value) -> Option<i64> {
    // Above this a floating-point number does not identify an integer.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            (float.fract() == 0.0 && float.abs() <= EXACT_MAX).then_some(float as i64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Member for i64 {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        let found = integer(&value);
        if found.is_none() {
            reader.wrong("must be an integer of 64 bits", Some(&value));
        }
        found
    }
}

impl Member for i32 {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        let found = integer(&value).and_then(|number| Self::try_from(number).ok());
        if found.is_none() {
            reader.wrong("must be an integer of 32 bits", Some(&value));
        }
        found
    }
}

impl Member for Value {
    fn read(value: Value, _reader: &mut Reader) -> Option<Self> {
        Some(value)
    }
}

impl Member for Object {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        reader.object(value)
    }
}

impl<T: Member> Member for Option<T> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        T::read(value, reader).map(Some)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Member> Member for Vec<T> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Array(values) => Some(reader.elements(values)),
            other => {
                reader.wrong("must be a list", Some(&other));
                None
            }
        }
    }
}

impl<T: Member + Default> Member for BTreeMap<String, T> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        let object = reader.object(value)?;
        let mut found = Self::new();
        for (key, value) in object {
            let entry = if value.is_null() {
                Some(T::default())
            } else {
                reader.path.push(Step::Key(key.clone()));
                let entry = T::read(value, reader);
                reader.path.pop();
                entry
            };
            if let Some(entry) = entry {
                found.insert(key, entry);
            }
        }
        Some(found)
    }
}

impl<T: Member> Member for Arc<T> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        T::read(value, reader).map(Self::new)
    }
}

impl<T: Member> Member for Box<T> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        T::read(value, reader).map(Self::new)
    }
}

impl Member for Arc<RawValue> {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        match serde_json::value::to_raw_value(&value) {
            Ok(text) => Some(Self::from(text)),
            Err(error) => {
                reader.wrong(error.to_string(), None);
                None
            }
        }
    }
}
