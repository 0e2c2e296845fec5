//! The names of tasks, properties and variables.

use super::super::*;
use super::{examples, from};

#[test]
fn task_names_with_other_characters_are_found_in_upper_case() {
    let cases = [
        ("process-order", "CONDUCTOR_WORKER_PROCESS_ORDER_DOMAIN"),
        ("Process Order", "CONDUCTOR_WORKER_PROCESS_ORDER_DOMAIN"),
        ("order.v2", "CONDUCTOR_WORKER_ORDER_V2_DOMAIN"),
        ("order.v2", "CONDUCTOR_WORKER_ORDER.V2_DOMAIN"),
        ("grüße", "CONDUCTOR_WORKER_GR_SSE_DOMAIN"),
        ("grüße", "CONDUCTOR_WORKER_GRÜSSE_DOMAIN"),
    ];
    for (task_name, variable) in cases {
        let resolved = from(task_name, [(variable, "europe")]);
        let source = Source::WorkerVariable(variable.to_owned());
        assert_eq!(resolved.source(Property::Domain), &source, "{task_name}");
    }
}

#[test]
fn a_variable_for_all_workers_stays_global_for_a_task_with_the_name_all() {
    for (task_name, variable) in [
        ("all", "conductor.worker.all.thread_count"),
        ("all", "CONDUCTOR_WORKER_ALL_THREAD_COUNT"),
        ("ALL", "CONDUCTOR_WORKER_ALL_THREAD_COUNT"),
    ] {
        let resolved = from(task_name, [(variable, "20")]);
        assert_eq!(resolved.settings().thread_count, 20);
        let source = Source::GlobalVariable(variable.to_owned());
        assert_eq!(resolved.source(Property::ThreadCount), &source);
    }
}

#[test]
fn a_task_with_the_name_all_has_variables_of_its_own() {
    for variable in [
        "conductor_worker_all_thread_count",
        "CONDUCTOR_WORKER_all_THREAD_COUNT",
    ] {
        let global = ("conductor.worker.all.thread_count", "20");
        let resolved = from("all", [(variable, "3"), global]);
        assert_eq!(resolved.settings().thread_count, 3);
        let source = Source::WorkerVariable(variable.to_owned());
        assert_eq!(resolved.source(Property::ThreadCount), &source);
        let other = from("order", [(variable, "3"), global]);
        assert_eq!(other.settings().thread_count, 20);
    }
}

#[test]
fn no_property_name_is_the_end_of_another_one() {
    // Otherwise a variable of a worker could also be an old variable of another property.
    let names = || examples().into_iter().flat_map(|(_, names, ..)| names);
    for name in names() {
        for other in names() {
            assert!(!other.ends_with(&format!("_{name}")), "{other}");
        }
    }
}

#[test]
fn properties_are_indexed_in_the_order_of_their_list() {
    for (index, property) in Property::ALL.into_iter().enumerate() {
        assert_eq!(property as usize, index);
    }
}
