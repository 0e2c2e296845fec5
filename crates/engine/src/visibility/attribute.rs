//! Search attribute definitions: the names and types that exist, and the values that a type accepts.

use std::collections::BTreeMap;

use longhaul_protocol::history::LimitBreach;
use longhaul_protocol::workflow_command::FieldErrors;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::term::{Kind, read_time};

/// Bytes of a keyword, and of each item of a keyword list: the size of an index entry of the reference implementation.
const KEYWORD_BYTES_MAX: u64 = 255;

/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 128;

/// The attributes that every run has without a definition, as discovery lists them.
pub const SYSTEM: [(&str, Type); 8] = [
    ("WorkflowType", Type::Keyword),
    ("WorkflowId", Type::Keyword),
    ("RunId", Type::Keyword),
    ("Status", Type::Keyword),
    ("TaskQueue", Type::Keyword),
    ("BuildId", Type::Keyword),
    ("StartTime", Type::Datetime),
    ("CloseTime", Type::Datetime),
];

/// Other names in queries for some of the above.
const ALIASES: [&str; 3] = ["ExecutionStatus", "ExecutionTime", "BuildIds"];

/// Words of the query language: no query could name an attribute of such a name.
const QUERY_WORDS: [&str; 7] = ["AND", "OR", "NOT", "IN", "STARTS_WITH", "TRUE", "FALSE"];

const RESERVED_PREFIX: &str = "wf_";

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    Keyword,
    Text,
    Int,
    Double,
    Bool,
    Datetime,
    KeywordList,
}

impl Type {
    /// Every type, for messages.
    pub const ALL: [Self; 7] = [
        Self::Keyword,
        Self::Text,
        Self::Int,
        Self::Double,
        Self::Bool,
        Self::Datetime,
        Self::KeywordList,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keyword => "keyword",
            Self::Text => "text",
            Self::Int => "int",
            Self::Double => "double",
            Self::Bool => "bool",
            Self::Datetime => "datetime",
            Self::KeywordList => "keyword_list",
        }
    }

    /// Returns a type by its name, or by its name in workflow code.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "string" => Some(Self::Text),
            "float" => Some(Self::Double),
            word => Self::ALL.into_iter().find(|known| known.as_str() == word),
        }
    }

    /// Returns how its values are compared.
    pub fn kind(self) -> Kind {
        match self {
            Self::Keyword | Self::Text => Kind::Text,
            Self::KeywordList => Kind::Item,
            Self::Int | Self::Double => Kind::Number,
            Self::Bool => Kind::Flag,
            Self::Datetime => Kind::Time,
        }
    }

    /// Returns whether a value has this type, whatever its size. Null has every type: it deletes the attribute.
    pub fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Self::Keyword | Self::Text, value) => value.is_string(),
            (Self::Int, value) => value.is_i64(),
            (Self::Double, value) => value.is_number(),
            (Self::Bool, value) => value.is_boolean(),
            (Self::Datetime, value) => value.as_str().and_then(read_time).is_some(),
            (Self::KeywordList, value) => value
                .as_array()
                .is_some_and(|items| items.iter().all(Value::is_string)),
        }
    }

    /// Returns a description of the values that this type accepts.
    fn wants(self) -> &'static str {
        match self {
            Self::Keyword | Self::Text => "a string",
            Self::Int => "an integer of 64 bits",
            Self::Double => "a number",
            Self::Bool => "true or false",
            Self::Datetime => "an RFC 3339 time with its zone",
            Self::KeywordList => "a list of strings",
        }
    }

    /// Checks the limit on keywords; the limit on any value is checked elsewhere.
    fn check_size(self, value: &Value) -> Result<(), LimitBreach> {
        let items = match (self, value) {
            (Self::Keyword, value) => std::slice::from_ref(value),
            (Self::KeywordList, Value::Array(items)) => items,
            _ => return Ok(()),
        };
        let longest = items.iter().filter_map(Value::as_str).map(str::len).max();
        crate::limits::check(
            "search_attribute_size",
            longest.unwrap_or_default() as u64,
            KEYWORD_BYTES_MAX,
        )
    }
}

/// Why a name cannot be defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadName {
    /// Not a name at all.
    Malformed,
    /// A name that already has a meaning.
    Reserved,
}

/// Checks whether a namespace may define this name.
pub fn check_name(name: &str) -> Result<(), BadName> {
    let mut bytes = name.bytes();
    let is_name = name.len() <= NAME_BYTES_MAX
        && bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        return Err(BadName::Malformed);
    }
    let is_word = QUERY_WORDS
        .iter()
        .any(|word| word.eq_ignore_ascii_case(name));
    if is_system(name) || is_word || name.starts_with(RESERVED_PREFIX) {
        return Err(BadName::Reserved);
    }
    Ok(())
}

/// Returns whether every run has an attribute of this name.
pub fn is_system(name: &str) -> bool {
    SYSTEM.iter().any(|(known, _)| *known == name) || ALIASES.contains(&name)
}

/// The attributes a namespace has defined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    types: BTreeMap<String, Type>,
}

