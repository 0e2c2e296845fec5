//! The counters and gauges of the host, with few labels; rendered by `/metrics`.

use std::sync::atomic::{AtomicI64, AtomicU64};

use crate::clock::skew::ClockSkew;
use crate::operations::activity_counts::Totals;
use longhaul_engine::RunChange;
use longhaul_engine::run::state::Program;
use longhaul_store::Stats;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

/// One label that names the kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Kind {
    kind: &'static str,
}

/// Which program decides the runs that are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfProgram {
    program: &'static str,
}

/// How runs or polls of a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Ending {
    program: &'static str,
    kind: &'static str,
}

/// Counters of one host.
#[derive(Default)]
pub struct Metrics {
    runs_started: Family<OfProgram, Counter<u64, AtomicU64>>,
    runs_closed: Family<Ending, Counter<u64, AtomicU64>>,
    events_recorded: Family<OfProgram, Counter<u64, AtomicU64>>,
    tasks_leased: Family<Kind, Counter<u64, AtomicU64>>,
    polls: Family<Ending, Counter<u64, AtomicU64>>,
    pub(crate) polls_waiting: Gauge<i64, AtomicI64>,
    local_activities: Family<Kind, Counter<u64, AtomicU64>>,
    pub(crate) activities: Totals,
    worker_sessions: Family<Kind, Counter<u64, AtomicU64>>,
    worker_session_refusals: Family<Kind, Counter<u64, AtomicU64>>,
    pub(crate) session_tasks_blocked: Gauge<i64, AtomicI64>,
    pub(crate) cached_runs: Gauge<i64, AtomicI64>,
    pub(crate) cached_run_bytes: Gauge<i64, AtomicI64>,
    pub(crate) queues_in_memory: Gauge<i64, AtomicI64>,
    pub(crate) ready_tasks_in_memory: Gauge<i64, AtomicI64>,
    looks: Counter<u64, AtomicU64>,
    hints: Counter<u64, AtomicU64>,
    hint_delay_micros: Counter<u64, AtomicU64>,
    /// `None` if the store has no clock of its own.
    pub(crate) clock_skew: Mutex<Option<ClockSkew>>,
    pub(crate) store: Mutex<Stats>,
}

impl Metrics {
    /// Counts a look at a store that other servers use too.
    pub(crate) fn looked(&self) {
        self.looks.inc();
    }

    /// Counts a hint of another server that took this long.
    pub(crate) fn hinted(&self, micros: u64) {
        self.hints.inc();
        self.hint_delay_micros.inc_by(micros);
    }

