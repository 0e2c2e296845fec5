//! Builds and runs the examples that come with the Rust crate, straight from its published source.
//!
//! A package in the target directory names the files in cargo's registry as its programs; nothing is copied. It has the same
//! dependencies, features, versions and profiles as this workspace, so that cargo reuses what it compiled for the tests and only
//! builds the programs. Dependencies of macro crates are build dependencies here: cargo compiles both for the host, and their
//! features apply to every other macro.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use toml::Table;

use super::{Server, client_program};

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

/// If only one crate of the workspace was built before, the dependencies are compiled with other features.
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
        let mut command = client_program(programs.join(name));
        command
            .env("DURABLE_WORKFLOW_SERVER_URL", server.url())
            .stdin(Stdio::null());
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

/// Builds all programs once. Returns the folder they are in.
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
    let compiled = String::from_utf8_lossy(&built.stderr)
        .lines()
        .filter(|line| line.trim_start().starts_with("Compiling"))
        .count();
    eprintln!("built the published examples; cargo compiled {compiled} package(s)");
    target.join("debug")
}

/// Returns cargo with the environment of a shell. Cargo describes the package of a test in variables that some build scripts read,
/// so dependencies would be built again.
fn cargo() -> Command {
    const SET_BY_CARGO: [&str; 5] = [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PRIMARY_",
    ];
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if SET_BY_CARGO.iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    // The examples are not ours to lint.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

/// Returns the metadata of this workspace for this platform. Without the filter cargo would also read crates of other platforms,
/// which were never downloaded.
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

/// Returns the platform that cargo builds for by default.
async fn host_platform() -> String {
    let output = cargo().arg("-vV").output().await.expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("cargo prints text");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("cargo names its host").to_owned()
}

/// Returns the folder with the examples of the published crate in the registry.
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

/// Returns the manifest of a package with the dependencies and profiles of this workspace.
fn manifest(root: &Path, metadata: &Value, examples: &Path) -> String {
    let workspace = read_toml(&root.join("Cargo.toml"));
    let mut dependencies = workspace["workspace"]["dependencies"]
        .as_table()
        .expect("shared dependencies")
        .clone();
    dependencies.retain(|_, wanted| wanted.get("path").is_none());
    let members: Vec<Table> = members(metadata)
        .iter()
        .map(|path| read_toml(path))
        .collect();
    for member in &members {
        add_features(&mut dependencies, member);
    }
    let host_dependencies = split_off_host(&mut dependencies, &members);
    let mut bins: Vec<toml::Value> = EXAMPLES
        .iter()
        .map(|name| bin(name, &examples.join(format!("{name}.rs"))))
        .collect();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/examples/trip.rs");
    bins.push(bin("trip", &own));
    // A program of the crate itself, with which its authors check a server.
    let judge = examples.with_file_name("src/bin/durable-workflow-memo-restart.rs");
    bins.push(bin("memo_restart", &judge));

    let mut package = Table::new();
    package.insert("name".into(), "published-examples".into());
    package.insert("version".into(), "0.0.0".into());
    // The edition of the published crate.
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
    manifest.insert("build-dependencies".into(), host_dependencies.into());
    manifest.insert("profile".into(), quick_profile(&workspace).into());
    toml::to_string(&manifest).expect("a manifest")
}

/// Returns the profiles of the workspace, without optimisation for the programs themselves. The profile of dependencies stays, or
/// cargo would compile them again.
fn quick_profile(workspace: &Table) -> Table {
    let mut profiles = workspace["profile"].as_table().expect("profiles").clone();
    let dev = profiles
        .get_mut("dev")
        .and_then(toml::Value::as_table_mut)
        .expect("the profile of tests");
    dev.insert("opt-level".into(), 0.into());
    dev.insert("debug".into(), false.into());
    dev.insert("incremental".into(), false.into());
    profiles
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

/// Removes the dependencies that only macro crates have, and returns them.
fn split_off_host(dependencies: &mut Table, members: &[Table]) -> Table {
    let (macros, others): (Vec<&Table>, Vec<&Table>) =
        members.iter().partition(|member| is_macro(member));
    let used = |members: &[&Table], name: &str| {
        members.iter().any(|member| {
            ["dependencies", "dev-dependencies"].iter().any(|kind| {
                member
                    .get(*kind)
                    .is_some_and(|used| used.get(name).is_some())
            })
        })
    };
    let names: Vec<String> = dependencies.keys().cloned().collect();
    let mut host = Table::new();
    for name in names {
        if used(&macros, &name)
            && !used(&others, &name)
            && let Some(dependency) = dependencies.remove(&name)
        {
            host.insert(name, dependency);
        }
    }
    host
}

fn is_macro(member: &Table) -> bool {
    let library = member.get("lib");
    library
        .and_then(|library| library.get("proc-macro"))
        .and_then(toml::Value::as_bool)
        .unwrap_or(false)
}

/// Adds the features that a member has beyond the shared ones.
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

/// Writes the file only if its text changed, so that cargo does not see a change without one.
fn write_changed(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).expect("a writable target directory");
}
