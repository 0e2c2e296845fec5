//! Any order of commands keeps the invariants: random workflows with children are run, with several workers, late and repeated
//! reports and outbox messages, lost leases, crashes and a moving clock. `World` checks everything after every step.

mod program;

use std::collections::BTreeMap;

use longhaul_engine::change::TaskKind;
use longhaul_engine::run::activity::report::Failure;
use longhaul_engine::run::local_activity::attempt::{LocalHeartbeatRequest, LocalReport};
use longhaul_engine::run::message::external::Stop;
use longhaul_engine::run::message::stream::StreamCursor;
use longhaul_engine::run::state::{Part, PartKey, Run};
use longhaul_engine::run::workflow_task::sticky::StickyClaim;
use longhaul_protocol::Payload;
use longhaul_protocol::history::DeliveryPlace;
use longhaul_protocol::id::{RunId, TaskId, WorkerId, WorkflowId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{LocalFailure, parse_commands};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::invariants;
use crate::world::World;
use crate::world::outbox::Confirmation;
use program::{Call, call, render};

#[derive(Clone, Debug)]
enum Act {
    /// Later steps are about this workflow.
    Focus {
        which: u8,
    },
    Claim {
        worker: u8,
        rust: bool,
        same_poll: bool,
    },
    Complete {
        worker: u8,
        calls: Vec<Call>,
        end: Option<End>,
        read: bool,
    },
    /// A worker leases the task and finishes it.
    Turn {
        calls: Vec<Call>,
        end: Option<End>,
        read: bool,
        which: u8,
    },
    /// A worker sends its commands again, because all of their calls are still open.
    SendAgain {
        worker: u8,
    },
    GiveUp {
        worker: u8,
        which: u8,
    },
    Repeat,
    Acknowledge {
        worker: u8,
    },
    FailTask {
        worker: u8,
    },
    Release {
        worker: u8,
    },
    ClaimActivity {
        which: u8,
        worker: u8,
    },
    CompleteActivity {
        which: u8,
        worker: u8,
    },
    FailActivity {
        which: u8,
        worker: u8,
        final_failure: bool,
    },
    /// A worker leases an activity and finishes it.
    Work {
        which: u8,
        fails: bool,
    },
    HeartbeatRequest {
        which: u8,
        worker: u8,
    },
    StopActivity {
        which: u8,
        worker: u8,
    },
    Signal {
        name: u8,
        request: Option<u8>,
    },
    Update {
        request: Option<u8>,
        of_run: bool,
    },
    Message {
        stream: u8,
        id: u8,
    },
    Wait {
        seconds: u16,
    },
    OutboxMessage {
        which: u8,
        delivery: Delivery,
    },
    Crash,
    /// Starts a workflow that may already exist.
    Start {
        other: bool,
    },
    Stop {
        terminate: bool,
    },
    RequestCancellation {
        seconds: u16,
        capable: bool,
    },
    DeliverCancellation {
        worker: u8,
        which: u8,
    },
    /// A worker begins a local activity, or the next attempt of one.
    PrepareLocal {
        worker: u8,
        options: u8,
        again: bool,
    },
    SettleLocal {
        worker: u8,
        which: u8,
        fails: bool,
    },
    BeatLocal {
        worker: u8,
        which: u8,
        recorded: bool,
    },
    RecoverLocal {
        worker: u8,
        which: u8,
    },
    ClaimRetry {
        worker: u8,
        which: u8,
    },
    Checkpoint {
        worker: u8,
        calls: Vec<Call>,
    },
}

#[derive(Clone, Copy, Debug)]
enum Delivery {
    Confirmed,
    Unconfirmed,
    Twice,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Complete,
    Fail { finally: bool },
    FailCancelled,
    Continue,
}

fn act() -> impl Strategy<Value = Act> {
    let end = prop_oneof![
        3 => Just(End::Complete),
        3 => any::<bool>().prop_map(|finally| End::Fail { finally }),
        1 => Just(End::FailCancelled),
        3 => Just(End::Continue),
    ];
    // Most of the time one worker does everything.
    let worker = || prop_oneof![5 => Just(0_u8), 1 => Just(1_u8)];
    let which = any::<u8>;
    let an_end = end.clone();
    let delivery = prop_oneof![3 => Just(Delivery::Confirmed), 1 => Just(Delivery::Unconfirmed), 1 => Just(Delivery::Twice)];
    prop_oneof![
        4 => which().prop_map(|which| Act::Focus { which }),
        10 => (worker(), any::<bool>(), any::<bool>()).prop_map(|(worker, rust, same_poll)| Act::Claim { worker, rust, same_poll }),
        12 => (worker(), prop::collection::vec(call(), 1..3), prop::option::weighted(0.12, end), any::<bool>())
            .prop_map(|(worker, calls, end, read)| Act::Complete { worker, calls, end, read }),
        12 => (prop::collection::vec(call(), 1..3), prop::option::weighted(0.2, an_end), any::<bool>(), which())
            .prop_map(|(calls, end, read, which)| Act::Turn { calls, end, read, which }),
        1 => worker().prop_map(|worker| Act::SendAgain { worker }),
        3 => (worker(), which()).prop_map(|(worker, which)| Act::GiveUp { worker, which }),
        1 => Just(Act::Repeat),
        2 => worker().prop_map(|worker| Act::Acknowledge { worker }),
        1 => worker().prop_map(|worker| Act::FailTask { worker }),
        1 => worker().prop_map(|worker| Act::Release { worker }),
        8 => (which(), prop::bool::weighted(0.3)).prop_map(|(which, fails)| Act::Work { which, fails }),
        4 => (which(), worker()).prop_map(|(which, worker)| Act::ClaimActivity { which, worker }),
        3 => (which(), worker()).prop_map(|(which, worker)| Act::CompleteActivity { which, worker }),
        2 => (which(), worker(), any::<bool>()).prop_map(|(which, worker, final_failure)| Act::FailActivity { which, worker, final_failure }),
        1 => (which(), worker()).prop_map(|(which, worker)| Act::HeartbeatRequest { which, worker }),
        1 => (which(), worker()).prop_map(|(which, worker)| Act::StopActivity { which, worker }),
        3 => (0_u8..2, prop::option::of(0_u8..3)).prop_map(|(name, request)| Act::Signal { name, request }),
        3 => (prop::option::of(0_u8..3), prop::bool::weighted(0.2)).prop_map(|(request, of_run)| Act::Update { request, of_run }),
        3 => (0_u8..2, 0_u8..8).prop_map(|(stream, id)| Act::Message { stream, id }),
        4 => prop_oneof![4 => 0_u16..6, 1 => 200_u16..400].prop_map(|seconds| Act::Wait { seconds }),
        6 => (which(), delivery).prop_map(|(which, delivery)| Act::OutboxMessage { which, delivery }),
        1 => Just(Act::Crash),
        1 => any::<bool>().prop_map(|other| Act::Start { other }),
        1 => any::<bool>().prop_map(|terminate| Act::Stop { terminate }),
        2 => (prop_oneof![3 => 1_u16..30, 1 => 300_u16..500], prop::bool::weighted(0.8)).prop_map(|(seconds, capable)| Act::RequestCancellation { seconds, capable }),
        3 => (worker(), which()).prop_map(|(worker, which)| Act::DeliverCancellation { worker, which }),
        5 => (worker(), which(), any::<bool>()).prop_map(|(worker, options, again)| Act::PrepareLocal { worker, options, again }),
        4 => (worker(), which(), any::<bool>()).prop_map(|(worker, which, fails)| Act::SettleLocal { worker, which, fails }),
        1 => (worker(), which(), any::<bool>()).prop_map(|(worker, which, recorded)| Act::BeatLocal { worker, which, recorded }),
        3 => (worker(), which()).prop_map(|(worker, which)| Act::RecoverLocal { worker, which }),
        3 => (worker(), which()).prop_map(|(worker, which)| Act::ClaimRetry { worker, which }),
        1 => (worker(), prop::collection::vec(call(), 1..3)).prop_map(|(worker, calls)| Act::Checkpoint { worker, calls }),
    ]
}

struct Player {
    world: World,
    polls: u32,
    last_completion: Option<(TaskId, String, u64, Vec<Value>)>,
    /// Commands that became calls, by run and number.
    sent: BTreeMap<(RunId, u64), Value>,
}

fn pick<T: Clone>(from: &[T], which: u8) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(which) % from.len()].clone())
}

