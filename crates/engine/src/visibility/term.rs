//! Values as queries compare them, and the index entries of an attribute's value. The entries follow from the value alone, never
//! from a definition: definitions change, and the entries stay correct.

use std::cmp::Ordering;

use longhaul_protocol::Timestamp;
use serde_json::{Number, Value};

/// One value to compare with.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    Text(String),
    Integer(i64),
    Double(f64),
    Flag(bool),
    Time(Timestamp),
}

/// How an index entry is compared. Entries of different kinds are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Text,
    /// One string of a list.
    Item,
    Number,
    Flag,
    Time,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Item => "item",
            Self::Number => "number",
            Self::Flag => "flag",
            Self::Time => "time",
        }
    }
}

/// Returns the entries of one attribute's value. A string that reads as a time can be found as either.
pub fn indexed(value: &Value) -> Vec<(Kind, Term)> {
    match value {
        Value::Null | Value::Object(_) => Vec::new(),
        Value::Bool(flag) => vec![(Kind::Flag, Term::Flag(*flag))],
        Value::Number(number) => vec![(Kind::Number, number_term(number))],
        Value::String(text) => {
            let time = read_time(text).map(|time| (Kind::Time, Term::Time(time)));
            let text = (Kind::Text, Term::Text(text.clone()));
            time.into_iter().chain([text]).collect()
        }
        Value::Array(items) => items
            .iter()
            .filter_map(Value::as_str)
            .map(|item| (Kind::Item, Term::Text(item.to_owned())))
            .collect(),
    }
}

fn number_term(number: &Number) -> Term {
    match number.as_i64() {
        Some(integer) => Term::Integer(integer),
        // JSON has only finite numbers, so the conversion always succeeds.
        None => Term::Double(number.as_f64().unwrap_or_default()),
    }
}

/// Returns an RFC 3339 time with its zone, to the microsecond. The parser below accepts more forms than the standard has.
pub(super) fn read_time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes
            .get(from..to)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let is =
        |place: usize, wanted: &[u8]| bytes.get(place).is_some_and(|byte| wanted.contains(byte));
    let date = digits(0, 4) && is(4, b"-") && digits(5, 7) && is(7, b"-") && digits(8, 10);
    let time = is(10, b"Tt ")
        && digits(11, 13)
        && is(13, b":")
        && digits(14, 16)
        && is(16, b":")
        && digits(17, 19);
    if !date || !time {
        return None;
    }
    let mut zone = 19;
    if is(19, b".") {
        zone = 20
            + bytes[20..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
        if zone == 20 {
            return None;
        }
    }
    let utc = is(zone, b"Zz") && bytes.len() == zone + 1;
    let offset = is(zone, b"+-")
        && digits(zone + 1, zone + 3)
        && is(zone + 3, b":")
        && digits(zone + 4, zone + 6)
        && bytes.len() == zone + 6;
    if utc || offset {
        text.parse().ok()
    } else {
        None
    }
}

impl Term {
    /// Compares numbers by value, exactly; terms of different types do not compare.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Flag(a), Self::Flag(b)) => Some(a.cmp(b)),
            (Self::Time(a), Self::Time(b)) => Some(a.cmp(b)),
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Integer(a), Self::Double(b)) => Some(compare_mixed(*a, *b)),
            (Self::Double(a), Self::Integer(b)) => Some(compare_mixed(*b, *a).reverse()),
            (
                Self::Text(_) | Self::Flag(_) | Self::Time(_) | Self::Integer(_) | Self::Double(_),
                _,
            ) => None,
        }
    }
}

/// Compares without conversion: converting either to the other's type would round.
fn compare_mixed(integer: i64, double: f64) -> Ordering {
    // Two to the power of 63: the first double above every integer.
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if double >= BOUND {
        return Ordering::Less;
    }
    if double < -BOUND {
        return Ordering::Greater;
    }
    let whole = double.trunc();
    integer
        .cmp(&(whole as i64))
        .then_with(|| whole.total_cmp(&double))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_of_the_standard_are_accepted() {
        for text in [
            "2026-01-01T00:00:00Z",
            "2026-01-01t00:00:00z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00.5Z",
            "2026-01-01T00:00:00.123456789+05:30",
            "1969-12-31T23:59:59-00:01",
        ] {
            assert!(read_time(text).is_some(), "{text}");
        }
        for text in [
            "",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+0200",
            "2026-01-01T00:00:00Z[UTC]",
            "2026-01-01T00:00:00Zä",
        ] {
            assert!(read_time(text).is_none(), "{text}");
        }
    }

    #[test]
    fn mixed_numbers_compare_exactly() {
        for (integer, double, expected) in [
            (1, 1.0, Ordering::Equal),
            (1, 1.5, Ordering::Less),
            (-1, -1.5, Ordering::Greater),
            (0, -0.0, Ordering::Equal),
            (i64::MAX, 9_223_372_036_854_775_808.0, Ordering::Less),
            (i64::MIN, -9_223_372_036_854_775_808.0, Ordering::Equal),
            (
                9_007_199_254_740_993,
                9_007_199_254_740_992.0,
                Ordering::Greater,
            ),
        ] {
            assert_eq!(
                Term::Integer(integer).compare(&Term::Double(double)),
                Some(expected),
                "{integer} {double}"
            );
        }
    }
}
