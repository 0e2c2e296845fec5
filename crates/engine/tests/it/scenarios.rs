//! Runs every story in `scenarios/`. A story is a list of steps: a command, a line `----`, and its outcome. With
//! `UPDATE_SCENARIOS=1` the outcomes are rewritten, to be reviewed as a diff. Each story is a test with its name.

mod command;
mod show;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_engine::change::TaskKind;
use longhaul_engine::run::activity::report::Failure;
use longhaul_engine::run::local_activity::attempt::{
    EndedAttempt, LocalHeartbeatRequest, LocalReport,
};
use longhaul_engine::run::message::external::Stop;
use longhaul_engine::run::message::stream::StreamCursor;
use longhaul_engine::run::workflow_task::sticky::StickyClaim;
use longhaul_engine::visibility::Type;
use longhaul_protocol::Payload;
use longhaul_protocol::history::DeliveryPlace;
use longhaul_protocol::id::RunId;
use longhaul_protocol::id::WorkerId;
use longhaul_protocol::payload::Value as PayloadValue;
use longhaul_protocol::workflow_command::{LocalFailure, parse_commands};
use serde_json::{Value, json};
use similar::TextDiff;

use command::read_command;
use show::{show_outcome, show_payload};

use crate::world::outbox::Confirmation;
use crate::world::{Step, World};

macro_rules! stories {
    ($($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        /// Every file of the folder must be listed, or it would not run.
        const LISTED: &[&str] = &[$(stringify!($name),)*];
    };
}

stories!(
    activity_timeouts,
    cancellation_children,
    cancellation_deadline,
    cancellation_delivery,
    cancellation_kinds,
    cancellation_waits,
    child_and_continue,
    child_not_retried,
    child_retry,
    child_timeouts,
    children,
    condition_timeout,
    conditions,
    continue_as_new,
    duplicate_start,
    full_history,
    heartbeat_and_cancel,
    hello,
    late_completion_times_out,
    late_report,
    left_alone_by_update,
    local_activity_cancellation,
    local_activity_deadlines,
    local_activity_displaced,
    local_activity_left,
    local_activity_lost,
    local_activity_retry,
    local_activity_stopped,
    local_activity_told,
    lost_lease,
    non_retryable,
    nothing_changed,
    over_at_once,
    parallel,
    parallel_refused,
    parent_close,
    recorded_values,
    redelivery,
    repeat_after_close,
    request_cancellation_ids,
    request_ids,
    retries,
    run_timeout,
    search_attributes,
    selection,
    selection_failure,
    selection_group,
    selection_waits,
    signal_bytes_limit,
    signal_limit,
    signal_waits,
    signals_buffered,
    sticky,
    streams,
    structural_limits,
    task_failures,
    timers,
    update_and_progress,
    update_continue,
    updates,
    worker_leaves,
);

#[test]
fn every_story_is_listed() {
    let files = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> = files
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, LISTED);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Runs one story and compares every outcome with the one in the file.
fn check(name: &str) {
    let file = folder().join(name).with_extension("txt");
    let expected = std::fs::read_to_string(&file).unwrap();
    let actual = play(&expected);
    if std::env::var_os("UPDATE_SCENARIOS").is_some() {
        std::fs::write(&file, &actual).unwrap();
        return;
    }
    if expected == actual {
        return;
    }
    let diff = TextDiff::from_lines(&expected, &actual);
    panic!(
        "{name}.txt: the outcome differs from the file. UPDATE_SCENARIOS=1 rewrites it.\n{}",
        diff.unified_diff().header("expected", "actual")
    );
}

fn play(story: &str) -> String {
    let mut stage = Stage {
        world: World::new(),
        names: BTreeMap::new(),
    };
    let mut written = String::new();
    let mut lines = story.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            let _ = writeln!(written, "{line}");
            continue;
        }
        let mut step = vec![line];
        while let Some(more) = lines.next_if(|more| *more != "----" && !more.is_empty()) {
            step.push(more);
        }
        // The caller compares the expected outcome.
        while lines.next_if(|line| !line.is_empty()).is_some() {}
        let _ = writeln!(written, "{}\n----\n{}", step.join("\n"), stage.play(&step));
    }
    written
}

struct Stage {
    world: World,
    /// Runs by number, for showing.
    names: BTreeMap<RunId, usize>,
}

