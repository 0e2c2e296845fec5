//! Servers that share a rate, with a clock that steps: the limit holds in every window, and almost all of it can be used.

use proptest::prelude::*;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000 + millis * 1000)
}

fn limit(max: u64, window_seconds: u32) -> RateLimit {
    RateLimit {
        max,
        window_seconds,
    }
}

/// A server with more work than it may do.
struct Server {
    name: String,
    share: Share,
    ask_at: Timestamp,
    used_at: Timestamp,
}

/// Servers on one record.
struct Servers {
    limit: RateLimit,
    record: SharedRate,
    servers: Vec<Server>,
    /// When something was used.
    uses: Vec<Timestamp>,
}

impl Servers {
    fn new(limit: RateLimit, count: usize) -> Self {
        let server = |number| Server {
            name: format!("server-{number}"),
            share: Share::default(),
            ask_at: at(0),
            used_at: at(0),
        };
        Self {
            limit,
            record: SharedRate::default(),
            servers: (0..count).map(server).collect(),
            uses: Vec::new(),
        }
    }

    /// Lets a server do up to `work`, and ask for more if it has too little.
    fn work(&mut self, server: usize, work: u64, now: Timestamp) {
        let server = &mut self.servers[server];
        for _ in 0..work {
            if server.share.available(0, now) == 0 {
                if server.ask_at > now {
                    return;
                }
                let settlement = server.share.begin(Wish::More, 0, now);
                let outcome = self
                    .record
                    .exchange(&server.name, self.limit, &settlement, now);
                server.share.end(&outcome);
                if outcome.granted == 0 {
                    server.ask_at = outcome.room_at;
                    return;
                }
            }
            server.share.count(self.limit, now);
            server.used_at = now;
            self.uses.push(now);
        }
    }

    /// Lets a server that was idle for a while give back its share.
    fn rest(&mut self, server: usize, now: Timestamp) {
        let server = &mut self.servers[server];
        let idle = server.used_at.plus_millis(self.limit.pause_millis());
        if server.share.is_open() && idle <= now {
            let settlement = server.share.begin(Wish::GiveBack, 0, now);
            let outcome = self
                .record
                .exchange(&server.name, self.limit, &settlement, now);
            server.share.end(&outcome);
        }
    }

    fn lose(&mut self, server: usize) {
        self.servers[server].share = Share::default();
        self.servers[server].name.push('+');
    }

    fn most_in_a_window(&self) -> usize {
        let mut first = 0;
        let mut most = 0;
        for (place, now) in self.uses.iter().enumerate() {
            while self.uses[first].plus_seconds(self.limit.window_seconds.into()) <= *now {
                first += 1;
            }
            most = most.max(place + 1 - first);
        }
        most
    }
}

/// Runs windows with load at some of the servers, and returns how many uses each window after the first had.
fn saturate(limit: RateLimit, servers: usize, loaded: usize) -> Vec<usize> {
    const WINDOWS: i64 = 6;
    let mut all = Servers::new(limit, servers);
    let step = i64::from(limit.window_seconds);
    let window = step * 1000;
    for millis in (0..WINDOWS * window).step_by(step as usize) {
        let now = at(millis);
        for server in 0..servers {
            // The others had a little work before.
            let is_loaded = server < loaded || millis < step * 3;
            if is_loaded {
                all.work(server, limit.max, now);
            } else {
                all.rest(server, now);
            }
        }
    }
    assert!(all.most_in_a_window() as u64 <= limit.max);
    let in_window = |number: i64| {
        let (from, to) = (at(number * window), at((number + 1) * window));
        let uses = all.uses.iter();
        uses.filter(|use_at| **use_at >= from && **use_at < to)
            .count()
    };
    // Small limits come in bursts, so two windows together.
    (1..WINDOWS - 1)
        .step_by(2)
        .map(|number| in_window(number) + in_window(number + 1))
        .collect()
}

#[test]
fn nine_tenths_of_a_limit_can_be_used_whatever_servers_have_load() {
    for limit in [limit(10, 1), limit(100, 60), limit(6000, 60)] {
        for (servers, loaded) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)] {
            for uses in saturate(limit, servers, loaded) {
                let least = limit.max as usize * 2 * 9 / 10;
                assert!(
                    uses >= least,
                    "{limit:?}: {uses} of {loaded} of {servers} servers"
                );
            }
        }
    }
}

