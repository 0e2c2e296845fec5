//! Rules of task queues: which worker may get a task (`matching`), which of several ready tasks goes first (`fairness`), how much of a
//! queue may be leased at once (`admission`), how many tasks of a definition may start (`start_limits`), how several servers share a
//! rate (`shares`), and which tasks are taken for the polls of one server (`selection`). The host keeps the queues and counts; it decides none of this itself.

mod admission;
mod fairness;
mod matching;
mod selection;
mod shares;
mod start_limits;

pub use admission::{Admission, Caps, Override, Usage, Withheld};
pub use fairness::{Fairness, Rank};
pub use matching::{PollFilter, Requirements, Validators};
pub use selection::{CLASSES_MAX, select};
pub use shares::{Exchanged, RateLimit, Settlement, Share, SharedRate, Uses, Wish};
pub use start_limits::{RecentStarts, StartLimits, StartUsage, StartWithheld};
