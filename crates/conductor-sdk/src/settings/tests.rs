//! The environment of every test is a map. No test reads or changes the variables of the process.

mod log;
mod names;
mod values;
mod worker_id;

use std::collections::HashMap;
use std::time::Duration;

use super::*;

/// The variables of an environment.
type Variables = HashMap<String, String>;

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn resolved(
    task_name: &str,
    code: &CodeSettings,
    variables: &Variables,
) -> Result<Resolved, SettingsError> {
    resolve(task_name, code, &|name| variables.get(name).cloned())
}

/// Resolves without values from code. All values must be allowed.
fn from<const N: usize>(task_name: &str, pairs: [(&str, &str); N]) -> Resolved {
    resolved(task_name, &CodeSettings::new(), &variables(pairs)).unwrap()
}

/// The names of a property in variables, a value that is not the default, and the defaults with this value.
fn examples() -> Vec<(Property, &'static [&'static str], &'static str, Settings)> {
    let set = |change: fn(&mut Settings)| {
        let mut settings = defaults();
        change(&mut settings);
        settings
    };
    vec![
        (
            Property::PollInterval,
            &["poll_interval_millis", "poll_interval", "polling_interval"],
            "250",
            set(|settings| settings.poll_interval = Duration::from_millis(250)),
        ),
        (
            Property::ThreadCount,
            &["thread_count"],
            "20",
            set(|settings| settings.thread_count = 20),
        ),
        (
            Property::Domain,
            &["domain"],
            "europe",
            set(|settings| settings.domain = Some("europe".to_owned())),
        ),
        (
            Property::WorkerId,
            &["worker_id"],
            "worker-7",
            set(|settings| settings.worker_id = "worker-7".to_owned()),
        ),
        (
            Property::PollTimeout,
            &["poll_timeout"],
            "5000",
            set(|settings| settings.poll_timeout = Duration::from_secs(5)),
        ),
        (
            Property::RegisterTaskDef,
            &["register_task_def"],
            "true",
            set(|settings| settings.register_task_def = true),
        ),
        (
            Property::OverwriteTaskDef,
            &["overwrite_task_def"],
            "false",
            set(|settings| settings.overwrite_task_def = false),
        ),
        (
            Property::StrictSchema,
            &["strict_schema"],
            "1",
            set(|settings| settings.strict_schema = true),
        ),
        (
            Property::Paused,
            &["paused"],
            "yes",
            set(|settings| settings.paused = true),
        ),
        (
            Property::LeaseExtendEnabled,
            &["lease_extend_enabled"],
            "TRUE",
            set(|settings| settings.lease_extend_enabled = true),
        ),
        (
            Property::RegisterSchema,
            &["register_schema"],
            "no",
            set(|settings| settings.register_schema = false),
        ),
    ]
}

/// The documented defaults. The worker id is fixed, so that settings can be compared.
fn defaults() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(100),
        thread_count: 1,
        domain: None,
        worker_id: "test".to_owned(),
        poll_timeout: Duration::from_millis(100),
        register_task_def: false,
        overwrite_task_def: true,
        strict_schema: false,
        paused: false,
        lease_extend_enabled: false,
        register_schema: true,
    }
}

/// The settings with the worker id of [`defaults`] in place of a generated one.
fn comparable(resolved: Resolved) -> Settings {
    let generated = resolved.source(Property::WorkerId) == &Source::Default;
    let mut settings = resolved.into_settings();
    if generated {
        settings.worker_id = defaults().worker_id;
    }
    settings
}

/// The variables of the task `process-order` in every form, the most important first. The second value is the number of variables
/// for the worker.
fn every_form(names: &[&str]) -> (Vec<String>, usize) {
    let forms = |forms: &[&str]| -> Vec<String> {
        names
            .iter()
            .flat_map(|name| {
                forms.iter().map(|form| {
                    form.replace("{PROPERTY}", &name.to_uppercase())
                        .replace("{property}", name)
                })
            })
            .collect()
    };
    let mut all = forms(&[
        "conductor.worker.process-order.{property}",
        "CONDUCTOR_WORKER_PROCESS-ORDER_{PROPERTY}",
        "CONDUCTOR_WORKER_PROCESS_ORDER_{PROPERTY}",
        "conductor_worker_process-order_{property}",
        "CONDUCTOR_WORKER_process-order_{PROPERTY}",
    ]);
    let of_worker = all.len();
    all.extend(forms(&[
        "conductor.worker.all.{property}",
        "CONDUCTOR_WORKER_ALL_{PROPERTY}",
        "CONDUCTOR_WORKER_{PROPERTY}",
        "conductor_worker_{property}",
    ]));
    (all, of_worker)
}

#[test]
fn every_property_is_read_from_every_form_of_variable() {
    let mut properties = Vec::new();
    for (property, names, text, expected) in examples() {
        properties.push(property);
        let (forms, of_worker) = every_form(names);
        for (index, variable) in forms.into_iter().enumerate() {
            let resolved = from("process-order", [(&variable, text)]);
            for other in Property::ALL {
                let source = if other != property {
                    Source::Default
                } else if index < of_worker {
                    Source::WorkerVariable(variable.clone())
                } else {
                    Source::GlobalVariable(variable.clone())
                };
                assert_eq!(resolved.source(other), &source, "{variable}: {other}");
            }
            assert_eq!(comparable(resolved), expected, "{variable}");
        }
    }
    assert_eq!(properties, Property::ALL);
}

