//! Runs programs of the Conductor client for JavaScript.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::python::{documented, output_of, run_to_its_end};
use super::{Server, client_program};

/// The folder with the installed client.
fn modules() -> PathBuf {
    let folder = match std::env::var_os("LONGHAUL_TEST_NODE") {
        Some(chosen) => chosen.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.test-env/node"),
    };
    let modules = folder.join("node_modules");
    assert!(
        modules.join("@io-orkes/conductor-javascript").exists(),
        "no @io-orkes/conductor-javascript 4.0.0 in {}: run `cargo xtask test`, or set LONGHAUL_TEST_NODE",
        folder.display()
    );
    fs::canonicalize(modules).expect("a folder")
}

/// Returns a folder in which node finds the client, as users install it beside their program.
fn folder_with_client(server: &Server) -> PathBuf {
    let folder = server.directory.path().join("node");
    fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join("node_modules");
    if !link.exists() {
        std::os::unix::fs::symlink(modules(), &link).expect("a link");
    }
    folder
}

/// A command that runs `tests/clients/conductor_js/{program}` against the server.
pub(super) fn node_command(program: &str, server: &Server) -> Command {
    let folder = folder_with_client(server);
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/conductor_js");
    for entry in fs::read_dir(programs).expect("the programs") {
        let entry = entry.expect("a program");
        fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
    }
    let mut command = client_program("node");
    command
        .arg(folder.join(program))
        .env(
            "LONGHAUL_ROOT",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
        )
        .env("LONGHAUL_URL", server.url());
    command
}

/// Runs `tests/clients/conductor_js/{program}` to its end; panics with its output unless every scenario passed.
pub(crate) async fn run_node(program: &str, server: &Server) {
    run_to_its_end(program, server, node_command(program, server)).await;
}

/// Runs the JavaScript program on a page of the documentation with the address of the server. Returns its output.
pub(crate) async fn run_documented_node(page: &str, server: &Server) -> String {
    let program = documented(page, "javascript", server);
    let file = folder_with_client(server).join("documented.mjs");
    fs::write(&file, program).expect("a file");
    let mut command = client_program("node");
    command.arg(&file);
    output_of(page, command).await
}
