//! Tokens of history pages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use longhaul_protocol::Reason;
use longhaul_protocol::sequence::HistorySeq;

use crate::gate::Refusal;

/// Returns the token of the page after `sequence`: base64 of the decimal. Both SDKs contain `MA==`, the first page, as a constant.
pub(crate) fn page_token(sequence: HistorySeq) -> String {
    STANDARD.encode(sequence.to_string())
}

/// Returns the sequence that a token encodes.
pub(crate) fn parse_page_token(token: &str) -> Result<HistorySeq, Refusal> {
    let decoded = STANDARD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let sequence = decoded.and_then(|text| text.parse().ok());
    sequence.map(HistorySeq::new).ok_or_else(|| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            Reason::InvalidPageToken,
            "The page token is not one that this server gave.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_base64_of_the_decimal_sequence() {
        assert_eq!(page_token(HistorySeq::ZERO), "MA==");
        assert_eq!(parse_page_token("MA==").ok(), Some(HistorySeq::ZERO));
        assert_eq!(
            parse_page_token(&page_token(HistorySeq::new(500))).ok(),
            Some(HistorySeq::new(500))
        );
        assert_eq!(
            parse_page_token("nonsense!")
                .err()
                .map(|refusal| refusal.reason),
            Some(Reason::InvalidPageToken)
        );
    }
}
