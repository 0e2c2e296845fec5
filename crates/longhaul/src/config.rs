//! Settings of `serve`. A flag has precedence over the environment, the environment over the file, the file over the default.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_host::QuestionLimits;
use longhaul_protocol::describe::{HISTORY_PAGE_SIZE_DEFAULT, HISTORY_PAGE_SIZE_MAX};
use longhaul_server::auth::ConductorKey;
use longhaul_store::StoreAddress;
use serde::Deserialize;

use crate::logs;

mod conductor_keys;
mod connections;
#[cfg(test)]
mod deployment;
mod environment;
mod http_tasks;
mod limits;
mod scripts;
mod store;
mod tls;
mod tokens;

pub(crate) use http_tasks::HttpTasks;
pub(crate) use limits::Limits;
pub(crate) use store::{StoreArgs, parse_place};
pub(crate) use tls::Certificate;
pub(crate) use tokens::Tokens;

/// Loopback, so that a first start does not expose the server.
const LISTEN_DEFAULT: &str = "127.0.0.1:8080";

/// The migration library logs every step on an empty database. Operators do not need that.
const LOG_DEFAULT: &str = "info,refinery_core=warn";

/// An hour. No client keeps a connection open longer to wait for a query.
const QUESTION_SECONDS_MAX: u64 = 3600;

#[derive(Args, Default)]
pub(crate) struct ServeArgs {
    /// Address to listen on [default: 127.0.0.1:8080]; port 0 selects a free port
    #[arg(long, env = "LONGHAUL_LISTEN", value_name = "ADDR")]
    listen: Option<String>,

    #[command(flatten)]
    store: StoreArgs,

    /// Serve a non-loopback address without any credential
    #[arg(long)]
    insecure: bool,

    /// One token for all roles
    #[arg(
        long,
        env = "LONGHAUL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<String>,

    /// Token for workers
    #[arg(
        long,
        env = "LONGHAUL_WORKER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    worker_token: Option<String>,

    /// Token for operators: start, signal, describe
    #[arg(
        long,
        env = "LONGHAUL_OPERATOR_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    operator_token: Option<String>,

    /// Token for administrators: namespaces, workers
    #[arg(
        long,
        env = "LONGHAUL_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    admin_token: Option<String>,

