//! Numbering the commands of one completion, and recognising those that are sent again.
//!
//! The arithmetic must equal the SDKs' own: both compute the base of a parallel group as the highest recorded command
//! sequence, plus the commands already in the batch, plus one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use longhaul_protocol::id::UpdateId;
use longhaul_protocol::parallel_group::{Group, Level};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{FieldErrors, OpenConditionWait, WorkflowCommand};

use crate::Rejection;
use crate::run::draft::Draft;
use crate::run::state::{Part, PartKey, Wait, WaitFor};
use crate::visibility::Definitions;

/// The commands of a completion with their places.
pub(crate) struct Batch<'c> {
    /// The commands to apply, in order; a new call has its command sequence, a command about an earlier call has none.
    pub(crate) steps: Vec<(Option<CommandSeq>, &'c WorkflowCommand)>,
    pub(crate) terminal: Option<&'c WorkflowCommand>,
    /// The number of a terminal command.
    pub(crate) next_sequence: CommandSeq,
    /// Open condition waits that were sent again, by sequence.
    pub(crate) sent_again: BTreeSet<CommandSeq>,
}

struct Placing<'d, 'c> {
    draft: &'d Draft<'d>,
    batch: Batch<'c>,
    groups: BTreeMap<String, (Level, BTreeSet<CommandSeq>)>,
    errors: FieldErrors,
}

impl Draft<'_> {
    /// Assigns a place to every command, or returns the commands that contradict the record.
    pub(crate) fn place<'c>(
        &self,
        commands: &'c [WorkflowCommand],
        definitions: &Definitions,
    ) -> Result<Batch<'c>, Rejection> {
        let recorded = self.core.last_command_sequence;
        let mut placing = Placing {
            draft: self,
            batch: Batch {
                steps: Vec::new(),
                terminal: None,
                next_sequence: recorded.next(),
                sent_again: BTreeSet::new(),
            },
            groups: BTreeMap::new(),
            errors: FieldErrors::new(),
        };
        for (index, command) in commands.iter().enumerate() {
            placing.place(index, command);
        }
        placing.check_updates(commands);
        placing.check_groups_are_whole();
        if !placing.errors.is_empty() {
            return Err(Rejection::InvalidCommands {
                errors: placing.errors,
            });
        }
        self.check_version_markers(commands)?;
        self.check_attributes(commands, definitions)?;
        Ok(placing.batch)
    }

    /// Checks that a change has one decision: the first is final, and a second one may only repeat it.
    fn check_version_markers(&self, commands: &[WorkflowCommand]) -> Result<(), Rejection> {
        let mut chosen: BTreeMap<&str, i32> = BTreeMap::new();
        for (index, command) in commands.iter().enumerate() {
            let WorkflowCommand::RecordVersionMarker {
                change_id, version, ..
            } = command
            else {
                continue;
            };
            let recorded = self
                .core
                .version_markers
                .get(change_id)
                .or_else(|| chosen.get(change_id.as_str()))
                .copied();
            if let Some(recorded) = recorded.filter(|recorded| recorded != version) {
                let message = format!(
                    "version {recorded} of `{change_id}` is recorded; a run keeps its first decision"
                );
                let errors = BTreeMap::from([(format!("commands.{index}.version"), vec![message])]);
                return Err(Rejection::VersionMarkerConflict { errors });
            }
            chosen.insert(change_id, *version);
        }
        Ok(())
    }

    /// Checks search attributes: the declared type of a key does not change, and a value has the type that its key is defined or
    /// declared as.
    fn check_attributes(
        &self,
        commands: &[WorkflowCommand],
        definitions: &Definitions,
    ) -> Result<(), Rejection> {
        let mut known = Cow::Borrowed(&*self.core.search_attribute_types);
        let mut errors = FieldErrors::new();
        for (index, command) in commands.iter().enumerate() {
            let WorkflowCommand::UpsertSearchAttributes {
                attributes,
                attribute_types,
            } = command
            else {
                continue;
            };
            for (key, declared) in attribute_types.iter().flatten() {
                match known.get(key) {
                    Some(before) if before != declared => {
                        let message = format!("`{key}` is declared as {before} in this run");
                        errors.insert(
                            format!("commands.{index}.attribute_types.{key}"),
                            vec![message],
                        );
                    }
                    Some(_) => {}
                    None => {
                        known.to_mut().insert(key.clone(), declared.clone());
                    }
                }
            }
            for (key, value) in attributes {
                if let Some(message) = definitions.contradiction(key, known.get(key), value) {
                    errors.insert(format!("commands.{index}.attributes.{key}"), vec![message]);
                }
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Rejection::InvalidCommands { errors })
        }
    }
}

