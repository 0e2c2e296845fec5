//! The suites of the published clients of both families on PostgreSQL: with one server, and with three behind a balancer that sends each
//! request to the next one. The tests are those of the embedded store. This program runs them again, with another environment.

use std::process::Command;

use longhaul_test_postgres::SHARED_VARIABLE;

use crate::harness::SERVERS_VARIABLE;

/// Most of the time these tests wait for processes of clients.
const TESTS_AT_ONCE: &str = "2";

/// Runs the tests of this program whose names contain one of these texts, and none of `left_out`.
fn run_again(servers: usize, suites: &[&str], left_out: &[&str]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(suites).args(["--test-threads", TESTS_AT_ONCE]);
    for name in left_out {
        command.args(["--skip", name]);
    }
    command
        .env(SERVERS_VARIABLE, servers.to_string())
        .env(SHARED_VARIABLE, longhaul_test_postgres::shared().url());
    let output = command.output().expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "with {servers} servers:\n{said}{complained}"
    );
    // A name that has changed would leave its suite out.
    for suite in suites {
        let line = format!("test {suite}");
        assert!(said.contains(&line), "no test of {suite} ran:\n{said}");
    }
    eprintln!("{said}");
}

#[test]
fn the_rust_clients_with_one_server() {
    // These compare requests, or have servers of their own.
    let left_out = ["conductor_rust::wire", "conductor_rust::others"];
    run_again(1, &["rust_sdk::", "conductor_rust::"], &left_out);
}

#[test]
fn the_published_clients_with_three_servers() {
    let suites = [
        "python_sdk::",
        "conductor_python::",
        "conductor_js::",
        "conductor_keys::",
    ];
    run_again(3, &suites, &[]);
}
