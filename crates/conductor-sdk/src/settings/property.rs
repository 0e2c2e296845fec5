//! The properties of a worker: their names and the values that are allowed.

use std::fmt;

use super::value::Kind;
use super::{POLL_INTERVAL_MAX, POLL_TIMEOUT_MAX, THREAD_COUNT_MAX};

/// A property of a worker. Each one is a field of [`Settings`](super::Settings).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Property {
    /// `poll_interval_millis`. Environment variables can also use the names `poll_interval` and `polling_interval`.
    PollInterval,
    /// `thread_count`
    ThreadCount,
    /// `domain`
    Domain,
    /// `worker_id`
    WorkerId,
    /// `poll_timeout`, in milliseconds.
    PollTimeout,
    /// `register_task_def`
    RegisterTaskDef,
    /// `overwrite_task_def`
    OverwriteTaskDef,
    /// `strict_schema`
    StrictSchema,
    /// `paused`
    Paused,
    /// `lease_extend_enabled`
    LeaseExtendEnabled,
    /// `register_schema`
    RegisterSchema,
}

impl Property {
    /// All properties, in the order in which they are logged.
    // Invariant: this is the order of declaration. `Resolved` uses the discriminant as an index.
    pub const ALL: [Self; 11] = [
        Self::PollInterval,
        Self::ThreadCount,
        Self::Domain,
        Self::WorkerId,
        Self::PollTimeout,
        Self::RegisterTaskDef,
        Self::OverwriteTaskDef,
        Self::StrictSchema,
        Self::Paused,
        Self::LeaseExtendEnabled,
        Self::RegisterSchema,
    ];

    /// Returns the name of the property.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns the names of the property in environment variables. The first one is the name of the property.
    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            // Other Conductor SDKs use the second and the third name.
            Self::PollInterval => &["poll_interval_millis", "poll_interval", "polling_interval"],
            Self::ThreadCount => &["thread_count"],
            Self::Domain => &["domain"],
            Self::WorkerId => &["worker_id"],
            Self::PollTimeout => &["poll_timeout"],
            Self::RegisterTaskDef => &["register_task_def"],
            Self::OverwriteTaskDef => &["overwrite_task_def"],
            Self::StrictSchema => &["strict_schema"],
            Self::Paused => &["paused"],
            Self::LeaseExtendEnabled => &["lease_extend_enabled"],
            Self::RegisterSchema => &["register_schema"],
        }
    }

    /// Returns which values are allowed.
    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::PollInterval => Kind::Millis {
                max: POLL_INTERVAL_MAX,
            },
            Self::ThreadCount => Kind::Count {
                max: THREAD_COUNT_MAX,
            },
            Self::PollTimeout => Kind::Millis {
                max: POLL_TIMEOUT_MAX,
            },
            Self::Domain | Self::WorkerId => Kind::Text,
            Self::RegisterTaskDef
            | Self::OverwriteTaskDef
            | Self::StrictSchema
            | Self::Paused
            | Self::LeaseExtendEnabled
            | Self::RegisterSchema => Kind::Flag,
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
