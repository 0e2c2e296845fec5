//! Why the settings of a worker cannot be used.

use super::Property;

/// A value of a property is not allowed. The worker must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// An environment variable has a value that is not allowed.
    #[error(
        "the environment variable `{variable}` has the value {text:?}; `{property}` must be {allowed}"
    )]
    Variable {
        /// The name of the variable.
        variable: String,
        /// The property that the variable sets.
        property: Property,
        /// The value of the variable.
        text: String,
        /// The values that are allowed, in words.
        allowed: String,
    },
    /// The value of an environment variable is not Unicode text.
    #[error(
        "the value of the environment variable `{variable}` is not valid Unicode: {text:?}; `{property}` must be {allowed}"
    )]
    NotUnicode {
        /// The name of the variable.
        variable: String,
        /// The property that the variable sets.
        property: Property,
        /// The value of the variable. U+FFFD replaces the parts that are not valid.
        text: String,
        /// The values that are allowed, in words.
        allowed: String,
    },
    /// A value that the program sets in code is not allowed.
    #[error(
        "the code sets `{property}` to {value} for the task `{task_name}`; it must be {allowed}"
    )]
    Code {
        /// The name of the task.
        task_name: String,
        /// The property that is set.
        property: Property,
        /// The value. A duration is in milliseconds.
        value: String,
        /// The values that are allowed, in words.
        allowed: String,
    },
}
