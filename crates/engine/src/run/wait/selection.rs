//! Durable selections: of several members, each a call or a group of calls, the first that ends decides, once, in the transaction
//! of the event that ended it. The others continue; the workflow may wait for them later or cancel them.

use std::collections::BTreeMap;

use longhaul_protocol::history::{ActivityCancelled, EventPayload, SelectionResolved};
use longhaul_protocol::parallel_group::{Group, Level, Member};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_protocol::workflow_command::{ParentClosePolicy, SelectionMember};
use serde::{Deserialize, Serialize};

use crate::change::{ActivityEnd, TaskStatus};
use crate::run::draft::{Draft, Groups};
use crate::run::family::outbox::OutboxBody;
use crate::run::state::{Part, PartKey};
use crate::run::wait::group::CallEnd;

/// The progress of a selection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Whether the choice is recorded.
    pub decided: bool,
    /// By command sequence of the member's first call.
    pub members: BTreeMap<CommandSeq, MemberProgress>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberProgress {
    pub member: SelectionMember,
    /// Calls of it that are still open.
    pub open: u64,
    /// Whether the member has ended: all its calls completed, or one failed, or it was cancelled.
    // Stored runs have this name.
    #[serde(rename = "settled")]
    pub ended: bool,
}

impl Selection {
    /// Records a call of one of its members. A member that is one call is identified by the id of that call.
    pub(crate) fn join(&mut self, level: &Level, member: &Member, identity: &str) {
        self.members.entry(member.base).or_insert_with(|| {
            let operation_identity = if member.kind == "group" {
                format!("group:{}:{}", member.base, member.size)
            } else {
                identity.to_owned()
            };
            MemberProgress {
                member: SelectionMember {
                    selection_group_id: level.id.clone(),
                    member_key: member.key.clone(),
                    member_index: member.index,
                    member_base_sequence: member.base,
                    member_size: member.size,
                    operation_kind: member.kind.clone(),
                    operation_identity,
                },
                open: member.size,
                ended: false,
            }
        });
    }
}

impl Groups<'_, '_> {
    /// Records the end of a member's call by the event at `resolved_by`. Returns whether the workflow should look: the event ended
    /// the member.
    pub(crate) fn decide_member(
        &mut self,
        level: &Level,
        selection: &mut Selection,
        member: CommandSeq,
        end: CallEnd,
        resolved_by: HistorySeq,
    ) -> bool {
        let Some(progress) = selection.members.get_mut(&member) else {
            return true;
        };
        progress.open = progress.open.saturating_sub(1);
        if progress.ended || !(end.is_failure() || progress.open == 0) {
            return false;
        }
        progress.ended = true;
        if !selection.decided {
            selection.decided = true;
            let deciding = self
                .draft
                .events
                .iter()
                .rfind(|event| event.sequence == resolved_by)
                .expect("the event that ended it belongs to this decision");
            let resolved = SelectionResolved {
                selection_group_base_sequence: level.base,
                selection_group_size: level.size,
                outcome: match end {
                    CallEnd::Failed => "failed",
                    CallEnd::Completed => "completed",
                },
                resolution_event_id: deciding.id.clone(),
                resolution_event_type: deciding.event_type,
                member: progress.member.clone(),
            };
            self.draft
                .append(EventPayload::SelectionResolved(Box::new(resolved)));
        }
        true
    }

    /// Applies `cancel_selection_operation`: cancels a member that is still open; otherwise there is nothing to do.
    pub(crate) fn cancel_member(&mut self, command: &SelectionMember) {
        let Some((base, mut open)) = self
            .draft
            .parts()
            .find_map(|(key, part)| match (key, part) {
                (PartKey::Group(base), Part::Group(group))
                    if group.selection.as_ref().is_some_and(|selection| {
                        selection
                            .members
                            .get(&command.member_base_sequence)
                            .is_some_and(|progress| {
                                progress.member.selection_group_id == command.selection_group_id
                                    && !progress.ended
                            })
                    }) =>
                {
                    Some((*base, group.clone()))
                }
                _ => None,
            })
        else {
            return;
        };
        let Some(progress) = open
            .selection
            .as_mut()
            .and_then(|selection| selection.members.get_mut(&command.member_base_sequence))
        else {
            return;
        };
        // The recorded member counts, not the member in the command.
        let member = &progress.member;
        let calls = member.member_base_sequence.run_of(member.member_size);
        for sequence in calls {
            if self.cancel_call(sequence) {
                progress.open = progress.open.saturating_sub(1);
                open.unresolved = open.unresolved.saturating_sub(1);
            }
        }
        progress.ended = true;
        let member = progress.member.clone();
        let sequence = self
            .draft
            .append(EventPayload::SelectionOperationCancelled(Box::new(member)));
        if open.unresolved == 0 {
            open.resolved_at = Some(sequence);
        }
        self.draft.put(PartKey::Group(base), Part::Group(open));
    }

    /// Ends the open work of one call. Returns whether there was any.
    pub(crate) fn cancel_call(&mut self, sequence: CommandSeq) -> bool {
        if self.draft.activity(sequence).is_some() {
            self.cancel_activity(sequence);
            return true;
        }
        if self.draft.local(sequence).is_some() {
            self.draft.cancel_local(sequence, None);
            return true;
        }
        if self.draft.wait(sequence).is_some() {
            self.draft.timers().cancel(sequence);
            self.draft.remove(PartKey::Wait(sequence));
            return true;
        }
        if self.draft.timer(sequence).is_some() {
            self.draft.timers().cancel(sequence);
            return true;
        }
        if let Some(Part::Child(child)) = self.draft.part(PartKey::Child(sequence)) {
            let child = (**child).clone();
            self.draft.remove(PartKey::Child(sequence));
            self.draft.core.open.children = self.draft.core.open.children.saturating_sub(1);
            self.draft.outbox().enqueue(OutboxBody::StopChild {
                workflow_id: child.workflow_id,
                run_id: child.run_id,
                policy: ParentClosePolicy::RequestCancel,
                reason: "The parent workflow gave this child up.".to_owned(),
                recorded: false,
                life: None,
            });
            return true;
        }
        false
    }

    /// Ends an activity; its worker is informed at the next heartbeat.
    pub(crate) fn cancel_activity(&mut self, sequence: CommandSeq) {
        let Some(activity) = self.draft.activity(sequence).cloned() else {
            return;
        };
        self.draft
            .append(EventPayload::ActivityCancelled(ActivityCancelled {
                call: activity.call(),
                workflow_command_id: None,
                activity_attempt_id: activity.attempt.as_ref().map(|attempt| attempt.id.clone()),
                attempt_number: activity.attempt.as_ref().map(|attempt| attempt.number),
                cancelled_at: self.draft.now,
            }));
        self.draft.activities().close_task(
            &activity,
            TaskStatus::Cancelled,
            ActivityEnd::Cancelled,
            None,
        );
        self.draft.activities().remove(sequence);
    }
}

impl Draft<'_> {
    /// Returns whether the choice of the call's selection is recorded.
    pub(crate) fn is_decided(&self, group: &Group) -> bool {
        self.open_group(group.outermost().base)
            .and_then(|group| group.selection.as_deref())
            .is_none_or(|selection| selection.decided)
    }
}
