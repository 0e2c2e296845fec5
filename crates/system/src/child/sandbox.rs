//! What a script process may do besides computing: nothing. The script engine offers no input or output; these are the walls behind it.

use std::io;

use nix::sys::resource::{Resource, setrlimit};

use crate::script::Limits;

/// Standard input, output and errors.
const DESCRIPTORS: i32 = 3;

/// The name that lists of processes show, as long as the kernel takes.
#[cfg(target_os = "linux")]
const NAME: &std::ffi::CStr = c"longhaul-script";

/// Address space beside the engine's memory: requests and answers, which exist a few times, and what an allocator reserves without using it.
#[cfg(target_os = "linux")]
const ADDRESS_ROOM: u64 = 512 << 20;

/// Puts the bounds of the kernel on this process. They are wider than those of the script engine, which gives better reasons. Returns the
/// meter of the memory of this process.
pub(super) fn enter(limits: &Limits) -> io::Result<Meter> {
    close_inherited();
    let meter = Meter::open()?;
    #[cfg(target_os = "linux")]
    {
        nix::sys::prctl::set_no_new_privs()?;
        // The kernel would show the name of the link that the process was started by.
        nix::sys::prctl::set_name(NAME)?;
        let sizes = (limits.input_bytes as u64 + limits.result_bytes as u64).saturating_mul(8);
        let space = meter
            .read("VmSize:")?
            .saturating_add(limits.memory_bytes.saturating_mul(2))
            .saturating_add(limits.stack_bytes as u64)
            .saturating_add(sizes)
            .saturating_add(ADDRESS_ROOM);
        setrlimit(Resource::RLIMIT_AS, space, space)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = limits;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    // The three standard streams are open, so nothing more can be opened.
    let descriptors = DESCRIPTORS as u64;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    Ok(meter)
}

/// Closes what the parent did not mean to pass on. Rust marks its own descriptors, but a C library may forget to.
fn close_inherited() {
    let folder = if cfg!(target_os = "linux") {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let open: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|number| *number >= DESCRIPTORS) {
        // The descriptor of the listing is closed already; that one fails.
        let _ = nix::unistd::close(descriptor);
    }
}

/// Measures the memory of this process.
///
/// Linux also counts the largest size in `getrusage`, but a new program begins there with the size of its parent.
#[cfg(target_os = "linux")]
pub(super) struct Meter(std::fs::File);

#[cfg(target_os = "linux")]
impl Meter {
    fn open() -> io::Result<Self> {
        std::fs::File::open("/proc/self/status").map(Self)
    }

    /// Returns the largest amount of memory that the process has used so far, in bytes.
    pub(super) fn peak(&self) -> io::Result<u64> {
        self.read("VmHWM:")
    }

    /// Returns the memory that the process uses now, in bytes.
    pub(super) fn current(&self) -> io::Result<u64> {
        self.read("VmRSS:")
    }

    /// Returns a line of the kernel's report, in bytes.
    fn read(&self, name: &str) -> io::Result<u64> {
        let mut report = [0; 4096];
        let length = std::os::unix::fs::FileExt::read_at(&self.0, &mut report, 0)?;
        String::from_utf8_lossy(&report[..length])
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.trim().strip_suffix("kB"))
            .and_then(|number| number.trim().parse::<u64>().ok())
            .map(|kilobytes| kilobytes << 10)
            .ok_or_else(|| io::Error::other("the size of the process is unknown"))
    }
}

/// Measures the memory of this process.
#[cfg(not(target_os = "linux"))]
pub(super) struct Meter;

#[cfg(not(target_os = "linux"))]
impl Meter {
    fn open() -> io::Result<Self> {
        Ok(Self)
    }

    /// Returns the largest amount of memory that the process has used so far, in bytes.
    pub(super) fn peak(&self) -> io::Result<u64> {
        use nix::sys::resource::{UsageWho, getrusage};
        let amount = getrusage(UsageWho::RUSAGE_SELF)?.max_rss();
        let amount = u64::try_from(amount).unwrap_or_default();
        // macOS counts bytes, others count kilobytes.
        Ok(if cfg!(target_os = "macos") {
            amount
        } else {
            amount << 10
        })
    }

    /// Returns the memory that the process uses now, in bytes. The system has no call for it, so this is the largest amount so far.
    pub(super) fn current(&self) -> io::Result<u64> {
        self.peak()
    }
}
