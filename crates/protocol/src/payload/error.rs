//! The errors of payloads. Each error names one machine-readable reason. The text of a refusal is
//! `<reason>: <explanation>`, so that tools can match the prefix.

use thiserror::Error;

use super::DEPTH_MAX;

/// Why a payload was refused, on the way in or on the way out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The codec tag is missing, is not text, or names something other than `avro`.
    #[error("the payload codec must be the string \"avro\"")]
    UnsupportedCodec,
    /// The object or value at a payload position is not an envelope.
    #[error("{0}")]
    InvalidEnvelope(&'static str),
    /// The blob is not strict base64 of exactly one frame.
    #[error("{0}")]
    InvalidFraming(&'static str),
    /// The frame is well marked but was written with a schema this server does not know.
    #[error("the frame carries schema fingerprint {0:016x}, only e2a33dff55802237 is known")]
    UnsupportedSchema(u64),
    /// More than [`DEPTH_MAX`] containers are nested.
    #[error("containers are nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// A plain JSON integer lies outside the range of i64.
    #[error("integers must fit 64 signed bits; send a larger number as a string")]
    IntegerOverflow,
    /// A number is NaN or infinite, or a JSON number is too large for a double.
    #[error("numbers must be finite")]
    NonFiniteFloat,
    /// A plain JSON string has half of a surrogate pair, which UTF-8 cannot hold.
    #[error("a string holds an unpaired surrogate escape")]
    UnpairedSurrogate,
    /// The text is not JSON at all. Never seen for values that came out of a parsed request body.
    #[error("malformed JSON at byte {0}")]
    MalformedJson(usize),
    /// The payload is kept in external storage, which this server does not have.
    #[error("this server has no external payload storage; send the payload inline")]
    ExternalUnsupported,
}

impl CodecError {
    /// The stable machine reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnsupportedCodec => "unsupported_payload_codec",
            Self::InvalidEnvelope(_) => "invalid_payload_envelope",
            Self::InvalidFraming(_) | Self::TooDeep => "invalid_payload_framing",
            Self::UnsupportedSchema(_) => "unsupported_payload_schema",
            Self::IntegerOverflow => "integer_overflow",
            Self::NonFiniteFloat => "non_finite_float",
            Self::UnpairedSurrogate => "unsupported_value_type",
            Self::MalformedJson(_) => "malformed_json",
            Self::ExternalUnsupported => "external_payload_unsupported",
        }
    }

    /// The whole refusal text: reason, colon, explanation.
    #[must_use]
    pub fn refusal(&self) -> String {
        format!("{}: {self}", self.reason())
    }
}
