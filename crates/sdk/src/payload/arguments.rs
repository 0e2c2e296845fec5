//! The arguments of a workflow, an activity or a message. On the wire they are a list.
//!
//! In Rust, arguments are one value. A tuple (or a fixed-size array) is the list itself, `()` is the empty list, and any other value
//! is a list of one. So `Signal<(String, u32)>` has two arguments and `Signal<Approval>` has one.

use std::cell::Cell;

use longhaul_protocol::Payload;
use longhaul_protocol::payload::Value;
use serde::Serialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};

use super::Error;
use super::de::Deserializer;
use super::ser::Serializer;

/// Encodes arguments as a payload: a tuple is the list, `()` is no arguments, any other value is one argument.
///
/// # Errors
/// The errors of [`to_payload`](super::to_payload). The path begins with the argument, as in `[0].price`.
pub fn to_arguments<A: Serialize + ?Sized>(arguments: &A) -> Result<Payload, Error> {
    let is_list = Cell::new(false);
    let value = arguments.serialize(Serializer::of_arguments(&is_list));
    let list = match value {
        Ok(Value::Null) if is_list.get() => Value::Array(Vec::new()),
        Ok(list) if is_list.get() => list,
        Ok(one) => Value::Array(vec![one]),
        Err(error) if is_list.get() => return Err(error),
        Err(error) => return Err(error.in_item(0)),
    };
    Payload::encode(&list).map_err(|error| Error::new(error.to_string()))
}

/// Decodes arguments that [`to_arguments`] or another client encoded.
///
/// Missing arguments at the end are null, so that callers may leave out a new `Option` argument. More arguments than expected are
/// an error.
///
/// # Errors
/// If the payload is damaged or is not a list, if there are too few or too many arguments, or if an argument has another type.
pub fn from_arguments<A: DeserializeOwned>(payload: &Payload) -> Result<A, Error> {
    let value = payload
        .decode()
        .map_err(|error| Error::new(error.refusal()))?;
    match value {
        Value::Array(list) => A::deserialize(Arguments { list }),
        _ => Err(Error::new("arguments must be a list")),
    }
}

/// Reads a list as arguments.
struct Arguments {
    list: Vec<Value>,
}

impl Arguments {
    /// Reads the only argument with `read`. A missing argument is null.
    fn one<T>(mut self, read: impl FnOnce(Deserializer) -> Result<T, Error>) -> Result<T, Error> {
        expect_at_most(1, self.list.len())?;
        let given = self.list.pop();
        let is_missing = given.is_none();
        read(Deserializer::new(given.unwrap_or(Value::Null)))
            .map_err(|error| name_argument(error, 0, is_missing))
    }
}

fn expect_at_most(expected: usize, given: usize) -> Result<(), Error> {
    if given <= expected {
        Ok(())
    } else {
        Err(Error::new(format!(
            "{given} arguments were given, {expected} expected"
        )))
    }
}

fn name_argument(error: Error, index: usize, is_missing: bool) -> Error {
    if is_missing {
        Error::new(format!("argument {} is missing", index + 1))
    } else {
        error.in_item(index)
    }
}

/// Types that are one argument.
macro_rules! one {
    ($($method:ident($($extra:ident: $type:ty),*))+) => {$(
        fn $method<V: Visitor<'de>>(self, $($extra: $type,)* visitor: V) -> Result<V::Value, Error> {
            self.one(|argument| argument.$method($($extra,)* visitor))
        }
    )+};
}

impl<'de> de::Deserializer<'de> for Arguments {
    type Error = Error;

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        expect_at_most(length, self.list.len())?;
        visitor.visit_seq(List {
            rest: self.list.into_iter(),
            next: 0,
            length,
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        expect_at_most(0, self.list.len())?;
        visitor.visit_unit()
    }

    one! {
        deserialize_any()
        deserialize_bool()
        deserialize_i8()
        deserialize_i16()
        deserialize_i32()
        deserialize_i64()
        deserialize_i128()
        deserialize_u8()
        deserialize_u16()
        deserialize_u32()
        deserialize_u64()
        deserialize_u128()
        deserialize_f32()
        deserialize_f64()
        deserialize_char()
        deserialize_str()
        deserialize_string()
        deserialize_bytes()
        deserialize_byte_buf()
        deserialize_option()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// The arguments of a tuple.
struct List {
    rest: std::vec::IntoIter<Value>,
    next: usize,
    length: usize,
}

impl<'de> de::SeqAccess<'de> for List {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.next == self.length {
            return Ok(None);
        }
        let index = self.next;
        self.next += 1;
        let given = self.rest.next();
        let is_missing = given.is_none();
        seed.deserialize(Deserializer::new(given.unwrap_or(Value::Null)))
            .map(Some)
            .map_err(|error| name_argument(error, index, is_missing))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.length - self.next)
    }
}
