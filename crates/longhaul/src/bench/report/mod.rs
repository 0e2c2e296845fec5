//! The results, as a table for people and as JSON for programs. Each ratio is beside the two values.

pub(super) mod progress;

use std::fmt::Write;

use serde::Serialize;

use super::Home;
use super::baseline::Echo;
use super::cluster::{self, Cluster};
use super::conductor::{self, Conductor};
use super::dispatch::Dispatch;
use super::long_run::{self, LongRun};
use super::measure::Spread;
use super::memory::Memory;
use super::sdk::Sdk;
use super::stored::{self, Stored};
use super::throughput::Throughput;

/// A faster sync did not reach a disk.
const SYNC_PLAUSIBLE_MS: f64 = 0.02;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    release_build: bool,
    processors: usize,
    server: String,
    pub(super) fdatasync: Spread,
    pub(super) echo: Option<Echo>,
    pub(super) throughput: Option<Throughput>,
    pub(super) dispatch: Option<Dispatch>,
    pub(super) memory: Option<Memory>,
    pub(super) stored: Option<Stored>,
    pub(super) long_run: Option<LongRun>,
    pub(super) sdk: Option<Sdk>,
    pub(super) conductor: Option<Conductor>,
    pub(super) conductor_sdk: Option<conductor::sdk::ConductorSdk>,
    pub(super) cluster: Option<Cluster>,
    skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize)]
struct Skipped {
    scenario: &'static str,
    why: &'static str,
}

impl Report {
    pub(super) fn new(home: &Home) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            release_build: !cfg!(debug_assertions),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            server: home.name.clone(),
            fdatasync: Spread::of(Vec::new()),
            echo: None,
            throughput: None,
            dispatch: None,
            memory: None,
            stored: None,
            long_run: None,
            sdk: None,
            conductor: None,
            conductor_sdk: None,
            cluster: None,
            skipped: Vec::new(),
        }
    }

    pub(super) fn skip(&mut self, scenario: &'static str, why: &'static str) {
        self.skipped.push(Skipped { scenario, why });
    }

    /// Renders sections of aligned rows: label, value, comparison.
    pub(super) fn table(&self) -> String {
        let mut table = Table::default();
        self.head(&mut table);
        if let Some(throughput) = &self.throughput {
            throughput_rows(throughput, &mut table);
        }
        if let Some(dispatch) = &self.dispatch {
            dispatch_rows(dispatch, &mut table);
        }
        if let Some(memory) = &self.memory {
            memory_rows(memory, &mut table);
        }
        if let Some(sdk) = &self.sdk {
            sdk_rows(sdk, &mut table);
        }
        if let Some(measured) = &self.conductor {
            conductor::rows(measured, &mut table);
        }
        if let Some(measured) = &self.conductor_sdk {
            conductor::sdk::rows(measured, &mut table);
        }
        if let Some(stored) = &self.stored {
            stored_rows(stored, &mut table);
        }
        if let Some(long_run) = &self.long_run {
            long_run_rows(long_run, &mut table);
        }
        if let Some(measured) = &self.cluster {
            cluster::rows(measured, &mut table);
        }
        for Skipped { scenario, why } in &self.skipped {
            table.section(&format!("{scenario}: skipped, {why}"));
        }
        table.render()
    }

    fn head(&self, table: &mut Table) {
        let build = if self.release_build {
            "release build"
        } else {
            "DEBUG BUILD: results are not meaningful"
        };
        let server = &self.server;
        table.section(&format!(
            "longhaul {}, {build}, {} processors; server {server}",
            self.version, self.processors
        ));
        if let Some(echo) = &self.echo {
            let connections = format!("{} connections", echo.connections);
            table.row(
                "axum JSON echo",
                per_second(echo.requests_per_second, "requests"),
                connections,
            );
        }
        let note = if self.fdatasync.p50_ms < SYNC_PLAUSIBLE_MS {
            "  (too fast for a disk: choose one with --data)"
        } else {
            ""
        };
        table.row(
            "4 KiB append + fdatasync, back to back",
            p50(&self.fdatasync),
            format!("{}{note}", p99(&self.fdatasync)),
        );
    }
}

