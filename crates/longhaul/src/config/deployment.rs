//! Tests of the files in `deploy/`: they use only settings, flags and paths that the program has, and give it the time that it needs to
//! stop.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use serde_json::Value;

use super::{ServeArgs, limits};

/// The most that background work takes to end after the last request; see `Host::stop`.
const BACKGROUND_STOP: Duration = Duration::from_secs(10);

#[derive(Parser)]
struct Serve {
    #[command(flatten)]
    _args: ServeArgs,
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder() -> PathBuf {
    root().join("deploy")
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Returns the environment variables that `serve` reads.
fn known_variables() -> BTreeSet<String> {
    let command = Serve::command();
    let of_flags = command
        .get_arguments()
        .filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned()));
    let asked = RefCell::new(BTreeSet::new());
    let environment = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    limits::Source::new(&environment, None).read().unwrap();
    of_flags.chain(asked.take()).collect()
}

/// Returns the words that name a variable of longhaul. `LONGHAUL_` alone is a prefix and none.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| word.len() > "LONGHAUL_".len() && word.starts_with("LONGHAUL_"))
}

/// Returns the plain manifests by the name of their file.
fn manifests() -> Vec<(String, Value)> {
    let read = |path: PathBuf| {
        let manifest = serde_yaml_ng::from_str(&text(&path));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (
            name,
            manifest.unwrap_or_else(|error| panic!("{path:?}: {error}")),
        )
    };
    let found: Vec<_> = files(&folder().join("kubernetes"))
        .into_iter()
        .map(read)
        .collect();
    assert!(found.len() >= 5, "{found:?}");
    found
}

/// Returns the template of the pods in `deployment.yaml`.
fn pod() -> Value {
    let manifests = manifests();
    let deployment = manifests
        .iter()
        .find(|(_, manifest)| manifest["kind"] == "Deployment");
    deployment.unwrap().1["spec"]["template"]["spec"].clone()
}

#[test]
fn every_variable_is_a_setting() {
    let known = known_variables();
    assert!(
        known.contains("LONGHAUL_STORE") && known.contains("DW_NAMESPACE_MAX_REQUESTS_PER_MINUTE")
    );
    let guide = root().join("docs/cluster.md");
    let mut used = 0;
    for path in files(&folder()).into_iter().chain([guide]) {
        for variable in variables(&text(&path)) {
            assert!(
                known.contains(variable),
                "{path:?}: {variable} is no setting"
            );
            used += 1;
        }
    }
    assert!(used > 10, "only {used} variables were found");
}

#[test]
fn every_key_of_the_environment_is_a_setting() {
    let known = known_variables();
    for (name, manifest) in manifests() {
        let keys = ["data", "stringData"].map(|field| manifest[field].as_object());
        for variable in keys.into_iter().flatten().flat_map(|object| object.keys()) {
            assert!(known.contains(variable), "{name}: {variable} is no setting");
        }
    }
    let container = &pod()["containers"][0];
    for entry in container["env"].as_array().into_iter().flatten() {
        let variable = entry["name"].as_str().unwrap();
        assert!(known.contains(variable), "{variable} is no setting");
    }
}

#[test]
fn every_flag_is_one_of_serve() {
    let command = Serve::command();
    let flags: BTreeSet<&str> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let pod = pod();
    let mut arguments = pod["containers"][0]["args"].as_array().unwrap().iter();
    assert_eq!(arguments.next().unwrap(), "serve");
    for argument in arguments.filter_map(Value::as_str) {
        let flag = argument
            .strip_prefix("--")
            .map(|flag| flag.split('=').next().unwrap());
        assert!(
            flag.is_none_or(|flag| flags.contains(flag)),
            "{argument} is no flag"
        );
    }
}

#[test]
fn probes_use_routes_of_the_server() {
    let routes = longhaul_server::routes();
    let pod = pod();
    let container = &pod["containers"][0];
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/api/ready"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert!(
            routes
                .iter()
                .any(|route| route.method == "GET" && route.path == path),
            "{path}"
        );
    }
}

#[test]
fn a_pod_has_the_time_to_stop() {
    let pod = pod();
    let before = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1];
    let before: u64 = before.as_str().unwrap().parse().unwrap();
    let requests = longhaul_server::connections::Limits::default().stop_timeout;
    let needed = Duration::from_secs(before) + requests + BACKGROUND_STOP;
    let given = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(
        Duration::from_secs(given) > needed,
        "{given} s, and {needed:?} are needed"
    );
}

#[test]
fn the_values_of_the_chart_are_yaml() {
    for name in ["Chart.yaml", "values.yaml"] {
        let path = folder().join("helm/longhaul").join(name);
        let parsed: Value = serde_yaml_ng::from_str(&text(&path)).unwrap();
        assert!(parsed.is_object(), "{name}");
    }
}