impl Stage {
    fn play(&mut self, lines: &[&str]) -> String {
        let mut words = lines[0].split_whitespace();
        let verb = words.next().unwrap();
        let (mut plain, mut options) = (Vec::new(), BTreeMap::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(options.insert(key.to_owned(), value.to_owned())),
                None => plain.push(word),
            }
        }
        let worker = options
            .get("worker")
            .map_or("w1", String::as_str)
            .to_owned();
        let attempt = options.get("attempt").map(|number| number.parse().unwrap());
        let poll = options.get("poll").map(String::as_str);
        let request = options.get("request").map(String::as_str);
        let sequence = || {
            plain
                .first()
                .and_then(|word| word.parse().ok())
                .expect("the step names a call")
        };
        let (step, outcome) = match verb {
            "start" => shown(self.world.start(&options), |started| {
                format!(
                    "{} status={}",
                    started.outcome.as_str(),
                    started.status.as_str()
                )
            }),
            "limit" => {
                let value = plain[1].parse().unwrap();
                match plain[0] {
                    "pending_activities" => self.world.limits.pending_activities = value,
                    "payload_bytes" => self.world.limits.payload_bytes = value,
                    "pending_signals" => self.world.limits.pending_signals = value,
                    "pending_signal_bytes" => self.world.limits.pending_signal_bytes = value,
                    "events_per_transaction" => self.world.limits.events_per_transaction = value,
                    "events_per_run" => self.world.limits.events_per_run = value,
                    other => panic!("no limit {other} in stories"),
                }
                (Step::default(), "ok".to_owned())
            }
            "define" => {
                let defined = options
                    .iter()
                    .map(|(name, word)| (name.clone(), Type::read(word).unwrap()));
                self.world.definitions = Arc::new(defined.collect());
                (Step::default(), "ok".to_owned())
            }
            "wait" => {
                self.world.now = self.world.now.plus_seconds(plain[0].parse().unwrap());
                shown(self.world.elapse(), |()| "time passed".to_owned())
            }
            "claim" => {
                let runtime = options
                    .get("runtime")
                    .map_or("python", String::as_str)
                    .to_owned();
                shown(self.world.claim(&worker, &runtime, poll), |claim| {
                    let mut text = format!(
                        "leased attempt={} observed={}",
                        claim.attempt, claim.observed_sequence
                    );
                    for (key, value) in [
                        ("wait", &claim.resume.workflow_wait_kind),
                        ("source", &claim.resume.resume_source_kind),
                        ("event", &claim.resume.workflow_event_type),
                        ("signal", &claim.resume.signal_name),
                    ] {
                        if let Some(value) = value {
                            let _ = write!(text, " {key}={value}");
                        }
                    }
                    if let Some(name) = &claim.resume.update_name {
                        let _ = write!(text, " update={name}");
                    }
                    if claim.cancellation.is_some() {
                        text.push_str(" asked_to_end");
                    }
                    if let Some(arguments) = claim.signal_arguments {
                        let _ = write!(text, " with={}", arguments.display().unwrap());
                    }
                    text
                })
            }
            "complete" => {
                let run = self.world.run();
                let list: Vec<Value> = lines[1..]
                    .iter()
                    .map(|line| read_command(line, run))
                    .collect();
                self.world.cursors = options.get("read").map_or_else(Vec::new, |read| {
                    let (stream_name, position) = read.split_once(':').unwrap();
                    vec![StreamCursor {
                        stream_name: stream_name.to_owned(),
                        through_position: position.parse().unwrap(),
                    }]
                });
                self.world.sticky = options.get("sticky").map(|seconds| StickyClaim {
                    worker_id: WorkerId::from(worker.as_str()),
                    run_id: self.world.run().run_id().clone(),
                    ttl_seconds: seconds.parse().unwrap(),
                });
                match parse_commands(&Value::Array(list)) {
                    Ok(commands) => {
                        shown(self.world.complete(&worker, attempt, commands), |outcome| {
                            show_outcome(&outcome)
                        })
                    }
                    Err(errors) => (Step::default(), format!("malformed: {}", json!(errors))),
                }
            }
            "nothing-to-do" => shown(
                self.world
                    .fail(&worker, attempt, "WorkflowTaskWaitingForHistory"),
                |outcome| show_outcome(&outcome),
            ),
            "fail-task" => shown(
                self.world
                    .fail(&worker, attempt, plain.first().unwrap_or(&"RuntimeError")),
                |outcome| show_outcome(&outcome),
            ),
            "heartbeat-task" => shown(self.world.heartbeat_task(&worker, attempt), |()| {
                "renewed".to_owned()
            }),
            "release" => shown(self.world.release(&worker), |released| {
                format!("released={released}")
            }),
            "claim-activity" => shown(
                self.world.claim_activity(sequence(), &worker, poll),
                |number| format!("leased attempt={number}"),
            ),
            "complete-activity" => {
                let result = Payload::encode(&PayloadValue::String(
                    options.get("result").cloned().unwrap_or_default(),
                ))
                .unwrap();
                shown(
                    self.world.complete_activity(sequence(), &worker, result),
                    |outcome| show_outcome(&outcome),
                )
            }
            "fail-activity" => {
                let failure = Failure {
                    message: "it broke".to_owned(),
                    failure_type: options.get("type").cloned(),
                    non_retryable: options.contains_key("non_retryable"),
                    ..Failure::default()
                };
                shown(
                    self.world.fail_activity(sequence(), &worker, failure),
                    |outcome| show_outcome(&outcome),
                )
            }
            "beat" => {
                let progress = options
                    .get("message")
                    .map(|message| json!({"message": message}));
                shown(self.world.beat(sequence(), &worker, progress), |pulse| {
                    pulse
                })
            }
            "signal" => shown(
                self.world
                    .signal(plain[0], plain.get(1).unwrap_or(&""), request),
                |receipt| {
                    format!(
                        "{} command={} retained={}",
                        receipt.command.outcome, receipt.command.sequence, receipt.retained
                    )
                },
            ),
            "focus" => {
                let run_id = self.run_named(plain[0]);
                let workflow_id = self.world.runs[&run_id].spec.workflow_id.clone();
                self.world.focus = Some(workflow_id);
                (Step::default(), "ok".to_owned())
            }
            "update" => shown(
                self.world
                    .update(plain[0], request, options.contains_key("run")),
                |receipt| {
                    format!(
                        "{} command={} retained={}",
                        receipt.command.outcome, receipt.command.sequence, receipt.retained
                    )
                },
            ),
            "message" => shown(self.world.append_message(plain[0], plain[1]), |appended| {
                format!(
                    "position={} duplicate={}",
                    appended.position, appended.duplicate
                )
            }),
            // Delivers the oldest outbox message of a run; `unconfirmed` if the server dies before the delivery is confirmed.
            "deliver" => {
                let sender = self.run_named(plain[0]);
                let confirmation = match plain.get(1) {
                    None => Confirmation::Sent,
                    Some(&"unconfirmed") => Confirmation::Lost,
                    Some(other) => panic!("`{other}` is not a word of `deliver`"),
                };
                let (step, what) = self.world.deliver(&sender, confirmation);
                (
                    step,
                    what.unwrap_or_else(|| "nothing to deliver".to_owned()),
                )
            }
            "request-cancellation" => {
                self.world.capable = !options.contains_key("incapable");
                shown(
                    self.world
                        .request_cancellation(plain[0].parse().unwrap(), request),
                    |receipt| format!("requested duplicate={}", receipt.duplicate),
                )
            }
            "deliver-cancellation" => {
                let number = |key: &str| options.get(key).map(|text| text.parse::<u64>().unwrap());
                let place = DeliveryPlace {
                    call_kind: plain[0].to_owned(),
                    sequence: plain[1].parse::<u64>().unwrap().into(),
                    sequence_span: number("span").unwrap_or(1),
                    operation_sequence: number("operation").map(Into::into),
                    operation_sequence_span: number("operation").map(|_| 1),
                };
                shown(
                    self.world.deliver_cancellation(&worker, place),
                    |delivered| format!("{delivered:?}"),
                )
            }
            "stop-activity" => shown(
                self.world.acknowledge_stop(sequence(), &worker),
                |stopped| format!("stopped duplicate={}", stopped.duplicate),
            ),
            "checkpoint" => {
                let run = self.world.run();
                let list: Vec<Value> = lines[1..]
                    .iter()
                    .map(|line| read_command(line, run))
                    .collect();
                let commands = parse_commands(&Value::Array(list)).unwrap();
                shown(self.world.checkpoint(&worker, plain[0], commands), |next| {
                    format!("recorded next={next}")
                })
            }
            "prepare-local" => {
                let mut call = json!({});
                for (key, value) in options.iter().filter(|(key, _)| *key != "worker") {
                    call[key] = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
                }
                shown(
                    self.world.prepare_local(&worker, sequence(), &call),
                    |prepared| {
                        format!(
                            "attempt {} duplicate={}",
                            prepared.attempt.number, prepared.duplicate
                        )
                    },
                )
            }
            "end-local" => {
                let report = if options.contains_key("fail") {
                    LocalReport::Failed(LocalFailure {
                        message: "it broke".to_owned(),
                        exception_type: options.get("fail").cloned(),
                        non_retryable: false,
                    })
                } else {
                    LocalReport::Completed(Payload::null())
                };
                shown(
                    self.world.end_local(&worker, sequence(), report),
                    show_ended,
                )
            }
            "recover-local" => shown(self.world.recover_local(&worker, sequence()), show_ended),
            "beat-local" => {
                let beat = match options.get("message") {
                    Some(message) => LocalHeartbeatRequest::Heartbeat {
                        progress: Some(json!({"message": message})),
                    },
                    None => LocalHeartbeatRequest::Control,
                };
                shown(self.world.beat_local(&worker, sequence(), beat), |active| {
                    format!("active={active}")
                })
            }
            "claim-retry" => shown(self.world.claim_retry(sequence(), &worker), |claim| {
                format!(
                    "leased attempt={} observed={} wait={}",
                    claim.attempt,
                    claim.observed_sequence,
                    claim.resume.workflow_wait_kind.unwrap_or_default()
                )
            }),
            "repair" => shown(self.world.repair(request), |receipt| {
                format!("{} retained={}", receipt.command.outcome, receipt.retained)
            }),
            "archive" => shown(self.world.archive(request), |receipt| {
                format!("{} retained={}", receipt.command.outcome, receipt.retained)
            }),
            "cancel" => shown(self.world.stop(Stop::Cancel, request), |receipt| {
                receipt.command.outcome
            }),
            "terminate" => shown(self.world.stop(Stop::Terminate, request), |receipt| {
                receipt.command.outcome
            }),
            other => panic!("no step `{other}` in stories"),
        };
        self.show(&step, &outcome)
    }

    /// Returns a run by the number it is shown with.
    fn run_named(&self, number: &str) -> RunId {
        let number: usize = number.parse().unwrap();
        let named = self.names.iter().find(|(_, known)| **known == number);
        named.expect("a run of that number was shown").0.clone()
    }

    fn show(&mut self, step: &Step, outcome: &str) -> String {
        let mut text = outcome.to_owned();
        for (run_id, event) in &step.events {
            let known = self.names.len() + 1;
            let run = *self.names.entry(run_id.clone()).or_insert(known);
            let place = if run > 1 {
                format!("{run}#")
            } else {
                "#".to_owned()
            };
            let _ = write!(
                text,
                "\n{place}{} {}{}",
                event.sequence,
                event.event_type,
                show_payload(&event.payload)
            );
        }
        for row in &step.tasks {
            let kind = if !row.sequence.is_zero() && row.kind == TaskKind::Workflow {
                format!("retry of {}", row.sequence)
            } else if !row.sequence.is_zero() {
                format!("activity {}", row.sequence)
            } else {
                "workflow".to_owned()
            };
            let run = self.names.get(&row.run_id).filter(|run| **run > 1);
            let run = run.map_or_else(String::new, |run| format!("{run}#"));
            let _ = write!(text, "\n{run}task {kind} {:?}", row.status);
            if let Some(owner) = &row.lease_owner {
                let _ = write!(text, " by {owner} attempt {}", row.attempt);
            }
            if let Some(worker) = &row.held_for {
                let _ = write!(text, " held for {worker}");
            }
            if let Some(capability) = &row.required_capability {
                let _ = write!(text, " needs {capability}");
            }
        }
        if self.world.focus.is_some() {
            let _ = write!(text, "\nrun {}", self.world.run().core.status.as_str());
        }
        text
    }
}

fn show_ended(settled: EndedAttempt) -> String {
    let released = settled.retry_task_id.is_some();
    format!(
        "{} claim_released={released} duplicate={}",
        settled.event_type, settled.duplicate
    )
}

fn shown<T>(
    (step, reply): (Step, Result<T, longhaul_engine::Rejection>),
    show: impl FnOnce(T) -> String,
) -> (Step, String) {
    let outcome = match reply {
        Ok(value) => show(value),
        Err(rejection) => format!("rejected: {}", rejection.reason()),
    };
    (step, outcome)
}
