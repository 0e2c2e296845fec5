//! Rust types to payload values.

use std::cell::Cell;

use longhaul_protocol::payload::{DEPTH_MAX, Map, Value};
use serde::Serialize;
use serde::ser;

use super::Error;
use super::key;

/// Writes one value.
#[derive(Clone, Copy)]
pub(super) struct Serializer<'a> {
    /// How many nested containers are still allowed.
    room: usize,
    /// Set when the outermost value is a tuple or a unit, which are lists of arguments.
    is_list: Option<&'a Cell<bool>>,
}

impl Serializer<'static> {
    pub(super) fn new() -> Self {
        Self {
            room: DEPTH_MAX,
            is_list: None,
        }
    }
}

impl<'a> Serializer<'a> {
    /// Creates a serializer that also records whether the value is a list of arguments.
    pub(super) fn of_arguments(is_list: &'a Cell<bool>) -> Self {
        Self {
            room: DEPTH_MAX,
            is_list: Some(is_list),
        }
    }

    fn note_list(self) {
        if let Some(is_list) = self.is_list {
            is_list.set(true);
        }
    }

    /// Returns the serializer for the content of a wrapper.
    fn wrapped(self) -> Serializer<'static> {
        Serializer {
            room: self.room,
            is_list: None,
        }
    }

    /// Returns the serializer for an element of a container.
    fn inside(self) -> Result<Serializer<'static>, Error> {
        let room = self
            .room
            .checked_sub(1)
            .ok_or_else(|| Error::new(format!("containers are nested deeper than {DEPTH_MAX}")))?;
        Ok(Serializer {
            room,
            is_list: None,
        })
    }

    fn variant(self, name: &'static str) -> Result<Variant<Serializer<'static>>, Error> {
        Ok(Variant {
            name,
            content: self.inside()?,
        })
    }
}

/// A variant with fields: a map of one entry.
pub(super) struct Variant<C> {
    name: &'static str,
    content: C,
}

impl<C> Variant<C> {
    fn close(name: &'static str, content: Result<Value, Error>) -> Result<Value, Error> {
        let content = content.map_err(|error| error.in_field(name))?;
        Ok(Value::Map(Map::from_iter([(name.to_owned(), content)])))
    }
}

impl ser::Serializer for Serializer<'_> {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Variant<Items>;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Variant<Entries>;

    fn serialize_bool(self, value: bool) -> Result<Value, Error> {
        Ok(Value::Bool(value))
    }

    fn serialize_i8(self, value: i8) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_i16(self, value: i16) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_i32(self, value: i32) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_i64(self, value: i64) -> Result<Value, Error> {
        Ok(Value::Long(value))
    }

    fn serialize_i128(self, _: i128) -> Result<Value, Error> {
        Err(too_wide())
    }

    fn serialize_u8(self, value: u8) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_u16(self, value: u16) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_u32(self, value: u32) -> Result<Value, Error> {
        Ok(Value::Long(value.into()))
    }

    fn serialize_u64(self, value: u64) -> Result<Value, Error> {
        i64::try_from(value).map(Value::Long).map_err(|_| {
            Error::new(format!(
                "{value} does not fit a 64-bit signed integer; send it as text"
            ))
        })
    }

    fn serialize_u128(self, _: u128) -> Result<Value, Error> {
        Err(too_wide())
    }

    fn serialize_f32(self, value: f32) -> Result<Value, Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<Value, Error> {
        if value.is_finite() {
            Ok(Value::Double(value))
        } else {
            Err(Error::new("NaN and infinities cannot be sent"))
        }
    }

    fn serialize_char(self, value: char) -> Result<Value, Error> {
        Ok(Value::String(value.into()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, Error> {
        Ok(value.into())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, Error> {
        Ok(Value::Bytes(value.to_vec()))
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        value.serialize(self.wrapped())
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        self.note_list();
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, Error> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        value.serialize(self.wrapped())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        let variant = self.variant(variant)?;
        Variant::<()>::close(variant.name, value.serialize(variant.content))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Items, Error> {
        Items::new(self, length)
    }

    fn serialize_tuple(self, length: usize) -> Result<Items, Error> {
        self.note_list();
        Items::new(self, Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Items, Error> {
        Items::new(self, Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Variant<Items>, Error> {
        let Variant { name, content } = self.variant(variant)?;
        let content = Items::new(content, Some(length))?;
        Ok(Variant { name, content })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Entries, Error> {
        Entries::new(self, length)
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Entries, Error> {
        Entries::new(self, Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Variant<Entries>, Error> {
        let Variant { name, content } = self.variant(variant)?;
        let content = Entries::new(content, Some(length))?;
        Ok(Variant { name, content })
    }
}

fn too_wide() -> Error {
    Error::new("128-bit integers cannot be sent; send them as text")
}

/// The length that a type reports is a hint. At most this many elements are reserved for it.
const RESERVE_MAX: usize = 1024;

/// Items of an array.
pub(super) struct Items {
    inside: Serializer<'static>,
    items: Vec<Value>,
}

impl Items {
    fn new(outside: Serializer<'_>, length: Option<usize>) -> Result<Self, Error> {
        Ok(Self {
            inside: outside.inside()?,
            items: Vec::with_capacity(length.unwrap_or_default().min(RESERVE_MAX)),
        })
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let item = value
            .serialize(self.inside)
            .map_err(|error| error.in_item(self.items.len()))?;
        self.items.push(item);
        Ok(())
    }
}

impl ser::SerializeSeq for Items {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Value::Array(self.items))
    }
}

impl ser::SerializeTuple for Items {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Value::Array(self.items))
    }
}

impl ser::SerializeTupleStruct for Items {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.push(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Value::Array(self.items))
    }
}

impl ser::SerializeTupleVariant for Variant<Items> {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.content
            .push(value)
            .map_err(|error| error.in_field(self.name))
    }

    fn end(self) -> Result<Value, Error> {
        Self::close(self.name, Ok(Value::Array(self.content.items)))
    }
}

/// Entries of a map.
pub(super) struct Entries {
    inside: Serializer<'static>,
    entries: Vec<(String, Value)>,
    /// The key of the next value.
    key: Option<String>,
}

impl Entries {
    fn new(outside: Serializer<'_>, length: Option<usize>) -> Result<Self, Error> {
        Ok(Self {
            inside: outside.inside()?,
            entries: Vec::with_capacity(length.unwrap_or_default().min(RESERVE_MAX)),
            key: None,
        })
    }

    fn insert<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), Error> {
        let value = value
            .serialize(self.inside)
            .map_err(|error| error.in_field(&key))?;
        self.entries.push((key, value));
        Ok(())
    }

    fn into_value(self) -> Value {
        Value::Map(self.entries.into_iter().collect())
    }
}

impl ser::SerializeMap for Entries {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = Some(key.serialize(key::Serializer)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self
            .key
            .take()
            .ok_or_else(|| Error::new("a map gave a value before its key"))?;
        self.insert(key, value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.into_value())
    }
}

impl ser::SerializeStruct for Entries {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.insert(key.to_owned(), value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.into_value())
    }
}

impl ser::SerializeStructVariant for Variant<Entries> {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.content
            .insert(key.to_owned(), value)
            .map_err(|error| error.in_field(self.name))
    }

    fn end(self) -> Result<Value, Error> {
        Self::close(self.name, Ok(self.content.into_value()))
    }
}
