//! Tests each step of the rules, just inside and just outside.

use std::sync::Arc;

use longhaul_protocol::worker_session::WorkerSessionOptions;
use serde_json::{Value, json};

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000).plus_seconds(seconds)
}

fn options(fields: Value) -> WorkerSessionOptions {
    let mut said = json!({"session_id": "gpu"});
    said.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let mut errors = Default::default();
    let read = WorkerSessionOptions::read(said.as_object().unwrap(), "", &mut errors);
    read.unwrap_or_else(|| panic!("{errors:?}"))
}

fn worker(id: &str) -> Applicant {
    Applicant {
        worker_id: id.into(),
        task_queue: "q".into(),
        capabilities: Arc::new(vec!["gpu:a100".to_owned()]),
        max_sessions: 2,
        holds: Vec::new(),
    }
}

fn ask(session: Option<Session>, id: &str) -> Admission {
    Admission {
        session,
        owner: Owner::Live,
        applicant: worker(id),
        attempts: Vec::new(),
    }
}

fn decide(
    admission: &Admission,
    said: &WorkerSessionOptions,
    task: Option<&str>,
    now: u64,
) -> Result<Acquired, Refusal> {
    let task = task.map(Into::into);
    acquire(
        admission,
        &"default".into(),
        said,
        &"q".into(),
        task.as_ref(),
        at(now),
    )
}

/// Returns a session of worker `a`, created at 0 with a lease of 120 and an end at 1800.
fn made() -> Session {
    decide(&ask(None, "a"), &options(json!({})), None, 0)
        .unwrap()
        .session
}

fn other(name: &str, owner: &str) -> Session {
    Session {
        session_id: name.into(),
        lease_owner: owner.into(),
        ..made()
    }
}

fn attempt(task: &str, owner: &str, until: u64) -> Attempt {
    Attempt {
        task_id: task.into(),
        owner: owner.into(),
        lease_expires_at: at(until),
    }
}

fn seen(session: &Session, owner: Owner, now: u64) -> (Status, Option<FailureReason>) {
    let row = session.seen(owner, at(now));
    (row.status, row.failure_reason)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>, reason: Reason) -> Refusal {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.reason(), reason);
    refusal
}

#[test]
fn the_absolute_end_comes_before_the_lease_and_the_lease_before_the_owner() {
    use FailureReason as Why;
    let session = made();
    assert_eq!(seen(&session, Owner::Live, 119), (Status::Active, None));
    let lease = (Status::Expired, Some(Why::LeaseExpired));
    assert_eq!(seen(&session, Owner::Live, 120), lease);
    assert_eq!(seen(&session, Owner::Gone, 120), lease);
    let orphan = (Status::Orphaned, Some(Why::WorkerHeartbeatStale));
    assert_eq!(seen(&session, Owner::Gone, 119), orphan);
    let end = (Status::Expired, Some(Why::TtlExpired));
    assert_eq!(seen(&session, Owner::Gone, 1800), end);
    // Also from states in which no worker holds it.
    for row in [
        session.refreshed(Owner::Gone, at(1)).unwrap(),
        session.refreshed(Owner::Live, at(120)).unwrap(),
        session.failed(at(1)).unwrap(),
    ] {
        assert_eq!(row.refreshed(Owner::Gone, at(1799)), None);
        assert_eq!(seen(&row, Owner::Live, 1800), end);
    }
}

#[test]
fn a_final_session_never_changes() {
    let ended = made().refreshed(Owner::Live, at(1800)).unwrap();
    assert_eq!(ended.refreshed(Owner::Gone, at(9000)), None);
    assert_eq!(ended.deadline(), None);
    let closed = close(Some(&made()), Owner::Live, &"a".into(), at(1))
        .unwrap()
        .unwrap();
    assert_eq!(closed.refreshed(Owner::Gone, at(9000)), None);
    assert_eq!((closed.ended_at(), closed.deadline()), (Some(at(1)), None));
}

#[test]
fn an_orphaned_session_stays_orphaned_when_its_owner_returns() {
    let orphan = made().refreshed(Owner::Gone, at(1)).unwrap();
    assert_eq!(orphan.refreshed(Owner::Live, at(2)), None);
    refused(
        renew(Some(&orphan), Owner::Live, &"a".into(), None, at(2)),
        Reason::SessionNotActive,
    );
    let again = decide(&ask(Some(orphan), "a"), &options(json!({})), None, 2).unwrap();
    assert_eq!(again.outcome, Outcome::Reacquired);
}

