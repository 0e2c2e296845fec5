//! The metadata of parallel groups: the group that a call belongs to, and its place in the group.
//!
//! A worker sends these keys with each member of a fan-out, and every event of the call must repeat them unchanged. So the
//! keys are kept as they came, and only the numbers that rules need are parsed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sequence::CommandSeq;

/// Keys of the metadata block besides `parallel_group_path`.
pub const GROUP_KEYS: [&str; 11] = [
    "parallel_group_id",
    "parallel_group_kind",
    "parallel_group_base_sequence",
    "parallel_group_size",
    "parallel_group_index",
    "parallel_group_mode",
    "selection_member_key",
    "selection_member_index",
    "selection_member_base_sequence",
    "selection_member_size",
    "selection_member_kind",
];

/// The most calls in a group. Both published SDKs have the same limit.
pub const GROUP_SIZE_MAX: u64 = 1000;

/// One level of nested groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// The group id, `{prefix}:{base}:{size}`; each SDK chooses its prefix.
    pub id: String,
    /// `activity`, `timer`, `child`, `signal`, `condition` or `mixed`.
    pub kind: String,
    /// The command sequence of the first call.
    pub base: CommandSeq,
    /// The number of calls in the group.
    pub size: u64,
    /// The place of this call; its command sequence is `base + index`.
    pub index: u64,
    /// The member that this call belongs to. Only set in a selection, which ends with its first member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Member>,
}

/// One alternative of a selection: a single call, or a group of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name that the workflow gave it, or its number.
    pub key: Value,
    /// Its place among the members.
    pub index: u64,
    /// Command sequence of its first call.
    pub base: CommandSeq,
    /// The number of calls in it.
    pub size: u64,
    /// The kind of its call, or `group`.
    pub kind: String,
}

impl Level {
    /// Returns the command sequence of the call.
    pub fn sequence(&self) -> CommandSeq {
        self.base.plus(self.index)
    }
}

/// The group metadata of one call: the keys as sent, and the levels from outermost to innermost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    keys: Arc<Map<String, Value>>,
    levels: Vec<Level>,
}

impl Group {
    /// Reads the metadata of a command. Returns `None` if the command has none; the error names the offending key.
    pub fn read(command: &Map<String, Value>) -> Result<Option<Self>, (String, String)> {
        let path = match command.get("parallel_group_path") {
            None | Some(Value::Null) => {
                return match command.get("parallel_group_id") {
                    None | Some(Value::Null) => Ok(None),
                    Some(_) => Err(missing(
                        "parallel_group_path",
                        "is required beside parallel_group_id",
                    )),
                };
            }
            Some(Value::Array(path)) if !path.is_empty() => path,
            Some(_) => return Err(missing("parallel_group_path", "must be a non-empty list")),
        };
        let mut keys = Map::new();
        for key in GROUP_KEYS {
            if let Some(value) = command.get(key).filter(|value| !value.is_null()) {
                keys.insert(key.to_owned(), value.clone());
            }
        }
        keys.insert("parallel_group_path".to_owned(), Value::Array(path.clone()));
        let mut levels = Vec::with_capacity(path.len());
        for (place, entry) in path.iter().enumerate() {
            let mut level = read_level(entry, place)?;
            level.member = read_member(entry, place, &level)?;
            levels.push(level);
        }
        Self::check_top_level(&keys, path.last().expect("the path is not empty"))?;
        Ok(Some(Self {
            keys: Arc::new(keys),
            levels,
        }))
    }

    /// Checks that the top-level keys repeat the innermost entry of the path.
    fn check_top_level(
        keys: &Map<String, Value>,
        innermost: &Value,
    ) -> Result<(), (String, String)> {
        for key in GROUP_KEYS {
            let inner = innermost.get(key).filter(|value| !value.is_null());
            if keys.get(key) != inner {
                return Err(missing(
                    key,
                    "must equal the last entry of parallel_group_path",
                ));
            }
        }
        Ok(())
    }

    /// The keys as the worker sent them.
    pub fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// Levels from outermost to innermost; never empty.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The outermost level. The workflow waits for all of its calls together.
    pub fn outermost(&self) -> &Level {
        &self.levels[0]
    }

    /// The member of a selection that this call belongs to.
    pub fn member(&self) -> Option<&Member> {
        self.outermost().member.as_ref()
    }
}

fn missing(key: &str, message: &str) -> (String, String) {
    (key.to_owned(), message.to_owned())
}

