//! Logs of tasks. They are beside the history: no decision reads them.

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;

use crate::change::{LogKey, LogLine};
use crate::conductor::limits::{LOG_LINE_BYTES_MAX, LOG_LINES_MAX};
use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::{Command, Decision, Moment, Rejection};

/// A line for the log of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLog {
    pub text: String,
    /// When the worker wrote it; `None` is now.
    pub created_at: Option<Timestamp>,
}

/// Adds a line to the log of a task, open or ended.
#[derive(Clone, Debug)]
pub struct AddTaskLog {
    pub task_id: TaskId,
    /// The number of the task in its run.
    pub seq: u64,
    pub log: NewLog,
}

impl Command for AddTaskLog {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        let mut draft = Draft::of(run, moment);
        let task = draft.task(self.seq);
        if task.is_none_or(|task| task.id != self.task_id) {
            return Decision::reject(Rejection::TaskNotFound);
        }
        draft.add_logs(self.seq, std::slice::from_ref(&self.log));
        draft.finish(Ok(()))
    }
}

impl Draft<'_> {
    /// Adds lines to the log of a task. The newest lines are kept.
    pub(crate) fn add_logs(&mut self, seq: u64, logs: &[NewLog]) {
        let Some(before) = self.task(seq).map(|task| task.log_lines) else {
            return;
        };
        if logs.is_empty() {
            return;
        }
        let now = self.now;
        let mut line = before;
        for log in logs {
            line += 1;
            let key = LogKey { task: seq, line };
            let kept = LogLine {
                created_at: log.created_at.unwrap_or(now),
                text: cut(&log.text).to_owned(),
            };
            self.logs.push((key, Some(kept)));
            if line > LOG_LINES_MAX {
                let oldest = line - LOG_LINES_MAX;
                let key = LogKey {
                    task: seq,
                    line: oldest,
                };
                self.logs.push((key, None));
            }
        }
        self.change_task(seq, |task| task.log_lines = line);
    }
}

/// Returns the beginning of a line that is too long.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LOG_LINE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = "é".repeat(LOG_LINE_BYTES_MAX);
        assert_eq!(cut(&text).len(), LOG_LINE_BYTES_MAX);
        let text = format!("a{text}");
        assert_eq!(cut(&text).len(), LOG_LINE_BYTES_MAX - 1);
        assert_eq!(cut("short"), "short");
    }
}
