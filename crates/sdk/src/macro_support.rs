//! What the attribute macros write calls of. Not for others: it changes without notice.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Makes the compiler say, at the type itself, that an argument or result cannot be written or read.
pub fn crosses_the_wire<T: Serialize + DeserializeOwned>() {}
