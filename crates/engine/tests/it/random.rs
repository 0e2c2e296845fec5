//! Any order of commands keeps the invariants: a random program is played, with several workers, late reports, lost leases and a
//! moving clock. `World` checks everything after every step.

use std::collections::BTreeMap;

use longhaul_engine::run::activity_report::Failure;
use longhaul_engine::run::external::Stop;
use longhaul_engine::run::state::PartKey;
use longhaul_protocol::Payload;
use longhaul_protocol::workflow_command::parse_commands;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::World;

#[derive(Clone, Debug)]
enum Act {
    Claim {
        worker: u8,
        rust: bool,
        same_poll: bool,
    },
    Complete {
        worker: u8,
        commands: Vec<Call>,
        end: Option<End>,
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
    Beat {
        which: u8,
        worker: u8,
    },
    Signal {
        name: u8,
        request: Option<u8>,
    },
    Wait {
        seconds: u16,
    },
    DuplicateStart,
    Stop {
        terminate: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Activity { retries: u8, timeout: u8 },
    Timer { seconds: u8 },
    Fan { size: u8 },
    Condition { key: u8, timeout: Option<u8> },
    SignalWait { name: u8, timeout: Option<u8> },
    SideEffect,
    Marker { change: u8 },
    Attribute,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Complete,
    Fail,
    Continue,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (1_u8..4, 0_u8..5).prop_map(|(retries, timeout)| Call::Activity { retries, timeout }),
        (0_u8..5).prop_map(|seconds| Call::Timer { seconds }),
        (1_u8..5).prop_map(|size| Call::Fan { size }),
        (0_u8..2, prop::option::of(0_u8..5))
            .prop_map(|(key, timeout)| Call::Condition { key, timeout }),
        (0_u8..2, prop::option::of(0_u8..5))
            .prop_map(|(name, timeout)| Call::SignalWait { name, timeout }),
        Just(Call::SideEffect),
        (0_u8..2).prop_map(|change| Call::Marker { change }),
        Just(Call::Attribute),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let end = prop_oneof![Just(End::Complete), Just(End::Fail), Just(End::Continue)];
    prop_oneof![
        6 => (0_u8..2, any::<bool>(), any::<bool>()).prop_map(|(worker, rust, same_poll)| Act::Claim { worker, rust, same_poll }),
        6 => (0_u8..2, prop::collection::vec(call(), 1..4), prop::option::weighted(0.05, end))
            .prop_map(|(worker, commands, end)| Act::Complete { worker, commands, end }),
        1 => Just(Act::Repeat),
        2 => (0_u8..2).prop_map(|worker| Act::Acknowledge { worker }),
        1 => (0_u8..2).prop_map(|worker| Act::FailTask { worker }),
        1 => (0_u8..2).prop_map(|worker| Act::Release { worker }),
        4 => (any::<u8>(), 0_u8..2).prop_map(|(which, worker)| Act::ClaimActivity { which, worker }),
        4 => (any::<u8>(), 0_u8..2).prop_map(|(which, worker)| Act::CompleteActivity { which, worker }),
        2 => (any::<u8>(), 0_u8..2, any::<bool>()).prop_map(|(which, worker, final_failure)| Act::FailActivity { which, worker, final_failure }),
        1 => (any::<u8>(), 0_u8..2).prop_map(|(which, worker)| Act::Beat { which, worker }),
        4 => (0_u8..2, prop::option::of(0_u8..3)).prop_map(|(name, request)| Act::Signal { name, request }),
        4 => prop_oneof![0_u16..6, 200_u16..400].prop_map(|seconds| Act::Wait { seconds }),
        1 => Just(Act::DuplicateStart),
        1 => any::<bool>().prop_map(|terminate| Act::Stop { terminate }),
    ]
}

struct Player {
    world: World,
    polls: u32,
    last_completion: Option<(String, u64, Vec<Value>)>,
}

impl Player {
    fn worker(worker: u8) -> String {
        format!("w{worker}")
    }

    fn activity(&self, which: u8) -> Option<u64> {
        let known: Vec<u64> = self
            .world
            .tasks
            .values()
            .filter(|row| row.sequence > 0 && row.run_id == *self.world.run().run_id())
            .map(|row| row.sequence)
            .collect();
        (!known.is_empty()).then(|| known[usize::from(which) % known.len()])
    }

    fn something_is_pending(&self) -> bool {
        self.world.run().parts.keys().any(|key| {
            matches!(
                key,
                PartKey::Activity(_) | PartKey::Timer(_) | PartKey::Wait(_)
            )
        })
    }

    fn play(&mut self, act: &Act) {
        match act {
            Act::Claim {
                worker,
                rust,
                same_poll,
            } => {
                if !same_poll {
                    self.polls += 1;
                }
                let poll = format!("p{}", self.polls);
                let _ = self.world.claim(
                    &Self::worker(*worker),
                    if *rust { "rust" } else { "python" },
                    Some(&poll),
                );
            }
            Act::Complete {
                worker,
                commands,
                end,
            } => self.complete(*worker, commands, *end),
            Act::Repeat => {
                if let Some((worker, attempt, commands)) = self.last_completion.clone() {
                    let commands = parse_commands(&Value::Array(commands)).unwrap();
                    let _ = self.world.complete(&worker, Some(attempt), commands);
                }
            }
            // A worker says that only when something is pending.
            Act::Acknowledge { worker } if self.something_is_pending() => {
                let _ = self.world.fail(
                    &Self::worker(*worker),
                    None,
                    "WorkflowTaskWaitingForHistory",
                );
            }
            Act::Acknowledge { .. } => {}
            Act::FailTask { worker } => drop(self.world.fail(
                &Self::worker(*worker),
                None,
                "RuntimeError",
            )),
            Act::Release { worker } => drop(self.world.release(&Self::worker(*worker))),
            Act::ClaimActivity { which, worker } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self
                        .world
                        .claim_activity(sequence, &Self::worker(*worker), None);
                }
            }
            Act::CompleteActivity { which, worker } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self.world.complete_activity(
                        sequence,
                        &Self::worker(*worker),
                        Payload::null(),
                    );
                }
            }
            Act::FailActivity {
                which,
                worker,
                final_failure,
            } => {
                if let Some(sequence) = self.activity(*which) {
                    let failure = Failure {
                        message: "no".into(),
                        non_retryable: *final_failure,
                        ..Failure::default()
                    };
                    let _ = self
                        .world
                        .fail_activity(sequence, &Self::worker(*worker), failure);
                }
            }
            Act::Beat { which, worker } => {
                if let Some(sequence) = self.activity(*which) {
                    let _ = self.world.beat(sequence, &Self::worker(*worker), None);
                }
            }
            Act::Signal { name, request } => {
                let request = request.map(|number| format!("r{number}"));
                let _ = self
                    .world
                    .signal(&format!("s{name}"), "", request.as_deref());
            }
            Act::Wait { seconds } => self.wait(u64::from(*seconds)),
            Act::DuplicateStart => drop(self.world.start(&BTreeMap::new())),
            Act::Stop { terminate } => drop(self.world.stop(
                if *terminate {
                    Stop::Terminate
                } else {
                    Stop::Cancel
                },
                None,
            )),
        }
    }

    /// After time has passed and the run was told, nothing is due any more.
    fn wait(&mut self, seconds: u64) {
        self.world.now = self.world.now.plus_seconds(seconds);
        let _ = self.world.elapse();
        let alarm = self.world.run().core.alarm;
        assert!(
            alarm.is_none_or(|alarm| alarm > self.world.now),
            "an alarm that has rung lies in the future"
        );
    }

    fn complete(&mut self, worker: u8, calls: &[Call], end: Option<End>) {
        let mut next = self.world.run().core.last_command_sequence + 1;
        let mut commands = Vec::new();
        for call in calls {
            commands.extend(render(*call, &mut next));
        }
        commands.extend(end.map(|end| match end {
            End::Complete => json!({"type": "complete_workflow"}),
            End::Fail => json!({"type": "fail_workflow", "message": "no"}),
            End::Continue => json!({"type": "continue_as_new"}),
        }));
        let attempt = self
            .world
            .run()
            .core
            .workflow_task
            .as_ref()
            .map(|task| task.attempt);
        let parsed = parse_commands(&Value::Array(commands.clone()))
            .expect("the generator writes good commands");
        let worker = Self::worker(worker);
        let before = self.world.run().core.last_history_sequence;
        let run_id = self.world.run().run_id().clone();
        let (_, reply) = self.world.complete(&worker, None, parsed);
        if reply.is_err() && self.world.runs[&run_id].core.closed.is_none() {
            assert_eq!(
                self.world.runs[&run_id].core.last_history_sequence, before,
                "33: a rejected batch changes nothing"
            );
        }
        if let (Ok(_), Some(attempt)) = (reply, attempt) {
            self.last_completion = Some((worker, attempt, commands));
        }
    }
}

