//! Search, open runs and correlated runs.

mod correlation;
mod search;
mod tasks;
