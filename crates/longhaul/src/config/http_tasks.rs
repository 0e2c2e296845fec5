//! Whether the server makes the calls of HTTP tasks, and to where.

use std::sync::Arc;

use clap::builder::BoolishValueParser;
use longhaul_host::SystemTasks;
use longhaul_system::{Addresses, HTTP_TASK, HttpCalls};
use serde::Deserialize;

use super::File;

#[derive(clap::Args, Default)]
pub(super) struct HttpTaskArgs {
    /// Whether this server makes the calls of HTTP tasks in Conductor definitions; off refuses such definitions [default: on]
    #[arg(long, env = "LONGHAUL_HTTP_TASKS", value_name = "ON|OFF")]
    http_tasks: Option<Switch>,

    /// Refuse calls of HTTP tasks to addresses that are not public: this machine, private networks, metadata services
    #[arg(
        long,
        env = "LONGHAUL_HTTP_TASKS_DENY_PRIVATE",
        value_parser = BoolishValueParser::new()
    )]
    http_tasks_deny_private: bool,
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

/// The calls of HTTP tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpTasks {
    switch: Switch,
    addresses: Addresses,
}

impl HttpTaskArgs {
    pub(super) fn settle(&self, file: &File) -> HttpTasks {
        let denies = self.http_tasks_deny_private || file.http_tasks_deny_private.unwrap_or(false);
        HttpTasks {
            switch: self.http_tasks.or(file.http_tasks).unwrap_or_default(),
            addresses: if denies {
                Addresses::Public
            } else {
                Addresses::All
            },
        }
    }
}

impl HttpTasks {
    /// Returns the tasks that the server runs.
    pub(crate) fn system_tasks(self) -> SystemTasks {
        let tasks = SystemTasks::default();
        match self.switch {
            Switch::On => tasks.with(HTTP_TASK, Arc::new(HttpCalls::new(self.addresses))),
            Switch::Off => tasks.without(
                HTTP_TASK,
                "HTTP tasks are off on this server (--http-tasks off)",
            ),
        }
    }
}
