//! Keys of maps, which are text on the wire. Integers, `bool` and `char` are written as text and read back from it.

use std::fmt::Display;

use serde::de::{self, IntoDeserializer as _, Visitor};
use serde::ser::{self, Impossible};
use serde::{Serialize, forward_to_deserialize_any};

use super::Error;

/// Writes one key.
pub(super) struct Serializer;

fn text(key: impl Display) -> Result<String, Error> {
    Ok(key.to_string())
}

fn no_key<T>(what: &str) -> Result<T, Error> {
    Err(Error::new(format!(
        "{what} cannot be the key of a map; keys are text"
    )))
}

impl ser::Serializer for Serializer {
    type Ok = String;
    type Error = Error;
    type SerializeSeq = Impossible<String, Error>;
    type SerializeTuple = Impossible<String, Error>;
    type SerializeTupleStruct = Impossible<String, Error>;
    type SerializeTupleVariant = Impossible<String, Error>;
    type SerializeMap = Impossible<String, Error>;
    type SerializeStruct = Impossible<String, Error>;
    type SerializeStructVariant = Impossible<String, Error>;

    fn serialize_bool(self, key: bool) -> Result<String, Error> {
        text(key)
    }

    fn serialize_i8(self, key: i8) -> Result<String, Error> {
        text(key)
    }

    fn serialize_i16(self, key: i16) -> Result<String, Error> {
        text(key)
    }

    fn serialize_i32(self, key: i32) -> Result<String, Error> {
        text(key)
    }

    fn serialize_i64(self, key: i64) -> Result<String, Error> {
        text(key)
    }

    fn serialize_i128(self, key: i128) -> Result<String, Error> {
        text(key)
    }

    fn serialize_u8(self, key: u8) -> Result<String, Error> {
        text(key)
    }

    fn serialize_u16(self, key: u16) -> Result<String, Error> {
        text(key)
    }

    fn serialize_u32(self, key: u32) -> Result<String, Error> {
        text(key)
    }

    fn serialize_u64(self, key: u64) -> Result<String, Error> {
        text(key)
    }

    fn serialize_u128(self, key: u128) -> Result<String, Error> {
        text(key)
    }

    fn serialize_f32(self, _: f32) -> Result<String, Error> {
        no_key("a float")
    }

    fn serialize_f64(self, _: f64) -> Result<String, Error> {
        no_key("a float")
    }

    fn serialize_char(self, key: char) -> Result<String, Error> {
        text(key)
    }

    fn serialize_str(self, key: &str) -> Result<String, Error> {
        text(key)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<String, Error> {
        no_key("a byte string")
    }

    fn serialize_none(self) -> Result<String, Error> {
        no_key("None")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, key: &T) -> Result<String, Error> {
        key.serialize(self)
    }

    fn serialize_unit(self) -> Result<String, Error> {
        no_key("a unit")
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<String, Error> {
        no_key(name)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<String, Error> {
        text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        key: &T,
    ) -> Result<String, Error> {
        key.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<String, Error> {
        no_key(variant)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Error> {
        no_key("a sequence")
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        no_key("a tuple")
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Error> {
        no_key(name)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        no_key(variant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Error> {
        no_key("a map")
    }

    fn serialize_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, Error> {
        no_key(name)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        no_key(variant)
    }
}

/// Reads one key.
pub(super) struct Deserializer(pub(super) String);

/// Types that are parsed from the text of a key.
macro_rules! from_text {
    ($($method:ident $visit:ident $type:ty)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$type>() {
                Ok(key) => visitor.$visit(key),
                Err(_) => visitor.visit_string(self.0),
            }
        }
    )+};
}

impl<'de> de::Deserializer<'de> for Deserializer {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    from_text! {
        deserialize_bool visit_bool bool
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_i128 visit_i128 i128
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
        deserialize_u128 visit_u128 u128
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