impl<'c> Placing<'_, 'c> {
    fn place(&mut self, index: usize, command: &'c WorkflowCommand) {
        if command.is_terminal() {
            self.batch.terminal = Some(command);
            return;
        }
        if !command.is_call() {
            if let WorkflowCommand::CancelSelectionOperation(member) = command
                && member.member_base_sequence.plus(member.member_size)
                    > self.draft.core.last_command_sequence.next()
            {
                self.refuse_field(
                    index,
                    "member_base_sequence",
                    "the run has no such member of a selection",
                );
            }
            self.batch.steps.push((None, command));
            return;
        }
        if let Some(group) = command.group() {
            self.place_member(index, command, group);
            return;
        }
        if let WorkflowCommand::OpenConditionWait(wait) = command
            && let Some(sequence) = self.open_wait_like(wait)
        {
            self.batch.sent_again.insert(sequence);
            return;
        }
        let sequence = self.batch.next_sequence;
        self.batch.next_sequence = sequence.next();
        self.batch.steps.push((Some(sequence), command));
    }

    /// Checks updates: a task that has an update's turn ends that update and does nothing else; any task ends an update at most
    /// once.
    fn check_updates(&mut self, commands: &[WorkflowCommand]) {
        let turn = self
            .draft
            .core
            .workflow_task
            .as_ref()
            .and_then(|task| task.resume.workflow_update_id.as_ref());
        let mut ended = BTreeSet::new();
        for (index, command) in commands.iter().enumerate() {
            let Some(update_id) = update_of(command) else {
                if turn.is_some() {
                    self.refuse_field(
                        index,
                        "type",
                        "a task that has an update's turn may only complete or fail that update",
                    );
                }
                continue;
            };
            if self.draft.update_by_id(update_id).is_none() {
                self.refuse_field(index, "update_id", "the run has no such open update");
            } else if turn.is_some_and(|turn| turn != update_id) {
                self.refuse_field(index, "update_id", "the task belongs to another update");
            } else if !ended.insert(update_id) {
                self.refuse_field(index, "update_id", "the commands end this update twice");
            }
        }
    }

    fn place_member(&mut self, index: usize, command: &'c WorkflowCommand, group: &Group) {
        let recorded = self.draft.core.last_command_sequence;
        let sequence = group.outermost().sequence();
        let (kind, name) = leaf(command);
        for level in group.levels() {
            if level.sequence() != sequence {
                return self.refuse(
                    index,
                    "every level's base and index must give the same command sequence",
                );
            }
            if level.kind != kind && level.kind != "mixed" {
                return self.refuse(
                    index,
                    &format!(
                        "a {kind} cannot be a member of a group of kind {}",
                        level.kind
                    ),
                );
            }
        }
        if sequence <= recorded {
            let same = matches!(self.draft.part(PartKey::Member(sequence)), Some(Part::Member(member))
                if member.kind == kind && member.name.as_deref() == name && member.group == *group);
            if !same {
                return self.refuse(
                    index,
                    &format!("command sequence {sequence} is recorded as another call"),
                );
            }
            if self.draft.wait(sequence).is_some() {
                self.batch.sent_again.insert(sequence);
            }
            return;
        }
        let latest = recorded.next().plus(index as u64);
        if sequence < self.batch.next_sequence || sequence > latest {
            let expected = self.batch.next_sequence;
            return self.refuse(
                index,
                &format!("the group numbers this call {sequence}; from {expected} to {latest} was expected"),
            );
        }
        for level in group.levels() {
            let (known, members) = self
                .groups
                .entry(level.id.clone())
                .or_insert_with(|| (level.clone(), BTreeSet::new()));
            let agrees =
                known.base == level.base && known.size == level.size && known.kind == level.kind;
            if !agrees || !members.insert(sequence) {
                return self.refuse(
                    index,
                    &format!("contradicts another member of group {}", level.id),
                );
            }
        }
        self.batch.next_sequence = sequence.next();
        self.batch.steps.push((Some(sequence), command));
    }

    /// Checks that all members of a group arrive in one completion.
    fn check_groups_are_whole(&mut self) {
        for (id, (level, members)) in &self.groups {
            if members.len() as u64 != level.size {
                let message = format!(
                    "group {id} has {} members, {} arrived",
                    level.size,
                    members.len()
                );
                self.errors
                    .entry("commands".to_owned())
                    .or_default()
                    .push(message);
            }
        }
    }

    /// Returns the open wait that this command sends again, if any.
    fn open_wait_like(&self, command: &OpenConditionWait) -> Option<CommandSeq> {
        let same = |wait: &Wait| {
            wait.group.is_none()
                && wait.timeout_seconds == command.timeout_seconds
                && matches!(&wait.what, WaitFor::Condition { occurrence_id, key, fingerprint }
                    if *occurrence_id == command.condition_wait_occurrence_id
                        && *key == command.condition_key
                        && *fingerprint == command.condition_definition_fingerprint)
        };
        self.draft
            .open_waits()
            .find(|wait| !self.batch.sent_again.contains(&wait.sequence) && same(wait))
            .map(|wait| wait.sequence)
    }

    fn refuse(&mut self, index: usize, message: &str) {
        self.refuse_field(index, "parallel_group_path", message);
    }

    fn refuse_field(&mut self, index: usize, field: &str, message: &str) {
        self.errors
            .entry(format!("commands.{index}.{field}"))
            .or_default()
            .push(message.to_owned());
    }
}

