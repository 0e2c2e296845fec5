//! The start-up hook that turns a process into a script process.
//!
//! The program starts itself again to get a script process. So `longhaul`, a program that embeds the server, and a test binary all work
//! without a second executable, which Cargo cannot ship for a library. The copy gets [`MARKER`] in its environment, and a function that the
//! loader runs before `main` sees it.
//!
//! The other choice was a function that every `main` calls first. A program that forgets it would run its own `main` a second time, and
//! a test binary has no `main` of its own. The hook works in both, also through several library crates, with thin link-time optimisation and
//! with another memory allocator: `rustc` keeps a function of the loader's list whenever the crate is linked. [`is_present`] checks it at run
//! time, so a program without the hook gets an error and never starts a second copy of its `main`.
//!
//! An allocator that finishes its own start-up after this hook works in the mode it has for that time. With the server's allocator an
//! evaluation then takes one and a half to two times the processor time, because freed memory goes back to the kernel.
//!
//! An ordinary start costs one look at the environment.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::child;

/// The variable that makes a process a script process. Its value is not read.
pub(crate) const MARKER: &str = "LONGHAUL_SCRIPT_PROCESS";

/// Whether the hook ran in this process.
static RAN: AtomicBool = AtomicBool::new(false);

/// Returns whether a copy of this program becomes a script process: the same executable ran the hook when it started.
pub(crate) fn is_present() -> bool {
    RAN.load(Ordering::Relaxed)
}

// Code before `main` may use the environment, the standard streams, memory and threads on Linux and macOS. It must not panic, because
// nothing above it could catch that; the script process does its work in a thread.
#[ctor::ctor(unsafe)]
fn become_script_process() {
    RAN.store(true, Ordering::Relaxed);
    if std::env::var_os(MARKER).is_some() {
        // The marker alone decides. If it is set, `main` must not run, whatever happens in the child.
        std::process::exit(child::run());
    }
}
