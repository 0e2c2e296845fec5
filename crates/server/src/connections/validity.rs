//! Until when a certificate is valid. This is the only part of a certificate that rustls does not show.

use std::time::{Duration, SystemTime};

/// The tags of the encoding (DER) on the way to the date.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns when a certificate in DER expires. Returns `None` if it is not encoded as expected.
pub(super) fn expires_at(certificate: &[u8]) -> Option<SystemTime> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (fields, _) = expect(SEQUENCE, certificate)?;
    // The version is optional. Serial number, algorithm and issuer come before the dates.
    let mut rest = expect(VERSION, fields).map_or(fields, |(_, rest)| rest);
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (dates, _) = expect(SEQUENCE, rest)?;
    let (_, _, rest) = element(dates)?;
    let (tag, date, _) = element(rest)?;
    let seconds = seconds(tag, date)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Returns the tag and the content of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    // A length above 127 is the number of bytes that it takes, and these bytes.
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Returns the content of the first element and what follows it, if the element has this tag.
fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// Returns the seconds since 1970 of a date such as `260131235959Z` or `20260131235959Z`. A date before 1970 is 0.
fn seconds(tag: u8, date: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(date).ok()?.strip_suffix('Z')?;
    let digits_of_year = match tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let (year, rest) = text.split_at_checked(digits_of_year)?;
    let year: i64 = year.parse().ok()?;
    // Two digits are a year from 1950 to 2049.
    let year = match tag {
        UTC_TIME if year < 50 => 2000 + year,
        UTC_TIME => 1900 + year,
        _ => year,
    };
    if rest.len() != 10 {
        return None;
    }
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let of_day = part(4)? * 3600 + part(6)? * 60 + part(8)?;
    if !(1..=12).contains(&month) {
        return None;
    }
    Some(u64::try_from(days(year, month, day) * 86_400 + of_day).unwrap_or(0))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that a leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The months from March on have 31, 30, 31, 30, 31 days, and again.
    let before_month = (153 * month + 2) / 5;
    // 719468 days are between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + before_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_of_both_forms_are_read() {
        for (tag, date, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "260131235959Z", Some(1_769_903_999)),
            (UTC_TIME, "240229000000Z", Some(1_709_164_800)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "20001301000000Z", None),
            (UTC_TIME, "2601312359Z", None),
            (UTC_TIME, "260131235959", None),
            (UTC_TIME, "", None),
            (SEQUENCE, "260131235959Z", None),
        ] {
            assert_eq!(seconds(tag, date.as_bytes()), expected, "{date}");
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_found() {
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, expected) in [
            (2021, 1_609_459_200),
            (2049, 2_493_072_000),
            (2051, 2_556_144_000),
        ] {
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let certificate = params.self_signed(&key).unwrap();
            let der = certificate.der();
            assert_eq!(expires_at(der), Some(after(expected)), "{year}");
            // No part of it makes the reader fail.
            for end in 0..der.len() {
                assert_eq!(expires_at(&der[..end]), None, "{end}");
            }
        }
        assert_eq!(expires_at(&[0xff; 64]), None);
    }
}