#[test]
fn the_deadline_is_the_next_time_that_changes_the_row() {
    let session = made();
    assert_eq!(session.deadline(), Some(at(120)));
    let expired = session.refreshed(Owner::Live, at(120)).unwrap();
    assert_eq!(expired.deadline(), Some(at(1800)));
    let short = decide(
        &ask(None, "a"),
        &options(json!({"ttl_seconds": 5})),
        None,
        0,
    )
    .unwrap()
    .session;
    assert_eq!(
        (short.lease_expires_at, short.deadline()),
        (at(5), Some(at(5)))
    );
}

#[test]
fn step_1_the_session_must_be_for_the_queue_of_the_worker() {
    let result = acquire(
        &ask(None, "a"),
        &"default".into(),
        &options(json!({})),
        &"other".into(),
        None,
        at(0),
    );
    refused(result, Reason::SessionQueueMismatch);
}

#[test]
fn step_2_requirements_are_exact_strings_and_apply_to_the_owner_too() {
    for wanted in ["gpu:A100", "gpu", "gpu:a100-80g", "gpu:*"] {
        let said = options(json!({"requirements": ["gpu:a100", wanted]}));
        for row in [None, Some(made())] {
            let refusal = refused(
                decide(&ask(row, "a"), &said, None, 0),
                Reason::SessionRequirementsNotMet,
            );
            let missing = vec![wanted.to_owned()];
            assert_eq!(refusal, Refusal::RequirementsNotMet { missing });
        }
    }
    let said = options(json!({"requirements": ["gpu:a100"]}));
    assert!(decide(&ask(None, "a"), &said, None, 0).is_ok());
}

#[test]
fn step_4_a_missing_row_is_created_unless_the_request_forbids_it() {
    let said = options(json!({"create_if_missing": false}));
    refused(
        decide(&ask(None, "a"), &said, None, 0),
        Reason::SessionMissing,
    );
    let acquired = decide(&ask(None, "a"), &options(json!({})), None, 7).unwrap();
    let row = acquired.session;
    assert_eq!(acquired.outcome, Outcome::Created);
    assert_eq!(
        (row.version, row.lease_expires_at, row.ttl_expires_at),
        (1, at(127), at(1807))
    );
}

#[test]
fn step_4_and_9_a_worker_holds_at_most_its_maximum_of_sessions() {
    let full = |session: Option<Session>, holds: Vec<Session>, now: u64| {
        let mut admission = ask(session, "b");
        admission.applicant.holds = holds;
        decide(&admission, &options(json!({})), None, now).map(|acquired| acquired.outcome)
    };
    let both = || vec![other("x", "b"), other("y", "b")];
    refused(full(None, both(), 1), Reason::WorkerSessionLimitExceeded);
    // One below the limit, one with an expired lease, one of another worker, and the session in question itself.
    assert!(full(None, vec![other("x", "b")], 1).is_ok());
    assert!(full(None, both(), 120).is_ok());
    assert!(full(None, vec![other("x", "b"), other("y", "c")], 1).is_ok());
    let expired = made().refreshed(Owner::Live, at(120));
    let late = |name: &str| Session {
        lease_expires_at: at(500),
        ..other(name, "b")
    };
    refused(
        full(expired.clone(), vec![late("x"), late("y")], 121),
        Reason::WorkerSessionLimitExceeded,
    );
    assert_eq!(
        full(expired, vec![late("x"), late("gpu")], 121),
        Ok(Outcome::Reacquired)
    );
}

#[test]
fn step_5_and_6_only_the_owner_uses_an_active_session() {
    let refusal = refused(
        decide(&ask(Some(made()), "b"), &options(json!({})), None, 1),
        Reason::SessionOwnedByAnotherWorker,
    );
    assert_eq!(refusal.session(), Some(&made()));
    let mut admission = ask(Some(made()), "a");
    // The limit never refuses a session that the worker already holds.
    admission.applicant.holds = vec![other("x", "a"), other("y", "a"), made()];
    let said =
        options(json!({"lease_seconds": 300, "ttl_seconds": 9, "requirements": ["gpu:a100"]}));
    let reused = decide(&admission, &said, None, 10).unwrap();
    assert_eq!(reused.outcome, Outcome::Reused);
    let row = reused.session;
    assert_eq!(
        (row.version, row.lease_expires_at, row.ttl_expires_at),
        (2, at(310), at(1800))
    );
    assert_eq!((row.ttl_seconds, row.requirements.len()), (9, 1));
}

