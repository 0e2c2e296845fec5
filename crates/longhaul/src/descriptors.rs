//! The limit on open files, and how many of them connections may use.

/// Assumed if the system does not report a limit. It is the smallest common one.
const LIMIT_UNKNOWN: u64 = 256;

/// Descriptors that are not connections: the database and its log once per reader, the log, standard streams, the runtime.
const RESERVED: u64 = 64;

/// Each thread of the runtime may have its own connection to the database, with two files.
const RESERVED_PER_THREAD: u64 = 4;

/// The default limit on connections, however many descriptors there are. Each connection costs some kilobytes.
const CONNECTIONS_DEFAULT_MAX: u64 = 10_000;

/// Returns the limit on descriptors (`ulimit -n`), or `None` if it cannot be read.
pub(crate) fn limit() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        soft => soft.parse().ok(),
    }
}

/// Returns the largest number of connections that leaves enough descriptors for the database.
pub(crate) fn connections_max() -> u64 {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    most_beside(limit().unwrap_or(LIMIT_UNKNOWN), threads)
}

/// Returns the default limit on connections.
pub(crate) fn connections_default() -> u64 {
    connections_max().min(CONNECTIONS_DEFAULT_MAX)
}

fn most_beside(limit: u64, threads: u64) -> u64 {
    let reserved = RESERVED + RESERVED_PER_THREAD * threads;
    // With a very low limit, connections get a quarter.
    limit.saturating_sub(reserved).max(limit / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_database() {
        for (limit, threads, most) in [
            (1024, 2, 952),
            (1024, 64, 704),
            (128, 2, 56),
            (64, 8, 16),
            (1, 1, 1),
        ] {
            assert_eq!(most_beside(limit, threads), most, "{limit} {threads}");
        }
    }
}