    /// Registers everything under names that begin with `longhaul_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("longhaul");
        // Both programs are shown from the beginning, with zero.
        for program in [Program::Code, Program::Definition] {
            let program = program.as_str();
            let of_program = OfProgram { program };
            self.runs_started.get_or_create(&of_program).inc_by(0);
            self.events_recorded.get_or_create(&of_program).inc_by(0);
        }
        registry.register(
            "runs_started",
            "Runs created, continued ones included, by the program that decides them",
            self.runs_started.clone(),
        );
        registry.register(
            "runs_closed",
            "Runs closed, by program and closed reason",
            self.runs_closed.clone(),
        );
        registry.register(
            "events_recorded",
            "History events committed, by program",
            self.events_recorded.clone(),
        );
        registry.register(
            "tasks_leased",
            "Leases granted, by kind of task",
            self.tasks_leased.clone(),
        );
        registry.register(
            "polls",
            "Polls answered, by program and outcome",
            self.polls.clone(),
        );
        registry.register(
            "looks",
            "Looks at a store that other servers use too",
            self.looks.clone(),
        );
        registry.register("hints", "Hints of other servers", self.hints.clone());
        registry.register(
            "hint_delay_microseconds",
            "Time from a commit at another server to its hint here, added up",
            self.hint_delay_micros.clone(),
        );
        registry.register(
            "polls_waiting",
            "Polls that wait for a task now",
            self.polls_waiting.clone(),
        );
        registry.register(
            "local_activities",
            "Local activities scheduled, their attempts and failed attempts",
            self.local_activities.clone(),
        );
        registry.register(
            "worker_sessions",
            "What happened to worker sessions: created, reused, reacquired, renewed, closed, expired, orphaned, failed",
            self.worker_sessions.clone(),
        );
        registry.register(
            "worker_session_refusals",
            "Admissions to worker sessions that were refused, by reason",
            self.worker_session_refusals.clone(),
        );
        registry.register(
            "session_tasks_blocked",
            "Ready activity tasks whose worker session admits no worker now",
            self.session_tasks_blocked.clone(),
        );
        registry.register(
            "cached_runs",
            "Runs kept in memory",
            self.cached_runs.clone(),
        );
        registry.register(
            "cached_run_bytes",
            "About how many bytes the runs in memory take",
            self.cached_run_bytes.clone(),
        );
        registry.register(
            "queues_in_memory",
            "Task queues kept in memory",
            self.queues_in_memory.clone(),
        );
        registry.register(
            "ready_tasks_in_memory",
            "Ready tasks kept in memory for matching; more may be in the store",
            self.ready_tasks_in_memory.clone(),
        );
        if let Some(skew) = *self.clock_skew.lock() {
            registry.register(
                "clock_ahead_seconds",
                "How far the clock of this server is ahead of that of the database; negative if it is behind",
                ConstGauge::new(skew.ahead_ms() as f64 / 1000.0),
            );
        }
        let stats = *self.store.lock();
        register_store(&stats, registry.sub_registry_with_prefix("store"));
    }

    pub(crate) fn session(&self, what: &'static str) {
        self.worker_sessions
            .get_or_create(&Kind { kind: what })
            .inc();
    }

    pub(crate) fn session_refused(&self, reason: &'static str) {
        self.worker_session_refusals
            .get_or_create(&Kind { kind: reason })
            .inc();
    }

    pub(crate) fn committed(&self, change: &RunChange) {
        let program = change.spec.program.as_str();
        let of_program = OfProgram { program };
        self.events_recorded
            .get_or_create(&of_program)
            .inc_by(change.events.len() as u64);
        self.activities.committed(change, |kind| {
            self.local_activities.get_or_create(&Kind { kind }).inc();
        });
        if change.base_version.is_none() {
            self.runs_started.get_or_create(&of_program).inc();
        }
        // A closed run still accepts commits that only record a refused command; its alarm was removed by the close itself.
        if let (Some(closed), false) = (&change.core.closed, change.events.is_empty()) {
            self.runs_closed
                .get_or_create(&Ending {
                    program,
                    kind: closed.reason.as_str(),
                })
                .inc();
        }
    }

    /// Counts leases of tasks.
    pub(crate) fn leased(&self, kind: &'static str, count: usize) {
        let leased = self.tasks_leased.get_or_create(&Kind { kind });
        leased.inc_by(count as u64);
    }

    /// Counts a poll and its outcome.
    pub(crate) fn polled(&self, program: Program, outcome: &'static str) {
        let ending = Ending {
            program: program.as_str(),
            kind: outcome,
        };
        self.polls.get_or_create(&ending).inc();
    }
}

/// Registers the counters of the store.
fn register_store(stats: &Stats, registry: &mut Registry) {
    let counters = [
        ("commits", "Commits that are durable", stats.writes),
        (
            "conflicts",
            "Commits refused because another one came first",
            stats.refused,
        ),
        (
            "failed_commits",
            "Commits that failed for another reason",
            stats.failed,
        ),
        (
            "batches",
            "Transactions, each of all commits that waited",
            stats.batches,
        ),
        (
            "batch_microseconds",
            "Time from taking a batch until it was durable, added up",
            stats.batch_nanos / 1000,
        ),
    ];
    for (name, help, value) in counters {
        registry.register(name, help, ConstCounter::new(value));
    }
    registry.register(
        "commits_waiting",
        "Commits that wait for a writer now",
        ConstGauge::new(gauge(stats.waiting)),
    );
    let Some(remote) = stats.remote else {
        return;
    };
    registry.register(
        "statements",
        "Statements sent to the database, BEGIN and COMMIT included",
        ConstCounter::new(remote.statements),
    );
    let gauges = [
        (
            "connections",
            "Connections for reading that are open now",
            remote.connections,
        ),
        (
            "connections_idle",
            "Connections for reading that no reader uses now",
            remote.connections_idle,
        ),
        (
            "readers_waiting",
            "Readers that wait for a connection now",
            remote.readers_waiting,
        ),
    ];
    for (name, help, value) in gauges {
        registry.register(name, help, ConstGauge::new(gauge(value)));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
