//! Between Rust types and payloads: what arguments, results, signals and queries are made of.
//!
//! Any type with serde's `Serialize` and `Deserialize` crosses the wire. The mapping is the one every client of the
//! protocol uses (payload-codec.md §5.5), so a Python worker reads what a Rust workflow sent:
//!
//! | Rust | payload |
//! | --- | --- |
//! | `()`, `None` | null |
//! | integers that fit `i64` | long; larger ones are an error, send them as text |
//! | `f32`, `f64` | double; NaN and infinities are an error |
//! | `String`, `char`, a variant without fields | string |
//! | `serialize_bytes` (`serde_bytes`, `bytes::Bytes`) | bytes |
//! | `Vec`, tuples | array |
//! | structs and maps | map; integer and `bool` keys become text |
//! | a variant with fields | a map of one entry, named after the variant |
//!
//! A value is one thing ([`to_payload`]), arguments are a list of things ([`to_arguments`]). Errors name the path to
//! the field that is at fault.

use longhaul_protocol::payload::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

mod arguments;
mod de;
mod error;
mod key;
mod ser;

#[cfg(test)]
mod tests;

pub use arguments::{from_arguments, to_arguments};
pub use error::Error;
pub use longhaul_protocol::Payload;

/// Writes `value` as a payload.
///
/// # Errors
/// The value holds something a payload cannot: a number outside `i64`, NaN, a map whose keys are not text, more than
/// 256 nested containers; or its `Serialize` failed.
pub fn to_payload<T: Serialize + ?Sized>(value: &T) -> Result<Payload, Error> {
    Payload::encode(&to_value(value)?).map_err(|error| Error::new(error.to_string()))
}

/// Reads a payload as a `T`.
///
/// # Errors
/// The payload is damaged, or holds something else than a `T`.
pub fn from_payload<T: DeserializeOwned>(payload: &Payload) -> Result<T, Error> {
    let value = payload
        .decode()
        .map_err(|error| Error::new(error.refusal()))?;
    from_value(value)
}

/// As [`to_payload`], without encoding.
///
/// # Errors
/// As [`to_payload`].
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Error> {
    value.serialize(ser::Serializer::new())
}

/// As [`from_payload`], for a decoded value.
///
/// # Errors
/// As [`from_payload`].
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(de::Deserializer::new(value))
}
