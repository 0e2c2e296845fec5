//! A private cluster: its databases, its faults and its end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_test_postgres::{Cluster, Setup, shared};

/// Makes the test below the process that starts a cluster and is killed.
const CHILD_VARIABLE: &str = "LONGHAUL_TEST_POSTGRES_CHILD";

/// The kernel ends the server at once; removing its files takes a moment on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn databases_are_empty_and_apart() {
    let first = shared().database();
    let second = shared().database();
    assert_ne!(first.name(), second.name());
    first.sql("CREATE TABLE t (a text); INSERT INTO t VALUES ('b'), ('A'), ('a'), ('B')");
    assert_eq!(second.sql("SELECT to_regclass('t') IS NULL"), "t");
    assert_eq!(
        first.sql("SELECT string_agg(a, '' ORDER BY a COLLATE \"C\") FROM t"),
        "ABab"
    );
    let name = first.name().to_owned();
    drop(first);
    let query = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    assert_eq!(second.sql(&query), "0");
    assert_eq!(second.sql("SHOW fsync"), "on");
}

#[test]
fn what_was_committed_survives_a_restart_and_a_kill() {
    let cluster = Cluster::start();
    let database = cluster.database();
    database.sql("CREATE TABLE t (a int)");
    cluster.restart();
    database.sql("INSERT INTO t VALUES (1)");
    cluster.kill();
    cluster.resume();
    assert_eq!(database.sql("SELECT a FROM t"), "1");
    database.sql("INSERT INTO t VALUES (2)");
    cluster.stop_immediately();
    cluster.resume();
    assert_eq!(database.sql("SELECT max(a) FROM t"), "2");
    cluster.demote();
    assert_eq!(database.sql("SELECT pg_is_in_recovery()"), "t");
}

#[test]
fn a_cluster_can_have_a_password_and_tls() {
    let cluster = Cluster::start_with(Setup {
        tls: true,
        password: Some("secret".to_owned()),
        settings: vec![("work_mem".to_owned(), "5MB".to_owned())],
    })
    .unwrap();
    let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(cluster.sql("postgres", query).unwrap(), "t");
    assert_eq!(cluster.sql("postgres", "SHOW work_mem").unwrap(), "5MB");
    assert!(cluster.root_certificate().exists());
}

#[test]
fn the_server_and_its_files_go_with_a_killed_process() {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        let cluster = Cluster::start();
        let (folder, _) = cluster.socket();
        let server = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
        eprintln!("{} {}", server.lines().next().unwrap(), folder.display());
        // Until the parent kills this process.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("the_server_and_its_files_go_with_a_killed_process")
        .env(CHILD_VARIABLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stderr.take().unwrap());
    output.read_line(&mut line).unwrap();
    let (server, folder) = line.trim().split_once(' ').unwrap();
    let server = format!("/proc/{server}");
    assert!(Path::new(&server).exists() && Path::new(folder).exists());
    // SIGKILL: no destructor runs.
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(Path::new(&server));
    wait_until_gone(Path::new(folder));
}

fn wait_until_gone(path: &Path) {
    let began = Instant::now();
    while path.exists() {
        assert!(began.elapsed() < DEADLINE, "{} stays", path.display());
        std::thread::yield_now();
    }
}
