//! Percent-encoded paths and queries. They contain names that users choose, so everything is encoded.

use std::fmt::Write as _;

use crate::TransportError;

/// Returns the path of the prefix, such as `/api`, and the encoded segments.
///
/// # Errors
/// [`TransportError::Invalid`] if a segment is empty, `.` or `..`, because it would be another path.
pub fn path(prefix: &str, segments: &[&str]) -> Result<String, TransportError> {
    let mut path = String::from(prefix);
    for segment in segments {
        if matches!(*segment, "" | "." | "..") {
            return Err(TransportError::Invalid(format!(
                "{segment:?} cannot be an id or a name"
            )));
        }
        path.push('/');
        encode(&mut path, segment);
    }
    Ok(path)
}

/// Adds one parameter to a path.
pub fn add_query(path: &mut String, name: &str, value: &str) {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(name);
    path.push('=');
    encode(path, value);
}

fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_unusual_is_encoded() {
        let mut path = path("/api", &["workflows", "a/b ?#%é", "runs"]).unwrap();
        add_query(&mut path, "query", "A = 'x' AND B");
        add_query(&mut path, "page_size", "7");
        assert_eq!(
            path,
            "/api/workflows/a%2Fb%20%3F%23%25%C3%A9/runs?query=A%20%3D%20%27x%27%20AND%20B&page_size=7"
        );
    }

    #[test]
    fn segments_that_mean_another_path_are_refused() {
        for segment in ["", ".", ".."] {
            assert!(
                path("/api", &["workflows", segment]).is_err(),
                "{segment:?}"
            );
        }
        assert_eq!(
            path("/api", &["workflows", "..."]).unwrap(),
            "/api/workflows/..."
        );
    }
}
