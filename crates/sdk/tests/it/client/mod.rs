//! Tests of the client.

mod http;
mod lost_answers;
mod messages;
mod reads;
mod results;
#[cfg(feature = "schedules")]
mod schedules;
mod start;
