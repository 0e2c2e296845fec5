//! `longhaul demo` runs all examples, and `longhaul replay` checks histories.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output};

use longhaul_examples::hello;
use longhaul_sdk::{Client, Worker};

use crate::binary::longhaul;

fn run_binary(arguments: &[&str]) -> Output {
    longhaul().args(arguments).output().unwrap()
}

#[test]
fn a_demo_runs_every_example_and_ends() {
    let output = run_binary(&["demo", "--once", "--listen", "127.0.0.1:0"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    for line in [
        "hello: Hello, world!",
        "order: a parcel to Norway",
        "order: undone, because",
        "local: 11, stamped at attempt 2",
        "gpu: frame 1 by a model, frame 2 by a model, frame 3 by a model",
        "approval: changed to 250",
        "approval: refused: ",
        "approval: 250 paid, says Ada",
        "definition: an invoice over 104.5, 5 % off",
        "conductor saga: a parcel to Norway for 3000 cents",
        "conductor saga: undone, because ",
        "conductor chunks: 1000 rows in 3 deliveries",
        "conductor fan-out: 10 words",
        "One expense waits for you.",
    ] {
        assert!(printed.contains(line), "{line} is missing:\n{printed}");
    }
}

#[test]
fn ctrl_c_ends_a_demo_quietly() {
    let mut demo = longhaul()
        .args(["demo", "--listen", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let printed = BufReader::new(demo.stdout.take().unwrap());
    let mut lines = printed.lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "Ctrl-C ends the demo."));
    let pid = demo.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut log = String::new();
    demo.stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(demo.wait().unwrap().success(), "{log}");
    // A server that stops before the workers waits for their polls until its grace period ends, and warns then.
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_replays_or_is_reported_as_broken() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::serve::Server::start(folder.path(), &[]);
    let client = Client::connect(&server.url).await.unwrap();
    let worker = hello::worker(Worker::builder(&client, hello::QUEUE)).build();
    let run = client
        .start(hello::hello("Ada".to_owned()))
        .queue(hello::QUEUE)
        .await
        .unwrap();
    worker
        .run_until(async {
            run.result().await.unwrap();
        })
        .await
        .unwrap();
    let export = run.export().await.unwrap().to_string();
    let replay = |name: &str, history: String| {
        let file = folder.path().join(name);
        std::fs::write(&file, history).unwrap();
        let output = run_binary(&["replay", file.to_str().unwrap()]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), printed)
    };
    let (fits, printed) = replay("good.json", export.clone());
    assert!(fits, "{printed}");
    assert!(
        printed.contains("events of `hello` replay, completed"),
        "{printed}"
    );
    let changed = export.replace("\"activity_type\":\"greet\"", "\"activity_type\":\"shout\"");
    let (fits, printed) = replay("changed.json", changed);
    assert!(!fits);
    assert!(
        printed.contains(
            "the history has activity `shout` (event 3), but the code does activity `greet`"
        ),
        "{printed}"
    );
    let foreign = export.replace("\"workflow_type\":\"hello\"", "\"workflow_type\":\"yours\"");
    let (fits, printed) = replay("foreign.json", foreign);
    assert!(fits, "{printed}");
    assert!(
        printed.contains("sound; `yours` is your own code"),
        "{printed}"
    );
    let (fits, printed) = replay("nonsense.json", "{}".to_owned());
    assert!(
        !fits && printed.contains("the text is not a history"),
        "{printed}"
    );
}