    /// Keys of Conductor clients as a JSON list; each has id, secret, roles and, optionally, namespace
    #[arg(
        long,
        env = "LONGHAUL_CONDUCTOR_KEYS",
        hide_env_values = true,
        value_name = "JSON"
    )]
    conductor_keys: Option<String>,

    /// Name of this server in discovery [default: the host name]
    #[arg(long, env = "LONGHAUL_SERVER_ID", value_name = "NAME")]
    server_id: Option<String>,

    /// How long a worker holds a workflow task without a heartbeat [default: 300]
    #[arg(
        long,
        env = "LONGHAUL_WORKFLOW_TASK_LEASE_SECONDS",
        value_name = "SECONDS"
    )]
    workflow_task_lease_seconds: Option<u64>,

    /// How long a worker holds an activity task without a heartbeat [default: 300]
    #[arg(long, env = "LONGHAUL_ACTIVITY_LEASE_SECONDS", value_name = "SECONDS")]
    activity_lease_seconds: Option<u64>,

    /// How long the caller of a query waits for a worker's answer [default: 45]
    #[arg(
        long,
        env = "LONGHAUL_QUERY_TASK_TIMEOUT_SECONDS",
        value_name = "SECONDS"
    )]
    query_task_timeout_seconds: Option<u64>,

    /// How long a query is remembered for workers that report late [default: 180]
    #[arg(long, env = "LONGHAUL_QUERY_TASK_TTL_SECONDS", value_name = "SECONDS")]
    query_task_ttl_seconds: Option<u64>,

    /// Queries that may wait for a worker on one queue [default: 1024]
    #[arg(
        long,
        env = "LONGHAUL_QUERY_TASK_MAX_PENDING_PER_QUEUE",
        value_name = "COUNT"
    )]
    query_task_max_pending_per_queue: Option<usize>,

    /// How long the caller of an update waits for its validator [default: 10]
    #[arg(
        long,
        env = "LONGHAUL_UPDATE_VALIDATION_TIMEOUT_SECONDS",
        value_name = "SECONDS"
    )]
    update_validation_timeout_seconds: Option<u64>,

    /// How long one validation may take before its worker counts as lost [default: 5]
    #[arg(
        long,
        env = "LONGHAUL_UPDATE_VALIDATION_LEASE_SECONDS",
        value_name = "SECONDS"
    )]
    update_validation_lease_seconds: Option<u64>,

    /// Events on a history page if the worker does not name a size [default: 500]
    #[arg(long, env = "LONGHAUL_HISTORY_PAGE_SIZE", value_name = "EVENTS")]
    history_page_size: Option<u32>,

    /// Another host name that a server on loopback without credentials accepts; may be repeated
    #[arg(
        long,
        env = "LONGHAUL_ALLOWED_HOST",
        value_name = "NAME",
        value_delimiter = ','
    )]
    allowed_host: Vec<String>,

    #[command(flatten)]
    tls: tls::TlsArgs,

    #[command(flatten)]
    connections: connections::Args,

    #[command(flatten)]
    scripts: scripts::ScriptArgs,

    #[command(flatten)]
    http_tasks: http_tasks::HttpTaskArgs,

    #[command(flatten)]
    environment: environment::EnvironmentArgs,

    /// Children that code starts on this queue are Conductor workflows [default: conductor]
    #[arg(long, env = "LONGHAUL_CONDUCTOR_QUEUE", value_name = "QUEUE")]
    conductor_queue: Option<String>,

    /// Memory for copies of runs [default: 128]
    #[arg(long, env = "LONGHAUL_RUN_CACHE_MIB", value_name = "MIB")]
    run_cache_mib: Option<u64>,

    /// A worker that is stale for this long is removed [default: 3600]
    #[arg(long, env = "LONGHAUL_WORKER_FORGET_SECONDS", value_name = "SECONDS")]
    worker_forget_seconds: Option<u64>,

    /// What to log: error, warn, info, debug, trace, or a filter such as info,longhaul_host=debug [default: info]
    #[arg(long, env = "LONGHAUL_LOG", value_name = "FILTER")]
    log: Option<String>,

    /// Format of log lines [default: text]
    #[arg(long, env = "LONGHAUL_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<logs::Format>,
}

/// The configuration file. Unknown keys are refused, so that a misspelt setting is not silently ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<String>,
    data: Option<PathBuf>,
    store: Option<String>,
    store_connections: Option<usize>,
    insecure: Option<bool>,
    token: Option<String>,
    worker_token: Option<String>,
    operator_token: Option<String>,
    admin_token: Option<String>,
    conductor_keys: Option<toml::Value>,
    server_id: Option<String>,
    workflow_task_lease_seconds: Option<u64>,
    activity_lease_seconds: Option<u64>,
    query_task_timeout_seconds: Option<u64>,
    query_task_ttl_seconds: Option<u64>,
    query_task_max_pending_per_queue: Option<usize>,
    update_validation_timeout_seconds: Option<u64>,
    update_validation_lease_seconds: Option<u64>,
    history_page_size: Option<u32>,
    allowed_host: Option<Vec<String>>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    header_timeout_seconds: Option<u64>,
    body_timeout_seconds: Option<u64>,
    idle_timeout_seconds: Option<u64>,
    write_timeout_seconds: Option<u64>,
    max_connections: Option<u64>,
    script_cpu_millis: Option<u64>,
    script_wall_millis: Option<u64>,
    script_memory_mib: Option<u64>,
    script_stack_kib: Option<u64>,
    script_processes: Option<u64>,
    http_tasks: Option<http_tasks::Switch>,
    http_tasks_deny_private: Option<bool>,
    conductor_queue: Option<String>,
    conductor_env_prefix: Option<String>,
    conductor_secret_prefix: Option<String>,
    conductor_env_allow: Option<Vec<String>>,
    run_cache_mib: Option<u64>,
    worker_forget_seconds: Option<u64>,
    log: Option<String>,
    log_format: Option<logs::Format>,
    limits: Option<toml::Table>,
}

