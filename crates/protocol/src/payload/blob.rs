//! The text form of a frame: standard base64, padded, canonical, so that a frame has exactly one blob. All conversions
//! between blobs and frames are here.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{CodecError, Kind, decode};

/// Padding is required and the bits beyond the last byte must be zero.
const STRICT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(false),
);

const NOT_BASE64: CodecError = CodecError::InvalidFraming("the blob is not strict standard base64");

/// Blobs up to this many characters are decoded on the stack: most payloads of real runs are that small, and every
/// inbound one is decoded once only to be checked.
const STACK_CHARACTERS_MAX: usize = 2048;

/// Enough characters to hold the frame prefix and the longest union index, in whole base64 groups.
const HEAD_CHARACTERS: usize = 28;

pub(crate) fn to_text(bytes: &[u8]) -> String {
    STRICT.encode(bytes)
}

pub(super) fn to_frame(blob: &str) -> Result<Vec<u8>, CodecError> {
    STRICT.decode(blob).map_err(|_| NOT_BASE64)
}

/// Checks that `blob` is strict base64 of one legal frame, without building its value.
///
/// # Errors
/// [`CodecError::InvalidFraming`], [`CodecError::TooDeep`] and [`CodecError::UnsupportedSchema`].
pub fn validate_blob(blob: &str) -> Result<Kind, CodecError> {
    if blob.len() > STACK_CHARACTERS_MAX {
        return decode::validate(&to_frame(blob)?);
    }
    let mut buffer = [0; STACK_CHARACTERS_MAX / 4 * 3];
    let length = STRICT
        .decode_slice(blob, &mut buffer)
        .map_err(|_| NOT_BASE64)?;
    decode::validate(&buffer[..length])
}

/// The case of a blob that was validated before. `None` means the stored text was damaged.
pub(super) fn peek_kind(blob: &str) -> Option<Kind> {
    let head = blob
        .as_bytes()
        .get(..HEAD_CHARACTERS)
        .unwrap_or(blob.as_bytes());
    let mut buffer = [0; HEAD_CHARACTERS / 4 * 3];
    let length = STRICT.decode_slice(head, &mut buffer).ok()?;
    decode::peek_kind(&buffer[..length]).ok()
}
