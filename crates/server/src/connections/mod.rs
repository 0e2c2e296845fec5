//! Connections: how many there are, and how long each may take. A client that sends half a request, sends it byte by byte, sends
//! nothing or does not read the response loses its connection. A request that waits for its response, such as a long poll, does not.
//!
//! `accept` accepts connections and bounds their number, and `answer` serves one, with the certificate of `tls` if there is one.
//! `watched` records what each of them is doing and since when; `stream` and `body` report to it. `exchange` does the same for the
//! requests of an HTTP/2 connection. `watch` has all connections. There is no timer per connection: a sweep compares all of them with the clock a few times a second.

use std::time::Duration;

mod accept;
mod answer;
mod body;
mod exchange;
mod stream;
mod tls;
mod validity;
mod watch;
mod watched;

pub use accept::{serve, serve_tls};
pub(crate) use body::HalfSent;
pub use tls::{Tls, TlsError};

/// Limits on the number of connections and on the time that each phase may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connection, or from the first byte of a later request, to the end of its headers. A TLS handshake is part of it.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body, and a second more for every [`BYTES_PER_SECOND_MIN`] received.
    pub body_timeout: Duration,
    /// From the end of a response to the next request.
    pub idle_timeout: Duration,
    /// How long a response may wait for its reader, and a second more for every [`BYTES_PER_SECOND_MIN`] read.
    pub write_timeout: Duration,
    /// Most connections at a time. Above it the connection that has been idle longest is closed; if all are busy, a new one gets a
    /// 503 and is closed.
    pub connections_max: usize,
    /// How long requests in flight may take after the signal to stop. Polls end at once; other requests take one commit.
    pub stop_timeout: Duration,
}

/// The slowest transfer that may take as long as it needs: 64 KiB a second, half a megabit. The largest body then has four minutes.
/// A client that sends single bytes gains no time.
pub const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Headers are one packet. The rest of the time is for lossy networks.
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            // Common clients close an idle connection after 90 seconds. The server waits longer, so that no client sends a request
            // on a connection that is being closed.
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
            // Below the usual limit of 1024 descriptors of a process.
            connections_max: 800,
            stop_timeout: Duration::from_secs(10),
        }
    }
}
