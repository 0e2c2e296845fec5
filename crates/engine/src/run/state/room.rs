//! How many events a run may still write.
//!
//! A history has at most `events_per_run` events. Open things will need some of them: an open timer fires or is cancelled, an
//! accepted update is applied and completed. These events are *promised*. Written and promised events together are *allocated*.
//! Three rules follow:
//! - a request from outside is accepted only while the allocated events stay below the limit, less a reserve for the workflow;
//! - an event that only informs (a heartbeat, the start of an attempt) is left out if it does not fit;
//! - a decision of the workflow fails the run only if it needs more events than are left. Promised events are always written, and a
//!   command that closes the run is always accepted.

use longhaul_protocol::history::{EventPayload, LimitBreach};

use crate::limits::{self, Limits};
use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::run::state::part::{Message, Part};

/// The name of the limit in refusals and failures.
const KIND: &str = "history_event_count";

/// `UpdateAccepted`, `UpdateApplied` and `UpdateCompleted`.
pub(crate) const UPDATE_EVENTS: u64 = 3;

/// `CooperativeCancellationRequested` and `CooperativeCancellationDelivered`.
pub(crate) const CANCELLATION_EVENTS: u64 = 2;

impl Run {
    /// Returns the number of events that are written or promised.
    pub fn events_allocated(&self) -> u64 {
        let undelivered = self
            .core
            .cancellation
            .as_ref()
            .is_some_and(|cancellation| cancellation.delivered.is_none());
        self.core.last_history_sequence.get()
            + u64::from(undelivered)
            + promised(self.parts.values())
    }

    /// Checks whether a request from outside may use that many events.
    pub(crate) fn admit_events(&self, events: u64, limits: &Limits) -> Result<(), LimitBreach> {
        let most = limits.events_for_requests();
        let written = self.core.last_history_sequence.get() + events;
        if at_most(written, self.parts.len()) <= most {
            return Ok(());
        }
        limits::check(KIND, self.events_allocated() + events, most)
    }
}

impl Draft<'_> {
    fn events_allocated(&self) -> u64 {
        self.core.last_history_sequence.get()
            + u64::from(self.has_undelivered_cancellation())
            + promised(self.parts().map(|(_, part)| part))
    }

    /// Checks whether the decision of the workflow fits. A decision without new calls always fits, whatever the size of the
    /// history.
    pub(crate) fn check_events_since(&self, before: &Run) -> Result<(), LimitBreach> {
        let most = self.limits.events_per_run;
        if at_most(self.core.last_history_sequence.get(), self.part_count_max()) <= most {
            return Ok(());
        }
        let allocated = self.events_allocated();
        if allocated <= before.events_allocated() {
            return Ok(());
        }
        limits::check(KIND, allocated, most)
    }

    /// Checks whether the workflow may use that many more events.
    pub(crate) fn check_own_events(&self, events: u64) -> Result<(), LimitBreach> {
        limits::check(
            KIND,
            self.events_allocated() + events,
            self.limits.events_per_run,
        )
    }

    /// Returns whether an event that only informs still fits.
    pub(crate) fn has_room_to_inform(&self) -> bool {
        let most = self.limits.events_for_requests();
        at_most(self.core.last_history_sequence.get(), self.part_count_max()) < most
            || self.events_allocated() < most
    }

    /// Writes an event that only informs, if it fits. Replay does not need it, and the row contains the same facts.
    pub(crate) fn inform(&mut self, payload: EventPayload) {
        if self.has_room_to_inform() {
            self.append(payload);
        }
    }
}

/// Returns an upper bound of the allocated events. The exact sum over all parts is needed only near the limit, which few
/// runs ever reach.
fn at_most(written: u64, parts: usize) -> u64 {
    written + 1 + UPDATE_EVENTS * parts as u64
}

fn promised<'a>(parts: impl Iterator<Item = &'a Part>) -> u64 {
    parts.map(Part::promised_events).sum()
}

impl Part {
    /// Returns the number of events that will be written because this is open, whatever the workflow decides.
    fn promised_events(&self) -> u64 {
        match self {
            // Its end, or the effect of its close policy.
            Self::Activity(_)
            | Self::LocalActivity(_)
            | Self::Timer(_)
            | Self::Child(_)
            | Self::Adopted(_) => 1,
            // `ConditionWaitSatisfied` or `SignalApplied`.
            Self::Wait(_) => 1,
            Self::Update(_) => UPDATE_EVENTS - 1,
            Self::Buffered(message) => match **message {
                Message::Signal(_) => 1,
                Message::Update(_) => UPDATE_EVENTS,
            },
            // The choice of a selection.
            Self::Group(group) => group
                .selection
                .as_ref()
                .map_or(0, |selection| u64::from(!selection.decided)),
            Self::Arguments(_)
            | Self::Signal(_)
            | Self::Outbox(_)
            | Self::Member(_)
            | Self::Outcome(_)
            | Self::Task(_)
            | Self::Past(_)
            | Self::Value(_)
            | Self::Inbox(_) => 0,
        }
    }
}
