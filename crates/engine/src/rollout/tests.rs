use super::*;

fn row(build_id: Option<&str>) -> Rollout {
    Rollout::new("ns".into(), "q".into(), build_id.map(str::to_owned))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn worker<'a>(build_id: Option<&'a str>, fingerprints: &'a Map<String, Value>) -> Member<'a> {
    Member {
        build_id,
        is_stale: false,
        fingerprints,
    }
}

/// A queue on which changes are made one after the other.
struct Queue {
    rows: Vec<Rollout>,
    second: i64,
}

impl Queue {
    fn new() -> Self {
        Self {
            rows: Vec::new(),
            second: 0,
        }
    }

    fn change(&mut self, build_id: Option<&str>, change: Change) -> Result<Rollout, Vec<Blockage>> {
        let none = Map::new();
        let members = [
            worker(Some("a"), &none),
            worker(Some("b"), &none),
            worker(None, &none),
        ];
        self.second += 1;
        let row = decide(
            &self.rows,
            &members,
            &row(build_id),
            change,
            at(self.second),
        )?;
        self.rows.retain(|other| other.build_id != row.build_id);
        self.rows.push(row.clone());
        Ok(row)
    }

    fn selected(&self) -> Option<Option<&str>> {
        selected(&self.rows).map(|rollout| rollout.build_id.as_deref())
    }
}

#[test]
fn draining_and_resuming_are_idempotent() {
    let mut queue = Queue::new();
    let first = queue.change(Some("a"), Change::Drain).unwrap();
    assert_eq!(first.drained_at, Some(at(1)));
    assert_eq!(queue.change(Some("a"), Change::Drain).unwrap(), first);
    assert!(is_draining(&queue.rows, Some("a")));
    assert!(!is_draining(&queue.rows, None));
    let resumed = queue.change(Some("a"), Change::Resume).unwrap();
    assert_eq!(resumed, row(Some("a")));
    assert_eq!(queue.change(Some("a"), Change::Resume).unwrap(), resumed);
}

#[test]
fn the_last_promotion_counts_until_it_is_rolled_back_or_drains() {
    let mut queue = Queue::new();
    assert_eq!(queue.selected(), None);
    queue.change(Some("a"), Change::Promote).unwrap();
    let promoted = queue.change(Some("b"), Change::Promote).unwrap();
    assert_eq!(queue.selected(), Some(Some("b")));
    assert_eq!(
        queue.change(Some("b"), Change::Promote).unwrap(),
        promoted,
        "idempotent"
    );
    queue.change(Some("b"), Change::Rollback).unwrap();
    assert_eq!(queue.selected(), Some(Some("a")));
    queue.change(None, Change::Promote).unwrap();
    assert_eq!(
        queue.selected(),
        Some(None),
        "the cohort without a build id is promoted"
    );
    queue.change(Some("b"), Change::Promote).unwrap();
    assert_eq!(queue.selected(), Some(Some("b")), "promoted again");
    queue.change(Some("b"), Change::Drain).unwrap();
    assert_eq!(queue.selected(), Some(None));
}

#[test]
fn two_promotions_within_one_tick_are_distinguished() {
    let mut rows = vec![row(Some("a"))];
    rows[0].promoted_at = Some(at(5));
    let none = Map::new();
    let members = [worker(Some("b"), &none)];
    let second = decide(&rows, &members, &row(Some("b")), Change::Promote, at(5)).unwrap();
    rows.push(second);
    assert_eq!(selected(&rows).unwrap().build_id.as_deref(), Some("b"));
}

#[test]
fn a_refused_promotion_names_everything_that_prevents_it() {
    let (one, other) = (
        Map::from_iter([("t".to_owned(), Value::from("1"))]),
        Map::from_iter([("t".to_owned(), Value::from("2"))]),
    );
    let reasons = |rows: &[Rollout], members: &[Member<'_>]| {
        decide(rows, members, &row(Some("a")), Change::Promote, at(1)).map_or_else(
            |blockages| blockages.iter().map(|blockage| blockage.reason).collect(),
            |_| Vec::new(),
        )
    };
    let mut draining = row(Some("a"));
    draining.drained_at = Some(at(0));
    let stale = Member {
        is_stale: true,
        ..worker(Some("a"), &one)
    };
    assert_eq!(
        reasons(&[], &[worker(Some("b"), &one)]),
        [Reason::UnknownDeployment]
    );
    assert_eq!(
        reasons(&[draining], &[]),
        [Reason::FleetIsDraining, Reason::NoCompatibleWorkers]
    );
    assert_eq!(
        reasons(&[], std::slice::from_ref(&stale)),
        [Reason::MissingWorkerHeartbeat]
    );
    assert_eq!(
        reasons(&[], &[worker(Some("a"), &one), worker(Some("a"), &other)]),
        [Reason::FingerprintMismatch]
    );
    assert_eq!(reasons(&[], &[worker(Some("a"), &one), stale]), []);
    let never = decide(&[], &[], &row(Some("a")), Change::Rollback, at(1)).unwrap_err();
    assert_eq!(never[0].reason, Reason::DeploymentNotPromoted);
}

#[test]
fn a_start_is_pinned_by_name_or_promotion() {
    let none = Map::new();
    let members = [worker(Some("a"), &none)];
    let mut promoted = row(Some("a"));
    promoted.promoted_at = Some(at(1));
    let pin = |rows: &[Rollout], named: Option<&str>, validation| {
        admit_start(rows, &members, named.map(str::to_owned), validation)
    };
    use FleetValidation::{Fail, Warn};
    assert_eq!(pin(&[], None, Fail), Ok(None));
    assert_eq!(
        pin(std::slice::from_ref(&promoted), None, Fail),
        Ok(Some("a".to_owned()))
    );
    assert_eq!(
        pin(std::slice::from_ref(&promoted), Some("b"), Warn),
        Ok(Some("b".to_owned()))
    );
    assert_eq!(
        pin(&[promoted], Some("b"), Fail),
        Err(StartRefusal::NoCompatibleWorker {
            build_id: "b".to_owned()
        })
    );
}

#[test]
fn a_queue_whose_every_cohort_drains_refuses_starts() {
    let none = Map::new();
    let mut draining = row(Some("a"));
    draining.drained_at = Some(at(1));
    let start = |members: &[Member<'_>]| {
        admit_start(
            std::slice::from_ref(&draining),
            members,
            None,
            FleetValidation::Warn,
        )
    };
    let refused = Err(StartRefusal::Draining {
        build_ids: vec![Some("a".to_owned())],
    });
    assert_eq!(start(&[worker(Some("a"), &none)]), refused);
    assert_eq!(start(&[]), refused, "its workers are no longer registered");
    assert_eq!(
        start(&[worker(Some("a"), &none), worker(None, &none)]),
        Ok(None)
    );
    assert_eq!(
        admit_start(&[], &[], None, FleetValidation::Warn),
        Ok(None),
        "an unknown queue"
    );
}

#[test]
fn a_pin_is_served_by_its_build_or_by_a_worker_of_every_build() {
    let none = Map::new();
    let mut draining = row(Some("a"));
    draining.drained_at = Some(at(1));
    assert!(serves(&[], &[worker(Some("a"), &none)], "a"));
    assert!(serves(&[], &[worker(Some("*"), &none)], "a"));
    assert!(!serves(&[], &[worker(None, &none)], "a"));
    assert!(!serves(&[draining], &[worker(Some("a"), &none)], "a"));
}
