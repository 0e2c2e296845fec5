//! Makes the worker id of a worker that has none.

use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The random characters of an id.
const CHARACTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// How many random characters an id has.
const LENGTH: u32 = 4;

/// The number of different suffixes: 36 to the power of 4.
const SUFFIXES: u32 = 36_u32.pow(LENGTH);

/// The distance between the suffixes of two ids of one process. It is large, so that ids that follow each other look different.
const STEP: u32 = 1_039_043;

// Invariant: the step shares no factor with the number of suffixes. A process then uses every suffix before one repeats.
const _: () = assert!(!STEP.is_multiple_of(2) && !STEP.is_multiple_of(3));

/// Makes a worker id of the host name, the process id and four random characters.
///
/// The host name separates machines, the process id separates processes. The characters separate containers that share both, and
/// the workers of one process: their suffixes are different for certain.
pub(super) fn generate() -> String {
    static FIRST: LazyLock<u32> = LazyLock::new(|| rand::random_range(0..SUFFIXES));
    // The number only has to be different in each call, so no ordering is needed.
    static COUNT: AtomicU32 = AtomicU32::new(0);

    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let host = host_name(
        fs::read_to_string("/proc/sys/kernel/hostname").ok(),
        std::env::var("HOSTNAME").ok(),
    );
    format!("{host}-{}-{}", std::process::id(), suffix(*FIRST, count))
}

/// Returns the host name: the one of the kernel, else the one in the environment, else `localhost`.
pub(super) fn host_name(kernel: Option<String>, variable: Option<String>) -> String {
    [kernel, variable]
        .into_iter()
        .flatten()
        .map(|name| name.trim().to_owned())
        // A kernel that was given no name has this one.
        .find(|name| !name.is_empty() && name != "(none)")
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Returns the suffix of the id number `count` (from 0) of a process whose first id has the suffix number `first`.
pub(super) fn suffix(first: u32, count: u32) -> String {
    let number = (u64::from(first) + u64::from(count) * u64::from(STEP)) % u64::from(SUFFIXES);
    (0..LENGTH)
        .map(|place| {
            let digit = number / 36_u64.pow(place) % 36;
            char::from(CHARACTERS[digit as usize])
        })
        .collect()
}
