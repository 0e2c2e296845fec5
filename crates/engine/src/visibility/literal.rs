//! The values of the words in a query: unquoted literals, and the names of statuses.

use crate::run::state::Status;

/// The type of a literal. Quoted text is always text.
pub(super) enum Literal {
    Text,
    Integer(i64),
    Decimal(f64),
    Flag(bool),
}

impl Literal {
    /// Returns the type of an unquoted word, or `None` if such a word must be quoted.
    pub(super) fn of_word(text: &str) -> Option<Self> {
        let is_bare = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte));
        if !is_bare {
            return None;
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let literal = if text.eq_ignore_ascii_case("true") {
            Self::Flag(true)
        } else if text.eq_ignore_ascii_case("false") {
            Self::Flag(false)
        } else if is_number(digits) {
            // An integer beyond 64 bits is still a number, for fields that accept any.
            match text.parse() {
                Ok(integer) => Self::Integer(integer),
                Err(_) => Self::Decimal(text.parse().ok()?),
            }
        } else if digits
            .split_once('.')
            .is_some_and(|(whole, part)| is_number(whole) && is_number(part))
        {
            Self::Decimal(text.parse().ok()?)
        } else {
            Self::Text
        };
        Some(literal)
    }
}

/// The order does not matter.
pub(super) const ALL_STATUSES: [Status; 7] = [
    Status::Pending,
    Status::Running,
    Status::Waiting,
    Status::Completed,
    Status::Failed,
    Status::Cancelled,
    Status::Terminated,
];

/// Returns the statuses of a word. `running`, `completed` and `failed` are buckets; the other words are statuses.
pub(super) fn statuses(word: &str) -> Option<&'static [Status]> {
    Some(match word {
        "running" => &[Status::Pending, Status::Running, Status::Waiting],
        "completed" => &[Status::Completed],
        "failed" => &[Status::Failed, Status::Cancelled, Status::Terminated],
        "cancelled" => &[Status::Cancelled],
        "terminated" => &[Status::Terminated],
        "pending" => &[Status::Pending],
        "waiting" => &[Status::Waiting],
        _ => return None,
    })
}
