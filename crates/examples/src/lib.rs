//! Example workflows, one file each. For `longhaul-sdk`, read them in this order: `hello`, `order`, `local`, `approval`, `gpu`,
//! `schedule`. For `longhaul-conductor-sdk`: [`conductor`].
//!
//! Every module of the first list has a function `worker`, which registers its workflows and activities with a worker, and a function
//! `run_example`, which starts a workflow and prints its result. `cargo run -p longhaul-examples --example hello` runs one example
//! against a server on this machine; `longhaul demo` runs all of them.

#![warn(missing_docs)]

/// Prints a line, as `println!` does, but ignores errors: `longhaul demo` runs the examples and a server in one process, and the
/// server must continue when standard output is closed.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ignored = writeln!(std::io::stdout(), $($text)*);
    }};
}

pub mod approval;
pub mod conductor;
pub mod gpu;
pub mod hello;
pub mod local;
pub mod order;
pub mod schedule;

use longhaul_sdk::Client;

/// The result of an example.
pub type ExampleResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Connects to the server at `LONGHAUL_URL`, or to the one on this machine if the variable is not set.
///
/// # Errors
/// If the server cannot be reached or uses another version of the protocol.
pub async fn connect() -> Result<Client, longhaul_sdk::client::Error> {
    let url = std::env::var("LONGHAUL_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    Client::connect(&url).await
}

/// Returns a unique workflow id.
pub fn unique(name: &str) -> String {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!("{name}-{:x}", nanoseconds)
}
