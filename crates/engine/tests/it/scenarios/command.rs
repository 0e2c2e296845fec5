//! Workflow commands as stories write them.

use longhaul_engine::run::state::{Part, Run};
use serde_json::{Value, json};

/// Parses a command: `type key=value …`, or a JSON object.
pub(super) fn read_command(line: &str, run: &Run) -> Value {
    let line = line.trim();
    if line.starts_with('{') {
        return serde_json::from_str(line).unwrap();
    }
    let mut words = line.split_whitespace();
    let mut command = json!({"type": words.next().unwrap()});
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        let parsed = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        match key {
            // group=base/size/index, and /mixed when its members are not of one kind
            "group" => {
                let kind = value.split('/').nth(3).unwrap_or_else(|| kind_of(&command));
                let entry = level("parallel-calls", kind, value);
                join(&mut command, entry);
            }
            // select=base/size/index/key/number/base of the member/its size
            "select" => {
                let words: Vec<&str> = value.split('/').collect();
                let numbers: Vec<u64> =
                    words.iter().map(|word| word.parse().unwrap_or(0)).collect();
                let mut entry = level("select-calls", "mixed", value);
                let single = numbers[6] == 1;
                entry["parallel_group_mode"] = json!("select");
                entry["selection_member_key"] = json!(words[3]);
                entry["selection_member_index"] = json!(numbers[4]);
                entry["selection_member_base_sequence"] = json!(numbers[5]);
                entry["selection_member_size"] = json!(numbers[6]);
                entry["selection_member_kind"] =
                    json!(if single { kind_of(&command) } else { "group" });
                join(&mut command, entry);
            }
            // member=key of an open selection
            "member" => {
                let found = run.parts.values().find_map(|part| match part {
                    Part::Group(group) => {
                        let mut members = group.selection.as_ref()?.members.values();
                        members.find(|progress| progress.member.member_key == value)
                    }
                    _ => None,
                });
                let member = &found.expect("the run has that member").member;
                let named = serde_json::to_value(member).unwrap();
                for (name, part) in named.as_object().unwrap() {
                    command[name] = part.clone();
                }
            }
            _ => command[key] = parsed,
        }
    }
    let ends_update =
        ["complete_update", "fail_update"].contains(&command["type"].as_str().unwrap());
    if ends_update && command.get("update_id").is_none() {
        let task = run.core.workflow_task.as_ref();
        let turn = task.and_then(|task| task.resume.workflow_update_id.clone());
        command["update_id"] = json!(turn.expect("the task has an update's turn"));
    }
    command
}

fn kind_of(command: &Value) -> &'static str {
    match command["type"].as_str().unwrap() {
        "start_timer" => "timer",
        "start_child_workflow" => "child",
        "open_signal_wait" => "signal",
        "open_condition_wait" => "condition",
        _ => "activity",
    }
}

/// Returns one level of nesting, from `base/size/index…`.
fn level(prefix: &str, kind: &str, value: &str) -> Value {
    let numbers: Vec<u64> = value
        .split('/')
        .take(3)
        .map(|number| number.parse().unwrap())
        .collect();
    json!({
        "parallel_group_id": format!("{prefix}:{}:{}", numbers[0], numbers[1]), "parallel_group_kind": kind,
        "parallel_group_base_sequence": numbers[0], "parallel_group_size": numbers[1], "parallel_group_index": numbers[2],
    })
}

/// Adds a level inside those of the command; the innermost is repeated beside the path.
fn join(command: &mut Value, entry: Value) {
    let mut path = command["parallel_group_path"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let keys: Vec<String> = command.as_object().unwrap().keys().cloned().collect();
    for key in keys
        .iter()
        .filter(|key| key.starts_with("parallel_group_") || key.starts_with("selection_member_"))
    {
        command.as_object_mut().unwrap().remove(key);
    }
    for (name, part) in entry.as_object().unwrap() {
        command[name] = part.clone();
    }
    path.push(entry);
    command["parallel_group_path"] = json!(path);
}
