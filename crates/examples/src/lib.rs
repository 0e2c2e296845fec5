//! Example workflows for `longhaul-sdk`, one file each, in the order to read them.
//!
//! Every module has a `worker` function that adds its workflows and activities to a worker, and a `show` function that starts one
//! and prints what happens. `cargo run -p longhaul-examples --example hello` runs one against a server on this machine;
//! `longhaul demo` runs all of them.

#![warn(missing_docs)]

/// Prints a line, as `println!` does. `longhaul demo` runs the examples beside a server, which must go on when nobody reads.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _unread = writeln!(std::io::stdout(), $($words)*);
    }};
}

pub mod approval;
pub mod gpu;
pub mod hello;
pub mod local;
pub mod order;
pub mod schedule;

use longhaul_sdk::{Client, Worker};

/// What an example returns.
pub type Shown = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Connects to the server that `LONGHAUL_URL` names, else to the one on this machine.
///
/// # Errors
/// Nobody answers there.
pub async fn connect() -> Result<Client, longhaul_sdk::client::Error> {
    let url = std::env::var("LONGHAUL_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    Client::connect(&url).await
}

/// Runs a worker beside an example, and ends it with the example.
///
/// # Errors
/// As the worker or the example fail.
pub async fn beside(worker: Worker, example: impl Future<Output = Shown>) -> Shown {
    let handle = worker.handle();
    let working = worker.run();
    tokio::pin!(working);
    tokio::select! {
        ended = &mut working => { ended?; }
        shown = example => {
            shown?;
            handle.shut_down();
            working.await?;
        }
    }
    Ok(())
}

/// An id that nobody has used.
pub fn unique(name: &str) -> String {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!("{name}-{:x}", nanoseconds)
}
