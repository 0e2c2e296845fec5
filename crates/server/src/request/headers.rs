//! Header values that decide something. What cannot be read counts as what it is, never as absent: a header that is ignored
//! would mean something else than its sender thinks.

use std::borrow::Cow;

use http::HeaderMap;

/// The value of a header as text; None when there is none. Bytes that are no text become a replacement character, and values
/// that differ are joined by commas, as the standard says; neither is a name of anything.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, str>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let mut all = String::from_utf8_lossy(first.as_bytes());
    for other in values.filter(|other| *other != first) {
        let joined = all.to_mut();
        joined.push_str(", ");
        joined.push_str(&String::from_utf8_lossy(other.as_bytes()));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_not_absent() {
        let mut headers = HeaderMap::new();
        assert_eq!(text(&headers, "x-namespace"), None);
        headers.append("x-namespace", HeaderValue::from_static("a"));
        headers.append("x-namespace", HeaderValue::from_static("a"));
        assert_eq!(text(&headers, "x-namespace").unwrap(), "a");
        headers.append("x-namespace", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(text(&headers, "x-namespace").unwrap(), "a, \u{fffd}");
    }
}
