//! Faults under load: servers are killed and stopped, PostgreSQL is killed, restarted and slow, and connections break at every place,
//! also between COMMIT and its answer. The seed of the order is printed; `LONGHAUL_CRASH_SEED` repeats it.

use longhaul_test_postgres::Cluster;
use nix::sys::signal::Signal;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::code_runs::CodeRuns;
use super::load::Load;
use super::probes::{expect_sound_store, wait_for_readiness};
use super::proxy::{Place, Proxy};
use super::{SERVERS, servers};
use crate::crash::Random;
use crate::harness::{Caller, Server, ServerOptions, eventually};

/// A lease whose holder is gone ends soon.
const LEASE_SECONDS: u32 = 3;

/// Runs that end between two faults.
const RUNS_BETWEEN: usize = 3;

/// Several times what a server of a debug build has after this load. A leak of what each request or fault leaves would be found by
/// longer runs; this finds what is out of all proportion.
const MEMORY_MAX_BYTES: u64 = 400 << 20;

/// What a server logs when it has found out about a commit whose connection broke.
const OUTCOME_KNOWN: &str = "the outcome of a broken commit is known";

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillServer,
    StopServer,
    /// As `pg_ctl stop -m immediate` does it.
    StopPostgres,
    KillPostgres,
    EndSessions,
    SlowPostgres,
    CutConnections,
    CutAtCommits(Place),
}

const FAULTS: [Fault; 10] = [
    Fault::KillServer,
    Fault::KillServer,
    Fault::StopServer,
    Fault::StopPostgres,
    Fault::KillPostgres,
    Fault::EndSessions,
    Fault::SlowPostgres,
    Fault::CutConnections,
    Fault::CutAtCommits(Place::BeforeCommit),
    Fault::CutAtCommits(Place::AfterCommit),
];

struct World<'a> {
    cluster: &'a Cluster,
    database: &'a str,
    proxy: Proxy,
    servers: Vec<Server>,
    /// The client of the load.
    caller: Caller,
    load: Load,
    random: Random,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_by_faults_of_servers_connections_and_postgres() {
    let mut random = Random::from_environment();
    let cluster = block_in_place(Cluster::start);
    let database = block_in_place(|| cluster.database());
    let proxy = Proxy::start(database.url()).await;
    let options = ServerOptions::new()
        .store(proxy.url())
        .lease_seconds(LEASE_SECONDS);
    let servers = servers(&options).await;
    let mut faults = FAULTS;
    random.shuffle(&mut faults);
    let caller = Caller::new(servers.iter().map(Server::url));
    let mut world = World {
        cluster: &cluster,
        database: database.name(),
        proxy,
        load: Load::start(&caller).await,
        caller,
        servers,
        random,
    };
    for fault in faults {
        world.load.go_on(RUNS_BETWEEN).await;
        sleep(world.random.milliseconds(0..300)).await;
        let began = tokio::time::Instant::now();
        world.cause(fault).await;
        eprintln!("{fault:?}: {:.1} s", began.elapsed().as_secs_f64());
    }
    for server in &world.servers {
        wait_for_readiness(server.url(), 200).await;
    }
    world.load.judge(&world.servers[0]).await;
    for server in &world.servers {
        let bytes = server.memory_bytes();
        assert!(bytes < MEMORY_MAX_BYTES, "{} MiB", bytes >> 20);
    }
    expect_sound_store(database.url()).await;
}

