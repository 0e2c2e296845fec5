//! Logs of tasks.

use longhaul_engine::change::{LogKey, LogLine, RunChange};

use super::fixture::{advance, at, commit, create, is_conflict, next};
use crate::Store;

fn line(change: &mut RunChange, task: u64, line: u64, text: &str) {
    let kept = LogLine {
        created_at: at(line.cast_signed()),
        text: text.to_owned(),
    };
    change.logs.push((LogKey { task, line }, Some(kept)));
}

async fn texts(store: &dyn Store, run: &str, task: u64) -> Vec<String> {
    let log = store.task_log(&run.into(), task).await.unwrap();
    log.into_iter().map(|line| line.text).collect()
}

pub async fn a_log_is_read_line_by_line(store: &dyn Store) {
    let run = create(store, "w").await;
    let run_id = run.run_id().as_str();
    let mut change = next(&run);
    line(&mut change, 1, 2, "two");
    line(&mut change, 1, 1, "one 🦀\nwith a break");
    line(&mut change, 10, 1, "of another task");
    commit(store, change).await.unwrap();
    let log = store.task_log(run.run_id(), 1).await.unwrap();
    let expected = |created_at, text: &str| LogLine {
        created_at: at(created_at),
        text: text.to_owned(),
    };
    assert_eq!(
        log,
        [expected(1, "one 🦀\nwith a break"), expected(2, "two")]
    );
    assert_eq!(texts(store, run_id, 10).await, ["of another task"]);
    assert!(texts(store, run_id, 2).await.is_empty());
    assert!(texts(store, "nothing", 1).await.is_empty());
}

pub async fn old_lines_of_a_log_are_deleted(store: &dyn Store) {
    let run = create(store, "w").await;
    let run_id = run.run_id().to_string();
    let mut change = next(&run);
    for number in 1..=3 {
        line(&mut change, 1, number, &format!("line {number}"));
    }
    let run = advance(store, &run, change).await;
    let mut change = next(&run);
    line(&mut change, 1, 4, "line 4");
    change.logs.push((LogKey { task: 1, line: 1 }, None));
    commit(store, change).await.unwrap();
    assert_eq!(
        texts(store, &run_id, 1).await,
        ["line 2", "line 3", "line 4"]
    );
}

pub async fn a_refused_commit_logs_nothing(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    line(&mut change, 1, 1, "kept");
    commit(store, change).await.unwrap();
    let mut stale = next(&run);
    line(&mut stale, 1, 2, "stale");
    assert!(is_conflict(&commit(store, stale).await));
    assert_eq!(texts(store, run.run_id().as_str(), 1).await, ["kept"]);
}