/// Returns options with some attempts, some time, some back-off.
fn local_options(which: u8) -> Value {
    let mut options =
        json!({"retry_policy": {"max_attempts": 1 + which % 3, "backoff_seconds": [which % 4]}});
    for (bit, key) in [
        (8, "start_to_close_timeout"),
        (16, "schedule_to_close_timeout"),
        (32, "heartbeat_timeout"),
    ] {
        if which & bit > 0 {
            options[key] = json!(4);
        }
    }
    options
}

fn worker(number: u8) -> String {
    format!("w{number}")
}

impl Player {
    fn activity(&self, which: u8) -> Option<u64> {
        let of_run = |row: &&longhaul_engine::change::TaskRow| {
            row.kind == TaskKind::Activity
                && row.run_id == *self.world.run().run_id()
                && (row.status.is_open() || which.is_multiple_of(4))
        };
        let rows = self.world.tasks.values().filter(of_run);
        pick(
            &rows.map(|row| row.sequence.get()).collect::<Vec<_>>(),
            which,
        )
    }

    fn something_is_pending(&self) -> bool {
        self.world.run().parts.keys().any(|key| {
            matches!(
                key,
                PartKey::Activity(_)
                    | PartKey::LocalActivity(_)
                    | PartKey::Timer(_)
                    | PartKey::Wait(_)
                    | PartKey::Child(_)
            )
        })
    }

