//! The commands of a random workflow in one task: calls of every kind, alone, in groups and in selections, as the SDKs write them.

use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(super) enum Call {
    Leaf(Leaf),
    /// Waits for all.
    Fan(Vec<Leaf>),
    /// Waits for the first; a member is a call or a group of calls.
    Select(Vec<Vec<Leaf>>),
    SideEffect,
    Marker {
        change: u8,
    },
    Attribute,
    /// A local activity, reported after its end.
    ReportedLocal {
        attempts: u8,
        fails: bool,
    },
}

/// A call that takes time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaf {
    Activity {
        retries: u8,
        timeout: u8,
        policy: u8,
    },
    Timer {
        seconds: u8,
    },
    Child {
        close: u8,
        policy: u8,
        retries: u8,
        timeout: u8,
    },
    Condition {
        timeout: Option<u8>,
        named: bool,
    },
    Signal {
        name: u8,
        timeout: Option<u8>,
    },
}

fn leaf() -> impl Strategy<Value = Leaf> {
    prop_oneof![
        3 => (1_u8..4, 0_u8..5, 0_u8..4).prop_map(|(retries, timeout, policy)| Leaf::Activity { retries, timeout, policy }),
        2 => (0_u8..5).prop_map(|seconds| Leaf::Timer { seconds }),
        3 => (0_u8..4, 0_u8..4, 0_u8..3, 0_u8..4)
            .prop_map(|(close, policy, retries, timeout)| Leaf::Child { close, policy, retries, timeout }),
        2 => (prop::option::of(0_u8..5), any::<bool>()).prop_map(|(timeout, named)| Leaf::Condition { timeout, named }),
        2 => (0_u8..3, prop::option::of(0_u8..5)).prop_map(|(name, timeout)| Leaf::Signal { name, timeout }),
    ]
}

pub(super) fn call() -> impl Strategy<Value = Call> {
    let member = prop_oneof![
        3 => prop::collection::vec(leaf(), 1),
        1 => prop::collection::vec(leaf(), 2..4),
    ];
    prop_oneof![
        6 => leaf().prop_map(Call::Leaf),
        2 => prop::collection::vec(leaf(), 1..4).prop_map(Call::Fan),
        3 => prop::collection::vec(member, 1..4).prop_map(Call::Select),
        1 => Just(Call::SideEffect),
        1 => (0_u8..2).prop_map(|change| Call::Marker { change }),
        1 => Just(Call::Attribute),
        1 => (1_u8..4, any::<bool>()).prop_map(|(attempts, fails)| Call::ReportedLocal { attempts, fails }),
    ]
}

/// Returns the commands of a call; `next` is the number of its first.
pub(super) fn render(call: &Call, next: &mut u64) -> Vec<Value> {
    let base = *next;
    match call {
        Call::Leaf(leaf) => {
            *next += 1;
            vec![leaf.render(base)]
        }
        Call::Fan(leaves) => {
            *next += leaves.len() as u64;
            let kind = kind_of(leaves.iter());
            let place =
                |index: u64| level("parallel-calls", kind, base, leaves.len() as u64, index);
            (0_u64..)
                .zip(leaves)
                .map(|(index, leaf)| grouped(leaf.render(base + index), &[place(index)]))
                .collect()
        }
        Call::Select(members) => {
            let size: u64 = members.iter().map(|member| member.len() as u64).sum();
            *next += size;
            let kind = kind_of(members.iter().flatten());
            let mut commands = Vec::new();
            let mut index = 0;
            for (number, member) in (0_u64..).zip(members) {
                let member_base = base + index;
                let member_size = member.len() as u64;
                let inner_kind = kind_of(member.iter());
                for (inner, leaf) in (0_u64..).zip(member) {
                    let mut outer = level("select-calls", kind, base, size, index);
                    outer["parallel_group_mode"] = json!("select");
                    outer["selection_member_key"] = json!(format!("m{number}"));
                    outer["selection_member_index"] = json!(number);
                    outer["selection_member_base_sequence"] = json!(member_base);
                    outer["selection_member_size"] = json!(member_size);
                    outer["selection_member_kind"] = json!(if member_size > 1 {
                        "group"
                    } else {
                        leaf.kind()
                    });
                    let mut path = vec![outer];
                    if member_size > 1 {
                        path.push(level(
                            "parallel-calls",
                            inner_kind,
                            member_base,
                            member_size,
                            inner,
                        ));
                    }
                    commands.push(grouped(leaf.render(base + index), &path));
                    index += 1;
                }
            }
            commands
        }
        Call::SideEffect => {
            *next += 1;
            vec![json!({"type": "record_side_effect", "result": "wwHioz3/VYAiNwA="})]
        }
        Call::Marker { change } => {
            *next += 1;
            vec![
                json!({"type": "record_version_marker", "change_id": format!("v{change}"), "version": 1, "min_supported": 0, "max_supported": 1}),
            ]
        }
        Call::ReportedLocal { attempts, fails } => {
            *next += 1;
            vec![reported_local(u64::from(*attempts), *fails)]
        }
        Call::Attribute => {
            *next += 1;
            vec![json!({"type": "upsert_search_attributes", "attributes": {"Step": base}})]
        }
    }
}

