//! Starting, reading, listing and exporting workflows.

mod debug;
mod definition_runs;
mod export;
mod history;
mod local_activities;
mod reads;
mod start;
mod visibility;
