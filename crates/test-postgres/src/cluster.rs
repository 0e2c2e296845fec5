//! A cluster: its folder, its server, and the faults that tests cause.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::programs::Programs;
use crate::reaper::Reaper;
use crate::server::Server;
use crate::{certificate, database};

/// Another program may take the chosen port before the server does. It is improbable, and very improbable this many times.
const PORT_TRIES: u32 = 8;

/// Test binaries run side by side, each with many tests, and each test has a pool.
const CONNECTIONS_MAX: u32 = 400;

/// How a cluster is made.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Offers TLS, with a certificate for `localhost`. Needs the feature `tls`.
    pub tls: bool,
    /// Asks for this password. Without one, every user is trusted.
    pub password: Option<String>,
    /// More settings of the server, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
}

/// A cluster of PostgreSQL. Dropping it ends the server and removes its files.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) programs: Programs,
    url: String,
    private: Option<Private>,
}

/// What only the process that started the server has. Fields are dropped in this order: the server ends before its folder goes.
#[derive(Debug)]
struct Private {
    server: Mutex<Option<Server>>,
    setup: Setup,
    port: u16,
    is_shared: bool,
    _reaper: Reaper,
    folder: PathBuf,
}

impl Cluster {
    /// Starts a cluster that trusts every user.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn start() -> Self {
        Self::start_with(Setup::default()).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Starts a cluster.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, or does not start. The error has the log of the server.
    pub fn start_with(setup: Setup) -> Result<Self> {
        let programs = Programs::find()?;
        // Kept: the reaper removes it. It has to outlive a destructor that does not run.
        let folder = TempDir::with_prefix("longhaul-postgres-")
            .context("a temporary folder could not be made")?
            .keep();
        let reaper = Reaper::watch(&folder)?;
        programs.give(&folder)?;
        let mut private = Private {
            server: Mutex::new(None),
            setup,
            port: 0,
            is_shared: false,
            _reaper: reaper,
            folder,
        };
        private.create(&programs)?;
        let mut tried = 0;
        let server = loop {
            tried += 1;
            private.port = free_port()?;
            match Server::start(private.command(&programs)) {
                Ok(server) => break server,
                Err(error) if tried >= PORT_TRIES => return Err(error),
                Err(_) => {}
            }
        };
        *private.lock() = Some(server);
        Ok(Self {
            url: private.url("127.0.0.1", "postgres"),
            programs,
            private: Some(private),
        })
    }

    /// Uses a running cluster. The user of the address must be a superuser.
    pub(crate) fn at(url: String) -> Result<Self> {
        Ok(Self {
            programs: Programs::find()?,
            url,
            private: None,
        })
    }

    /// Marks a cluster that many tests use, so that no test stops it.
    pub(crate) fn shared(mut self) -> Self {
        if let Some(private) = &mut self.private {
            private.is_shared = true;
        }
        self
    }

    /// Returns the address of the database `postgres`, for the superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address of a database of this cluster.
    pub(crate) fn url_of(&self, database: &str) -> String {
        database::with_name(&self.url, database)
    }

    /// Returns the folder with the socket of the server, and the port that names the socket.
    ///
    /// # Panics
    /// If another process started the server.
    pub fn socket(&self) -> (PathBuf, u16) {
        let private = self.private();
        (private.folder.clone(), private.port)
    }

    /// Returns the port of the server.
    ///
    /// # Panics
    /// If another process started the server.
    pub fn port(&self) -> u16 {
        self.private().port
    }

    /// Returns the file with the root certificate of a cluster with TLS.
    ///
    /// # Panics
    /// If another process started the server.
    pub fn root_certificate(&self) -> PathBuf {
        self.private().folder.join(certificate::ROOT)
    }

    /// Runs SQL in a database as the superuser. Returns the rows, with `|` between the columns.
    ///
    /// # Errors
    /// If a statement fails. The error has the SQLSTATE and the message.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = self.programs.own("psql");
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
            .args(["--set", "ON_ERROR_STOP=1", "--set", "VERBOSITY=verbose"])
            .args(["--dbname", &self.url_of(database), "--command", sql]);
        let output = psql.output().context("psql could not be run")?;
        ensure!(output.status.success(), "psql: {}", shown(&output));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Ends all sessions of a database, as an operator or a failover does.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn terminate_backends(&self, database: &str) {
        let sql = format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        );
        self.sql("postgres", &sql)
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Stops the server and starts it again on the same port.
    ///
    /// # Panics
    /// If the cluster is shared, or the server does not start.
    pub fn restart(&self) {
        self.stop();
        self.resume();
    }

