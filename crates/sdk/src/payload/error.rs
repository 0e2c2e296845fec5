//! The error of a conversion, with the path to the wrong value.

use std::fmt;

/// A value that cannot be encoded as a payload, or a payload that has another type than expected.
///
/// Displayed as `items[2].price: NaN and infinities cannot be sent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// From the inside out: every container adds its step.
    path: Vec<Step>,
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            message: message.into(),
        }
    }

    /// Adds the field of the container to the path.
    pub(super) fn in_field(mut self, name: &str) -> Self {
        self.path.push(Step::Field(name.to_owned()));
        self
    }

    /// Adds the index of the item to the path.
    pub(super) fn in_item(mut self, index: usize) -> Self {
        self.path.push(Step::Index(index));
        self
    }

    /// Returns the path to the wrong value, such as `items[2].price`. Empty if the outermost value is wrong.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path(), self.message)
        }
    }
}

impl std::error::Error for Error {}

impl serde::ser::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}
