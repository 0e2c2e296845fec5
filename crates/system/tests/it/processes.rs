//! The life of script processes: kills, the death of the parent, and what a process inherits.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul_system::{Limits, Scripts};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::{process_state, raw, wait_until};

fn one_process() -> Scripts {
    Scripts::new(Limits {
        wall: Duration::from_secs(60),
        processes: 1,
        ..Limits::default()
    })
}

fn signal(id: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(id).unwrap()), signal).unwrap();
}

#[tokio::test]
async fn an_idle_process_that_was_killed_is_replaced_unnoticed() {
    let scripts = one_process();
    let input = raw("{}");
    for round in 0..3 {
        scripts.evaluate("1", &input).await.unwrap();
        let before = scripts.process_ids();
        signal(before[0], Signal::SIGKILL);
        assert_eq!(
            scripts.evaluate("1 + 1", &input).await,
            Ok(json!(2)),
            "round {round}"
        );
        assert_ne!(scripts.process_ids(), before);
        wait_until("the dead process is reaped", || {
            process_state(before[0]).is_none()
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_during_a_script_is_replaced() {
    let scripts = one_process();
    let input = raw("{}");
    scripts.evaluate("1", &input).await.unwrap();
    let first = scripts.process_ids()[0];
    let evaluation = {
        let scripts = scripts.clone();
        tokio::spawn(async move {
            let script = "const end = Date.now() + 400; while (Date.now() < end); 'done'";
            scripts.evaluate(script, &raw("{}")).await
        })
    };
    wait_until("the script runs", || computes(first));
    signal(first, Signal::SIGKILL);
    assert_eq!(
        evaluation.await.unwrap(),
        Ok(json!("done")),
        "the second process repeats it"
    );
    assert_ne!(scripts.process_ids(), [first]);
}

/// Returns whether a thread of the process runs.
fn computes(id: u32) -> bool {
    std::fs::read_dir(format!("/proc/{id}/task")).is_ok_and(|threads| {
        threads.flatten().any(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.contains(") R ")
        })
    })
}

#[tokio::test]
async fn a_stopped_process_is_killed_by_the_clock() {
    let scripts = Scripts::new(Limits {
        wall: Duration::from_millis(100),
        processes: 1,
        ..Limits::default()
    });
    let input = raw(&format!("\"{}\"", "x".repeat(1 << 20)));
    scripts.evaluate("1", &input).await.unwrap();
    let first = scripts.process_ids()[0];
    signal(first, Signal::SIGSTOP);
    let failure = scripts.evaluate("1", &input).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "Script not evaluated within 100 milliseconds, interrupted."
    );
    assert_eq!(process_state(first), None);
    // The limit is short for a new process on a busy machine, but it does not count the start.
    scripts.evaluate("1", &raw("{}")).await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_inherits_nothing_but_its_pipes() {
    // A descriptor that a careless library forgot to mark.
    let (leaked, _other_end) = nix::unistd::pipe().unwrap();
    let scripts = one_process();
    scripts.evaluate("1", &raw("{}")).await.unwrap();
    let folder = format!("/proc/{}", scripts.process_ids()[0]);
    let mut descriptors: Vec<String> = std::fs::read_dir(format!("{folder}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    descriptors.sort();
    assert_eq!(descriptors, ["0", "1", "2", "3"]);
    // The process measures its own memory with the last one.
    let own = std::fs::read_link(format!("{folder}/fd/3")).unwrap();
    assert_eq!(own.to_str().unwrap(), format!("{folder}/status"));
    let variables = std::fs::read_to_string(format!("{folder}/environ")).unwrap();
    for variable in variables
        .split('\0')
        .filter(|variable| !variable.is_empty())
    {
        let name = variable.split('=').next().unwrap();
        assert!(
            ["LONGHAUL_SCRIPT_PROCESS", "TZ", "LD_LIBRARY_PATH"].contains(&name),
            "{variable}"
        );
    }
    let name = std::fs::read_to_string(format!("{folder}/comm")).unwrap();
    assert_eq!(name, "longhaul-script\n");
    let limits = std::fs::read_to_string(format!("{folder}/limits")).unwrap();
    let soft = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..]
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(soft("Max open files"), "3");
    assert_eq!(soft("Max core file size"), "0");
    assert_eq!(soft("Max file size"), "0");
    assert_ne!(soft("Max address space"), "unlimited");
    drop(leaked);
}

/// This test is also the program that the next test starts and kills.
#[tokio::test]
async fn helper_prints_its_process_and_waits() {
    let Some(script) = std::env::var_os(HELPER) else {
        return;
    };
    let script = script.into_string().unwrap();
    let scripts = Scripts::new(Limits {
        wall: Duration::from_secs(600),
        processes: 1,
        ..Limits::default()
    });
    scripts.evaluate("1", &raw("{}")).await.unwrap();
    println!("{MARK}{}", scripts.process_ids()[0]);
    let _ = scripts.evaluate(&script, &raw("{}")).await;
    std::future::pending::<()>().await;
}

const HELPER: &str = "LONGHAUL_TEST_PARENT_OF_A_SCRIPT";
const MARK: &str = "script process: ";

#[test]
fn a_process_ends_with_its_parent() {
    // Idle, busy, and inside a native call that never looks at its input.
    for script in ["1", "for (;;);", "new Array(1e9) + ''"] {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::helper_prints_its_process_and_waits",
                "--nocapture",
            ])
            .env(HELPER, script)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(parent.stdout.take().unwrap());
        let id: u32 = output
            .lines()
            .find_map(|line| line.unwrap().split_once(MARK)?.1.parse().ok())
            .expect("the helper prints the id of its script process");
        assert!(process_state(id).is_some());
        parent.kill().unwrap();
        parent.wait().unwrap();
        wait_until("the script process ends", || {
            // In a container no process may reap what its parent left behind.
            process_state(id).is_none_or(|state| state == 'Z')
        });
    }
}

#[test]
fn a_program_with_the_marker_never_runs_its_main() {
    let output = Command::new(std::env::current_exe().unwrap())
        .env("LONGHAUL_SCRIPT_PROCESS", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty(), "no test ran");
    assert_eq!(output.status.code(), Some(1));
}