fn sdk_rows(sdk: &Sdk, table: &mut Table) {
    table.section(&format!("the Rust SDK, {} in flight", sdk.in_flight));
    for (name, unit, rate) in [
        ("one-activity workflows", "workflows", &sdk.one_activity),
        ("durable local steps", "steps", &sdk.local_steps),
    ] {
        table.row(
            name,
            per_second(rate.per_second, unit),
            times(rate.to_echo, "echo"),
        );
        table.row(
            "start to completion",
            p50(&rate.latency),
            p99(&rate.latency),
        );
        if let Some(spent) = rate.processor_us_each {
            table.row(
                "processor time each",
                format!("{spent:.0} µs"),
                "server, worker and client".to_owned(),
            );
        }
    }
}

fn throughput_rows(throughput: &Throughput, table: &mut Table) {
    table.section(&format!(
        "throughput: one-activity workflows, {} in flight, {:.1} s, {} results checked",
        throughput.in_flight, throughput.seconds, throughput.results_checked
    ));
    let total = format!("{} in total", grouped(throughput.workflows as f64));
    table.row(
        "workflows",
        per_second(throughput.workflows_per_second, "workflows"),
        total,
    );
    let share = times(throughput.requests_to_echo, "echo");
    table.row(
        "requests",
        per_second(throughput.requests_per_second, "requests"),
        share,
    );
    table.row(
        "start to completion",
        p50(&throughput.latency),
        p99(&throughput.latency),
    );
    if let (Some(cost), Some(busy)) = (
        throughput.processor_us_per_workflow,
        throughput.processors_busy,
    ) {
        let elsewhere = throughput
            .processors_busy_elsewhere
            .map_or_else(String::new, |busy| format!(", {busy:.2} by others"));
        table.row(
            "processor time per workflow",
            format!("{cost:.0} µs"),
            format!("{busy:.2} processors busy{elsewhere}"),
        );
    }
}

fn dispatch_rows(dispatch: &Dispatch, table: &mut Table) {
    table.section(&format!(
        "dispatch: idle server, one worker, {} rounds",
        dispatch.activity.samples
    ));
    for (label, spread) in [
        ("completion to activity task", &dispatch.activity),
        ("activity result to workflow task", &dispatch.workflow),
        ("fdatasync between rounds", &dispatch.fdatasync),
    ] {
        table.row(label, p50(spread), p99(spread));
    }
    // Both ratios, because the choice alone can double the result.
    table.row(
        "p50 to fdatasync between rounds",
        times(dispatch.activity_p50_to_fdatasync, "for an activity task"),
        times(dispatch.workflow_p50_to_fdatasync, "for a workflow task"),
    );
    table.row(
        "p50 to fdatasync back to back",
        times(
            dispatch.activity_p50_to_fdatasync_back_to_back,
            "for an activity task",
        ),
        times(
            dispatch.workflow_p50_to_fdatasync_back_to_back,
            "for a workflow task",
        ),
    );
}

fn memory_rows(memory: &Memory, table: &mut Table) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    table.section(&format!(
        "memory: {} runs that wait for a signal",
        grouped(memory.open_runs as f64)
    ));
    let (before, after) = (
        mib(memory.resident_before_bytes),
        mib(memory.resident_after_bytes),
    );
    let anonymous = format!(
        "{:.0} MiB of it not backed by files",
        mib(memory.anonymous_after_bytes)
    );
    table.row(
        "resident, before and after",
        format!("{before:.0} MiB, {after:.0} MiB"),
        anonymous,
    );
    table.row(
        "per open run",
        format!("{:.2} KiB", memory.bytes_per_open_run / 1024.0),
        String::new(),
    );
}

