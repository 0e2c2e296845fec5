//! Memo updates: what the memo of a run may contain, and how an upsert is merged into it. Both published SDKs check the
//! merged map again, so it must satisfy the limits by itself.

use thiserror::Error;

use super::{CodecError, Map, Payload, Value, encode};

/// Entries in one upsert, and in the merged memo.
pub const ENTRIES_MAX: usize = 100;

/// Bytes of one value, counted as its own frame.
pub const VALUE_BYTES_MAX: usize = 10_240;

/// Bytes of the whole map, counted as its frame.
pub const TOTAL_BYTES_MAX: usize = 65_536;

/// Characters of a key.
pub const KEY_CHARACTERS_MAX: usize = 64;

/// Why memo entries were refused. A wrong shape refuses the worker's request; a broken limit is a structural limit and fails
/// the run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The entries are not a map with valid keys.
    #[error("{0}")]
    Shape(&'static str),
    /// The entries, or the memo they would make, are too many or too large.
    #[error("{limit} are limited to {max}, got {value}")]
    Limit {
        /// Which limit.
        limit: Limit,
        /// The value that was found.
        value: usize,
        /// The allowed maximum.
        max: usize,
    },
    /// A stored payload could not be read.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// The limits of a memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`ENTRIES_MAX`].
    Entries,
    /// [`VALUE_BYTES_MAX`].
    ValueBytes,
    /// [`TOTAL_BYTES_MAX`].
    TotalBytes,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Entries => "memo entries",
            Self::ValueBytes => "encoded bytes of a memo value",
            Self::TotalBytes => "encoded bytes of a memo",
        })
    }
}

/// Checks the shape of one upsert's entries: a map with at least one entry, and keys a memo can have.
///
/// # Errors
/// [`Error::Shape`], nothing else.
pub fn check_keys(entries: &Value) -> Result<(), Error> {
    let map = entries.as_map().ok_or(NOT_A_MAP)?;
    if map.is_empty() {
        return Err(Error::Shape("memo entries must contain at least one entry"));
    }
    if !map.iter().all(|(key, _)| is_key(key)) {
        return Err(Error::Shape(
            "memo keys must match ^(?!-?[0-9]+$)[A-Za-z0-9_.:-]{1,64}$",
        ));
    }
    Ok(())
}

/// Checks one upsert's entries whole: shape first, then limits.
///
/// # Errors
/// As [`check_keys`], and [`Error::Limit`] if a limit is exceeded.
pub fn validate_entries(entries: &Value) -> Result<(), Error> {
    check_keys(entries)?;
    check_limits(entries.as_map().ok_or(NOT_A_MAP)?, encode(entries)?.len())
}

/// Merges an upsert into the memo of a run. A null value deletes its key. The result is canonical: keys sorted, in
/// nested maps too; it may be the empty map.
///
/// # Errors
/// [`Error::Limit`] when the merged map breaks a limit; [`Error::Shape`] or [`Error::Codec`] when either side is not
/// a readable map.
pub fn merge(current: Option<&Payload>, entries: &Payload) -> Result<Payload, Error> {
    let current = current.map_or_else(|| Ok(Map::new()), read_map)?;
    // Duplicates keep the last value, so the upsert follows what it replaces.
    let all: Map = current.into_iter().chain(read_map(entries)?).collect();
    let kept: Map = all
        .into_iter()
        .filter(|(_, value)| *value != Value::Null)
        .collect();
    let mut merged = Value::Map(kept);
    merged.sort_keys();
    let payload = Payload::encode(&merged)?;
    check_limits(merged.as_map().ok_or(NOT_A_MAP)?, frame_bytes(&payload))?;
    Ok(payload)
}

const NOT_A_MAP: Error = Error::Shape("memo entries must be a map");

fn read_map(payload: &Payload) -> Result<Map, Error> {
    match payload.decode()? {
        Value::Map(map) => Ok(map),
        _ => Err(NOT_A_MAP),
    }
}

fn check_limits(map: &Map, frame_bytes: usize) -> Result<(), Error> {
    check(Limit::Entries, map.len(), ENTRIES_MAX)?;
    for (_, value) in map.iter() {
        check(Limit::ValueBytes, encode(value)?.len(), VALUE_BYTES_MAX)?;
    }
    check(Limit::TotalBytes, frame_bytes, TOTAL_BYTES_MAX)
}

fn check(limit: Limit, value: usize, max: usize) -> Result<(), Error> {
    if value > max {
        Err(Error::Limit { limit, value, max })
    } else {
        Ok(())
    }
}

/// The bytes behind canonical base64 text.
fn frame_bytes(payload: &Payload) -> usize {
    let blob = payload.blob();
    blob.len() / 4 * 3 - blob.bytes().rev().take_while(|byte| *byte == b'=').count()
}