fn read_level(entry: &Value, place: usize) -> Result<Level, (String, String)> {
    let at = |key: &str| format!("parallel_group_path.{place}.{key}");
    let text = |key: &str| match entry.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        _ => Err((at(key), "must be a non-empty string".to_owned())),
    };
    let number = |key: &str| {
        entry
            .get(key)
            .and_then(Value::as_u64)
            .ok_or_else(|| (at(key), "must be an integer".to_owned()))
    };
    let level = Level {
        id: text("parallel_group_id")?,
        kind: text("parallel_group_kind")?,
        base: number("parallel_group_base_sequence")?.into(),
        size: number("parallel_group_size")?,
        index: number("parallel_group_index")?,
        member: None,
    };
    if level.base.is_zero() {
        return Err((
            at("parallel_group_base_sequence"),
            "must be at least 1".to_owned(),
        ));
    }
    if level.size < 1 || level.size > GROUP_SIZE_MAX {
        return Err((
            at("parallel_group_size"),
            format!("must be from 1 to {GROUP_SIZE_MAX}"),
        ));
    }
    if level.index >= level.size {
        return Err((
            at("parallel_group_index"),
            "must be smaller than the group's size".to_owned(),
        ));
    }
    if !level
        .id
        .ends_with(&format!(":{}:{}", level.base, level.size))
    {
        return Err((
            at("parallel_group_id"),
            "must end in the group's base and size".to_owned(),
        ));
    }
    Ok(level)
}

/// Reads the member of a selection and checks that it lies inside its group. Only the outermost group can be a selection.
fn read_member(
    entry: &Value,
    place: usize,
    level: &Level,
) -> Result<Option<Member>, (String, String)> {
    let at = |key: &str| format!("parallel_group_path.{place}.{key}");
    let refuse = |key: &str, message: &str| Err((at(key), message.to_owned()));
    match entry.get("parallel_group_mode") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(mode)) if mode == "all" => return Ok(None),
        Some(Value::String(mode)) if mode == "select" => {}
        Some(_) => return refuse("parallel_group_mode", "must be select or all"),
    }
    if place > 0 {
        return refuse(
            "parallel_group_mode",
            "a selection cannot be inside another group",
        );
    }
    let number = |key: &str| {
        entry
            .get(key)
            .and_then(Value::as_u64)
            .ok_or_else(|| (at(key), "must be an integer".to_owned()))
    };
    let key = match entry.get("selection_member_key") {
        Some(key @ Value::String(_)) => key.clone(),
        Some(key) if key.is_u64() => key.clone(),
        _ => {
            return refuse(
                "selection_member_key",
                "must be a string or an integer from 0",
            );
        }
    };
    let Some(Value::String(kind)) = entry.get("selection_member_kind") else {
        return refuse("selection_member_kind", "must be a string");
    };
    let member = Member {
        key,
        index: number("selection_member_index")?,
        base: number("selection_member_base_sequence")?.into(),
        size: number("selection_member_size")?,
        kind: kind.clone(),
    };
    let calls = member.base..member.base.plus(member.size);
    let inside = member.base >= level.base
        && calls.end <= level.base.plus(level.size)
        && calls.contains(&level.sequence());
    if !inside {
        return refuse(
            "selection_member_base_sequence",
            "the member's calls must lie inside the group and include this one",
        );
    }
    Ok(Some(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(base: u64, size: u64, index: u64) -> Value {
        json!({"parallel_group_id": format!("parallel-activities:{base}:{size}"), "parallel_group_kind": "activity",
            "parallel_group_base_sequence": base, "parallel_group_size": size, "parallel_group_index": index})
    }

    fn command(path: &[Value]) -> Map<String, Value> {
        let mut command = path.last().unwrap().as_object().unwrap().clone();
        command.insert("parallel_group_path".into(), json!(path));
        command
    }

    #[test]
    fn reads_levels_and_keeps_the_keys() {
        let group = Group::read(&command(&[member(1, 4, 2), member(3, 2, 0)]))
            .unwrap()
            .unwrap();
        assert_eq!(group.outermost().sequence().get(), 3);
        assert_eq!(group.levels().len(), 2);
        assert_eq!(group.keys()["parallel_group_id"], "parallel-activities:3:2");
        assert!(group.member().is_none());
    }

    #[test]
    fn refuses_what_does_not_fit_together() {
        for (path, key) in [
            (
                vec![member(0, 2, 0)],
                "parallel_group_path.0.parallel_group_base_sequence",
            ),
            (
                vec![member(1, 1001, 0)],
                "parallel_group_path.0.parallel_group_size",
            ),
            (
                vec![member(1, 2, 2)],
                "parallel_group_path.0.parallel_group_index",
            ),
        ] {
            assert_eq!(Group::read(&command(&path)).unwrap_err().0, key);
        }
        let mut other = command(&[member(1, 2, 0)]);
        other.insert("parallel_group_index".into(), json!(1));
        assert_eq!(Group::read(&other).unwrap_err().0, "parallel_group_index");
        assert!(Group::read(&Map::new()).unwrap().is_none());
    }
}
