//! What a definition needs from outside the engine: its scripts, which are kept away from the server's process, and its HTTP calls.
//!
//! [`Scripts`] evaluates the JavaScript and the jq programs of a definition, and compares values with its schemas. All of them are text
//! from a user, so this happens in a child process with bounds on time, memory, stack and sizes, and the parent can kill that process.
//!
//! * `script/` is the parent's side: the limits, the queue, the threads that own the child processes, and the frames between the two.
//! * `child/` is the other side: the sandbox, the script engine, and the conversion of results.
//! * `http/` makes the calls of HTTP tasks ([`HttpCalls`]). It may refuse addresses that are not public.
//! * `hook.rs` makes a process the child before its `main` begins.

mod child;
mod evaluate;
mod hook;
mod http;
mod script;

pub use http::{
    ANSWER_BYTES_MAX, Addresses, HTTP_TASK, HttpCalls, Resolve, SystemResolver, is_public,
};
pub use script::{Failure, Limit, Limits, Scripts};
