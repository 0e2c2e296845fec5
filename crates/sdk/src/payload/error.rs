//! What is wrong with a value, and where in it.

use std::fmt;

/// A value that is no payload, or a payload that is not the expected type.
///
/// Reads as `items[2].price: NaN and infinities cannot be sent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// From the inside out: containers add themselves while the error travels up.
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

    /// The same error, seen from the container that holds the field.
    pub(super) fn in_field(mut self, name: &str) -> Self {
        self.path.push(Step::Field(name.to_owned()));
        self
    }

    /// The same error, seen from the container that holds the item.
    pub(super) fn in_item(mut self, index: usize) -> Self {
        self.path.push(Step::Index(index));
        self
    }

    /// The way from the outermost value to the bad one, such as `items[2].price`; empty when the value itself is bad.
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

    /// What is wrong there.
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
