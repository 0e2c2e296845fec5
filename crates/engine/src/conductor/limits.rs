//! Sizes that callers of the Conductor API can rely on.

/// The largest input or output of a task in bytes. A larger output fails the task.
pub const TASK_PAYLOAD_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The largest input or output of a workflow in bytes.
pub const WORKFLOW_PAYLOAD_BYTES_MAX: usize = 10 * 1024 * 1024;

/// The largest variables of a run in bytes, as JSON. They are rewritten by every SET_VARIABLE.
pub const VARIABLES_BYTES_MAX: usize = 256 * 1024;

/// The longest name of a definition, a task or a domain, in characters. Stores find rows by them, and the index of a store has a limit.
pub const NAME_CHARS_MAX: usize = 255;

/// The longest correlation id in characters. Runs are found by it.
pub const CORRELATION_ID_CHARS_MAX: usize = 500;

/// How many messages wait in the inbox of a run, as on other servers.
pub const INBOX_MESSAGES_MAX: usize = 1000;

/// The largest message to a run in bytes, as JSON. A task takes up to a hundred of them, and all are kept in memory with the run.
pub const INBOX_MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// How many bytes the messages in the inbox of a run have together.
pub const INBOX_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How many log entries of one update are kept.
pub const LOGS_PER_UPDATE_MAX: usize = 10;

/// How many lines the log of a task keeps, the newest. A worker that logs each step of a long task stays readable, and a task takes
/// 16 MB at most.
pub const LOG_LINES_MAX: u64 = 1000;

/// The longest line of a log in bytes: a stack trace fits. The rest is cut off.
pub const LOG_LINE_BYTES_MAX: usize = 16 * 1024;

/// How many ids one bulk request may name.
pub const BULK_IDS_MAX: usize = 1000;

/// The highest priority of a run.
pub const PRIORITY_MAX: i32 = 99;

/// How deeply sub-workflows may be nested.
pub const SUB_WORKFLOW_DEPTH_MAX: u32 = 100;

/// How many characters of a reason clients see.
pub const REASON_CHARS_MAX: usize = 500;

/// How many characters of the reason of a task are kept. A JOIN and a run collect the reasons of thousands of tasks, so theirs are
/// cut there too.
pub const KEPT_REASON_CHARS_MAX: usize = 10_000;

/// How deeply a value of a run may be nested. A caller can send 127 levels, and operators wrap what they collect.
pub const VALUE_DEPTH_MAX: usize = 400;

/// How deeply the JSON of a definition may be nested. Task records and failure workflows wrap it in some levels more, and the
/// reader of JSON accepts 127.
pub const DEFINITION_DEPTH_MAX: usize = 100;

/// How many names of failed tasks a run in a list shows. The others are in the record of the run.
pub const LISTED_NAMES_MAX: usize = 100;

/// How many characters of the classifier of a definition are kept: it is a word.
pub const CLASSIFIER_CHARS_MAX: usize = 100;

/// How many definition runs a page of a search has at most, as on other servers.
pub const SEARCH_SIZE_MAX: usize = 5000;

/// How many definition runs a search passes over before its page. A page far into a list is found by reading all before it; a bound
/// on the start time finds the same at once.
pub const SEARCH_START_MAX: usize = 100_000;
