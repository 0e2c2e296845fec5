//! Values and types of search attributes (control-plane.md §16).

use longhaul_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// A value that workflows can be found by.
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

/// What values an attribute takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttributeType {
    /// Text that is compared as a whole, up to 255 bytes.
    Keyword,
    /// Text, up to 2048 bytes.
    Text,
    /// 64-bit signed integers.
    Int,
    /// Floating-point numbers.
    Double,
    /// True and false.
    Bool,
    /// Moments.
    Datetime,
    /// Several keywords.
    KeywordList,
}