#[test]
fn step_6_the_cap_counts_the_owners_live_attempts_of_other_tasks() {
    let ask_for = |attempts: Vec<Attempt>, task: Option<&str>| {
        let mut admission = ask(Some(made()), "a");
        admission.attempts = attempts;
        decide(&admission, &options(json!({})), task, 50).map(|acquired| acquired.outcome)
    };
    refused(
        ask_for(vec![attempt("t1", "a", 51)], Some("t2")),
        Reason::SessionActivityLimitExceeded,
    );
    for free in [
        vec![],
        vec![attempt("t1", "a", 50)],
        vec![attempt("t1", "former", 99)],
        vec![attempt("t2", "a", 99)],
    ] {
        assert_eq!(ask_for(free, Some("t2")), Ok(Outcome::Reused));
    }
    // An explicit create starts nothing.
    let busy = vec![attempt("t1", "a", 99)];
    assert_eq!(ask_for(busy, None), Ok(Outcome::Reused));
}

#[test]
fn step_6_the_stored_cap_counts_and_not_the_requested_one() {
    let mut admission = ask(Some(made()), "a");
    admission.attempts = vec![attempt("t1", "a", 99)];
    let said = options(json!({"max_concurrent_activities": 5}));
    refused(
        decide(&admission, &said, Some("t2"), 1),
        Reason::SessionActivityLimitExceeded,
    );
}

#[test]
fn step_7_a_closed_session_refuses_every_worker() {
    let closed = close(Some(&made()), Owner::Live, &"a".into(), at(1)).unwrap();
    for id in ["a", "b"] {
        refused(
            decide(&ask(closed.clone(), id), &options(json!({})), None, 2),
            Reason::SessionClosed,
        );
    }
}

#[test]
fn step_8_both_sides_must_allow_the_takeover_and_time_must_be_left() {
    let no = options(json!({"allow_reacquire_after_failure": false}));
    let strict = decide(&ask(None, "a"), &no, None, 0).unwrap().session;
    for (row, said, now) in [
        (strict.clone(), options(json!({})), 120),
        (made(), no, 120),
        (made(), options(json!({})), 1800),
    ] {
        refused(
            decide(&ask(Some(row), "b"), &said, None, now),
            Reason::SessionReacquireDisallowed,
        );
    }
}

#[test]
fn step_10_a_takeover_does_not_change_the_absolute_end() {
    let rows = [
        made(),
        made().refreshed(Owner::Gone, at(1)).unwrap(),
        made().failed(at(1)).unwrap(),
    ];
    for row in rows {
        let taken = decide(
            &ask(Some(row.clone()), "b"),
            &options(json!({})),
            None,
            1799,
        )
        .unwrap();
        assert_eq!(taken.outcome, Outcome::Reacquired);
        let session = taken.session;
        assert_eq!(session.lease_owner.as_str(), "b");
        assert_eq!(
            (session.status, session.failure_reason),
            (Status::Active, None)
        );
        assert_eq!(
            (session.lease_expires_at, session.ttl_expires_at),
            (at(1800), at(1800))
        );
        assert_eq!(session.version, row.version + 1);
        refused(
            decide(&ask(Some(session), "a"), &options(json!({})), None, 1800),
            Reason::SessionReacquireDisallowed,
        );
    }
}

#[test]
fn an_owner_that_is_gone_is_replaced_at_once() {
    let mut admission = ask(Some(made()), "b");
    admission.owner = Owner::Gone;
    let taken = decide(&admission, &options(json!({})), None, 1).unwrap();
    assert_eq!(taken.outcome, Outcome::Reacquired);
}

#[test]
fn renewal_never_moves_the_lease_back_nor_past_the_end() {
    let renewed = |session: &Session, seconds: Option<u64>, now: u64| {
        renew(Some(session), Owner::Live, &"a".into(), seconds, at(now)).unwrap()
    };
    let session = made();
    let row = renewed(&session, None, 30);
    assert_eq!((row.lease_expires_at, row.version), (at(150), 2));
    assert_eq!(renewed(&session, Some(1), 30).lease_expires_at, at(120));
    let row = renewed(&session, Some(9000), 30);
    assert_eq!(
        (
            row.lease_expires_at,
            row.lease_seconds,
            row.last_heartbeat_at
        ),
        (at(1800), 120, at(30))
    );
}

