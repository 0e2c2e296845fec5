//! Starting, reading, listing and exporting workflows.

mod debug;
mod export;
mod history;
mod local_activities;
mod reads;
mod start;
mod visibility;