/// The effective settings of `serve`.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) store: StoreAddress,
    pub(crate) tokens: Tokens,
    pub(crate) conductor_keys: Vec<ConductorKey>,
    pub(crate) server_id: String,
    pub(crate) workflow_task_lease_seconds: Option<u64>,
    pub(crate) activity_lease_seconds: Option<u64>,
    pub(crate) questions: QuestionLimits,
    pub(crate) history_page_size: u32,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) connections: longhaul_server::connections::Limits,
    pub(crate) scripts: longhaul_system::Limits,
    pub(crate) http_tasks: HttpTasks,
    pub(crate) environment: longhaul_host::Environment,
    pub(crate) conductor_queue: Option<String>,
    pub(crate) run_cache_mib: Option<u64>,
    pub(crate) worker_forget_seconds: Option<u64>,
    pub(crate) log: String,
    pub(crate) log_format: logs::Format,
    pub(crate) limits: Limits,
}

impl ServeArgs {
    /// Returns the settings of a demonstration: an address and a folder, and defaults for the rest.
    pub(crate) fn for_demo(listen: SocketAddr, data: PathBuf) -> Self {
        Self {
            listen: Some(listen.to_string()),
            store: StoreArgs {
                data: Some(data),
                ..StoreArgs::default()
            },
            // Tasks of the examples fail on purpose; their workers would log that as errors.
            log: Some("info,longhaul_conductor_sdk=off".to_owned()),
            ..Self::default()
        }
    }

    pub(crate) fn settle(&self) -> Result<Settings> {
        let file = self.store.file()?;
        let store = self.store.settle(&file)?;
        let questions = self.questions(&file)?;
        let certificate = self.tls.settle(&file)?;
        let connections = self.connections.settle(&file)?;
        let scripts = self.scripts.settle(&file)?;
        let http_tasks = self.http_tasks.settle(&file);
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let environment = self.environment.settle(&file, variables);
        let allowed_hosts = match &self.allowed_host {
            given if given.is_empty() => file.allowed_host.unwrap_or_default(),
            given => given.clone(),
        };
        check_hosts(&allowed_hosts)?;
        let listen = self
            .listen
            .clone()
            .or(file.listen)
            .unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
        let listen = parse_listen(&listen)?;
        let pick = |flag: &Option<String>, file: Option<String>| {
            flag.clone().or(file).filter(|token| !token.is_empty())
        };
        let tokens = Tokens {
            shared: pick(&self.token, file.token),
            worker: pick(&self.worker_token, file.worker_token),
            operator: pick(&self.operator_token, file.operator_token),
            admin: pick(&self.admin_token, file.admin_token),
        };
        tokens.check()?;
        let conductor_keys =
            conductor_keys::read(self.conductor_keys.as_deref(), file.conductor_keys)?;
        let is_open = tokens.is_empty() && conductor_keys.is_empty();
        let insecure = self.insecure || file.insecure.unwrap_or(false);
        if !listen.ip().is_loopback() && is_open && !insecure {
            bail!(
                "refusing to serve {listen} without credentials: anybody who reaches it could do anything. \
                 Set --token (or LONGHAUL_TOKEN), listen on 127.0.0.1, or say --insecure if you mean it"
            );
        }
        let history_page_size = self
            .history_page_size
            .or(file.history_page_size)
            .unwrap_or(HISTORY_PAGE_SIZE_DEFAULT);
        if !(1..=HISTORY_PAGE_SIZE_MAX).contains(&history_page_size) {
            bail!(
                "--history-page-size must be from 1 to {HISTORY_PAGE_SIZE_MAX}, not {history_page_size}"
            );
        }
        let variable = |name: &str| std::env::var(name).ok();
        let limits = limits::Source::new(&variable, file.limits).read()?;
        Ok(Settings {
            limits,
            history_page_size,
            run_cache_mib: self.run_cache_mib.or(file.run_cache_mib),
            worker_forget_seconds: self.worker_forget_seconds.or(file.worker_forget_seconds),
            questions,
            allowed_hosts,
            certificate,
            connections,
            scripts,
            http_tasks,
            environment,
            conductor_queue: self.conductor_queue.clone().or(file.conductor_queue),
            listen,
            store,
            tokens,
            conductor_keys,
            server_id: self
                .server_id
                .clone()
                .or(file.server_id)
                .unwrap_or_else(host_name),
            workflow_task_lease_seconds: self
                .workflow_task_lease_seconds
                .or(file.workflow_task_lease_seconds),
            activity_lease_seconds: self.activity_lease_seconds.or(file.activity_lease_seconds),
            log: self
                .log
                .clone()
                .or(file.log)
                .unwrap_or_else(|| LOG_DEFAULT.to_owned()),
            log_format: self.log_format.or(file.log_format).unwrap_or_default(),
        })
    }
}

