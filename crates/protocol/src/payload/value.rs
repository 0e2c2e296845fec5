//! The eight cases of a payload value: the Avro type `durable_workflow.protocol.Value`.
//!
//! Equality is the equality of meaning: doubles by bit pattern, so −0.0 and 0.0 differ, and maps without regard to
//! the order of their entries.

use super::Map;

/// A decoded payload.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A 64-bit signed integer; never the same value as a double.
    Long(i64),
    /// A finite double. The encoder refuses NaN and infinities.
    Double(f64),
    /// Raw bytes, which plain JSON cannot express.
    Bytes(Vec<u8>),
    /// UTF-8 text.
    String(String),
    /// Values in order.
    Array(Vec<Self>),
    /// Values by name.
    Map(Map),
}

/// Which of the eight cases a value is, in the order of the schema's union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See [`Value::Null`].
    Null,
    /// See [`Value::Bool`].
    Bool,
    /// See [`Value::Long`].
    Long,
    /// See [`Value::Double`].
    Double,
    /// See [`Value::Bytes`].
    Bytes,
    /// See [`Value::String`].
    String,
    /// See [`Value::Array`].
    Array,
    /// See [`Value::Map`].
    Map,
}

impl Kind {
    /// The case behind a union index, if it is one of the eight.
    pub(super) fn from_index(index: i64) -> Option<Self> {
        Some(match index {
            0 => Self::Null,
            1 => Self::Bool,
            2 => Self::Long,
            3 => Self::Double,
            4 => Self::Bytes,
            5 => Self::String,
            6 => Self::Array,
            7 => Self::Map,
            _ => return None,
        })
    }

    /// The union index in a canonical frame: one zigzag byte.
    pub(super) fn index_byte(self) -> u8 {
        (self as u8) << 1
    }
}

impl Value {
    /// Which case this is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Long(_) => Kind::Long,
            Self::Double(_) => Kind::Double,
            Self::Bytes(_) => Kind::Bytes,
            Self::String(_) => Kind::String,
            Self::Array(_) => Kind::Array,
            Self::Map(_) => Kind::Map,
        }
    }

    /// The entries, if this is a map.
    #[must_use]
    pub fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self {
            Some(map)
        } else {
            None
        }
    }

    /// The items, if this is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// The text, if this is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// Orders the entries of every map inside by the bytes of their keys.
    pub fn sort_keys(&mut self) {
        match self {
            Self::Null
            | Self::Bool(_)
            | Self::Long(_)
            | Self::Double(_)
            | Self::Bytes(_)
            | Self::String(_) => {}
            Self::Array(items) => items.iter_mut().for_each(Self::sort_keys),
            Self::Map(map) => map.sort_keys(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Long(a), Self::Long(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Long(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl From<Vec<Self>> for Value {
    fn from(items: Vec<Self>) -> Self {
        Self::Array(items)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, i64)]) -> Map {
        entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Value::Long(*value)))
            .collect()
    }

    #[test]
    fn equality_ignores_order_but_not_the_sign_of_zero() {
        assert_eq!(map(&[("a", 1), ("b", 2)]), map(&[("b", 2), ("a", 1)]));
        assert_ne!(map(&[("a", 1)]), map(&[("a", 2)]));
        assert_ne!(map(&[("a", 1)]), map(&[("a", 1), ("b", 2)]));
        assert_ne!(Value::Double(0.0), Value::Double(-0.0));
        assert_ne!(Value::Double(7.0), Value::Long(7));
    }

    #[test]
    fn sorting_reaches_nested_maps() {
        let inner = Value::Map(map(&[("z", 1), ("a", 2)]));
        let mut value = Value::Array(vec![inner]);
        value.sort_keys();
        let keys: Vec<_> = value.as_array().unwrap()[0]
            .as_map()
            .unwrap()
            .iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, ["a", "z"]);
    }
}