#[test]
fn each_variable_overrides_the_ones_after_it_then_code_then_the_default() {
    let cases = [
        (
            Property::ThreadCount,
            &["thread_count"][..],
            (|settings| settings.thread_count as u128) as fn(&Settings) -> u128,
        ),
        (
            Property::PollInterval,
            &["poll_interval_millis", "poll_interval", "polling_interval"],
            |settings| settings.poll_interval.as_millis(),
        ),
    ];
    for (property, names, value) in cases {
        let (forms, _) = every_form(names);
        let numbered = || forms.iter().zip(1000..);
        let mut environment: Variables = numbered()
            .map(|(variable, number)| (variable.clone(), number.to_string()))
            .collect();
        let code = CodeSettings::new()
            .thread_count(7)
            .poll_interval(Duration::from_millis(7));
        for (variable, number) in numbered() {
            let found = resolved("process-order", &code, &environment).unwrap();
            assert_eq!(value(found.settings()), number, "{variable}");
            environment.remove(variable);
        }
        let found = resolved("process-order", &code, &environment).unwrap();
        assert_eq!(value(found.settings()), 7);
        assert_eq!(found.source(property), &Source::Code);
        let found = resolved("process-order", &CodeSettings::new(), &environment).unwrap();
        assert_eq!(value(found.settings()), value(&defaults()));
        assert_eq!(found.source(property), &Source::Default);
    }
}

#[test]
fn any_worker_variable_overrides_any_global_variable() {
    for (property, names, text, expected) in examples() {
        let (forms, of_worker) = every_form(names);
        for worker in &forms[..of_worker] {
            for global in &forms[of_worker..] {
                // The global value is wrong for most properties. A value that is overridden is not checked.
                let resolved = from("process-order", [(worker, text), (global, "overridden")]);
                assert_eq!(
                    resolved.source(property),
                    &Source::WorkerVariable(worker.clone())
                );
                assert_eq!(comparable(resolved), expected);
            }
        }
    }
}

#[test]
fn code_sets_every_property() {
    let code = CodeSettings::new()
        .poll_interval(Duration::from_micros(500))
        .thread_count(20)
        .domain(" europe ")
        .worker_id("worker-7")
        .poll_timeout(Duration::ZERO)
        .register_task_def(true)
        .overwrite_task_def(false)
        .strict_schema(true)
        .paused(true)
        .lease_extend_enabled(true)
        .register_schema(false);
    let resolved = resolved("order", &code, &Variables::new()).unwrap();
    for property in Property::ALL {
        assert_eq!(resolved.source(property), &Source::Code, "{property}");
    }
    let expected = Settings {
        poll_interval: Duration::from_micros(500),
        thread_count: 20,
        domain: Some("europe".to_owned()),
        worker_id: "worker-7".to_owned(),
        poll_timeout: Duration::ZERO,
        register_task_def: true,
        overwrite_task_def: false,
        strict_schema: true,
        paused: true,
        lease_extend_enabled: true,
        register_schema: false,
    };
    assert_eq!(resolved.into_settings(), expected);
}

#[test]
fn nothing_set_resolves_to_the_defaults() {
    let resolved = from("order", []);
    assert_ne!(resolved.settings().worker_id, "");
    assert_eq!(comparable(resolved), defaults());
}

#[test]
fn an_empty_text_counts_as_not_set_at_every_level() {
    for empty in ["", " \t"] {
        let (forms, _) = every_form(&["domain"]);
        let mut environment: Variables = forms
            .iter()
            .map(|variable| (variable.clone(), empty.to_owned()))
            .collect();
        let code = CodeSettings::new().domain("code").worker_id(empty);
        let found = resolved("process-order", &code, &environment).unwrap();
        assert_eq!(found.settings().domain.as_deref(), Some("code"));
        assert_eq!(found.source(Property::WorkerId), &Source::Default);

        let last = forms.last().unwrap();
        environment.insert(last.clone(), "europe".to_owned());
        let found = resolved("process-order", &code, &environment).unwrap();
        assert_eq!(found.settings().domain.as_deref(), Some("europe"));

        let code = CodeSettings::new().domain(empty);
        let found = resolved("order", &code, &Variables::new()).unwrap();
        assert_eq!(found.settings().domain, None);
        assert_eq!(found.source(Property::Domain), &Source::Default);
    }
}

#[test]
fn the_environment_of_the_process_is_read_without_a_panic() {
    // No process has a variable with such a name.
    let task_name = "no=such\0task";
    let code = CodeSettings::new().worker_id("test");
    let resolved = resolve_from_environment(task_name, &code).unwrap();
    for property in Property::ALL {
        let source = resolved.source(property);
        assert!(!matches!(source, Source::WorkerVariable(_)), "{source}");
    }
}
