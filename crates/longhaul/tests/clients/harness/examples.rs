//! Builds and runs the examples that come with the Rust crate, straight from its published source.
//!
//! A package in the target directory names the files in cargo's registry as its programs; nothing is copied. It asks for the
//! same dependencies, features, versions and profiles as this workspace, so what was compiled for the tests is used again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use toml::Table;

use super::Server;

/// The published examples that the suite runs.
const EXAMPLES: [&str; 9] = [
    "activity_options",
    "condition_search_attributes",
    "continue_as_new",
    "hello_world",
    "local_activities",
    "parallel_saga",
    "sticky_execution",
    "worker_sessions",
    "workflow_pagination",
];

/// A first build may have to compile dependencies whose features differ from what was built before.
const BUILD_DEADLINE: Duration = Duration::from_secs(900);

/// Examples wait for polls of five seconds and for short retries. All of them end far earlier.
const RUN_DEADLINE: Duration = Duration::from_secs(90);

static PROGRAMS: OnceCell<PathBuf> = OnceCell::const_new();

/// One published example against one server.
pub(crate) struct Example {
    name: &'static str,
    command: Command,
}

impl Example {
    pub(crate) async fn new(name: &'static str, server: &Server) -> Self {
        let programs = PROGRAMS.get_or_init(build).await;
        let mut command = Command::new(programs.join(name));
        command
            .env("DURABLE_WORKFLOW_SERVER_URL", server.url())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Self { name, command }
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Redirects examples that have http://127.0.0.1:8080 in their code. They stay unmodified and no test needs that port: their
    /// HTTP client uses the proxy of this variable, and the server accepts requests with another host.
    pub(crate) fn wherever_it_dials(self, server: &Server) -> Self {
        self.environment("HTTP_PROXY", server.url())
            .environment("NO_PROXY", "")
    }

    /// Runs the example to its end and returns its output. Panics with all output if it fails.
    pub(crate) async fn run(mut self) -> String {
        let output = timeout(RUN_DEADLINE, self.command.output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{} still runs after {RUN_DEADLINE:?}", self.name))
            .expect("the example starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} failed ({}):\n{printed}\n{errors}",
            self.name,
            output.status
        );
        printed
    }

    /// Starts an example that runs until it is killed.
    pub(crate) fn spawn(mut self, server: &Server) -> RunningExample {
        let path = server.directory.path().join(format!("{}.log", self.name));
        let log = fs::File::create(path).expect("a log file");
        let child = self
            .command
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the example starts");
        RunningExample {
            name: self.name,
            child,
        }
    }
}

/// An example that runs a worker. Dropping it kills the process.
pub(crate) struct RunningExample {
    name: &'static str,
    child: Child,
}

impl RunningExample {
    /// Kills the example. It must not have ended by itself.
    pub(crate) async fn stop(mut self) {
        let ended = self.child.try_wait().expect("a status");
        assert!(ended.is_none(), "{} ended by itself: {ended:?}", self.name);
        self.child.kill().await.expect("it was running");
    }
}

/// Builds all programs once; returns the folder they are in.
async fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let metadata = cargo_metadata(&root).await;
    let target = PathBuf::from(metadata["target_directory"].as_str().expect("a directory"));
    let examples = published_examples(&metadata);
    let package = target.join("published-examples");
    fs::create_dir_all(&package).expect("a folder for the package");
    write_changed(
        &package.join("Cargo.toml"),
        &manifest(&root, &metadata, &examples),
    );
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).expect("a lock file");
    let building = cargo()
        .args(["build", "--bins", "--offline", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env("PARALLEL_SAGA", examples.join("parallel_saga.rs"))
        .kill_on_drop(true)
        .output();
    let built = timeout(BUILD_DEADLINE, building)
        .await
        .expect("the examples build in time")
        .expect("cargo runs");
    assert!(
        built.status.success(),
        "the published examples do not build:\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    target.join("debug")
}

/// Cargo as a person would call it. Cargo tells tests about their package in the environment, some build scripts look at these
/// variables, and dependencies would be built again for nothing.
fn cargo() -> Command {
    const TOLD_BY_CARGO: [&str; 5] = [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PRIMARY_",
    ];
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if TOLD_BY_CARGO.iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command
}

/// What this workspace is made of on this platform. Without the filter cargo also wants to read crates that only other
/// platforms use, which no build here has ever downloaded.
async fn cargo_metadata(root: &Path) -> Value {
    let output = cargo()
        .args(["metadata", "--offline", "--format-version", "1"])
        .args(["--filter-platform", &host_platform().await])
        .current_dir(root)
        .output()
        .await
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// The platform that cargo builds for when no other is named.
async fn host_platform() -> String {
    let output = cargo().arg("-vV").output().await.expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("cargo prints text");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("cargo names its host").to_owned()
}

/// Where cargo has unpacked the examples of the published crate.
fn published_examples(metadata: &Value) -> PathBuf {
    let packages = metadata["packages"].as_array().expect("packages");
    let published = packages
        .iter()
        .find(|package| package["name"] == "durable-workflow")
        .expect("the tests depend on durable-workflow");
    let manifest = Path::new(published["manifest_path"].as_str().expect("a path"));
    manifest
        .parent()
        .expect("a manifest is in a folder")
        .join("examples")
}

/// A package of its own with this workspace's outside dependencies and profiles.
fn manifest(root: &Path, metadata: &Value, examples: &Path) -> String {
    let workspace = read_toml(&root.join("Cargo.toml"));
    let mut dependencies = workspace["workspace"]["dependencies"]
        .as_table()
        .expect("shared dependencies")
        .clone();
    dependencies.retain(|_, wanted| wanted.get("path").is_none());
    for member in members(metadata) {
        add_features(&mut dependencies, &read_toml(&member));
    }
    let mut bins: Vec<toml::Value> = EXAMPLES
        .iter()
        .map(|name| bin(name, &examples.join(format!("{name}.rs"))))
        .collect();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/examples/trip.rs");
    bins.push(bin("trip", &own));
    // A program of the crate itself, by which its authors judge a server.
    let judge = examples.with_file_name("src/bin/durable-workflow-memo-restart.rs");
    bins.push(bin("memo_restart", &judge));

    let mut package = Table::new();
    package.insert("name".into(), "published-examples".into());
    package.insert("version".into(), "0.0.0".into());
    // What the published crate is written in.
    package.insert("edition".into(), "2021".into());
    package.insert("publish".into(), false.into());
    let mut own_workspace = Table::new();
    own_workspace.insert(
        "resolver".into(),
        workspace["workspace"]["resolver"].clone(),
    );
    let mut manifest = Table::new();
    manifest.insert("package".into(), package.into());
    manifest.insert("workspace".into(), own_workspace.into());
    manifest.insert("bin".into(), bins.into());
    manifest.insert("dependencies".into(), dependencies.into());
    manifest.insert("profile".into(), workspace["profile"].clone());
    toml::to_string(&manifest).expect("a manifest")
}

fn bin(name: &str, path: &Path) -> toml::Value {
    let mut bin = Table::new();
    bin.insert("name".into(), name.into());
    bin.insert("path".into(), path.to_string_lossy().as_ref().into());
    bin.into()
}

fn members(metadata: &Value) -> Vec<PathBuf> {
    let packages = metadata["packages"].as_array().expect("packages");
    let own = packages
        .iter()
        .filter(|package| package["source"].is_null());
    own.map(|package| PathBuf::from(package["manifest_path"].as_str().expect("a path")))
        .collect()
}

/// Adds the features that a member asks for beyond the shared ones.
fn add_features(dependencies: &mut Table, member: &Table) {
    for kind in ["dependencies", "dev-dependencies"] {
        let wanted = member.get(kind).and_then(toml::Value::as_table);
        for (name, asked) in wanted.into_iter().flatten() {
            let Some(features) = asked.get("features").and_then(toml::Value::as_array) else {
                continue;
            };
            let Some(shared) = dependencies.get_mut(name) else {
                continue;
            };
            if let Some(version) = shared.as_str() {
                let mut table = Table::new();
                table.insert("version".into(), version.into());
                *shared = table.into();
            }
            let shared = shared.as_table_mut().expect("a dependency");
            let all = shared
                .entry("features")
                .or_insert_with(|| toml::Value::Array(Vec::new()));
            all.as_array_mut()
                .expect("a list of features")
                .extend(features.iter().cloned());
        }
    }
}

fn read_toml(path: &Path) -> Table {
    let text = fs::read_to_string(path).expect("a readable manifest");
    text.parse().expect("a manifest is TOML")
}

/// Writes only when there is something new, so that cargo sees no change where there is none.
fn write_changed(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).expect("a writable target directory");
}
