//! Connections: who gets one, and for how long. A client that sends half a request, sends it byte by byte, sends nothing or
//! does not read its answer loses its connection; a request that waits for its answer, such as a long poll, never does.
//!
//! `accept` takes connections and bounds their number, `watch` knows what each of them is doing and since when, `stream` and
//! `body` tell it. There is no timer per connection: a sweep compares all of them with the clock a few times a second.

use std::time::Duration;

mod accept;
mod body;
mod stream;
mod watch;

pub use accept::serve;
pub(crate) use body::HalfSent;

/// How long a connection may take over what, and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connection, or from the first byte of a later request, to the end of its headers.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body, and a second more for every [`BYTES_PER_SECOND_MIN`] received.
    pub body_timeout: Duration,
    /// Between the end of an answer and the next request.
    pub idle_timeout: Duration,
    /// How long an answer may wait for its reader, and a second more for every [`BYTES_PER_SECOND_MIN`] read.
    pub write_timeout: Duration,
    /// Connections at a time. Above it the one that has been idle longest makes room; if all are busy, a new one is answered
    /// 503 and closed.
    pub connections_max: usize,
    /// How long requests in flight may take to end after the signal to stop. Polls are answered at once; the rest takes a
    /// commit.
    pub stop_timeout: Duration,
}

/// The slowest client that is served for as long as it takes: 64 KiB a second, half a megabit. The largest body then has four
/// minutes, and bytes that trickle gain no time.
pub const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Headers are one packet. The rest is for lossy networks.
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            // More than the 90 seconds after which common clients close an idle connection themselves, so that they do not
            // send a request into one that is being closed.
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
            // Below the usual limit of 1024 descriptors of a process.
            connections_max: 800,
            stop_timeout: Duration::from_secs(10),
        }
    }
}
