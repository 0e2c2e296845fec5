//! Header values that decide something. A value that cannot be read is never treated as absent, because the request would then mean
//! something its sender did not intend.

use std::borrow::Cow;

use http::HeaderMap;

/// Returns the value of a header as text, or `None` if the header is absent. Bytes that are not text become a replacement character,
/// and different values are joined by commas, as HTTP prescribes; neither matches any known name.
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
    fn an_unreadable_header_is_not_absent() {
        let mut headers = HeaderMap::new();
        assert_eq!(text(&headers, "x-namespace"), None);
        headers.append("x-namespace", HeaderValue::from_static("a"));
        headers.append("x-namespace", HeaderValue::from_static("a"));
        assert_eq!(text(&headers, "x-namespace").unwrap(), "a");
        headers.append("x-namespace", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(text(&headers, "x-namespace").unwrap(), "a, \u{fffd}");
    }
}