/// Whether `key` may name a memo entry. Keys that read as integers are refused because some runtimes turn them into
/// list positions.
#[must_use]
pub fn is_key(key: &str) -> bool {
    let digits = key.strip_prefix('-').unwrap_or(key);
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=KEY_CHARACTERS_MAX).contains(&key.len()) && key.bytes().all(allowed) && !numeric
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{display, from_json};

    fn payload(json: &str) -> Payload {
        Payload::encode(&from_json(json).unwrap()).unwrap()
    }

    fn merged(current: Option<&str>, entries: &str) -> String {
        let current = current.map(payload);
        let merged = merge(current.as_ref(), &payload(entries)).unwrap();
        display(&merged.decode().unwrap()).to_string()
    }

    fn limit_of(result: Result<impl std::fmt::Debug, Error>) -> Option<Limit> {
        match result.unwrap_err() {
            Error::Limit { limit, .. } => Some(limit),
            Error::Shape(_) | Error::Codec(_) => None,
        }
    }

    #[test]
    fn an_upsert_replaces_adds_and_deletes() {
        assert_eq!(
            merged(None, r#"{"b":1,"a":{"z":1,"y":[{"d":1,"c":2}]}}"#),
            r#"{"a":{"y":[{"c":2,"d":1}],"z":1},"b":1}"#
        );
        assert_eq!(
            merged(Some(r#"{"a":1,"b":2}"#), r#"{"b":null,"c":3,"a":7.0}"#),
            r#"{"a":7.0,"c":3}"#
        );
        assert_eq!(merged(Some(r#"{"a":1}"#), r#"{"a":null,"x":null}"#), "{}");
        assert_eq!(
            merged(None, r#"{"a":{"inner":null}}"#),
            r#"{"a":{"inner":null}}"#
        );
    }

    #[test]
    fn keys_are_names_not_numbers() {
        for key in [
            "a",
            "A-1",
            "_",
            "-",
            "--1",
            "1a",
            "1.5",
            "a.b:c-d_e",
            &"k".repeat(64),
        ] {
            assert!(is_key(key), "{key}");
        }
        for key in ["", "1", "-1", "007", "a b", "é", "a/b", &"k".repeat(65)] {
            assert!(!is_key(key), "{key}");
        }
    }

    #[test]
    fn shapes_are_refused_as_shapes() {
        for json in ["[]", "null", "{}", r#"{"1":2}"#, r#"{"a b":1}"#] {
            assert!(
                matches!(
                    validate_entries(&from_json(json).unwrap()),
                    Err(Error::Shape(_))
                ),
                "{json}"
            );
        }
        assert!(matches!(merge(None, &payload("[]")), Err(Error::Shape(_))));
        assert!(validate_entries(&from_json(r#"{"a":null}"#).unwrap()).is_ok());
    }

    fn map(count: usize, value: impl Fn(usize) -> Value) -> Value {
        (0..count)
            .map(|i| (format!("k{i}"), value(i)))
            .collect::<Map>()
            .into()
    }

    /// A string whose own frame has this many bytes: 10 of prefix, 1 of case, 2 or 3 of length, then the text.
    fn sized(bytes: usize) -> Value {
        let length_bytes = if bytes - 13 < 8192 { 2 } else { 3 };
        let value = Value::String("x".repeat(bytes - 11 - length_bytes));
        assert_eq!(encode(&value).unwrap().len(), bytes);
        value
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        assert!(validate_entries(&map(ENTRIES_MAX, |_| Value::Null)).is_ok());
        assert_eq!(
            limit_of(validate_entries(&map(ENTRIES_MAX + 1, |_| Value::Null))),
            Some(Limit::Entries)
        );
        let full = Payload::encode(&map(ENTRIES_MAX, |_| Value::Long(1))).unwrap();
        assert_eq!(
            limit_of(merge(Some(&full), &payload(r#"{"z":1}"#))),
            Some(Limit::Entries)
        );
        assert!(merge(Some(&full), &payload(r#"{"z":1,"k0":null}"#)).is_ok());
    }

    #[test]
    fn the_size_of_a_value_is_limited() {
        assert!(validate_entries(&map(1, |_| sized(VALUE_BYTES_MAX))).is_ok());
        assert_eq!(
            limit_of(validate_entries(&map(1, |_| sized(VALUE_BYTES_MAX + 1)))),
            Some(Limit::ValueBytes)
        );
    }

    #[test]
    fn the_size_of_the_whole_is_limited() {
        // In the map each value sheds its frame's prefix of 10 bytes and gains a key of 3; the map adds 10 + 3.
        let last = TOTAL_BYTES_MAX - 13 - 6 * (VALUE_BYTES_MAX - 7) + 7;
        let whole = |last: usize| map(7, |i| sized(if i == 6 { last } else { VALUE_BYTES_MAX }));
        assert_eq!(encode(&whole(last)).unwrap().len(), TOTAL_BYTES_MAX);
        assert!(validate_entries(&whole(last)).is_ok());
        assert_eq!(
            limit_of(validate_entries(&whole(last + 1))),
            Some(Limit::TotalBytes)
        );
        let full = Payload::encode(&whole(last)).unwrap();
        assert_eq!(
            limit_of(merge(Some(&full), &payload(r#"{"z":1}"#))),
            Some(Limit::TotalBytes)
        );
        assert!(merge(Some(&full), &payload(r#"{"z":1,"k0":null}"#)).is_ok());
    }

    #[test]
    fn the_total_counts_the_frame_not_its_text() {
        for json in ["{}", r#"{"a":1}"#, r#"{"ab":1}"#, r#"{"abc":1}"#] {
            assert_eq!(
                frame_bytes(&payload(json)),
                encode(&from_json(json).unwrap()).unwrap().len()
            );
        }
    }
}
