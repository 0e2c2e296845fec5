//! Rules of task queues: which worker may get a task (`matching`), which of several ready tasks goes first (`fairness`), and how
//! much of a queue may be leased at once (`admission`), and how many tasks of a definition may start (`start_limits`). The host keeps the queues and counts; it decides none of this itself.

mod admission;
mod fairness;
mod matching;
mod start_limits;

pub use admission::{Admission, Caps, Override, Usage, Withheld};
pub use fairness::{Fairness, Rank};
pub use matching::{PollFilter, Requirements, Validators};
pub use start_limits::{RecentStarts, StartLimits, StartUsage, StartWithheld};
