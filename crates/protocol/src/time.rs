//! Timestamps on the wire and in history: RFC 3339, UTC, exactly six fractional digits, `Z`. Some client receipts compare
//! timestamps as text, so there is one form, and only this module writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The largest time that can be written with four year digits; arithmetic stops there instead of overflowing.
    pub const MAX: Self = Self(253_402_207_200_000_000);

    /// The smallest time that can be written with four year digits.
    const MIN: Self = Self(-62_167_219_200_000_000);

    /// A time from microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the epoch, never negative: the time part of an id.
    pub const fn as_millis(self) -> u64 {
        if self.0 < 0 {
            0
        } else {
            (self.0 / 1000) as u64
        }
    }

    /// This time plus whole seconds, stopping at [`Self::MAX`].
    pub fn plus_seconds(self, seconds: u64) -> Self {
        let micros = i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000);
        Self(self.0.saturating_add(micros)).min(Self::MAX)
    }

    /// This time plus milliseconds, stopping at [`Self::MAX`].
    pub fn plus_millis(self, millis: u64) -> Self {
        let micros = i64::try_from(millis)
            .unwrap_or(i64::MAX)
            .saturating_mul(1000);
        Self(self.0.saturating_add(micros)).min(Self::MAX)
    }

    /// This time minus whole seconds, stopping at the earliest time there is.
    pub fn minus_seconds(self, seconds: u64) -> Self {
        let micros = i64::try_from(seconds)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000);
        Self(self.0.saturating_sub(micros))
    }

    /// This time minus whole milliseconds, stopping at the earliest time there is.
    pub fn minus_millis(self, millis: u64) -> Self {
        let micros = i64::try_from(millis)
            .unwrap_or(i64::MAX)
            .saturating_mul(1000);
        Self(self.0.saturating_sub(micros))
    }

    /// Whole microseconds from `self` until `later`; zero when that is in the past.
    pub fn micros_until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0).max(0) as u64
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Days-to-civil arithmetic on the proleptic Gregorian calendar, with the year starting in March so that the
        // leap day is the last day of it.
        // A time outside of the years 0 to 9999 has no text of this form; the nearest time that has one is written.
        let this = (*self).clamp(Self::MIN, Self::MAX).0;
        let seconds = this.div_euclid(1_000_000);
        let micros = this.rem_euclid(1_000_000);
        let days = seconds.div_euclid(86_400) + 719_468;
        let second_of_day = seconds.rem_euclid(86_400);
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        // By hand, because this is written several times per event and the formatting machinery is slow.
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        put_digits(&mut text[0..4], year);
        put_digits(&mut text[5..7], month);
        put_digits(&mut text[8..10], day);
        put_digits(&mut text[11..13], second_of_day / 3600);
        put_digits(&mut text[14..16], second_of_day / 60 % 60);
        put_digits(&mut text[17..19], second_of_day % 60);
        put_digits(&mut text[20..26], micros);
        f.write_str(str::from_utf8(&text).expect("digits and punctuation are ASCII"))
    }
}

/// The decimal digits of a number that is not negative, right-aligned over zeros.
fn put_digits(place: &mut [u8], mut number: i64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The text is not an RFC 3339 time.
#[derive(Debug, thiserror::Error)]
#[error("not an RFC 3339 time: {0}")]
pub struct TimestampError(String);

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| TimestampError(text.to_owned()))?;
        Ok(Self(parsed.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_six_digits_and_reads_them_back() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_791_860_655_865_222, "2026-10-13T03:04:15.865222Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            let time = Timestamp::from_micros(micros);
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse::<Timestamp>().unwrap(), time);
        }
    }

    #[test]
    fn agrees_with_an_independent_calendar_over_four_centuries() {
        for day in 0..146_097_i64 {
            let micros = (day - 20_000) * 86_400_000_000 + 123_456;
            let expected: jiff::Timestamp =
                Timestamp::from_micros(micros).to_string().parse().unwrap();
            assert_eq!(expected.as_microsecond(), micros);
        }
    }

    #[test]
    fn adding_never_overflows() {
        assert_eq!(
            Timestamp::from_micros(5).plus_seconds(u64::MAX),
            Timestamp::MAX
        );
        for (micros, text) in [
            (i64::MAX, "9999-12-30T22:00:00.000000Z"),
            (i64::MIN, "0000-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
        }
    }
}
