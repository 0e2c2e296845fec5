//! Payload values to Rust types.

use longhaul_protocol::payload::{DEPTH_MAX, Map, Value};
use serde::de::{
    self, DeserializeSeed, EnumAccess, IntoDeserializer as _, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::Error;
use super::key;

/// Reads one value.
pub(super) struct Deserializer {
    value: Value,
    /// How many nested containers are still allowed.
    room: usize,
}

impl Deserializer {
    pub(super) fn new(value: Value) -> Self {
        Self {
            value,
            room: DEPTH_MAX,
        }
    }

    fn inside(&self) -> Result<usize, Error> {
        self.room
            .checked_sub(1)
            .ok_or_else(|| Error::new(format!("containers are nested deeper than {DEPTH_MAX}")))
    }
}

impl<'de> de::Deserializer<'de> for Deserializer {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let room = self.inside();
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Long(value) => visitor.visit_i64(value),
            Value::Double(value) => visitor.visit_f64(value),
            Value::Bytes(value) => visitor.visit_byte_buf(value),
            Value::String(value) => visitor.visit_string(value),
            Value::Array(items) => visit_items(items, room?, visitor),
            Value::Map(map) => visit_entries(map, room?, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// Bytes can be read as a `Vec<u8>` as well.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bytes(bytes) => {
                visitor.visit_seq(de::value::SeqDeserializer::new(bytes.into_iter()))
            }
            _ => self.deserialize_any(visitor),
        }
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
        let room = self.inside();
        match self.value {
            Value::String(variant) => visitor.visit_enum(variant.into_deserializer()),
            Value::Map(map) if map.len() == 1 => {
                let (variant, value) = map.into_iter().next().expect("it has one entry");
                let name = variant.clone();
                let content = Self { value, room: room? };
                visitor
                    .visit_enum(Tagged { variant, content })
                    .map_err(|error| error.in_field(&name))
            }
            Value::Map(_) => Err(de::Error::invalid_value(
                Unexpected::Map,
                &"a map of one entry, named after a variant",
            )),
            other => Err(de::Error::invalid_type(
                unexpected(&other),
                &"the name of a variant, or a map of one entry",
            )),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map struct identifier
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Long(value) => Unexpected::Signed(*value),
        Value::Double(value) => Unexpected::Float(*value),
        Value::Bytes(value) => Unexpected::Bytes(value),
        Value::String(value) => Unexpected::Str(value),
        Value::Array(_) => Unexpected::Seq,
        Value::Map(_) => Unexpected::Map,
    }
}

fn visit_items<'de, V: Visitor<'de>>(
    items: Vec<Value>,
    room: usize,
    visitor: V,
) -> Result<V::Value, Error> {
    let length = items.len();
    let mut items = Items {
        rest: items.into_iter(),
        next: 0,
        room,
    };
    let value = visitor.visit_seq(&mut items)?;
    if items.rest.len() == 0 {
        Ok(value)
    } else {
        Err(de::Error::invalid_length(length, &"fewer items"))
    }
}

struct Items {
    rest: std::vec::IntoIter<Value>,
    next: usize,
    room: usize,
}

impl<'de> de::SeqAccess<'de> for &mut Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.rest.next() else {
            return Ok(None);
        };
        let index = self.next;
        self.next += 1;
        let room = self.room;
        seed.deserialize(Deserializer { value, room })
            .map(Some)
            .map_err(|error| error.in_item(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

fn visit_entries<'de, V: Visitor<'de>>(
    map: Map,
    room: usize,
    visitor: V,
) -> Result<V::Value, Error> {
    visitor.visit_map(Entries {
        rest: map.into_iter(),
        open: None,
        room,
    })
}

struct Entries {
    rest: std::vec::IntoIter<(String, Value)>,
    /// The value of the last returned key.
    open: Option<(String, Value)>,
    room: usize,
}

impl<'de> de::MapAccess<'de> for Entries {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else {
            return Ok(None);
        };
        let key = seed.deserialize(key::Deserializer(name.clone()))?;
        self.open = Some((name, value));
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (name, value) = self
            .open
            .take()
            .ok_or_else(|| Error::new("a value was asked for before its key"))?;
        let room = self.room;
        seed.deserialize(Deserializer { value, room })
            .map_err(|error| error.in_field(&name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A variant with fields.
struct Tagged {
    variant: String,
    content: Deserializer,
}

impl<'de> EnumAccess<'de> for Tagged {
    type Error = Error;
    type Variant = Content;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Content), Error> {
        let variant = seed.deserialize(key::Deserializer(self.variant))?;
        Ok((variant, Content(self.content)))
    }
}

struct Content(Deserializer);

impl<'de> VariantAccess<'de> for Content {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0.value {
            Value::Null => Ok(()),
            other => Err(de::Error::invalid_type(
                unexpected(&other),
                &"a variant without fields",
            )),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_seq(self.0, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self.0, visitor)
    }
}
