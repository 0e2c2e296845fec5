//! Text in columns. PostgreSQL refuses U+0000, which names and values of users may contain. It is escaped in a way that keeps the order
//! of bytes, prefixes and equality, so every comparison in SQL still holds. JSON bodies need none of this: JSON escapes it.

use std::borrow::Cow;

use longhaul_engine::visibility::Term;

/// The escape character. It is escaped itself.
const ESCAPE: char = '\u{1}';

/// Returns the text as it is stored.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => stored.push_str("\u{1}\u{1}"),
            ESCAPE => stored.push_str("\u{1}\u{2}"),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// Returns the text that [`escaped`] was given.
pub(super) fn unescaped(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => match characters.next() {
                Some('\u{1}') => text.push('\0'),
                _ => text.push(ESCAPE),
            },
            other => text.push(other),
        }
    }
    text
}

/// Returns the value of a search attribute as text whose order by bytes is the order of the values of its kind.
pub(super) fn value(term: &Term) -> String {
    match term {
        Term::Text(text) => escaped(text).into_owned(),
        Term::Integer(integer) => number(*integer),
        Term::Double(double) => format!("{}0000", sortable(*double)),
        Term::Flag(flag) => u8::from(*flag).to_string(),
        Term::Time(time) => format!("{:016x}", ordered(time.as_micros())),
    }
}

/// Returns the place of a number among all 64-bit numbers, from zero.
fn ordered(number: i64) -> u64 {
    number.cast_unsigned() ^ (1 << 63)
}

/// Returns the bits of a double in hexadecimal digits, in the order of the doubles.
fn sortable(double: f64) -> String {
    // Both zeros are one value.
    let bits = if double == 0.0 { 0 } else { double.to_bits() };
    let ordered = if bits >> 63 == 1 {
        !bits
    } else {
        bits | (1 << 63)
    };
    format!("{ordered:016x}")
}

/// Returns an integer in the same order as doubles: the greatest double that is not above it, and what is left.
fn number(integer: i64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the rest keeps what the conversion loses; doubles in this range are whole numbers that fit"
    )]
    let (double, rest) = {
        let mut double = integer as f64;
        if double as i128 > i128::from(integer) {
            double = double.next_down();
        }
        (double, i128::from(integer) - double as i128)
    };
    format!("{}{rest:04x}", sortable(double))
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::Timestamp;

    use super::*;

    #[test]
    fn escaped_text_comes_back_in_the_same_order() {
        let texts = [
            "",
            "\0",
            "\0\0",
            "\0a",
            "\u{1}",
            "\u{1}\0",
            "\u{1}\u{1}",
            "\u{1}\u{2}",
            "\u{2}",
            "a",
            "a\0",
            "a\0b",
            "a\u{1}",
            "ab",
            "é",
            "\u{10ffff}",
        ];
        for pair in texts.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
            assert!(escaped(pair[0]) < escaped(pair[1]), "{pair:?}");
        }
        for text in texts {
            let stored = escaped(text).into_owned();
            assert!(!stored.contains('\0'));
            for prefix in texts {
                let is_prefix = stored.starts_with(&*escaped(prefix));
                assert_eq!(is_prefix, text.starts_with(prefix), "{text:?} {prefix:?}");
            }
            assert_eq!(unescaped(stored), text);
        }
    }

    #[test]
    fn numbers_are_in_their_order() {
        let big = 1_i64 << 53;
        #[expect(clippy::cast_precision_loss, reason = "exact")]
        let ordered = [
            Term::Double(f64::MIN),
            Term::Integer(i64::MIN),
            Term::Integer(i64::MIN + 1),
            Term::Integer(-big - 1),
            Term::Double(-(big as f64)),
            Term::Double(-1.5),
            Term::Integer(-1),
            Term::Double(-f64::MIN_POSITIVE),
            Term::Integer(0),
            Term::Double(f64::MIN_POSITIVE),
            Term::Integer(1),
            Term::Double(1.5),
            Term::Integer(2),
            Term::Integer(big),
            Term::Integer(big + 1),
            Term::Double((big + 2) as f64),
            Term::Integer(big + 3),
            Term::Integer(i64::MAX - 1),
            Term::Integer(i64::MAX),
            Term::Double(9_223_372_036_854_775_808.0),
            Term::Double(f64::MAX),
        ];
        for pair in ordered.windows(2) {
            assert!(value(&pair[0]) < value(&pair[1]), "{pair:?}");
        }
        for (integer, double) in [(0, 0.0), (0, -0.0), (7, 7.0), (-3, -3.0)] {
            let (integer, double) = (Term::Integer(integer), Term::Double(double));
            assert_eq!(value(&integer), value(&double));
        }
    }

    #[test]
    fn times_and_flags_are_in_their_order() {
        let times = [i64::MIN, -1, 0, 1, i64::MAX].map(|micros| {
            let time = Timestamp::from_micros(micros);
            value(&Term::Time(time))
        });
        assert!(times.is_sorted());
        assert!(value(&Term::Flag(false)) < value(&Term::Flag(true)));
    }
}
