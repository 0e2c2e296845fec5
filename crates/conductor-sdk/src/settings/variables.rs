//! The names of the environment variables that set a property.
//!
//! A property can have several names. Within a level, its first name is tried in every form before its other names.

use super::Property;

/// Returns the variables that set a property for one worker, the most important first.
///
/// A name that is also a variable for all workers is left out. It applies to all workers, also to a task with the name `all`.
pub(super) fn of_worker(task_name: &str, property: Property) -> Vec<String> {
    let upper_task = task_name.to_uppercase();
    let clean_task = upper_task.replace(
        |character: char| !character.is_ascii_uppercase() && !character.is_ascii_digit(),
        "_",
    );
    let shared = of_all(property);
    property
        .names()
        .iter()
        .flat_map(|name| {
            let upper_name = name.to_uppercase();
            [
                format!("conductor.worker.{task_name}.{name}"),
                format!("CONDUCTOR_WORKER_{upper_task}_{upper_name}"),
                // Most shells cannot set a variable with other characters in its name.
                format!("CONDUCTOR_WORKER_{clean_task}_{upper_name}"),
                // Other Conductor SDKs accept two further forms. They come after the documented forms of the worker. They come
                // before the variables for all workers, because a value for the worker must override a value for all workers.
                format!("conductor_worker_{task_name}_{name}"),
                format!("CONDUCTOR_WORKER_{task_name}_{upper_name}"),
            ]
        })
        .filter(|variable| !shared.contains(variable))
        .collect()
}

/// Returns the variables that set a property for all workers, the most important first.
pub(super) fn of_all(property: Property) -> Vec<String> {
    property
        .names()
        .iter()
        .flat_map(|name| {
            let upper_name = name.to_uppercase();
            [
                format!("conductor.worker.all.{name}"),
                format!("CONDUCTOR_WORKER_ALL_{upper_name}"),
                // Two old forms.
                format!("CONDUCTOR_WORKER_{upper_name}"),
                format!("conductor_worker_{name}"),
            ]
        })
        .collect()
}