fn render(call: Call, next: &mut u64) -> Vec<Value> {
    let mut take = || {
        *next += 1;
        *next - 1
    };
    match call {
        Call::Activity { retries, timeout } => {
            take();
            let mut command = json!({"type": "schedule_activity", "activity_type": "work", "retry_policy": {"max_attempts": retries, "backoff_seconds": [1]}});
            match timeout {
                1 => command["start_to_close_timeout"] = json!(3),
                2 => command["schedule_to_start_timeout"] = json!(3),
                3 => command["schedule_to_close_timeout"] = json!(4),
                4 => command["heartbeat_timeout"] = json!(2),
                _ => {}
            }
            vec![command]
        }
        Call::Timer { seconds } => {
            take();
            vec![json!({"type": "start_timer", "delay_seconds": seconds})]
        }
        Call::Fan { size } => {
            let base = take();
            *next -= 1;
            let mut take = || *next += 1;
            (0..u64::from(size))
                .map(|index| {
                    take();
                    let entry = json!({
                        "parallel_group_id": format!("parallel-activities:{base}:{size}"), "parallel_group_kind": "activity",
                        "parallel_group_base_sequence": base, "parallel_group_size": size, "parallel_group_index": index,
                    });
                    let mut command = json!({"type": "schedule_activity", "activity_type": "work", "parallel_group_path": [entry]});
                    for (key, value) in entry.as_object().unwrap() {
                        command[key] = value.clone();
                    }
                    command
                })
                .collect()
        }
        Call::Condition { key, timeout } => {
            // A wait like an open one is sent again, not opened; the sequence after it is then not taken. Keys by sequence
            // keep the generator's arithmetic right.
            let sequence = take();
            vec![
                json!({"type": "open_condition_wait", "condition_key": format!("c{key}-{sequence}"), "timeout_seconds": timeout}),
            ]
        }
        Call::SignalWait { name, timeout } => {
            take();
            vec![
                json!({"type": "open_signal_wait", "signal_name": format!("s{name}"), "timeout_seconds": timeout}),
            ]
        }
        Call::SideEffect => {
            take();
            vec![json!({"type": "record_side_effect", "result": "wwHioz3/VYAiNwA="})]
        }
        Call::Marker { change } => {
            take();
            vec![
                json!({"type": "record_version_marker", "change_id": format!("v{change}"), "version": 1, "min_supported": 0, "max_supported": 1}),
            ]
        }
        Call::Attribute => {
            take();
            vec![json!({"type": "upsert_search_attributes", "attributes": {"Step": *next}})]
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_commands_keeps_the_invariants(acts in prop::collection::vec(act(), 1..80), run_timeout in prop::option::weighted(0.2, 100_u64..2000)) {
        let mut world = World::new();
        let options = run_timeout.map(|seconds| BTreeMap::from([("run_timeout".to_owned(), seconds.to_string())])).unwrap_or_default();
        let _ = world.start(&options);
        let mut player = Player { world, polls: 0, last_completion: None };
        for act in &acts {
            player.play(act);
        }
    }
}