#[test]
fn renewal_requires_an_active_session_of_the_caller() {
    let renew_as = |session: Option<&Session>, id: &str, now: u64| {
        renew(session, Owner::Live, &id.into(), None, at(now))
    };
    refused(renew_as(None, "a", 1), Reason::SessionNotFound);
    refused(renew_as(Some(&made()), "b", 120), Reason::SessionNotActive);
    refused(
        renew_as(Some(&made()), "b", 119),
        Reason::SessionOwnerMismatch,
    );
    assert!(renew_as(Some(&made()), "a", 119).is_ok());
}

#[test]
fn only_the_owner_closes_a_session_and_closing_is_final() {
    let close_as = |session: Option<&Session>, id: &str, now: u64| {
        close(session, Owner::Live, &id.into(), at(now))
    };
    refused(close_as(None, "a", 1), Reason::SessionNotFound);
    refused(
        close_as(Some(&made()), "b", 1),
        Reason::SessionOwnerMismatch,
    );
    for now in [1, 120, 1800] {
        let closed = close_as(Some(&made()), "a", now).unwrap().unwrap();
        assert_eq!(
            (closed.status, closed.closed_at, closed.failure_reason),
            (Status::Closed, Some(at(now)), None)
        );
        assert_eq!(closed.lease_owner.as_str(), "a");
        assert_eq!(close_as(Some(&closed), "a", now + 1), Ok(None));
        refused(
            close_as(Some(&closed), "b", now + 1),
            Reason::SessionOwnerMismatch,
        );
    }
}

#[test]
fn matching_knows_which_worker_could_lease_a_task() {
    let said = options(json!({}));
    assert_eq!(
        expected_admission(None, &said, &[], at(0)),
        SessionAdmission::Free
    );
    let waits = options(json!({"create_if_missing": false}));
    assert_eq!(
        expected_admission(None, &waits, &[], at(0)),
        SessionAdmission::Blocked(Box::new(Refusal::Missing))
    );
    let row = made();
    assert_eq!(
        expected_admission(Some(&row), &said, &[], at(1)),
        SessionAdmission::Held("a".into())
    );
    assert_eq!(
        expected_admission(Some(&row), &said, &[], at(120)),
        SessionAdmission::Free
    );
    let busy = [attempt("t", "a", 99)];
    let SessionAdmission::Blocked(refusal) = expected_admission(Some(&row), &said, &busy, at(1))
    else {
        panic!("the session must be full")
    };
    assert_eq!(refusal.reason(), Reason::SessionActivityLimitExceeded);
    let SessionAdmission::Blocked(refusal) = expected_admission(Some(&row), &said, &[], at(1800))
    else {
        panic!("the session must have ended")
    };
    assert_eq!(refusal.reason(), Reason::SessionReacquireDisallowed);
}

#[test]
fn an_operator_sees_why_a_session_task_is_blocked() {
    let said = options(json!({"requirements": ["gpu:a100"]}));
    let why = |row: Option<&Session>, workers: &[Applicant]| {
        blocked(row, Owner::Live, &said, &[], workers, at(1)).map(|refusal| refusal.reason())
    };
    let bare = Applicant {
        capabilities: Arc::default(),
        ..worker("c")
    };
    let full = Applicant {
        holds: vec![other("x", "d"), other("y", "d")],
        ..worker("d")
    };
    assert_eq!(why(None, &[]), None);
    assert_eq!(why(None, &[bare.clone(), worker("a")]), None);
    assert_eq!(
        why(None, std::slice::from_ref(&bare)),
        Some(Reason::SessionRequirementsNotMet)
    );
    assert_eq!(why(None, &[full]), Some(Reason::WorkerSessionLimitExceeded));
    let row = made();
    assert_eq!(why(Some(&row), &[worker("a")]), None);
    assert_eq!(
        why(Some(&row), &[worker("b")]),
        Some(Reason::SessionOwnedByAnotherWorker)
    );
    let weak = Applicant {
        worker_id: "a".into(),
        ..bare
    };
    assert_eq!(
        why(Some(&row), &[weak]),
        Some(Reason::SessionRequirementsNotMet)
    );
}