/// Returns a local activity after its end: every attempt but the last failed.
fn reported_local(attempts: u64, fails: bool) -> Value {
    let last = if fails { "failed" } else { "completed" };
    let list: Vec<Value> = (1..=attempts)
        .map(|number| {
            let outcome = if number < attempts { "failed" } else { last };
            let mut attempt = json!({"attempt_number": number, "outcome": outcome, "duration_ms": 5,
                "heartbeats": [{"elapsed_ms": 3}]});
            if outcome == "failed" {
                attempt["message"] = json!("no");
            }
            if number < attempts {
                attempt["retry_reason"] = json!("failure");
                attempt["backoff_seconds"] = json!(1);
            }
            attempt
        })
        .collect();
    let mut command = json!({"type": "record_local_activity", "activity_type": "charge", "execution_mode": "local",
        "retry_policy": {"max_attempts": 3}, "outcome": last, "attempts": list});
    if fails {
        command["message"] = json!("no");
    } else {
        command["result"] = json!("wwHioz3/VYAiNwA=");
    }
    command
}

impl Leaf {
    fn kind(self) -> &'static str {
        match self {
            Self::Activity { .. } => "activity",
            Self::Timer { .. } => "timer",
            Self::Child { .. } => "child",
            Self::Condition { .. } => "condition",
            Self::Signal { .. } => "signal",
        }
    }

    fn render(self, sequence: u64) -> Value {
        match self {
            Self::Activity {
                retries,
                timeout,
                policy,
            } => {
                let mut command = json!({"type": "schedule_activity", "activity_type": "work", "retry_policy": {"max_attempts": retries, "backoff_seconds": [1]}});
                set_policy(&mut command, policy);
                // A child that may be abandoned must end by itself.
                match if policy == 2 { 3 } else { timeout } {
                    1 => command["start_to_close_timeout"] = json!(3),
                    2 => command["schedule_to_start_timeout"] = json!(3),
                    3 => command["schedule_to_close_timeout"] = json!(4),
                    4 => command["heartbeat_timeout"] = json!(2),
                    _ => {}
                }
                command
            }
            Self::Timer { seconds } => json!({"type": "start_timer", "delay_seconds": seconds}),
            Self::Child {
                close,
                policy,
                retries,
                timeout,
            } => {
                let close = [
                    "abandon",
                    "request_cancel",
                    "terminate",
                    "request_cancellation",
                ][usize::from(close)];
                let mut command = json!({"type": "start_child_workflow", "workflow_type": "part", "parent_close_policy": close});
                set_policy(&mut command, policy);
                if retries > 0 {
                    command["retry_policy"] =
                        json!({"max_attempts": retries + 1, "backoff_seconds": [0, 2]});
                }
                match timeout {
                    1 => command["run_timeout_seconds"] = json!(7),
                    2 => command["execution_timeout_seconds"] = json!(9),
                    _ => {}
                }
                command
            }
            // Keys by sequence: a wait equal to an open one would be sent again, not opened.
            Self::Condition { timeout, named } => {
                let mut command = json!({"type": "open_condition_wait", "condition_key": format!("c{sequence}"), "timeout_seconds": timeout});
                if named {
                    command["condition_wait_occurrence_id"] = json!(format!("o{sequence}"));
                }
                command
            }
            Self::Signal { name, timeout } => {
                let name = match name {
                    2 => "__durable_workflow_message_stream".to_owned(),
                    name => format!("s{name}"),
                };
                json!({"type": "open_signal_wait", "signal_name": name, "timeout_seconds": timeout})
            }
        }
    }
}

fn set_policy(command: &mut Value, policy: u8) {
    let words = ["try_cancel", "wait_cancellation_completed", "abandon"];
    if let Some(word) = words.get(usize::from(policy)) {
        command["cancellation_policy"] = json!(word);
    }
}

fn kind_of<'a>(mut leaves: impl Iterator<Item = &'a Leaf>) -> &'static str {
    let first = leaves.next().expect("a group has a member").kind();
    if leaves.all(|leaf| leaf.kind() == first) {
        first
    } else {
        "mixed"
    }
}

fn level(prefix: &str, kind: &str, base: u64, size: u64, index: u64) -> Value {
    json!({
        "parallel_group_id": format!("{prefix}:{base}:{size}"), "parallel_group_kind": kind,
        "parallel_group_base_sequence": base, "parallel_group_size": size, "parallel_group_index": index,
    })
}

/// Adds the path of a group to a command; the innermost level is repeated beside the path.
fn grouped(mut command: Value, path: &[Value]) -> Value {
    for (key, value) in path.last().and_then(Value::as_object).expect("a level") {
        command[key] = value.clone();
    }
    command["parallel_group_path"] = json!(path);
    command
}
