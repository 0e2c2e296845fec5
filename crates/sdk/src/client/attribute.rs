//! Values and types of search attributes.

use longhaul_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// A value of a search attribute.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AttributeValue {
    /// A `keyword` or `text`.
    Text(String),
    /// An `int`.
    Int(i64),
    /// A `double`.
    Double(f64),
    /// A `bool`.
    Bool(bool),
    /// A `datetime`.
    DateTime(Timestamp),
    /// A `keyword_list`.
    List(Vec<String>),
}

macro_rules! from {
    ($($type:ty => $variant:ident)+) => {$(
        impl From<$type> for AttributeValue {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )+};
}

from! {
    &str => Text
    String => Text
    i64 => Int
    i32 => Int
    u32 => Int
    f64 => Double
    bool => Bool
    Timestamp => DateTime
    Vec<String> => List
}

/// The type of a search attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttributeType {
    /// Text of at most 255 bytes, compared as a whole.
    Keyword,
    /// Text of at most 2048 bytes.
    Text,
    /// 64-bit signed integers.
    Int,
    /// Floating-point numbers.
    Double,
    /// `true` or `false`.
    Bool,
    /// A point in time.
    Datetime,
    /// A list of keywords.
    KeywordList,
}