    /// Returns whether the worker must deliver a cancellation. It delivers it, or does something before the call where it will.
    fn has_to_deliver(&self) -> bool {
        let asked = self.world.run().core.cancellation.as_ref();
        asked.is_some_and(|asked| asked.delivered.is_none())
    }

    fn play(&mut self, act: &Act) {
        match act {
            Act::Focus { which } => {
                // Prefer open workflows.
                let all = self.world.instances.iter();
                let open = all.filter(|(_, run)| self.world.runs[*run].core.closed.is_none());
                let open: Vec<WorkflowId> = open.map(|(id, _)| id.clone()).collect();
                self.world.focus = pick(&open, *which).or_else(|| self.world.focus.take());
            }
            Act::Claim {
                worker: by,
                rust,
                same_poll,
            } => {
                if !same_poll {
                    self.polls += 1;
                }
                let poll = format!("p{}", self.polls);
                let runtime = if *rust { "rust" } else { "python" };
                let _ = self.world.claim(&worker(*by), runtime, Some(&poll));
            }
            Act::Complete {
                worker: by,
                calls,
                end,
                read,
            } => self.complete(*by, calls, *end, *read),
            Act::Turn {
                calls,
                end,
                read,
                which,
            } => {
                self.polls += 1;
                let _ = self
                    .world
                    .claim("w0", "python", Some(&format!("p{}", self.polls)));
                match self.place_of_delivery(*which) {
                    Some(place) if self.has_to_deliver() && *read => {
                        let _ = self.world.deliver_cancellation("w0", place);
                    }
                    _ => self.complete(0, calls, *end, *read),
                }
            }
            Act::SendAgain { .. } | Act::GiveUp { .. } if self.has_to_deliver() => {}
            Act::SendAgain { worker: by } => self.send_again(*by),
            Act::GiveUp { worker: by, which } => self.give_up(*by, *which),
            Act::Repeat => self.repeat(),
            // A worker acknowledges only if something is pending.
            Act::Acknowledge { worker: by }
                if self.something_is_pending() && !self.has_to_deliver() =>
            {
                self.fail_task(*by, "WorkflowTaskWaitingForHistory");
            }
            Act::Acknowledge { .. } => {}
            Act::FailTask { worker: by } => self.fail_task(*by, "RuntimeError"),
            Act::Release { worker: by } => drop(self.world.release(&worker(*by))),
            Act::ClaimActivity { which, worker: by } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self.world.claim_activity(sequence, &worker(*by), None);
                }
            }
            Act::CompleteActivity { which, worker: by } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self
                        .world
                        .complete_activity(sequence, &worker(*by), Payload::null());
                }
            }
            Act::FailActivity {
                which,
                worker: by,
                final_failure,
            } => {
                if let Some(sequence) = self.activity(*which) {
                    let failure = Failure {
                        message: "no".into(),
                        non_retryable: *final_failure,
                        ..Failure::default()
                    };
                    let _ = self.world.fail_activity(sequence, &worker(*by), failure);
                }
            }
            Act::Work { which, fails } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self.world.claim_activity(sequence, "w0", None);
                    let _ = if *fails {
                        let failure = Failure {
                            message: "no".into(),
                            ..Failure::default()
                        };
                        self.world.fail_activity(sequence, "w0", failure)
                    } else {
                        self.world
                            .complete_activity(sequence, "w0", Payload::null())
                    };
                }
            }
            Act::HeartbeatRequest { which, worker: by } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self.world.beat(sequence, &worker(*by), None);
                }
            }
            Act::StopActivity { which, worker: by } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self.world.acknowledge_stop(sequence, &worker(*by));
                }
            }
            Act::Signal { name, request } => {
                let request = request.map(|number| format!("r{number}"));
                let _ = self
                    .world
                    .signal(&format!("s{name}"), "", request.as_deref());
            }
            Act::Update { request, of_run } => {
                let request = request.map(|number| format!("u{number}"));
                let _ = self.world.update("set", request.as_deref(), *of_run);
            }
            Act::Message { stream, id } => {
                let _ = self
                    .world
                    .append_message(&format!("m{stream}"), &format!("{id}"));
            }
            Act::Wait { seconds } => self.wait(u64::from(*seconds)),
            Act::OutboxMessage { which, delivery } => self.deliver(*which, *delivery),
            Act::Crash => self.world.crash(),
            Act::Start { other } => {
                let id = if *other { "other" } else { "order-7" };
                let options = BTreeMap::from([("id".to_owned(), id.to_owned())]);
                let _ = self.world.start(&options);
            }
            Act::Stop { terminate } => {
                let how = if *terminate {
                    Stop::Terminate
                } else {
                    Stop::Cancel
                };
                let _ = self.world.stop(how, None);
            }
            Act::RequestCancellation { seconds, capable } => {
                self.world.capable = *capable;
                let _ = self.world.request_cancellation(u64::from(*seconds), None);
                self.world.capable = true;
            }
            Act::DeliverCancellation { worker: by, which } => {
                if let Some(place) = self.place_of_delivery(*which) {
                    let _ = self.world.deliver_cancellation(&worker(*by), place);
                }
            }
            Act::PrepareLocal { .. }
            | Act::SettleLocal { .. }
            | Act::BeatLocal { .. }
            | Act::RecoverLocal { .. }
            | Act::ClaimRetry { .. }
            | Act::Checkpoint { .. } => self.play_local(act),
        }
    }

    /// Returns an open local activity of the run, and sometimes one that has ended.
    fn local(&self, which: u8) -> Option<u64> {
        let run = self.world.run();
        let open = run.parts.keys().filter_map(|key| match key {
            PartKey::LocalActivity(sequence) => Some(sequence.get()),
            _ => None,
        });
        let known = self.world.calls.keys().filter(|(of, _)| of == run.run_id());
        let known = known
            .map(|(_, sequence)| *sequence)
            .filter(|_| which.is_multiple_of(4));
        pick(&open.chain(known).collect::<Vec<_>>(), which)
    }

    fn play_local(&mut self, act: &Act) {
        match act {
            Act::PrepareLocal {
                worker: by,
                options,
                again,
            } => {
                let open = self.local(*options).filter(|_| *again);
                let next = self.world.run().core.last_command_sequence.get() + 1;
                let sequence = open.unwrap_or(next);
                let key = (self.world.run().run_id().clone(), sequence);
                let known = self.world.calls.get(&key).cloned();
                let options = known.unwrap_or_else(|| local_options(*options));
                let _ = self.world.prepare_local(&worker(*by), sequence, &options);
            }
            Act::SettleLocal {
                worker: by,
                which,
                fails,
            } => {
                if let Some(sequence) = self.local(*which) {
                    let report = if *fails {
                        LocalReport::Failed(LocalFailure {
                            message: "no".to_owned(),
                            non_retryable: which.is_multiple_of(3),
                            ..LocalFailure::default()
                        })
                    } else {
                        LocalReport::Completed(Payload::null())
                    };
                    let _ = self.world.end_local(&worker(*by), sequence, report);
                }
            }
            Act::BeatLocal {
                worker: by,
                which,
                recorded,
            } => {
                if let Some(sequence) = self.local(*which) {
                    let beat = if *recorded {
                        LocalHeartbeatRequest::Heartbeat { progress: None }
                    } else {
                        LocalHeartbeatRequest::Control
                    };
                    let _ = self.world.beat_local(&worker(*by), sequence, beat);
                }
            }
            Act::RecoverLocal { worker: by, which } => {
                if let Some(sequence) = self.local(*which) {
                    let _ = self.world.recover_local(&worker(*by), sequence);
                }
            }
            Act::ClaimRetry { worker: by, which } => {
                if let Some(sequence) = self.local(*which) {
                    let _ = self.world.claim_retry(sequence, &worker(*by));
                }
            }
            Act::Checkpoint { worker: by, calls } => {
                let mut next = self.world.run().core.last_command_sequence.get() + 1;
                let mut commands = Vec::new();
                for call in calls {
                    commands.extend(render(call, &mut next));
                }
                let run_id = self.world.run().run_id().clone();
                let before = self.world.run().core.last_command_sequence.get();
                let parsed = parse_commands(&Value::Array(commands.clone()))
                    .expect("the generator writes valid commands");
                self.polls += 1;
                let id = format!("c{}", self.polls);
                let (_, reply) = self.world.checkpoint(&worker(*by), &id, parsed);
                for (sequence, command) in (before + 1..).zip(commands) {
                    if reply.is_ok() {
                        self.sent.insert((run_id.clone(), sequence), command);
                    }
                }
            }
            other => unreachable!("{other:?} is not about local activities"),
        }
    }

    fn deliver(&mut self, which: u8, delivery: Delivery) {
        let Some(sender) = pick(&self.world.senders(), which) else {
            return;
        };
        match delivery {
            Delivery::Confirmed => drop(self.world.deliver(&sender, Confirmation::Sent)),
            Delivery::Unconfirmed => drop(self.world.deliver(&sender, Confirmation::Lost)),
            Delivery::Twice => {
                self.world.deliver(&sender, Confirmation::Lost);
                let (step, _) = self.world.deliver(&sender, Confirmation::Lost);
                assert!(
                    step.events.is_empty(),
                    "24: a repeated outbox message changes nothing"
                );
            }
        }
    }

    /// Moves the clock and advances every run: afterwards nothing is due.
    fn wait(&mut self, seconds: u64) {
        self.world.now = self.world.now.plus_seconds(seconds);
        let runs: Vec<RunId> = self.world.runs.keys().cloned().collect();
        for run_id in runs {
            let _ = self.world.elapse_of(&run_id);
            let alarm = self.world.runs[&run_id].core.alarm;
            assert!(
                alarm.is_none_or(|alarm| alarm > self.world.now),
                "30: after an alarm fires, the next one is in the future"
            );
        }
    }

    fn complete(&mut self, by: u8, calls: &[Call], end: Option<End>, read: bool) {
        let run = self.world.run();
        let turn = run
            .core
            .workflow_task
            .as_ref()
            .and_then(|task| task.resume.workflow_update_id.clone());
        if let Some(update_id) = turn {
            let verb = if read {
                "complete_update"
            } else {
                "fail_update"
            };
            self.send(
                by,
                vec![json!({"type": verb, "update_id": update_id, "message": "no"})],
            );
            return;
        }
        if read {
            self.world.cursors = cursors(run, by);
        }
        // Some decisions come from workers that keep the run in memory.
        self.world.sticky = (calls.len() == 1).then(|| StickyClaim {
            worker_id: WorkerId::from(worker(by).as_str()),
            run_id: self.world.run().run_id().clone(),
            ttl_seconds: 3,
        });
        let mut next = self.world.run().core.last_command_sequence.get() + 1;
        let mut commands = Vec::new();
        for call in calls {
            commands.extend(render(call, &mut next));
        }
        commands.extend(end.map(|end| match end {
            End::Complete => json!({"type": "complete_workflow"}),
            End::Fail { finally } => json!({"type": "fail_workflow", "message": "no", "non_retryable": finally}),
            End::FailCancelled => {
                json!({"type": "fail_workflow", "message": "as asked", "exception_type": "WorkflowCancelled"})
            }
            End::Continue => json!({"type": "continue_as_new"}),
        }));
        self.send(by, commands);
    }

    fn send(&mut self, by: u8, commands: Vec<Value>) {
        let run = self.world.run();
        let run_id = run.run_id().clone();
        let task = run.core.workflow_task.as_ref();
        let task = task.map(|task| (task.id.clone(), task.attempt));
        let mut next = run.core.last_command_sequence.get();
        let parsed = parse_commands(&Value::Array(commands.clone()))
            .expect("the generator writes valid commands");
        let (_, reply) = self.world.complete(&worker(by), None, parsed);
        let Ok(_) = reply else {
            if let Err(rejection) = reply {
                let reason = rejection.reason().to_string();
                assert_ne!(
                    reason, "invalid_commands",
                    "a valid batch is accepted: {rejection:?} {commands:?}"
                );
            }
            return;
        };
        for command in &commands {
            next += 1;
            self.sent.insert((run_id.clone(), next), command.clone());
        }
        if let Some((task_id, attempt)) = task {
            self.last_completion = Some((task_id, worker(by), attempt, commands));
        }
    }

    fn fail_task(&mut self, by: u8, failure_type: &str) {
        let task = self.open_task();
        if self.world.fail(&worker(by), None, failure_type).1.is_ok() {
            self.forget_completion(task.as_ref());
        }
    }

    fn open_task(&self) -> Option<TaskId> {
        let task = self.world.run().core.workflow_task.as_ref();
        task.map(|task| task.id.clone())
    }

    /// The stored reply is that to the newest report on a task, and the task of a retry may be leased again after its completion.
    fn forget_completion(&mut self, reported: Option<&TaskId>) {
        let completed = self.last_completion.as_ref();
        if completed.map(|(task_id, ..)| task_id) == reported {
            self.last_completion = None;
        }
    }

    fn repeat(&mut self) {
        let Some((task_id, by, attempt, commands)) = self.last_completion.clone() else {
            return;
        };
        let commands = parse_commands(&Value::Array(commands)).unwrap();
        let (step, reply) = self.world.complete_again(&task_id, &by, attempt, commands);
        assert!(reply.is_ok(), "24: the reply is stored");
        assert!(
            step.events.is_empty(),
            "24: a repeated completion changes nothing"
        );
    }

    /// 42: sends the members of open groups and open conditions as a replay would. Nothing but waiting messages is written.
    fn send_again(&mut self, by: u8) {
        let run = self.world.run();
        let task = run.core.workflow_task.as_ref();
        // A signal that the lease delivers ends a wait; a condition in a selection is not always sent again.
        let lease = task
            .filter(|task| task.resume.workflow_update_id.is_none())
            .and_then(|task| task.lease.as_ref());
        let selected = run
            .parts
            .values()
            .any(|part| matches!(part, Part::Group(group) if group.selection.is_some()));
        // A worker that has begun a local activity in this task is past its open groups.
        let moved_on =
            lease.is_none_or(|lease| lease.delivered_signal.is_some() || lease.refreshed);
        if moved_on || selected {
            return;
        }
        let mut again = Vec::new();
        for (key, part) in &run.parts {
            let sequence = match (key, part) {
                (PartKey::Member(sequence), _) => sequence.get(),
                (PartKey::Wait(sequence), Part::Wait(wait)) if wait.group.is_none() => {
                    sequence.get()
                }
                _ => continue,
            };
            let command = self.sent.get(&(run.run_id().clone(), sequence));
            let Some(command) = command.filter(|command| {
                command["type"] != "open_signal_wait"
                    || command.get("parallel_group_path").is_some()
            }) else {
                continue;
            };
            again.push(command.clone());
        }
        if again.is_empty() {
            return;
        }
        let parsed = parse_commands(&Value::Array(again.clone())).unwrap();
        let before = self.world.run().core.last_command_sequence.get();
        let run_id = self.world.run().run_id().clone();
        let task = self.open_task();
        let (step, reply) = self.world.complete(&worker(by), None, parsed);
        if let Err(rejection) = reply {
            let reason = rejection.reason().to_string();
            assert_ne!(
                reason, "invalid_commands",
                "3.3: repeated commands are recognised: {again:?} {rejection:?}"
            );
            return;
        }
        self.forget_completion(task.as_ref());
        assert_eq!(
            self.world.runs[&run_id].core.last_command_sequence, before,
            "42: no new call"
        );
        for (_, event) in &step.events {
            assert!(
                [
                    "SignalReceived",
                    "UpdateAccepted",
                    "TimerFired",
                    "TimerCancelled",
                    "WorkflowTimedOut"
                ]
                .contains(&event.event_type),
                "42: {} changes no open call",
                event.event_type
            );
        }
    }

    /// Cancels a member of a selection, unless it has ended: a worker would know that.
    fn give_up(&mut self, by: u8, which: u8) {
        let run = self.world.run();
        if run
            .core
            .workflow_task
            .as_ref()
            .is_some_and(|task| task.resume.workflow_update_id.is_some())
        {
            return;
        }
        self.polls += 1;
        let poll = format!("p{}", self.polls);
        let _ = self.world.claim(&worker(by), "python", Some(&poll));
        let run = self.world.run();
        let members = run.parts.values().filter_map(|part| match part {
            Part::Group(group) => group.selection.as_ref(),
            _ => None,
        });
        let members: Vec<_> = members
            .flat_map(|selection| selection.members.values())
            .filter(|progress| !progress.ended)
            .map(|progress| progress.member.clone())
            .collect();
        if let Some(member) = pick(&members, which) {
            let mut command = serde_json::to_value(&member).unwrap();
            command["type"] = json!("cancel_selection_operation");
            let parsed = parse_commands(&json!([command])).unwrap();
            let task = self.open_task();
            if self.world.complete(&worker(by), None, parsed).1.is_ok() {
                self.forget_completion(task.as_ref());
            }
        }
    }

    /// Returns where a worker could find the request: at an open call, at a group of them, at a handle, or at a call it did not
    /// make.
    fn place_of_delivery(&self, which: u8) -> Option<DeliveryPlace> {
        let run = self.world.run();
        run.core.cancellation.as_ref()?;
        let next = run.core.last_command_sequence.get() + 1;
        let mut places = vec![place(next, "activity", 1), place(next, "timer", 1)];
        for part in run.parts.values() {
            let (sequence, kind, group) = match part {
                Part::Activity(activity) => (activity.sequence.get(), "activity", &activity.group),
                Part::Timer(timer) => (timer.sequence.get(), "timer", &timer.group),
                Part::Wait(wait) => (wait.sequence.get(), "signal", &wait.group),
                Part::Child(child) => (child.sequence.get(), "child", &child.group),
                _ => continue,
            };
            match group {
                None => places.push(place(sequence, kind, 1)),
                Some(group) => match group.member() {
                    None => places.push(place(
                        group.outermost().base.get(),
                        "parallel",
                        group.outermost().size,
                    )),
                    // Handles exist only once the choice is recorded.
                    Some(_) if !is_decided(run, group.outermost().base) => {
                        let level = group.outermost();
                        places.push(place(level.base.get(), "parallel", level.size));
                    }
                    Some(member) => places.push(DeliveryPlace {
                        operation_sequence: Some(member.base),
                        operation_sequence_span: Some(member.size),
                        ..place(next, "selection_handle", 1)
                    }),
                },
            }
        }
        pick(&places, which)
    }
}

