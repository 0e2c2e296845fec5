//! Compressed history pages. A page is compressed only if the worker asks for it, because the published SDKs cannot
//! decompress one. This is independent of HTTP content coding.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use serde::Serialize;
use thiserror::Error;

/// Pages with fewer events are never compressed: they are small, and the worker would have to decompress them.
pub const COMPRESSION_THRESHOLD_EVENTS: usize = 50;

/// The most bytes of a decompressed page. Real pages are smaller; the limit keeps a few kilobytes of hostile text from
/// filling the memory of a worker.
pub const RESTORED_HISTORY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How a history page is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryEncoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1951: raw deflate, no zlib header.
    Deflate,
}

impl HistoryEncoding {
    /// All encodings, preferred ones first.
    pub const PREFERRED: [Self; 2] = [Self::Gzip, Self::Deflate];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The encoding called `name`, without regard to case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::PREFERRED
            .into_iter()
            .find(|encoding| encoding.name().eq_ignore_ascii_case(name))
    }

    /// Returns the preferred encoding that an `accept_history_encoding` list names, if any.
    fn accepted(accept: &str) -> Option<Self> {
        let named: Vec<Self> = accept
            .split(',')
            .filter_map(|name| Self::from_name(name.trim()))
            .collect();
        Self::PREFERRED
            .into_iter()
            .find(|encoding| named.contains(encoding))
    }
}

/// Compresses the JSON array of a history page if the worker asked for it and the page is long enough. The reply then
/// contains `history_events: []`, this text and the name of the encoding. `None` means that the page is sent as it is.
#[must_use]
pub fn compress_history(
    json_array: &[u8],
    accept: Option<&str>,
    event_count: usize,
) -> Option<(HistoryEncoding, String)> {
    if event_count < COMPRESSION_THRESHOLD_EVENTS {
        return None;
    }
    let encoding = HistoryEncoding::accepted(accept?)?;
    // The worker is waiting for the page: the fast level gives most of the saving for a fraction of the time.
    let level = Compression::fast();
    let room = Vec::with_capacity(json_array.len() / 4);
    let compressed = match encoding {
        HistoryEncoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(room, level);
            encoder
                .write_all(json_array)
                .and_then(|()| encoder.finish())
        }
        HistoryEncoding::Deflate => {
            let mut encoder = flate2::write::DeflateEncoder::new(room, level);
            encoder
                .write_all(json_array)
                .and_then(|()| encoder.finish())
        }
    };
    // Writing to memory does not fail. If it did, the plain page is still a correct reply.
    compressed
        .ok()
        .map(|bytes| (encoding, STANDARD.encode(bytes)))
}

/// Why a compressed history page could not be restored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// The page names an encoding this side does not know.
    #[error("unknown history encoding {0:?}")]
    UnknownEncoding(String),
    /// The text is not base64.
    #[error("the compressed history is not base64")]
    NotBase64,
    /// The bytes do not decompress.
    #[error("the compressed history is damaged")]
    Damaged,
    /// The decompressed page is larger than [`RESTORED_HISTORY_BYTES_MAX`].
    #[error("the decompressed history is larger than {RESTORED_HISTORY_BYTES_MAX} bytes")]
    TooLarge,
}

/// Restores the JSON array of a compressed history page.
///
/// # Errors
/// See [`RestoreError`].
pub fn restore_history(encoding: &str, compressed: &str) -> Result<Vec<u8>, RestoreError> {
    restore_bounded(encoding, compressed, RESTORED_HISTORY_BYTES_MAX)
}

fn restore_bounded(encoding: &str, compressed: &str, max: u64) -> Result<Vec<u8>, RestoreError> {
    let known = HistoryEncoding::from_name(encoding)
        .ok_or_else(|| RestoreError::UnknownEncoding(encoding.chars().take(64).collect()))?;
    let bytes = STANDARD
        .decode(compressed)
        .map_err(|_| RestoreError::NotBase64)?;
    let mut json = Vec::new();
    // One byte beyond the limit is enough to know that it was passed.
    let read = match known {
        HistoryEncoding::Gzip => flate2::read::GzDecoder::new(&bytes[..])
            .take(max + 1)
            .read_to_end(&mut json),
        HistoryEncoding::Deflate => flate2::read::DeflateDecoder::new(&bytes[..])
            .take(max + 1)
            .read_to_end(&mut json),
    };
    match read {
        Err(_) => Err(RestoreError::Damaged),
        Ok(length) if length as u64 > max => Err(RestoreError::TooLarge),
        Ok(_) => Ok(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        serde_json::to_vec(&vec![
            serde_json::json!({"event_type": "TimerFired", "id": "é"});
            60
        ])
        .unwrap()
    }

    #[test]
    fn a_page_comes_back_as_it_was() {
        for (accept, expected) in [
            ("gzip", HistoryEncoding::Gzip),
            ("deflate", HistoryEncoding::Deflate),
            ("deflate, gzip", HistoryEncoding::Gzip),
            ("br,  DEFLATE", HistoryEncoding::Deflate),
        ] {
            let (encoding, text) = compress_history(&page(), Some(accept), 60).unwrap();
            assert_eq!(encoding, expected, "{accept}");
            assert!(text.len() < page().len() / 4);
            assert_eq!(restore_history(encoding.name(), &text).unwrap(), page());
        }
    }

    #[test]
    fn deflate_has_no_zlib_header() {
        let (_, text) = compress_history(&page(), Some("deflate"), 60).unwrap();
        let mut json = Vec::new();
        let bytes = STANDARD.decode(&text).unwrap();
        assert!(
            flate2::read::ZlibDecoder::new(&bytes[..])
                .read_to_end(&mut json)
                .is_err()
        );
    }

    #[test]
    fn pages_are_plain_unless_asked_for_and_long_enough() {
        for accept in [None, Some(""), Some("br"), Some("identity")] {
            assert_eq!(compress_history(&page(), accept, 60), None);
        }
        assert_eq!(
            compress_history(&page(), Some("gzip"), COMPRESSION_THRESHOLD_EVENTS - 1),
            None
        );
        assert!(compress_history(&page(), Some("gzip"), COMPRESSION_THRESHOLD_EVENTS).is_some());
    }

    #[test]
    fn damaged_pages_are_refused() {
        let (_, text) = compress_history(&page(), Some("gzip"), 60).unwrap();
        let unknown = restore_history("br", &text);
        assert_eq!(unknown, Err(RestoreError::UnknownEncoding("br".to_owned())));
        assert_eq!(restore_history("gzip", "%%%"), Err(RestoreError::NotBase64));
        assert_eq!(
            restore_history("gzip", &text[..text.len() / 8 * 4]),
            Err(RestoreError::Damaged)
        );
        assert_eq!(restore_history("gzip", ""), Err(RestoreError::Damaged));
        assert_eq!(
            restore_history("deflate", &text),
            Err(RestoreError::Damaged)
        );
    }

    #[test]
    fn a_small_text_cannot_unpack_without_bound() {
        let (_, text) = compress_history(&vec![b' '; 100_000], Some("gzip"), 60).unwrap();
        assert!(text.len() < 1000);
        assert_eq!(
            restore_bounded("gzip", &text, 99_999),
            Err(RestoreError::TooLarge)
        );
        assert_eq!(
            restore_bounded("gzip", &text, 100_000).map(|json| json.len()),
            Ok(100_000)
        );
    }
}
