//! Converts Rust types to payloads and back: arguments, results and messages.
//!
//! Any type with serde's `Serialize` and `Deserialize` can be converted. Every client of the protocol uses the same mapping, so a
//! Python worker can read the arguments of a Rust workflow:
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
//! [`to_payload`] converts one value, [`to_arguments`] a list of arguments. Errors contain the path to the wrong field.

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

/// Encodes a value as a payload.
///
/// # Errors
/// If the value contains something that a payload cannot represent: a number outside `i64`, NaN, a map whose keys are not text,
/// more than 256 nested containers. Also if its `Serialize` fails.
pub fn to_payload<T: Serialize + ?Sized>(value: &T) -> Result<Payload, Error> {
    Payload::encode(&to_value(value)?).map_err(|error| Error::new(error.to_string()))
}

/// Decodes a payload as a `T`.
///
/// # Errors
/// If the payload is damaged or is not a `T`.
pub fn from_payload<T: DeserializeOwned>(payload: &Payload) -> Result<T, Error> {
    let value = payload
        .decode()
        .map_err(|error| Error::new(error.refusal()))?;
    from_value(value)
}

/// Converts a value without encoding it.
///
/// # Errors
/// The errors of [`to_payload`].
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Error> {
    value.serialize(ser::Serializer::new())
}

/// Converts a decoded value into a `T`.
///
/// # Errors
/// If the value is not a `T`.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(de::Deserializer::new(value))
}
