//! `cargo xtask conductor-oss`: runs the scenarios of the Rust Conductor SDK against a real Conductor OSS.
//!
//! It is no part of CI, because the server is a download of 460 MB and takes half a minute to start. The server listens on a free port
//! of the loopback interface, has an SQLite file in a temporary folder, and ends with the chore, however that ends. Tests that need
//! something that Conductor OSS does not have are in [`LEFT_OUT`] and nowhere else.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{plain_cargo, run, test};
use server::Server;

mod jar;
mod java;
mod server;

/// The modules of the tests `clients` that need no server of ours.
const MODULES: [&str; 9] = [
    "conductor_rust::forks::",
    "conductor_rust::limits::",
    "conductor_rust::lists::",
    "conductor_rust::operators::",
    "conductor_rust::outcomes::",
    "conductor_rust::retries::",
    "conductor_rust::starts::",
    "conductor_rust::sub_workflows::",
    "conductor_rust::workers::",
];

/// Tests that need something that Conductor OSS does not have, each with the reason. They pass against longhaul in CI.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "conductor_rust::limits::logs",
        "it accepts a log line for a task that does not exist",
    ),
    (
        "conductor_rust::limits::starts_in_a_window_are_limited",
        "it has no rate limit with an SQL store",
    ),
    (
        "conductor_rust::limits::two_of_five_are_in_progress",
        "a place of a limit is free only a moment after its task has ended",
    ),
    (
        "conductor_rust::lists::ids_of_open_runs",
        "its list of open runs of a version has those of other versions, too",
    ),
    (
        "conductor_rust::lists::runs_by_correlation_id",
        "it returns them in another order",
    ),
    (
        "conductor_rust::lists::search_by_type_and_status",
        "it returns them in another order",
    ),
    (
        "conductor_rust::lists::search_in_order",
        "it does not sort by a second field",
    ),
    (
        "conductor_rust::lists::wrong_searches_are_refused",
        "it ignores a field that it does not know",
    ),
    (
        "conductor_rust::operators::scripts_and_variables",
        "it does not apply the input template of a workflow",
    ),
    (
        "conductor_rust::outcomes::a_silent_worker_loses_its_task",
        "it sees some response time-outs only after more than a minute, also with the short intervals that are set here",
    ),
    (
        "conductor_rust::outcomes::a_worker_registers_its_schemas",
        "it has no schema registry: /api/schema is 404",
    ),
    (
        "conductor_rust::retries::a_failure_starts_the_failure_workflow",
        "the id of the failure workflow is in the output a moment after the end",
    ),
    (
        "conductor_rust::retries::poll_time_outs",
        "it sees some time-outs only after more than a minute",
    ),
    (
        "conductor_rust::retries::task_time_outs",
        "it sees some time-outs only after more than a minute",
    ),
    (
        "conductor_rust::retries::workflow_time_outs",
        "it sees some time-outs only after more than a minute",
    ),
    (
        "conductor_rust::starts::a_key_starts_one_run",
        "it ignores idempotency keys",
    ),
    (
        "conductor_rust::starts::a_run_without_waiting_has_ended_when_its_id_is_returned",
        "it answers a start before it has decided the run",
    ),
    (
        "conductor_rust::starts::members_of_a_start",
        "it does not keep who started a run",
    ),
    (
        "conductor_rust::starts::schemas_are_enforced",
        "it has no schema registry: /api/schema is 404",
    ),
    (
        "conductor_rust::starts::starts_at_the_same_time_give_one_run",
        "it ignores idempotency keys",
    ),
    (
        "conductor_rust::workers::names_with_slashes_work",
        "its web server refuses a path with an encoded slash with status 400",
    ),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The server as a file, conductor-server-3.32.3-boot.jar. Without it, Maven downloads the file, once
    #[arg(long)]
    jar: Option<PathBuf>,
    /// Run no tests. Keep the server until Enter is pressed, for programs that you start by hand
    #[arg(long)]
    serve: bool,
}

pub(crate) fn check(root: &Path, options: &Options) -> Result<()> {
    let java = java::find()?;
    let folder = root.join(".test-env/conductor-oss");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("{} cannot be made", folder.display()))?;
    let jar = match &options.jar {
        Some(jar) => jar.clone(),
        None => jar::download(&folder)?,
    };
    if !options.serve {
        // A server that waits for the compiler would only take memory from it.
        println!("==> cargo test --workspace --test clients --no-run");
        run(clients(root).arg("--no-run"))?;
    }
    let server = Server::start(&java, &jar, &folder.join("server.log"))?;
    if options.serve {
        println!(
            "==> CONDUCTOR_SERVER_URL={}: press Enter to stop it",
            server.api()
        );
        std::io::stdin()
            .read_line(&mut String::new())
            .context("the standard input cannot be read")?;
        return Ok(());
    }
    scenarios(root, &server)
}

fn scenarios(root: &Path, server: &Server) -> Result<()> {
    let mut command = clients(root);
    command
        .arg("--")
        .args(MODULES)
        .env("LONGHAUL_CONDUCTOR_URL", server.api());
    for (test, _) in LEFT_OUT {
        command.args(["--skip", test]);
    }
    println!(
        "==> LONGHAUL_CONDUCTOR_URL={} cargo test --workspace --test clients -- {}",
        server.api(),
        MODULES.join(" ")
    );
    let outcome = test::observe(command)?;
    println!("==> against Conductor OSS {}:", jar::VERSION);
    for (test, reason) in LEFT_OUT {
        println!("LEFT OUT {test}: {reason}");
    }
    let passed = outcome.print();
    println!("{} left out", LEFT_OUT.len());
    if !passed {
        bail!(
            "tests failed; the log of the server is {}",
            server.log().display()
        );
    }
    Ok(())
}

/// Returns the command that builds and runs the client tests, with the features of CI.
fn clients(root: &Path) -> std::process::Command {
    let mut command = plain_cargo();
    command
        .args(["test", "--workspace", "--test", "clients"])
        .current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_is_left_out_exists_in_a_module_that_is_run() {
        let tests = crate::root().unwrap().join("crates/longhaul/tests/clients");
        for (name, reason) in LEFT_OUT {
            assert!(!reason.is_empty(), "{name} needs a reason");
            let module = MODULES.iter().find(|module| name.starts_with(**module));
            let module = module.unwrap_or_else(|| panic!("{name} is not run at all"));
            let file = tests.join(module.trim_end_matches("::").replace("::", "/") + ".rs");
            let text = std::fs::read_to_string(&file).unwrap();
            let function = format!("async fn {}()", &name[module.len()..]);
            assert!(text.contains(&function), "{name} does not exist");
        }
    }
}
