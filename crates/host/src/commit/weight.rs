//! Estimates how many bytes a value takes in memory, for limits that count bytes. It adds up the serialized form without writing
//! it: a text counts by its length, which is known, so a payload of megabytes costs no more than a short one. Shared values count
//! every time they occur; an estimate may be too high, not too low by much.

use std::fmt;

use longhaul_engine::run::state::Run;
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Every nested value, with its pointer, length and allocation.
const NODE: u64 = 32;

/// An empty run: its cell, its entry in the cache, ids and empty tables.
const RUN: u64 = 1024;

/// Returns about how many bytes the value takes.
pub(crate) fn weight<T: Serialize + ?Sized>(value: &T) -> u64 {
    let mut scale = Scale(0);
    // Every stored value can be serialized; otherwise the part seen so far counts.
    let _ = value.serialize(&mut scale);
    scale.0
}

/// Returns about how many bytes the run takes. Walks all of it: for runs that were just read or created.
pub(crate) fn weight_of_run(run: &Run) -> u64 {
    let parts: u64 = run.parts.values().map(weight).sum();
    RUN + weight(&*run.spec) + weight(&run.core) + parts
}

struct Scale(u64);

impl Scale {
    fn node(&mut self) {
        self.0 += NODE;
    }

    fn bytes(&mut self, length: usize) {
        self.0 += NODE + length as u64;
    }
}

#[derive(Debug)]
struct Unweighable;

impl fmt::Display for Unweighable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value cannot be weighed")
    }
}

impl std::error::Error for Unweighable {}

impl serde::ser::Error for Unweighable {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

type Weighed = Result<(), Unweighable>;

/// Values without an allocation of their own.
macro_rules! small {
    ($($method:ident $type:ty,)+) => {$(
        fn $method(self, _: $type) -> Weighed {
            self.node();
            Ok(())
        }
    )+};
}

impl<'a> Serializer for &'a mut Scale {
    type Ok = ();
    type Error = Unweighable;
    type SerializeSeq = &'a mut Scale;
    type SerializeTuple = &'a mut Scale;
    type SerializeTupleStruct = &'a mut Scale;
    type SerializeTupleVariant = &'a mut Scale;
    type SerializeMap = &'a mut Scale;
    type SerializeStruct = &'a mut Scale;
    type SerializeStructVariant = &'a mut Scale;

    small! {
        serialize_bool bool,
        serialize_i8 i8,
        serialize_i16 i16,
        serialize_i32 i32,
        serialize_i64 i64,
        serialize_u8 u8,
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64,
        serialize_f32 f32,
        serialize_f64 f64,
        serialize_char char,
        serialize_unit_struct &'static str,
    }

    fn serialize_str(self, text: &str) -> Weighed {
        self.bytes(text.len());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Weighed {
        self.bytes(bytes.len());
        Ok(())
    }

    fn serialize_none(self) -> Weighed {
        self.node();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Weighed {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Weighed {
        self.node();
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Weighed {
        self.node();
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Weighed {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Weighed {
        self.node();
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Unweighable> {
        self.node();
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Unweighable> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unweighable> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unweighable> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Unweighable> {
        self.node();
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unweighable> {
        self.node();
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unweighable> {
        self.node();
        Ok(self)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, text: &T) -> Weighed {
        struct Length(usize);
        impl fmt::Write for Length {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0 += text.len();
                Ok(())
            }
        }
        let mut length = Length(0);
        // Counting cannot fail.
        let _ = fmt::Write::write_fmt(&mut length, format_args!("{text}"));
        self.bytes(length.0);
        Ok(())
    }
}

/// Adds up the values of a compound. The names of fields are not counted: they are few and short.
macro_rules! add_values {
    ($($compound:ident::$method:ident($($name:ty)?);)*) => {$(
        impl $compound for &mut Scale {
            type Ok = ();
            type Error = Unweighable;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Weighed {
                value.serialize(&mut **self)
            }

            fn end(self) -> Weighed {
                Ok(())
            }
        }
    )*};
}

add_values! {
    SerializeSeq::serialize_element();
    SerializeTuple::serialize_element();
    SerializeTupleStruct::serialize_field();
    SerializeTupleVariant::serialize_field();
    SerializeStruct::serialize_field(&'static str);
    SerializeStructVariant::serialize_field(&'static str);
}

impl SerializeMap for &mut Scale {
    type Ok = ();
    type Error = Unweighable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Weighed {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Weighed {
        value.serialize(&mut **self)
    }

    fn end(self) -> Weighed {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::Payload;
    use longhaul_protocol::payload::Value;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_weighs_the_length_of_its_texts() {
        let short = weight(&json!({"a": [1, true, null], "b": "x"}));
        let long = weight(&json!({"a": [1, true, null], "b": "x".repeat(1001)}));
        assert_eq!(long - short, 1000);
        assert!(short < 1000, "{short}");
    }

    #[test]
    fn a_payload_weighs_the_length_of_its_text() {
        let payload = Payload::encode(&Value::String("x".repeat(300_000))).unwrap();
        let length = payload.blob().len() as u64;
        let weighed = weight(&payload);
        assert!((length..length + 200).contains(&weighed), "{weighed}");
    }
}
