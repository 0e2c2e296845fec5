//! Rules of task queues: which worker may get a task (`matching`), which of several ready tasks goes first (`fairness`), and how
//! much of a queue may be leased at once (`admission`). The host keeps the queues and counts; it decides none of this itself.

mod admission;
mod fairness;
mod matching;

pub use admission::{Admission, Caps, Override, Usage, Withheld};
pub use fairness::{Fairness, Rank};
pub use matching::{PollFilter, Requirements, Validators};