impl FromIterator<(String, Type)> for Definitions {
    fn from_iter<I: IntoIterator<Item = (String, Type)>>(defined: I) -> Self {
        Self {
            types: defined.into_iter().collect(),
        }
    }
}

impl Definitions {
    pub fn get(&self, name: &str) -> Option<Type> {
        self.types.get(name).copied()
    }

    /// Returns the definitions, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Type)> {
        self.types
            .iter()
            .map(|(name, defined)| (name.as_str(), *defined))
    }

    pub fn len(&self) -> usize {
        self.types.len()
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Returns the errors in attributes that come from outside: a namespace with definitions accepts no others. Without any
    /// definition every scalar and every list of strings is accepted.
    pub fn check(&self, attributes: &Map<String, Value>) -> Result<(), FieldErrors> {
        if self.is_empty() {
            return Ok(());
        }
        let wrong: Vec<String> = attributes
            .iter()
            .filter_map(|(name, value)| self.complaint(name, value))
            .collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(FieldErrors::from([("search_attributes".to_owned(), wrong)]))
        }
    }

    fn complaint(&self, name: &str, value: &Value) -> Option<String> {
        let Some(defined) = self.get(name) else {
            return Some(format!("{name} is not defined in this namespace"));
        };
        if !defined.fits(value) {
            return Some(format!(
                "{name} is defined as {} and takes {}",
                defined.as_str(),
                defined.wants()
            ));
        }
        let too_long = defined.check_size(value).is_err();
        too_long.then(|| format!("{name} may hold keywords of at most {KEYWORD_BYTES_MAX} bytes"))
    }

    /// Returns the error in a value that workflow code sets. A name that is not defined here has the type that the run declares for
    /// it, or none.
    pub(crate) fn contradiction(
        &self,
        name: &str,
        declared: Option<&Value>,
        value: &Value,
    ) -> Option<String> {
        let (expected, by) = match self.get(name) {
            Some(defined) => (defined, "defined in this namespace"),
            None => (read_declared(declared)?, "declared"),
        };
        (!expected.fits(value)).then(|| {
            format!(
                "`{name}` is {by} as {} and takes {}",
                expected.as_str(),
                expected.wants()
            )
        })
    }

    /// Checks the limit on a value that workflow code sets.
    pub(crate) fn check_size(
        &self,
        name: &str,
        declared: Option<&Value>,
        value: &Value,
    ) -> Result<(), LimitBreach> {
        match self.get(name).or_else(|| read_declared(declared)) {
            Some(expected) => expected.check_size(value),
            None => Ok(()),
        }
    }
}

fn read_declared(declared: Option<&Value>) -> Option<Type> {
    Type::read(declared?.as_str()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_checked_and_some_are_reserved() {
        for name in ["a", "Region", "order_2", &"x".repeat(128), "Wf_x", "status"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "_a",
            "__internal",
            "1a",
            "a-b",
            "a b",
            "ä",
            &"x".repeat(129),
        ] {
            assert_eq!(check_name(name), Err(BadName::Malformed), "{name}");
        }
        for name in [
            "wf_id",
            "Status",
            "ExecutionTime",
            "BuildIds",
            "and",
            "In",
            "Starts_With",
        ] {
            assert_eq!(check_name(name), Err(BadName::Reserved), "{name}");
        }
    }

    #[test]
    fn a_type_accepts_only_its_values_and_null() {
        let values = [
            json!("x"),
            json!(1),
            json!(1.5),
            json!(true),
            json!("2026-01-01T00:00:00+02:00"),
            json!(["a", "b"]),
            json!(u64::MAX),
        ];
        let expected = [
            (
                Type::Keyword,
                [true, false, false, false, true, false, false],
            ),
            (Type::Text, [true, false, false, false, true, false, false]),
            (Type::Int, [false, true, false, false, false, false, false]),
            (Type::Double, [false, true, true, false, false, false, true]),
            (Type::Bool, [false, false, false, true, false, false, false]),
            (
                Type::Datetime,
                [false, false, false, false, true, false, false],
            ),
            (
                Type::KeywordList,
                [false, false, false, false, false, true, false],
            ),
        ];
        for (attribute, fits) in expected {
            assert_eq!(
                values.each_ref().map(|value| attribute.fits(value)),
                fits,
                "{attribute:?}"
            );
            assert!(attribute.fits(&Value::Null));
        }
        assert!(!Type::KeywordList.fits(&json!(["a", 1])));
    }

    #[test]
    fn a_keyword_has_at_most_its_limit_of_bytes() {
        let definitions: Definitions = [
            ("K".to_owned(), Type::Keyword),
            ("L".to_owned(), Type::KeywordList),
            ("T".to_owned(), Type::Text),
        ]
        .into_iter()
        .collect();
        let (short, long) = ("x".repeat(255), "x".repeat(256));
        let check = |attributes: Value| definitions.check(attributes.as_object().unwrap());
        assert!(check(json!({"K": short, "L": [short], "T": long})).is_ok());
        assert!(check(json!({"K": long})).is_err());
        assert!(check(json!({"L": ["a", long]})).is_err());
        assert!(check(json!({"Other": null})).is_err(), "undefined");
    }
}