fn stored_rows(stored: &Stored, table: &mut Table) {
    table.section("stored: cost per transition under load, few runs stored and many");
    let mut row = |side: &stored::Side, note: String| {
        let label = format!("{} runs", grouped(side.runs as f64));
        let processor = format!(
            "{:.1} µs of processor time{note}",
            side.processor_us_per_transition
        );
        table.row(
            &label,
            format!("{:.1} µs", side.elapsed_us_per_transition),
            processor,
        );
    };
    row(&stored.few, String::new());
    row(&stored.many, String::new());
    table.row(
        "ratio",
        times(stored.elapsed_ratio, "few"),
        format!("{} in processor time", times(stored.processor_ratio, "few")),
    );
    for listed in &stored.lists {
        table.row(
            &format!("list {}", listed.shape),
            format!("{:.2} ms", listed.many_ms),
            format!(
                "{:.2} ms with few: {}",
                listed.few_ms,
                times(listed.ratio, "few")
            ),
        );
    }
}

fn long_run_rows(long_run: &LongRun, table: &mut Table) {
    let LongRun { early, late, .. } = long_run;
    table.section(&format!(
        "long run: cost per transition at event {} and at event {}, {} rounds each",
        early.events, late.events, early.round.samples
    ));
    let mut row = |label, pick: fn(&long_run::Side) -> &Spread| {
        let (early, late) = (pick(early), pick(late));
        let ratio = times(super::measure::ratio(late.p50_ms, early.p50_ms), "early");
        table.row(
            label,
            format!("{:.2} ms, {:.2} ms p50", early.p50_ms, late.p50_ms),
            ratio,
        );
    };
    row("signal", |side| &side.signal);
    row("lease", |side| &side.lease);
    row("heartbeat", |side| &side.heartbeat);
    row("complete", |side| &side.complete);
    row("all four", |side| &side.round);
    if let (Some(early), Some(late)) = (early.processor_us_per_round, late.processor_us_per_round) {
        let ratio = times(long_run.processor_ratio, "early");
        table.row(
            "processor time of all four",
            format!("{early:.0} µs, {late:.0} µs"),
            ratio,
        );
    }
}

pub(super) fn per_second(rate: f64, what: &str) -> String {
    format!("{} {what}/s", grouped(rate))
}

pub(super) fn p50(spread: &Spread) -> String {
    format!("{:.2} ms p50", spread.p50_ms)
}

pub(super) fn p99(spread: &Spread) -> String {
    format!("{:.2} ms p99", spread.p99_ms)
}

pub(super) fn times(ratio: Option<f64>, of: &str) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} × {of}"))
}

/// Formats a whole number with a comma every three digits.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[derive(Default)]
pub(super) struct Table {
    lines: Vec<Line>,
}

enum Line {
    Section(String),
    Row([String; 3]),
}

impl Table {
    pub(super) fn section(&mut self, title: &str) {
        self.lines.push(Line::Section(title.to_owned()));
    }

    pub(super) fn row(&mut self, label: &str, figure: String, beside: String) {
        self.lines
            .push(Line::Row([label.to_owned(), figure, beside]));
    }

    fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| match line {
                Line::Row(cells) => Some(cells[column].chars().count()),
                Line::Section(_) => None,
            });
            cells.max().unwrap_or(0)
        };
        let (labels, figures) = (width(0), width(1));
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Section(title) if text.is_empty() => text.push_str(title),
                Line::Section(title) => {
                    let _ = write!(text, "\n{title}");
                }
                Line::Row([label, figure, beside]) => {
                    let row = format!("  {label:<labels$}  {figure:>figures$}  {beside}");
                    text.push_str(row.trim_end());
                }
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        for (value, expected) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(grouped(value), expected);
        }
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let mut table = Table::default();
        table.section("head");
        table.row("a", "1 µs".to_owned(), "0.5 × b".to_owned());
        table.row("long label", "10 µs".to_owned(), String::new());
        assert_eq!(
            table.render(),
            "head\n  a            1 µs  0.5 × b\n  long label  10 µs\n"
        );
    }
}