impl World<'_> {
    /// Causes a fault, expects what must hold meanwhile, and mends it.
    async fn cause(&mut self, fault: Fault) {
        match fault {
            Fault::KillServer => self.kill_server().await,
            Fault::StopServer => self.stop_server().await,
            Fault::StopPostgres => self.lose_postgres(Cluster::stop_immediately).await,
            Fault::KillPostgres => self.lose_postgres(Cluster::kill).await,
            Fault::EndSessions => {
                block_in_place(|| self.cluster.terminate_backends(self.database));
                self.probe_all().await;
            }
            Fault::SlowPostgres => {
                self.proxy.delay(self.random.milliseconds(20..60));
                self.probe_all().await;
                self.proxy.delay(std::time::Duration::ZERO);
            }
            Fault::CutConnections => {
                self.proxy.cut();
                self.probe_all().await;
            }
            Fault::CutAtCommits(place) => self.cut_at_commits(place).await,
        }
    }

    async fn probe_all(&self) {
        let urls: Vec<&str> = self.servers.iter().map(Server::url).collect();
        self.load.probe(&urls).await;
    }

    /// Returns the number of a server by chance, and the addresses of the others.
    fn choose(&mut self) -> (usize, Vec<String>) {
        let victim = self.random.below(SERVERS);
        let others = (0..SERVERS).filter(|other| *other != victim);
        let urls = others.map(|other| self.servers[other].url().to_owned());
        (victim, urls.collect())
    }

    async fn kill_server(&mut self) {
        let (victim, others) = self.choose();
        self.servers[victim].kill().await;
        let urls: Vec<&str> = others.iter().map(String::as_str).collect();
        self.load.probe(&urls).await;
        self.servers[victim].restart().await;
    }

    /// Stops a server that gave a lease until another server gives the task again. The first lease is worth nothing afterwards, also
    /// at the server that gave it.
    async fn stop_server(&mut self) {
        let (victim, others) = self.choose();
        let survivors: Vec<&str> = others.iter().map(String::as_str).collect();
        let (id, queue) = ("held", "held");
        let stopped = CodeRuns::new(Caller::new([self.servers[victim].url()]), queue);
        let going_on = stopped.at(Caller::new(survivors.iter().copied()));
        going_on.register("first").await;
        going_on.register("second").await;
        going_on.start(id).await;
        let lost = eventually("a lease", || stopped.poll("workflow", "first")).await;
        self.servers[victim].signal(Signal::SIGSTOP);
        // A balancer takes a server out that does not answer. The workers would lose their leases while they wait for it.
        self.caller.use_servers(survivors.iter().copied());
        let task = eventually("the lease ends", || going_on.poll("workflow", "second")).await;
        self.load.probe(&survivors).await;
        self.servers[victim].signal(Signal::SIGCONT);
        self.caller
            .use_servers(self.servers.iter().map(Server::url));
        assert_eq!(task["task_id"], lost["task_id"]);
        let complete = || serde_json::json!({"commands": [{"type": "complete_workflow"}]});
        assert!(!stopped.report(&lost, "workflow", complete()).await);
        // The probe may have taken longer than the second lease.
        let mut task = task;
        while !stopped.report(&task, "workflow", complete()).await {
            task = eventually("the lease ends", || stopped.poll("workflow", "second")).await;
        }
        stopped.ended(id).await;
    }

    /// Takes PostgreSQL away until every server has noticed. None of them may be restarted because of it.
    async fn lose_postgres(&mut self, lose: impl FnOnce(&Cluster)) {
        block_in_place(|| lose(self.cluster));
        for server in &self.servers {
            wait_for_readiness(server.url(), 503).await;
        }
        block_in_place(|| self.cluster.resume());
        for server in &self.servers {
            wait_for_readiness(server.url(), 200).await;
        }
        self.probe_all().await;
    }

    /// Cuts connections at COMMIT until a server had to find out whether its commit was stored.
    async fn cut_at_commits(&mut self, place: Place) {
        let known = |servers: &[Server]| {
            let logs = servers.iter().map(Server::log);
            logs.map(|log| log.matches(OUTCOME_KNOWN).count())
                .sum::<usize>()
        };
        let (cuts, before) = (self.proxy.cuts_at_commits(), known(&self.servers));
        self.proxy.cut_at_commits(Some(place));
        let is_known = || async { (known(&self.servers) > before).then_some(()) };
        eventually("the outcome of a commit is known", is_known).await;
        self.proxy.cut_at_commits(None);
        assert!(self.proxy.cuts_at_commits() > cuts);
        self.probe_all().await;
    }
}