impl ServeArgs {
    /// Returns the limits of queries and validations. Their callers wait on an open connection, so the times are bounded.
    fn questions(&self, file: &File) -> Result<QuestionLimits> {
        let mut questions = QuestionLimits::default();
        let seconds = |flag: Option<u64>, file: Option<u64>, name: &str, default: u64| {
            let seconds = flag.or(file).unwrap_or(default);
            if !(1..=QUESTION_SECONDS_MAX).contains(&seconds) {
                bail!("--{name} must be from 1 to {QUESTION_SECONDS_MAX}, not {seconds}");
            }
            Ok(seconds)
        };
        questions.query_timeout_seconds = seconds(
            self.query_task_timeout_seconds,
            file.query_task_timeout_seconds,
            "query-task-timeout-seconds",
            questions.query_timeout_seconds,
        )?;
        questions.remembered_seconds = seconds(
            self.query_task_ttl_seconds,
            file.query_task_ttl_seconds,
            "query-task-ttl-seconds",
            questions.remembered_seconds,
        )?;
        questions.validation_timeout_seconds = seconds(
            self.update_validation_timeout_seconds,
            file.update_validation_timeout_seconds,
            "update-validation-timeout-seconds",
            questions.validation_timeout_seconds,
        )?;
        questions.validation_lease_seconds = seconds(
            self.update_validation_lease_seconds,
            file.update_validation_lease_seconds,
            "update-validation-lease-seconds",
            questions.validation_lease_seconds,
        )?;
        questions.pending_max = self
            .query_task_max_pending_per_queue
            .or(file.query_task_max_pending_per_queue)
            .unwrap_or(questions.pending_max);
        if !(1..=QuestionLimits::PENDING_MAX).contains(&questions.pending_max) {
            let most = QuestionLimits::PENDING_MAX;
            bail!(
                "--query-task-max-pending-per-queue must be from 1 to {most}, not {}",
                questions.pending_max
            );
        }
        Ok(questions)
    }
}

fn read_file(path: &Path) -> Result<File> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the configuration file {} cannot be read", path.display()))?;
    toml::from_str(&text)
        .with_context(|| format!("the configuration file {} is not valid", path.display()))
}

fn parse_listen(text: &str) -> Result<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(port) = text
        .strip_prefix("localhost:")
        .and_then(|port| port.parse().ok())
    {
        return Ok(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port));
    }
    bail!("`{text}` is not an address to listen on; write it like 127.0.0.1:8080 or 0.0.0.0:8080")
}

