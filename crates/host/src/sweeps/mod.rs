//! Background loops, a file each: changes over time of runs, sessions and workers, the outbox, the audit, and clocks. All have one shape,
//! [`Sweep`]: a pass that does all present work, then a wait. A sweep keeps nothing that the store does not have, so one that
//! panics is restarted.

pub(crate) mod alarms;
pub(crate) mod audit;
pub(crate) mod clocks;
pub(crate) mod keep_running;
pub(crate) mod outbox;
pub(crate) mod removals;
pub(crate) mod sessions;
pub(crate) mod system_tasks;
pub(crate) mod windows;
pub(crate) mod workers;

use std::time::Duration;

use longhaul_store::Quiet;

use crate::Host;
use crate::error::Result;

/// The pause after a failed pass, to spare the store.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Failed passes. Several sweeps try again every second while the store is away.
static FAILED: Quiet = Quiet::new();

/// One background loop.
pub(crate) trait Sweep: Default + Send + Sync + 'static {
    /// The name in logs.
    const NAME: &'static str;

    /// Whether a host is busy while this sweep works. A test that skips time waits for these.
    const KEEPS_HOST_BUSY: bool;

    /// Does all present work.
    fn pass(&mut self, host: &Host) -> impl Future<Output = Result<()>> + Send;

    /// Waits until there may be work again.
    fn wait(&self, host: &Host) -> impl Future<Output = ()> + Send;
}

impl Host {
    /// Starts every sweep.
    pub(crate) fn start_sweeps(&self) {
        self.start_sweep::<alarms::Alarms>();
        self.start_sweep::<outbox::Deliveries>();
        self.start_sweep::<audit::Audit>();
        self.start_sweep::<sessions::SessionSweep>();
        self.start_sweep::<workers::WorkerSweep>();
        self.start_sweep::<windows::Windows>();
        self.start_sweep::<removals::RemovalSweep>();
        if self.inner.store.shared().is_some() {
            self.keep_running("hints", Self::follow_hints);
            self.start_sweep::<crate::cluster::looks::LookSweep>();
            self.start_sweep::<crate::cluster::presence::PresenceSweep>();
            self.start_sweep::<crate::cluster::rates::RateSweep>();
        }
        self.start_sweep::<clocks::ClockSweep>();
        self.start_system_tasks();
    }

    fn start_sweep<S: Sweep>(&self) {
        self.keep_running(S::NAME, run::<S>);
    }
}

/// Runs until the host stops.
async fn run<S: Sweep>(host: Host) {
    let inner = &host.inner;
    let mut sweep = S::default();
    loop {
        if inner.stopping.is_cancelled() {
            return;
        }
        if let Err(error) = sweep.pass(&host).await {
            if let Some(unlogged) = FAILED.occurred() {
                tracing::warn!(sweep = S::NAME, %error, unlogged, "sweep failed; retrying shortly");
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => continue,
                () = inner.stopping.cancelled() => return,
            }
        }
        let wait = async {
            tokio::select! {
                () = sweep.wait(&host) => Some(()),
                () = inner.stopping.cancelled() => None,
            }
        };
        let more = if S::KEEPS_HOST_BUSY {
            inner.wakes.idle.during(wait).await
        } else {
            wait.await
        };
        if more.is_none() {
            return;
        }
    }
}
