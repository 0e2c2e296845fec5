//! What a definition needs from outside the engine, kept away from the server's process.
//!
//! [`Scripts`] evaluates the JavaScript and the jq programs of a definition, and compares values with its schemas. All of them are text
//! from a user, so this happens in a child process with bounds on time, memory, stack and sizes, and the parent can kill that process.
//!
//! * `script/` is the parent's side: the limits, the queue, the threads that own the child processes, and the frames between the two.
//! * `child/` is the other side: the sandbox, the script engine, and the conversion of results.
//! * `hook.rs` makes a process the child before its `main` begins.

mod child;
mod evaluate;
mod hook;
mod script;

pub use script::{Failure, Limit, Limits, Scripts};
