//! The named segments of a request's path, percent-decoded once.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

/// The named segments. A path with a segment that is not UTF-8 after decoding matches no route.
#[derive(Clone)]
pub(crate) struct Path {
    segments: Vec<(String, String)>,
}

impl Path {
    /// Reads the segments that the router matched. Returns `None` if one cannot be decoded.
    pub(crate) async fn of(parts: &mut Parts) -> Option<Self> {
        let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
        Some(Self {
            segments: params
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        })
    }

    /// A path without names.
    pub(crate) fn nameless() -> Self {
        Self {
            segments: Vec::new(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.segments
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}