    /// Stops the server in good order.
    ///
    /// # Panics
    /// If the cluster is shared.
    pub fn stop(&self) {
        if let Some(mut server) = self.fault().take() {
            server.stop();
        }
    }

    /// Stops the server as `pg_ctl stop -m immediate` does it: sessions end at once, and the next start recovers from the log.
    ///
    /// # Panics
    /// If the cluster is shared.
    pub fn stop_immediately(&self) {
        if let Some(mut server) = self.fault().take() {
            server.stop_immediately();
        }
    }

    /// Kills all processes of the server at once, as a power cut would. [`Cluster::resume`] starts it again.
    ///
    /// # Panics
    /// If the cluster is shared.
    pub fn kill(&self) {
        if let Some(mut server) = self.fault().take() {
            server.kill();
        }
    }

    /// Starts a stopped or killed server again on the same port.
    ///
    /// # Panics
    /// If the cluster is shared, or the server does not start.
    pub fn resume(&self) {
        let mut place = self.fault();
        if place.is_none() {
            let server = Server::start(self.private().command(&self.programs));
            *place = Some(server.unwrap_or_else(|error| panic!("{error:#}")));
        }
    }

    /// Restarts the server as a standby: it serves reads and refuses writes.
    ///
    /// # Panics
    /// If the cluster is shared, or the server does not start.
    pub fn demote(&self) {
        self.stop();
        let signal = self.private().folder.join("data/standby.signal");
        std::fs::write(&signal, "").unwrap_or_else(|error| panic!("{error}"));
        self.resume();
    }

    fn private(&self) -> &Private {
        self.private
            .as_ref()
            .expect("the test needs a cluster of its own: use Cluster::start")
    }

    fn fault(&self) -> MutexGuard<'_, Option<Server>> {
        let private = self.private();
        assert!(
            !private.is_shared,
            "other tests use this cluster: use Cluster::start for a test that stops it"
        );
        private.lock()
    }
}

impl Private {
    fn lock(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the files of the cluster.
    fn create(&self, programs: &Programs) -> Result<()> {
        let mut initdb = programs.unprivileged("initdb");
        initdb
            .args(["--username", "postgres", "--encoding", "UTF8"])
            // The folder is new, and the server syncs what it writes from now on.
            .args(["--locale", "C", "--no-sync", "--no-instructions"])
            .arg("--pgdata")
            .arg(self.folder.join("data"))
            .current_dir(&self.folder);
        if let Some(password) = &self.setup.password {
            let file = self.folder.join("password");
            std::fs::write(&file, password).context("the password cannot be written")?;
            programs.give(&file)?;
            initdb
                .args(["--auth", "scram-sha-256", "--pwfile"])
                .arg(&file);
        } else {
            initdb.args(["--auth", "trust"]);
        }
        let output = initdb
            .output()
            .context("setpriv could not be run; it is a part of util-linux")?;
        if !output.status.success() {
            bail!("initdb failed: {}", shown(&output));
        }
        if self.setup.tls {
            certificate::write(&self.folder)?;
            for name in [
                certificate::CERTIFICATE,
                certificate::KEY,
                certificate::ROOT,
            ] {
                programs.give(&self.folder.join(name))?;
            }
        }
        Ok(())
    }

    fn command(&self, programs: &Programs) -> Command {
        let mut postgres = programs.dependent("postgres");
        postgres
            .arg("-D")
            .arg(self.folder.join("data"))
            .current_dir(&self.folder);
        let mut set = |name: &str, value: &str| {
            postgres.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("port", &self.port.to_string());
        set("unix_socket_directories", &self.folder.to_string_lossy());
        set("max_connections", &CONNECTIONS_MAX.to_string());
        set("shared_buffers", "64MB");
        // The start is recognised by a line of the log.
        set("lc_messages", "C");
        set("log_min_messages", "log");
        if self.setup.tls {
            set("ssl", "on");
            let file = |name| self.folder.join(name).to_string_lossy().into_owned();
            set("ssl_cert_file", &file(certificate::CERTIFICATE));
            set("ssl_key_file", &file(certificate::KEY));
        }
        for (name, value) in &self.setup.settings {
            set(name, value);
        }
        postgres
    }

    fn url(&self, host: &str, database: &str) -> String {
        let password = self.setup.password.as_ref();
        let password = password.map_or_else(String::new, |password| format!(":{password}"));
        format!(
            "postgres://postgres{password}@{host}:{}/{database}",
            self.port
        )
    }
}

/// Returns a port that is free now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

fn shown(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}
