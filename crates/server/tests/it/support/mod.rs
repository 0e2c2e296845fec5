//! What the tests of both planes share: a server to call, workers that act on it, assertions, and the published schemas.

mod assert;
pub(crate) mod contract;
mod server;
mod worker;

pub(crate) use assert::{RESUME_FIELDS, base64, blob, envelope, merge, payload_of, texts, types};
pub(crate) use server::{Answer, BEGIN, Call, Server};
pub(crate) use worker::{
    activity_report, complete, decided, every_type, expect_no_task, fail, history, id, leased,
    leased_task, query_report, report, running_activity, signal, staffed, stop, validation_report,
};