#[test]
fn a_share_shrinks_when_little_is_free() {
    let limit = limit(1000, 60);
    assert_eq!(limit.share(1000), 50);
    assert_eq!(limit.share(100), 25);
    assert_eq!(limit.share(3), 1);
    assert_eq!(limit.share(0), 0);
}

#[test]
fn a_lost_server_takes_its_share_along_for_a_window() {
    let mut servers = Servers::new(limit(40, 60), 2);
    servers.work(0, 1, at(0));
    servers.lose(0);
    servers.work(1, 100, at(1000));
    assert_eq!(servers.uses.len(), 1 + 38, "one is lost with its server");
    servers.work(1, 100, at(72_500));
    assert_eq!(servers.uses.len(), 1 + 38 + 40, "nothing is lost for long");
}

#[test]
fn an_unused_share_goes_back() {
    let mut servers = Servers::new(limit(40, 60), 2);
    servers.work(0, 1, at(0));
    servers.rest(0, at(500));
    servers.rest(0, at(1000));
    servers.work(1, 100, at(1000));
    assert_eq!(servers.uses.len(), 40);
    assert!(!servers.record.is_over(at(1000)));
    servers.rest(1, at(62_000));
    assert!(servers.record.is_over(at(63_000)));
}

#[test]
fn what_is_on_its_way_is_kept() {
    let (limit, now) = (limit(100, 60), at(0));
    let mut record = SharedRate::default();
    let mut share = Share::default();
    let mut exchange = |share: &mut Share, wish| {
        let settlement = share.begin(wish, 2, now);
        let outcome = record.exchange("one", limit, &settlement, now);
        share.end(&outcome);
        outcome.granted
    };
    assert_eq!(exchange(&mut share, Wish::More), 5);
    assert_eq!(share.available(2, now), 3);
    assert_eq!(exchange(&mut share, Wish::GiveBack), 0);
    assert_eq!(share.available(2, now), 0);
    assert_eq!(share.available(0, now), 2);
    assert_eq!(
        share.available(0, at(10_000)),
        0,
        "a share is not held for long"
    );
}

#[test]
fn a_failed_exchange_loses_no_use() {
    let (limit, now) = (limit(1, 60), at(0));
    let mut record = SharedRate::default();
    let mut share = Share::default();
    let settlement = share.begin(Wish::More, 0, now);
    share.end(&record.exchange("one", limit, &settlement, now));
    share.count(limit, now);
    let settlement = share.begin(Wish::More, 0, now);
    share.fail(&settlement);
    let settlement = share.begin(Wish::GiveBack, 0, now);
    record.exchange("one", limit, &settlement, now);
    assert_eq!(record.counted(limit, at(59_000)), 1);
}

#[test]
fn many_windows_of_one_record_stay_small() {
    let (short, long) = (limit(5, 1), limit(1000, 3600));
    let mut record = SharedRate::default();
    let mut share = Share::default();
    for second in 0..1000 {
        let now = at(second * 1000);
        share.count(short, now);
        for limit in [short, long] {
            let settlement = share.begin(Wish::GiveBack, 0, now);
            record.exchange("one", limit, &settlement, now);
        }
    }
    assert!(record.used.0.len() <= ENTRIES_MAX);
    assert_eq!(record.counted(long, at(1_000_000)), 1000);
    assert!(record.counted(short, at(1_000_000)) <= 5);
}

#[derive(Clone, Debug)]
enum Step {
    Work(usize, u64),
    Rest(usize),
    Lose(usize),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 1..20_u64).prop_map(|(server, work)| Step::Work(server, work)),
        1 => (0..3_usize).prop_map(Step::Rest),
        1 => (0..3_usize).prop_map(Step::Lose),
        3 => (1..3000_i64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn no_window_has_more_uses_than_allowed(
        max in 1..200_u64,
        window in 1..20_u32,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut servers = Servers::new(limit(max, window), 3);
        let mut now = 0;
        for step in steps {
            match step {
                Step::Work(server, work) => servers.work(server, work, at(now)),
                Step::Rest(server) => servers.rest(server, at(now)),
                Step::Lose(server) => servers.lose(server),
                Step::Wait(millis) => now += millis,
            }
        }
        prop_assert!(servers.most_in_a_window() as u64 <= max);
    }
}
