//! What a server does because others use its store too. Hints of other servers drop old copies and wake waiters; below them is a net
//! of looks, so that a lost hint costs time and nothing else. Nothing here decides about a run.
//!
//! `hints` applies what other servers announce, `looks` searches the store for all waiting polls and watched runs at once, and
//! `lease_checks` for the task of a poll that was repeated. `presence` publishes what this server alone knows and reads that of the
//! others, `questions` passes questions between servers, `rates` shares out limited rates, and `turns` the jobs that one server does for
//! all.

pub(crate) mod hints;
pub(crate) mod lease_checks;
pub(crate) mod looks;
pub(crate) mod presence;
pub(crate) mod questions;
pub(crate) mod rates;
pub(crate) mod turns;
