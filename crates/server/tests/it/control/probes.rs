//! Liveness and readiness while the store fails, and while the clock of the server is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use futures::future::BoxFuture;
use longhaul_host::clock::{Clock, ManualClock, SystemClock};
use longhaul_host::{Config, Host};
use longhaul_protocol::Timestamp;
use longhaul_server::auth::Auth;
use longhaul_server::{App, Options};
use longhaul_store::Error;
use longhaul_store::memory::Memory;
use longhaul_store::postgres::{self, Postgres};
use serde_json::json;

use crate::support::{BEGIN, Server};

/// Returns a server with a credential, and a switch that makes its store fail.
async fn server() -> (Server, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&fails);
    let store = Memory::with_fault(move || match asked.load(Ordering::SeqCst) {
        true => Err(Error::Unavailable("the database is gone".to_owned())),
        false => Ok(()),
    });
    let auth = Auth::with_tokens(Some("secret".to_owned()), None, None, None);
    let store = Arc::new(store);
    let server = Server::on(store, Config::default(), auth, Options::default()).await;
    (server, fails)
}

#[tokio::test]
async fn a_server_without_its_store_is_alive_and_not_ready() {
    let (server, fails) = server().await;
    for (fails_now, ready) in [(false, 200), (true, 503), (false, 200)] {
        fails.store(fails_now, Ordering::SeqCst);
        let alive = server.probe("/livez").accepted(200).await;
        assert_eq!(alive, json!({"status": "alive"}));
        for path in ["/api/ready", "/readyz", "/api/health", "/health"] {
            let answer = server.probe(path).send().await;
            assert_eq!(answer.status, ready, "{path}: {}", answer.body);
        }
    }
}

/// The clock of the machine, moved by some seconds.
#[derive(Clone, Default)]
struct WrongClock(Arc<AtomicI64>);

impl WrongClock {
    fn move_to(&self, ahead_seconds: i64) {
        self.0.store(ahead_seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        let ahead = self.0.load(Ordering::SeqCst);
        Timestamp::from_micros(SystemClock.now().as_micros() + ahead)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let ahead = self.0.load(Ordering::SeqCst);
        SystemClock.sleep_until(Timestamp::from_micros(at.as_micros() - ahead))
    }
}

/// Returns the value of a metric, or `None` if it is not shown.
async fn metric(server: &Server, name: &str) -> Option<f64> {
    let (_, text) = server.probe("/metrics").bytes().await;
    let text = String::from_utf8(text.to_vec()).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().parse().expect("a number"))
}

#[tokio::test]
async fn a_server_with_a_wrong_clock_is_not_ready() {
    let database = longhaul_test_postgres::shared().database();
    let options = postgres::Options::parse(database.url()).expect("an address");
    let store = Postgres::open(options).await.expect("a store");
    let clock = WrongClock::default();
    let host =
        Host::start_with_clock(Arc::new(store), Config::default(), Arc::new(clock.clone())).await;
    let host = host.expect("a host");
    let server = Server {
        router: App::new(host.clone(), Auth::open(), Options::default()).router(),
        host,
        clock: ManualClock::new(BEGIN),
    };
    // The distances are far from the bounds of the rule, so that a slow machine changes nothing.
    for (ahead_seconds, status, check) in [
        (0, 200, "ok"),
        (3600, 503, "failed"),
        (3, 200, "warning"),
        (-3600, 503, "failed"),
        (0, 200, "ok"),
    ] {
        clock.move_to(ahead_seconds);
        let answer = server.probe("/api/ready").send().await;
        assert_eq!(answer.status, status, "{}", answer.body);
        let found = &answer.body["checks"]["clock"];
        assert_eq!(found["status"], check, "{found}");
        let reason = (check != "ok").then_some("clock_skew");
        assert_eq!(found["reason"].as_str(), reason, "{found}");
        let ahead = metric(&server, "longhaul_clock_ahead_seconds").await;
        let ahead = ahead.expect("the metric") - ahead_seconds as f64;
        assert!(ahead.abs() < 2.0, "{ahead}");
    }
    server.probe("/livez").accepted(200).await;
    server.host.stop().await;
}

#[tokio::test]
async fn a_store_without_a_clock_of_its_own_is_not_compared() {
    let server = Server::open().await;
    let ready = server.probe("/api/ready").accepted(200).await;
    assert_eq!(ready["checks"]["clock"], json!({"status": "ok"}));
    assert_eq!(metric(&server, "longhaul_clock_ahead_seconds").await, None);
}
