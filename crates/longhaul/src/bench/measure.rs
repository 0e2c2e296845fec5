//! Numbers: percentiles, processor time and resident memory of this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// Returns a number that this process has not used before.
pub(super) fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A distribution of times, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) samples: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Spread {
    pub(super) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |part: f64| percentile(&samples, part).as_secs_f64() * 1e3;
        Self {
            samples: samples.len(),
            p50_ms: at(0.50),
            p99_ms: at(0.99),
        }
    }
}

/// Returns the nearest rank, or zero if there are no samples.
fn percentile(sorted: &[Duration], part: f64) -> Duration {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

/// Returns the median.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Returns the quotient, or `None` if the divisor is zero.
pub(super) fn ratio(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| value / of)
}

/// Processor time of all threads of this process. It does not include waiting for the disk or the time of other processes, so it
/// shows a growing cost that the noise of wall time would hide.
pub(super) struct ProcessorTime(HashMap<String, u64>);

impl ProcessorTime {
    /// Returns `None` if the kernel does not report it.
    pub(super) fn now() -> Option<Self> {
        let threads = std::fs::read_dir("/proc/self/task").ok()?;
        let mut times = HashMap::new();
        for thread in threads.flatten() {
            // A thread may end between the listing and the read.
            let Ok(line) = std::fs::read_to_string(thread.path().join("schedstat")) else {
                continue;
            };
            let nanoseconds = line.split_whitespace().next()?.parse().ok()?;
            times.insert(
                thread.file_name().to_string_lossy().into_owned(),
                nanoseconds,
            );
        }
        Some(Self(times))
    }

    /// Returns the time used since then.
    pub(super) fn elapsed(earlier: Option<&Self>) -> Option<Duration> {
        let (earlier, now) = (earlier?, Self::now()?);
        let used = now
            .0
            .iter()
            .map(|(thread, time)| time.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0)));
        Some(Duration::from_nanos(used.sum()))
    }
}

/// Clock ticks per second in `/proc/stat`. Linux reports 100 to user space, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the processor seconds that the whole machine has used, including time that the hypervisor gave to others. Compared
/// with the time of this process it shows how much of the machine a measurement had.
pub(super) fn machine_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    // user nice system idle iowait irq softirq steal
    let ticks: Vec<f64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((ticks.iter().take(8).sum::<f64>() - idle) / TICKS_PER_SECOND)
}

/// Resident memory of this process in bytes: all of it, and the part that is not backed by files.
pub(super) fn resident_bytes() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some((bytes_in(&status, "VmRSS:")?, bytes_in(&status, "RssAnon:")?))
}

/// Resident memory of another process in bytes.
pub(super) fn resident_bytes_of(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    bytes_in(&status, "VmRSS:")
}

fn bytes_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Processor seconds that another process has used.
pub(super) fn processor_seconds_of(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain spaces. User and system time are the 14th and the 15th field of the line.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let samples: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&samples, 0.50), Duration::from_millis(50));
        assert_eq!(percentile(&samples, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&samples[..1], 0.99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let earlier = ProcessorTime::now();
        let (all, anonymous) = resident_bytes().unwrap();
        assert!(all >= anonymous && anonymous > 0);
        assert!(ProcessorTime::elapsed(earlier.as_ref()).is_some());
        let own = std::process::id();
        assert!(resident_bytes_of(own).is_some_and(|bytes| bytes > 0));
        assert!(processor_seconds_of(own).is_some());
        assert!(machine_seconds().is_some_and(|seconds| seconds > 0.0));
    }
}
