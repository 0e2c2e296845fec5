//! Copies of runs are renewed by what changed since, also if a release wrote in between that does not record the versions of parts.

use longhaul_engine::run::state::Run;
use longhaul_store::conformance::fixture::{advance, create, next, push_event, timer};
use longhaul_store::postgres::Postgres;
use longhaul_store::postgres::connect::Connected;
use longhaul_store::{RunRead, RunStore as _};

use super::{temporary, writer};

/// Commits of one run. Each is written by this release or by an earlier one, in every combination.
const COMMITS: u32 = 4;

/// Adds a part, writes one again and removes one.
async fn step(store: &Postgres, run: &Run, number: u64) -> Run {
    let mut change = next(run);
    push_event(&mut change, "Step");
    change.parts.push(timer(number + 1, 5));
    if number > 0 {
        change.parts.push(timer(number, 7));
    }
    if number > 1 {
        change.parts.push((timer(number - 1, 0).0, None));
    }
    advance(store, run, change).await
}

/// Remembers what an earlier release leaves as it is.
async fn remember(client: &Connected) {
    let sql = "CREATE TEMPORARY TABLE before_parts AS SELECT run_id, part, version FROM run_parts;
               CREATE TEMPORARY TABLE before_states AS SELECT run_id, parts_version, parts_since FROM run_states";
    client.batch_execute(sql).await.unwrap();
}

/// Makes the newest commit look as an earlier release would have written it.
async fn restore(client: &Connected) {
    let sql = "UPDATE run_parts p SET version = (SELECT b.version FROM before_parts b WHERE b.run_id = p.run_id AND b.part = p.part);
               UPDATE run_states s SET parts_version = b.parts_version, parts_since = b.parts_since
               FROM before_states b WHERE b.run_id = s.run_id;
               DROP TABLE before_parts, before_states";
    client.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn an_old_copy_becomes_the_newest_whatever_release_wrote_in_between() {
    let (store, database) = temporary().await;
    let client = writer(database.url()).await;
    for releases in 0..2_u32.pow(COMMITS) {
        let mut run = create(&*store, &format!("w{releases}")).await;
        let mut copies = vec![run.clone()];
        for number in 0..COMMITS {
            let is_earlier = releases >> number & 1 == 1;
            if is_earlier {
                remember(&client).await;
            }
            run = step(&store, &run, u64::from(number)).await;
            if is_earlier {
                restore(&client).await;
            }
            copies.push(run.clone());
            for copy in &copies {
                let known = Some(Box::new(copy.clone()));
                let found = store.run_since(run.run_id(), known).await.unwrap();
                let (RunRead::Found(found) | RunRead::Unchanged(found)) = found else {
                    panic!("the run exists");
                };
                assert_eq!(
                    *found, run,
                    "releases {releases:04b}, copy {}",
                    copy.version
                );
            }
        }
    }
}