fn is_decided(run: &Run, base: CommandSeq) -> bool {
    let group = run.parts.get(&PartKey::Group(base));
    matches!(group, Some(Part::Group(group))
        if group.selection.as_ref().is_some_and(|selection| selection.decided))
}

fn place(sequence: u64, call_kind: &str, sequence_span: u64) -> DeliveryPlace {
    DeliveryPlace {
        sequence: sequence.into(),
        call_kind: call_kind.to_owned(),
        sequence_span,
        operation_sequence: None,
        operation_sequence_span: None,
    }
}

/// Returns how far the workflow may have read its streams: up to the history at the lease of its task.
fn cursors(run: &Run, skip: u8) -> Vec<StreamCursor> {
    let mut read: BTreeMap<String, u64> = BTreeMap::new();
    for part in run.parts.values() {
        if let Part::Signal(signal) = part
            && let Some(place) = &signal.stream
        {
            let furthest = read.entry(place.stream_name.clone()).or_default();
            *furthest = (*furthest).max(place.position.saturating_sub(u64::from(skip)));
        }
    }
    let read = read.into_iter().filter(|(_, position)| *position > 0);
    read.map(|(stream_name, through_position)| StreamCursor {
        stream_name,
        through_position,
    })
    .collect()
}

/// Returns the number of programs to run; `PROPTEST_CASES` overrides it.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_commands_keeps_the_invariants(acts in prop::collection::vec(act(), 1..120), run_timeout in prop::option::weighted(0.2, 100_u64..2000), events_per_run in prop::option::weighted(0.3, 8_u64..80)) {
        let mut world = World::new();
        if let Some(events) = events_per_run {
            world.limits.events_per_run = events;
        }
        let options = run_timeout.map(|seconds| BTreeMap::from([("run_timeout".to_owned(), seconds.to_string())])).unwrap_or_default();
        let _ = world.start(&options);
        let mut player = Player { world, polls: 0, last_completion: None, sent: BTreeMap::new() };
        for act in &acts {
            player.play(act);
        }
        player.world.deliver_all();
        invariants::check_all_delivered(&player.world);
    }
}
