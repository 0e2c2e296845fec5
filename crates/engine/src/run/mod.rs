//! A run: its state, and a file per family of commands that change it.

pub mod activity;
pub mod activity_claim;
pub mod activity_heartbeat;
pub mod activity_report;
pub mod activity_stop;
pub mod archive;
pub mod audit;
pub mod cancellation;
pub mod child;
pub mod claim;
pub mod complete;
pub mod diagnose;
pub mod elapse;
pub mod external;
pub mod fail;
pub mod outbox;
pub mod repair;
pub mod selection;
pub mod start;
pub mod state;
pub mod sticky;
pub mod stream;
pub mod update;
pub mod view;

mod activity_timeout;
mod batch;
mod close;
mod continue_as_new;
mod draft;
mod group;
mod part;
mod record;
mod signal;
mod task;
mod timer;
mod wait;
