//! Parallel groups. The workflow is woken when every member of the outermost group is resolved, whatever the outcomes:
//! a replay that saw only some of them could choose differently later.

use longhaul_protocol::parallel_group::Group;
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};

use crate::run::draft::{Draft, Groups};
use crate::run::state::{Member, OpenGroup, Part, PartKey, Resume};

/// How a call of the workflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Completed,
    /// Failed, timed out or was cancelled.
    Failed,
}

impl CallEnd {
    pub(crate) fn is_failure(self) -> bool {
        self == Self::Failed
    }
}

impl Groups<'_, '_> {
    /// Records a new call of a group, so that the same call sent again is recognised.
    pub(crate) fn join(
        &mut self,
        sequence: CommandSeq,
        kind: &str,
        name: Option<&str>,
        group: Option<&Group>,
        identity: &str,
    ) {
        let Some(group) = group else { return };
        let outermost = group.outermost();
        let fan_out = group
            .levels()
            .iter()
            .map(|level| level.size)
            .max()
            .unwrap_or(0);
        self.draft.core.history_fan_out = self.draft.core.history_fan_out.max(fan_out);
        let mut open = self
            .draft
            .open_group(outermost.base)
            .cloned()
            .unwrap_or(OpenGroup {
                size: outermost.size,
                // Counted before they are recorded: a member may end at once, such as a timer without delay.
                unresolved: outermost.size,
                failed: false,
                resolved_at: None,
                selection: None,
            });
        if let Some(member) = group.member() {
            open.selection
                .get_or_insert_default()
                .join(outermost, member, identity);
        }
        self.draft
            .put(PartKey::Group(outermost.base), Part::Group(open));
        let member = Member {
            kind: kind.to_owned(),
            name: name.map(str::to_owned),
            group: group.clone(),
        };
        self.draft
            .put(PartKey::Member(sequence), Part::Member(Box::new(member)));
    }

    /// Resolves a call by the event at `resolved_by`. Returns whether the workflow should look now.
    pub(crate) fn resolve_member(
        &mut self,
        group: Option<&Group>,
        end: CallEnd,
        resolved_by: HistorySeq,
    ) -> bool {
        let Some(group) = group else { return true };
        let base = group.outermost().base;
        let Some(mut open) = self.draft.open_group(base).cloned() else {
            return true;
        };
        open.unresolved = open.unresolved.saturating_sub(1);
        open.failed |= end.is_failure();
        let mut look = open.unresolved == 0;
        if let (Some(selection), Some(member)) = (&mut open.selection, group.member()) {
            let level = group.outermost();
            look = self.decide_member(level, selection, member.base, end, resolved_by);
        }
        if open.unresolved == 0 {
            open.resolved_at = Some(self.draft.core.last_history_sequence);
        }
        self.draft.put(PartKey::Group(base), Part::Group(open));
        look
    }

    /// Resolves a call by the newest event: wakes the workflow unless its group is still open. A cancellation that has not reached
    /// the code may have waited for just this call, and a run without another open call must not be left without a task.
    pub(crate) fn resolve(&mut self, group: Option<&Group>, end: CallEnd, resume: Resume) {
        let resolved_by = self.draft.core.last_history_sequence;
        let look = self.resolve_member(group, end, resolved_by);
        // The turn of an update does not look at the workflow.
        let task = self.draft.core.workflow_task.as_ref();
        let is_looking = task.is_some_and(|task| task.lease.is_some() && !task.is_update());
        let left_alone = !is_looking && !self.draft.has_open_call();
        if look || left_alone || self.draft.has_undelivered_cancellation() {
            self.draft.workflow_task().wake(resume);
        }
    }

    /// Deletes groups that a finished plain task has seen resolved. Until then a worker may send their members again.
    pub(crate) fn remove_handled(&mut self) {
        let handled = self.draft.core.handled_sequence;
        let done: Vec<(CommandSeq, u64)> = self
            .draft
            .parts()
            .filter_map(|(key, part)| match (key, part) {
                (PartKey::Group(base), Part::Group(group))
                    if group.resolved_at.is_some_and(|at| at <= handled) =>
                {
                    Some((*base, group.size))
                }
                _ => None,
            })
            .collect();
        for (base, size) in done {
            self.draft.remove(PartKey::Group(base));
            for sequence in base.run_of(size) {
                self.draft.remove(PartKey::Member(sequence));
            }
        }
    }
}

impl Draft<'_> {
    /// Returns whether the workflow has an open call.
    pub(crate) fn has_open_call(&self) -> bool {
        self.parts().any(|(_, part)| {
            matches!(
                part,
                Part::Activity(_)
                    | Part::LocalActivity(_)
                    | Part::Timer(_)
                    | Part::Wait(_)
                    | Part::Child(_)
            )
        })
    }

    /// Returns whether a signal cannot help the run: every open call belongs to one group that already has a failure, and none of
    /// them waits for signals. The worker could only send the group again.
    pub(crate) fn signals_are_of_no_use(&self) -> bool {
        let mut only = None;
        for (_, part) in self.parts() {
            let group = match part {
                Part::Activity(activity) => activity.group.as_ref(),
                Part::LocalActivity(local) => local.group.as_ref(),
                Part::Timer(timer) => timer.group.as_ref(),
                Part::Child(child) => child.group.as_ref(),
                Part::Wait(_) => return false,
                Part::Arguments(_)
                | Part::Signal(_)
                | Part::Update(_)
                | Part::Buffered(_)
                | Part::Adopted(_)
                | Part::Outbox(_)
                | Part::Group(_)
                | Part::Member(_)
                | Part::Outcome(_)
                | Part::Task(_)
                | Part::Past(_)
                | Part::Value(_)
                | Part::Inbox(_) => continue,
            };
            let base = group.map(|group| group.outermost().base);
            match (base, only) {
                (None, _) => return false,
                _ if group.is_some_and(|group| group.member().is_some()) => return false,
                (Some(base), Some(other)) if base != other => return false,
                (Some(base), _) => only = Some(base),
            }
        }
        only.and_then(|base| self.open_group(base))
            .is_some_and(|group| group.failed)
    }
}
