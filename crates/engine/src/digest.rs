//! Comparing payloads by meaning. Two payloads with one meaning can differ in bytes (the order of a map, the layout of blocks), so
//! they are compared decoded, or by a digest of one canonical form.

use longhaul_protocol::Payload;
use sha2::{Digest as _, Sha256};

/// Returns the digest of the meaning of a payload. A request id is compared with it long after the arguments themselves are gone,
/// so it must not be possible to find other arguments for it.
pub(crate) fn of(payload: &Payload) -> String {
    let canonical = payload.decode().and_then(|mut value| {
        value.sort_keys();
        Payload::encode(&value)
    });
    let payload = canonical.as_ref().unwrap_or(payload);
    let digest = Sha256::digest(payload.blob());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether two payloads have the same meaning.
pub(crate) fn same_value(left: Option<&Payload>, right: Option<&Payload>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => {
            left == right
                || matches!((left.decode(), right.decode()), (Ok(left), Ok(right)) if left == right)
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::payload::{Map, Value};

    use super::*;

    fn payload(entries: &[(&str, i64)]) -> Payload {
        let map = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Value::Long(*value)))
            .collect::<Map>();
        Payload::encode(&Value::Array(vec![Value::Map(map)])).unwrap()
    }

    #[test]
    fn a_digest_distinguishes_values_but_not_their_encodings() {
        let one = payload(&[("a", 1), ("b", 2)]);
        let same = payload(&[("b", 2), ("a", 1)]);
        assert_ne!(one, same);
        assert_eq!(of(&one), of(&same));
        assert_ne!(of(&one), of(&payload(&[("a", 1), ("b", 3)])));
    }
}