fn update_of(command: &WorkflowCommand) -> Option<&UpdateId> {
    if let WorkflowCommand::CompleteUpdate { update_id, .. } = command {
        Some(update_id)
    } else if let WorkflowCommand::FailUpdate(failure) = command {
        Some(&failure.update_id)
    } else {
        None
    }
}

/// Returns the kind of a group member, and the name by which the same call is recognised.
fn leaf(command: &WorkflowCommand) -> (&'static str, Option<&str>) {
    match command {
        WorkflowCommand::ScheduleActivity(activity) => ("activity", Some(&activity.activity_type)),
        WorkflowCommand::PrepareLocalActivity(call) => ("activity", Some(&call.activity_type)),
        WorkflowCommand::StartTimer { .. } => ("timer", None),
        WorkflowCommand::StartChildWorkflow(child) => ("child", Some(&child.workflow_type)),
        WorkflowCommand::OpenConditionWait(wait) => ("condition", wait.condition_key.as_deref()),
        WorkflowCommand::OpenSignalWait { signal_name, .. } => ("signal", Some(signal_name)),
        WorkflowCommand::RecordLocalActivity(_)
        | WorkflowCommand::RecordSideEffect { .. }
        | WorkflowCommand::RecordVersionMarker { .. }
        | WorkflowCommand::UpsertSearchAttributes { .. }
        | WorkflowCommand::UpsertMemo { .. }
        | WorkflowCommand::CompleteUpdate { .. }
        | WorkflowCommand::FailUpdate(_)
        | WorkflowCommand::CancelSelectionOperation(_)
        | WorkflowCommand::CompleteWorkflow { .. }
        | WorkflowCommand::FailWorkflow(_)
        | WorkflowCommand::ContinueAsNew { .. } => ("", None),
    }
}
