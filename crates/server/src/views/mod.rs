//! JSON that both planes show. The planes do not import each other; what they share is here.

pub(crate) mod cancellation;
pub(crate) mod capabilities;
pub(crate) mod page_token;
pub(crate) mod query_refusal;
pub(crate) mod worker_session;