/// Accepts host names only: ports are not compared, and a URL would never match.
fn check_hosts(names: &[String]) -> Result<()> {
    for name in names {
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        // An address of version 6 is written without brackets.
        if !is_name && name.parse::<IpAddr>().is_err() {
            bail!(
                "--allowed-host `{name}` is not a host name; write it like build.example, without a port"
            );
        }
    }
    Ok(())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "longhaul".to_owned()
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::store::store_address;
    use super::*;

    fn args(listen: &str) -> ServeArgs {
        ServeArgs {
            listen: Some(listen.to_owned()),
            ..ServeArgs::default()
        }
    }

    #[test]
    fn a_public_address_needs_a_credential_or_insecure() {
        assert!(
            args("0.0.0.0:1")
                .settle()
                .unwrap_err()
                .to_string()
                .contains("--insecure")
        );
        assert!(
            ServeArgs {
                token: Some("t".into()),
                ..args("0.0.0.0:1")
            }
            .settle()
            .is_ok()
        );
        let keys = r#"[{"id": "a", "secret": "0123456789abcdef", "roles": ["worker"]}]"#;
        assert!(
            ServeArgs {
                conductor_keys: Some(keys.into()),
                ..args("0.0.0.0:1")
            }
            .settle()
            .is_ok()
        );
        assert!(
            ServeArgs {
                insecure: true,
                ..args("0.0.0.0:1")
            }
            .settle()
            .is_ok()
        );
        assert!(args("127.0.0.1:1").settle().is_ok());
    }

    fn configured_by(file: &Path) -> StoreArgs {
        StoreArgs {
            config: Some(file.to_owned()),
            ..StoreArgs::default()
        }
    }

    #[test]
    fn a_flag_precedes_the_file_and_a_misspelt_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("longhaul.toml");
        std::fs::write(&file, "listen = \"127.0.0.1:7\"\ndata = \"elsewhere\"\n").unwrap();
        let from_file = ServeArgs {
            store: configured_by(&file),
            ..ServeArgs::default()
        }
        .settle()
        .unwrap();
        assert_eq!(from_file.listen.port(), 7);
        let StoreAddress::Sqlite(path) = from_file.store else {
            panic!("no file");
        };
        assert!(path.starts_with("elsewhere"));
        let from_flag = ServeArgs {
            store: configured_by(&file),
            ..args("127.0.0.1:8")
        }
        .settle()
        .unwrap();
        assert_eq!(from_flag.listen.port(), 8);
        std::fs::write(&file, "lisen = \"127.0.0.1:7\"\n").unwrap();
        assert!(
            ServeArgs {
                store: configured_by(&file),
                ..ServeArgs::default()
            }
            .settle()
            .is_err()
        );
    }

    #[test]
    fn a_token_that_no_client_can_send_is_refused() {
        for token in [
            "two words",
            "tab\there",
            "line\n",
            "schl\u{fc}ssel",
            "\u{7f}",
            " ",
        ] {
            let refused = ServeArgs {
                worker_token: Some(token.into()),
                ..args("127.0.0.1:1")
            }
            .settle()
            .unwrap_err()
            .to_string();
            assert!(refused.contains("--worker-token"), "{refused}");
            assert!(token == " " || !refused.contains(token), "{refused}");
        }
        assert!(
            ServeArgs {
                token: Some("~!a-Z0/9+=".into()),
                ..args("127.0.0.1:1")
            }
            .settle()
            .is_ok()
        );
    }

    #[test]
    fn one_token_for_two_roles_is_refused() {
        let refused = ServeArgs {
            worker_token: Some("same".into()),
            admin_token: Some("same".into()),
            ..args("127.0.0.1:1")
        }
        .settle()
        .unwrap_err()
        .to_string();
        assert!(
            refused.contains("--worker-token") && refused.contains("--admin-token"),
            "{refused}"
        );
        assert!(!refused.contains("same `"), "{refused}");
    }

    #[test]
    fn allowed_hosts_are_names() {
        for (name, is_name) in [
            ("build.example", true),
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("build.example:8080", false),
            ("http://build.example", false),
            ("", false),
        ] {
            let settled = ServeArgs {
                allowed_host: vec![name.to_owned()],
                ..args("127.0.0.1:1")
            }
            .settle();
            assert_eq!(settled.is_ok(), is_name, "{name}");
        }
    }

    #[test]
    fn the_store_is_a_path_or_a_database() {
        let address = |url: &str| store_address(Some(url), Path::new("d"), Some(3));
        let found = address("sqlite:/x/y.db").unwrap();
        assert!(matches!(&found, StoreAddress::Sqlite(path) if path == Path::new("/x/y.db")));
        let none = store_address(None, Path::new("d"), None).unwrap();
        assert!(matches!(&none, StoreAddress::Sqlite(path) if path.starts_with("d")));
        let StoreAddress::Postgres(options) = address("postgres://me:secret@h/d").unwrap() else {
            panic!("no database");
        };
        assert_eq!(options.connections_max(), 3);
        let shown = format!("{options} {options:?}");
        assert!(
            shown.contains("me@h") && !shown.contains("secret"),
            "{shown}"
        );
        for wrong in ["mysql:x", "sqlite:", "postgres://h/d?nonsense=1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
